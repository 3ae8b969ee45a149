package segment

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
)

// MemFS is a disk in memory with faults, for tests and the simulator. Names
// are durable at once; bytes are durable when Datasync returned nil.
type MemFS struct {
	mu    sync.Mutex
	files map[string]*memFile
	dirs  map[string]bool
	locks map[string]bool
	fault func(op, name string) error
	short func(n int) int
}

var _ FS = (*MemFS)(nil)
var _ MetaFS = (*MemFS)(nil)

// NewMemFS returns an empty disk.
func NewMemFS() *MemFS {
	return &MemFS{files: map[string]*memFile{}, dirs: map[string]bool{}, locks: map[string]bool{}}
}

// SetFault installs a function that may fail an operation: open, create,
// remove, rename, syncdir, readdir, readfile, size, writefile, mkdir, pwritev,
// allocate, truncate, datasync, syncall. nil takes it away.
func (m *MemFS) SetFault(f func(op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// SetShort installs a function that says how many of n bytes a Pwritev
// writes, at least 1.
func (m *MemFS) SetShort(f func(n int) int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.short = f
}

// Crash returns the disk as it is after a loss of power: of each file the
// synced bytes, and as many of the bytes after them as keep says (0..n).
// Open files of the old disk go on as if nothing had happened.
func (m *MemFS) Crash(keep func(name string, n int64) int64) *MemFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemFS()
	for d := range m.dirs {
		c.dirs[d] = true
	}
	for name, f := range m.files {
		size := f.synced + keep(name, f.size-f.synced)
		g := &memFile{fs: c, name: name, data: append([]byte(nil), f.data[:size]...), size: size, synced: size}
		c.files[name] = g
	}
	return c
}

type memFile struct {
	fs           *MemFS
	name         string
	data         []byte // len(data) is the address space; a map aliases it
	size, synced int64
}

// check runs the fault function; m.mu is held.
func (m *MemFS) check(op, name string) error {
	if m.fault == nil {
		return nil
	}
	return m.fault(op, name)
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// Open implements FS.
func (m *MemFS) Open(name string, mapBytes int64, create bool) (Mapped, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	op := "open"
	if create {
		op = "create"
	}
	if err := m.check(op, name); err != nil {
		return Mapped{}, err
	}
	f := m.files[name]
	switch {
	case create && f != nil:
		return Mapped{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	case !create && f == nil:
		return Mapped{}, notExist(op, name)
	case create && !m.dirs[filepath.Dir(name)]:
		return Mapped{}, notExist(op, name)
	case create:
		f = &memFile{fs: m, name: name}
		m.files[name] = f
	}
	if n := max(mapBytes, f.size); n > int64(len(f.data)) {
		data := make([]byte, n)
		copy(data, f.data[:f.size])
		f.data = data
	}
	return Mapped{File: f, Bytes: f.data, Size: f.size}, nil
}

// Remove implements FS.
func (m *MemFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("remove", name); err != nil {
		return err
	}
	delete(m.files, name)
	delete(m.dirs, name)
	return nil
}

// Rename implements FS.
func (m *MemFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("rename", from); err != nil {
		return err
	}
	if f := m.files[from]; f != nil {
		delete(m.files, from)
		m.files[to] = f
		f.name = to
		return nil
	}
	if !m.dirs[from] {
		return notExist("rename", from)
	}
	delete(m.dirs, from)
	m.dirs[to] = true
	for name, f := range m.files {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			delete(m.files, name)
			f.name = to + "/" + rest
			m.files[f.name] = f
		}
	}
	return nil
}

// SyncDir implements FS.
func (m *MemFS) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.check("syncdir", name)
}

// Meta implements FS.
func (m *MemFS) Meta() MetaFS { return m }

// ReadDir implements MetaFS.
func (m *MemFS) ReadDir(name string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("readdir", name); err != nil {
		return nil, err
	}
	if !m.dirs[name] {
		return nil, notExist("readdir", name)
	}
	var names []string
	for f := range m.files {
		if filepath.Dir(f) == name {
			names = append(names, filepath.Base(f))
		}
	}
	for d := range m.dirs {
		if filepath.Dir(d) == name {
			names = append(names, filepath.Base(d))
		}
	}
	return names, nil
}

// ReadFile implements MetaFS.
func (m *MemFS) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("readfile", name); err != nil {
		return nil, err
	}
	f := m.files[name]
	if f == nil {
		return nil, notExist("readfile", name)
	}
	return append([]byte(nil), f.data[:f.size]...), nil
}

// Truncate implements MetaFS.
func (m *MemFS) Truncate(name string, size int64) error {
	m.mu.Lock()
	f := m.files[name]
	m.mu.Unlock()
	if f == nil {
		return notExist("truncate", name)
	}
	return f.Truncate(size)
}

// Size implements MetaFS.
func (m *MemFS) Size(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("size", name); err != nil {
		return 0, err
	}
	f := m.files[name]
	if f == nil {
		return 0, notExist("size", name)
	}
	return f.size, nil
}

// WriteFile implements MetaFS.
func (m *MemFS) WriteFile(name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("writefile", name); err != nil {
		return err
	}
	if !m.dirs[filepath.Dir(name)] {
		return notExist("writefile", name)
	}
	n := int64(len(data))
	m.files[name] = &memFile{fs: m, name: name, data: append([]byte(nil), data...), size: n, synced: n}
	return nil
}

// WriteHint implements MetaFS.
func (m *MemFS) WriteHint(name string, data []byte) error {
	if err := m.WriteFile(name, data); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name].synced = 0
	return nil
}

type memSyncer struct {
	fs   *MemFS
	name string
}

// OpenSync implements MetaFS.
func (m *MemFS) OpenSync(name string) (Syncer, error) { return memSyncer{m, name}, nil }

func (s memSyncer) SyncAll() error {
	s.fs.mu.Lock()
	defer s.fs.mu.Unlock()
	if err := s.fs.check("syncall", s.name); err != nil {
		return err
	}
	for _, f := range s.fs.files {
		f.synced = f.size
	}
	return nil
}

func (memSyncer) Close() error { return nil }

// MkdirAll implements MetaFS.
func (m *MemFS) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("mkdir", name); err != nil {
		return err
	}
	for ; name != "/" && name != "."; name = filepath.Dir(name) {
		m.dirs[name] = true
	}
	return nil
}

type memLock struct {
	fs   *MemFS
	name string
}

// Lock implements MetaFS.
func (m *MemFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, ErrInUse
	}
	m.locks[name] = true
	return memLock{m, name}, nil
}

func (l memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

func (f *memFile) Pwritev(bufs [][]byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.check("pwritev", f.name); err != nil {
		return 0, err
	}
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if f.fs.short != nil {
		total = min(total, max(1, f.fs.short(total)))
	}
	if off+int64(total) > int64(len(f.data)) {
		return 0, fmt.Errorf("write %s: %d bytes at %d lie beyond the map", f.name, total, off)
	}
	n := 0
	for _, b := range bufs {
		n += copy(f.data[off+int64(n):off+int64(total)], b)
	}
	f.size = max(f.size, off+int64(n))
	return n, nil
}

func (f *memFile) Allocate(off, n int64) error { return f.op("allocate") }

func (f *memFile) op(name string) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.fs.check(name, f.name)
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.check("truncate", f.name); err != nil {
		return err
	}
	f.size, f.synced = size, min(f.synced, size)
	return nil
}

func (f *memFile) Datasync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.check("datasync", f.name); err != nil {
		return err
	}
	f.synced = f.size
	return nil
}

func (f *memFile) Reread() error { return nil }

func (f *memFile) Close() error { return nil }
