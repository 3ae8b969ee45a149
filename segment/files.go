package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DiskFS is the real disk. This is the only file of the package that makes
// system calls.
type DiskFS struct{}

var _ FS = DiskFS{}
var _ MetaFS = DiskFS{}

type diskFile struct {
	fd   int
	name string
	data []byte
}

// wrap gives an error the name of the file, and ErrNoSpace and
// ErrTooManyFiles their place.
func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w (%w)", ErrNoSpace, err)
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("%w (%w)", ErrTooManyFiles, err)
	}
	return fmt.Errorf("%s %s: %w", op, name, err)
}

// retry repeats a call that a signal interrupted; the Go runtime sends them.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func (DiskFS) Open(name string, mapBytes int64, create bool) (Mapped, error) {
	flags := unix.O_RDWR | unix.O_CLOEXEC
	if create {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	fd := -1
	err := retry(func() (err error) { fd, err = unix.Open(name, flags, 0o644); return err })
	if err != nil {
		return Mapped{}, wrap("open", name, err)
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		unix.Close(fd)
		return Mapped{}, wrap("stat", name, err)
	}
	length := max(mapBytes, st.Size, 1)
	data, err := unix.Mmap(fd, 0, int(length), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return Mapped{}, wrap("mmap", name, err)
	}
	return Mapped{File: &diskFile{fd: fd, name: name, data: data}, Bytes: data, Size: st.Size}, nil
}

func (DiskFS) Remove(name string) error {
	err := os.Remove(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (DiskFS) Rename(from, to string) error {
	return os.Rename(from, to)
}

func (DiskFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return wrap("open", name, err)
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (d DiskFS) Meta() MetaFS { return d }

func (DiskFS) ReadDir(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

func (DiskFS) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// Truncate implements MetaFS.
func (DiskFS) Truncate(name string, size int64) error {
	return wrap("truncate", name, retry(func() error { return unix.Truncate(name, size) }))
}

// Size implements MetaFS.
func (DiskFS) Size(name string) (int64, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Stat(name, &st) })
	return st.Size, wrap("stat", name, err)
}

func (d DiskFS) WriteFile(name string, data []byte) error {
	if err := replace(name, data, (*os.File).Sync); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(name))
}

// WriteHint implements MetaFS.
func (DiskFS) WriteHint(name string, data []byte) error {
	return replace(name, data, func(*os.File) error { return nil })
}

// replace writes a file beside name and, when sync is done with it, moves it there.
func replace(name string, data []byte, sync func(*os.File) error) error {
	tmp := name + tmpSuffix
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return wrap("create", tmp, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(tmp)
		return wrap("write", tmp, err)
	}
	return wrap("rename", tmp, os.Rename(tmp, name))
}

// syncer holds a descriptor for the life of a directory: the kernel tells each
// descriptor once of every write-back that failed since it was opened.
type syncer struct {
	fd   int
	name string
}

// OpenSync implements MetaFS.
func (DiskFS) OpenSync(name string) (Syncer, error) {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return &syncer{fd, name}, wrap("open", name, err)
}

func (s *syncer) SyncAll() error {
	return wrap("syncfs", s.name, retry(func() error { return unix.Syncfs(s.fd) }))
}

func (s *syncer) Close() error { return wrap("close", s.name, unix.Close(s.fd)) }

func (DiskFS) MkdirAll(name string) error { return wrap("mkdir", name, os.MkdirAll(name, 0o755)) }

func (DiskFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		err = ErrInUse
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Pwritev makes the system call itself: unix.Pwritev takes memory from the heap
// for more than eight pieces, and this runs for every turn's batches. Few
// pieces need little of the stack.
func (f *diskFile) Pwritev(bufs [][]byte, off int64) (int, error) {
	if len(bufs) <= fewPieces {
		var pieces [fewPieces]unix.Iovec
		return f.pwritev(pieces[:], bufs, off)
	}
	var pieces [iovMax]unix.Iovec
	return f.pwritev(pieces[:], bufs, off)
}

// pwritev writes as many buffers as there are pieces.
func (f *diskFile) pwritev(pieces []unix.Iovec, bufs [][]byte, off int64) (int, error) {
	pieces = pieces[:min(len(bufs), len(pieces))]
	if len(pieces) == 0 {
		return 0, nil
	}
	for i := range pieces {
		pieces[i].Base = unsafe.SliceData(bufs[i])
		pieces[i].SetLen(len(bufs[i]))
	}
	for {
		n, _, err := unix.Syscall6(unix.SYS_PWRITEV, uintptr(f.fd), uintptr(unsafe.Pointer(&pieces[0])), uintptr(len(pieces)), uintptr(off), 0, 0)
		switch err {
		case 0:
			return int(n), nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return 0, wrap("write", f.name, err)
		}
	}
}

func (f *diskFile) Allocate(off, n int64) error {
	err := retry(func() error { return unix.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, off, n) })
	switch err {
	case nil:
		return nil
	case unix.EOPNOTSUPP, unix.ENOSYS:
		// A file system without reservations: a full disk then shows at the
		// write, which ends the directory. Nothing better is to be had.
		return nil
	}
	// A failed fallocate keeps the blocks it got. A writer may be extending
	// the file at this moment, so it must not be truncated here: a hole is
	// punched instead, and what the file system keeps is freed at the roll.
	_ = unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	return wrap("allocate", f.name, err)
}

func (f *diskFile) Truncate(size int64) error {
	return wrap("truncate", f.name, retry(func() error { return unix.Ftruncate(f.fd, size) }))
}

func (f *diskFile) Datasync() error {
	return wrap("fdatasync", f.name, retry(func() error { return unix.Fdatasync(f.fd) }))
}

func (f *diskFile) Close() error {
	err := unix.Munmap(f.data)
	return wrap("close", f.name, errors.Join(err, unix.Close(f.fd)))
}
