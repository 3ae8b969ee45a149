package segment

import (
	"errors"
	"io"
)

// FS is the disk as this package needs it. The real one is DiskFS, the fake
// is MemFS. Names are whole paths. ErrNoSpace is wrapped where the disk is
// full, ErrTooManyFiles where a limit of the machine is met, fs.ErrNotExist where a name is not there.
type FS interface {
	// Open opens a file, or makes an empty one when create is set (an old
	// file of that name is an error), and maps it read-only. The map is
	// mapBytes long, or as long as the file when that is more.
	Open(name string, mapBytes int64, create bool) (Mapped, error)
	// Remove unlinks a file or an empty directory; absence is no error.
	Remove(name string) error
	// Rename moves a file or directory, replacing a file of that name.
	Rename(from, to string) error
	// SyncDir makes the names inside a directory durable.
	SyncDir(name string) error
	// Meta is the rest: small files and directories.
	Meta() MetaFS
}

// MetaFS handles small files and directories.
type MetaFS interface {
	// ReadDir lists the names in a directory, in any order.
	ReadDir(name string) ([]string, error)
	ReadFile(name string) ([]byte, error)
	// Truncate cuts a file, as File's does, without opening it.
	Truncate(name string, size int64) error
	// Size returns the length of a file, bytes.
	Size(name string) (int64, error)
	// WriteFile replaces a file as a whole: after a crash either the old or
	// the new content is there, and after a return of nil the new one.
	WriteFile(name string, data []byte) error
	// WriteHint replaces a file that can be rebuilt, and does not wait for
	// the disk: until the next SyncAll a crash may leave the old content, the
	// new, or a torn one.
	WriteHint(name string, data []byte) error
	// OpenSync makes the Syncer of a directory. What failed to reach the disk
	// before it was opened it may not tell of.
	OpenSync(name string) (Syncer, error)
	MkdirAll(name string) error
	// Lock takes a lock file for the life of the returned Closer; ErrInUse
	// when another process (or another caller) holds it.
	Lock(name string) (io.Closer, error)
}

// Syncer flushes the file system a directory lies on as a whole (syncfs(2)):
// dear when there is little to flush, and much cheaper than a flush of each
// file when there are thousands.
type Syncer interface {
	// SyncAll makes all bytes and names written by now durable. An error says
	// that something on the file system failed since the last call, not what:
	// each file's own Datasync tells whose it was.
	SyncAll() error
	Close() error
}

// File is an open log file.
type File interface {
	// Pwritev writes bufs at off and may write less than all of them.
	Pwritev(bufs [][]byte, off int64) (int, error)
	// Allocate reserves blocks for [off, off+n) without changing the size.
	// When it fails it gives partial blocks back where the file system can.
	Allocate(off, n int64) error
	// Truncate cuts the file and gives up blocks reserved above size.
	Truncate(size int64) error
	// Datasync makes all written bytes durable.
	Datasync() error
	// Reread forgets what is cached of the file and not to be written any
	// more, before its map is looked at: what is read after it is what the
	// disk holds or will be given by the next Datasync.
	Reread() error
	// Close unmaps and closes.
	Close() error
}

// Mapped is an open file with its read-only map.
type Mapped struct {
	File
	Bytes []byte // the map; bytes beyond the written length must not be touched
	Size  int64  // the size of the file when it was opened, bytes
}

var (
	// ErrNoSpace is a full disk. Nothing is lost; a later try may succeed.
	ErrNoSpace = errors.New("no space left on the log directory's disk")
	// ErrTooManyFiles is a limit of the machine on open files or maps. Nothing
	// is lost; a later try may succeed.
	ErrTooManyFiles = errors.New("too many open files or maps")
	// ErrInUse is a log directory locked by another process.
	ErrInUse = errors.New("in use by another process")
	// ErrDirFailed is returned by everything in a directory after its first
	// failed write or flush.
	ErrDirFailed = errors.New("log directory failed")
	// ErrOffsetOutOfRange is an offset below the start or above the end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrBusy is a plan that must wait: appends are queued or being written,
	// or another step of the same log is under way.
	ErrBusy = errors.New("log is busy")
	// ErrClosed is a log that was closed or deleted.
	ErrClosed = errors.New("log is closed")
)

// temporary tells that a step may be tried again.
func temporary(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, ErrTooManyFiles)
}
