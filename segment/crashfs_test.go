package segment

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// crashFS is a disk in memory that keeps a log of every write, flush and
// change of a name, and can say what a loss of power after any prefix of that
// log may have left. It stands for ext4 and XFS: changes of names and sizes
// become durable in the order they were made, data in any order and in
// blocks, and an fdatasync that failed has thrown the dirty data away.
type crashFS struct {
	mu    sync.Mutex
	names map[string]*node
	first map[string]*node // names at the start; what is in node.first is durable
	locks map[string]bool
	ops   []diskOp

	// hook, if set, is asked before every operation: how many of n bytes are
	// written, or what it fails with.
	hook func(op, name string, n int) (int, error)

	syncFailed     bool
	syncsAfterFail int // flushes of log files tried after one had failed: FailedDirIsDead
}

type node struct {
	fs    *crashFS
	dir   bool
	first []byte
	data  []byte // address space; maps alias it
	size  int64
}

type opKind uint8

const (
	opWrite opKind = iota
	opTruncate
	opSync
	opCreate
	opRemove
	opRename
	opSyncDir
)

type diskOp struct {
	kind     opKind
	n        *node
	name, to string
	off      int64 // or the size after a truncation
	data     []byte
	failed   bool // a flush that threw its data away
}

var _ FS = (*crashFS)(nil)
var _ MetaFS = (*crashFS)(nil)

func newCrashFS() *crashFS {
	f := &crashFS{names: map[string]*node{}, first: map[string]*node{}, locks: map[string]bool{}}
	root := &node{fs: f, dir: true}
	f.names["/"], f.first["/"] = root, root
	return f
}

func (f *crashFS) ask(op, name string, n int) (int, error) {
	if f.hook == nil {
		return n, nil
	}
	return f.hook(op, name, n)
}

func (f *crashFS) record(op diskOp) { f.ops = append(f.ops, op) }

func (f *crashFS) length() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ops)
}

func (f *crashFS) Open(name string, mapBytes int64, create bool) (Mapped, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := "open"
	if create {
		op = "create"
	}
	if _, err := f.ask(op, name, 0); err != nil {
		return Mapped{}, err
	}
	n := f.names[name]
	switch {
	case create && n != nil:
		return Mapped{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	case !create && n == nil, create && f.names[filepath.Dir(name)] == nil:
		return Mapped{}, notExist(op, name)
	case create:
		n = f.create(name)
	}
	if want := max(mapBytes, n.size); want > int64(len(n.data)) {
		data := make([]byte, want)
		copy(data, n.data[:n.size])
		n.data = data
	}
	return Mapped{File: openNode{n, name}, Bytes: n.data, Size: n.size}, nil
}

func (f *crashFS) create(name string) *node {
	n := &node{fs: f}
	f.names[name] = n
	f.record(diskOp{kind: opCreate, n: n, name: name})
	return n
}

func (f *crashFS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("remove", name, 0); err != nil {
		return err
	}
	if f.names[name] != nil {
		delete(f.names, name)
		f.record(diskOp{kind: opRemove, name: name})
	}
	return nil
}

func (f *crashFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rename(from, to)
}

func (f *crashFS) rename(from, to string) error {
	if _, err := f.ask("rename", from, 0); err != nil {
		return err
	}
	if f.names[from] == nil {
		return notExist("rename", from)
	}
	renameIn(f.names, from, to)
	f.record(diskOp{kind: opRename, name: from, to: to})
	return nil
}

func renameIn(names map[string]*node, from, to string) {
	n := names[from]
	delete(names, from)
	names[to] = n
	if !n.dir {
		return
	}
	for _, name := range slices.Collect(maps.Keys(names)) {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			names[to+"/"+rest] = names[name]
			delete(names, name)
		}
	}
}

func (f *crashFS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.syncDir(name)
}

func (f *crashFS) syncDir(name string) error {
	if _, err := f.ask("syncdir", name, 0); err != nil {
		return err
	}
	if f.names[name] == nil {
		return notExist("syncdir", name)
	}
	f.record(diskOp{kind: opSyncDir, name: name})
	return nil
}

func (f *crashFS) Meta() MetaFS { return f }

func (f *crashFS) ReadDir(name string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("readdir", name, 0); err != nil {
		return nil, err
	}
	if f.names[name] == nil {
		return nil, notExist("readdir", name)
	}
	var names []string
	for x := range f.names {
		if filepath.Dir(x) == name && x != name {
			names = append(names, filepath.Base(x))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f *crashFS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("readfile", name, 0); err != nil {
		return nil, err
	}
	n := f.names[name]
	if n == nil || n.dir {
		return nil, notExist("readfile", name)
	}
	return append([]byte(nil), n.data[:n.size]...), nil
}

// WriteFile takes the steps of DiskFS.WriteFile, each of which may be the
// last one before the power goes, or fail.
func (f *crashFS) WriteFile(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	tmp := name + tmpSuffix
	if _, err := f.ask("writefile", tmp, 0); err != nil {
		return err
	}
	if f.names[filepath.Dir(name)] == nil {
		return notExist("writefile", name)
	}
	n := f.names[tmp]
	if n == nil {
		n = f.create(tmp)
	} else {
		n.size = 0
		f.record(diskOp{kind: opTruncate, n: n})
	}
	got, err := f.ask("write", tmp, len(data))
	if err == nil {
		n.write(data[:got], 0)
		if got < len(data) {
			err = io.ErrShortWrite
		}
	}
	if err == nil {
		err = n.sync(tmp)
	}
	if err != nil {
		delete(f.names, tmp)
		f.record(diskOp{kind: opRemove, name: tmp})
		return err
	}
	if err := f.rename(tmp, name); err != nil {
		return err
	}
	return f.syncDir(filepath.Dir(name))
}

// WriteHint is WriteFile without a flush.
func (f *crashFS) WriteHint(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	tmp := name + tmpSuffix
	if _, err := f.ask("writefile", tmp, 0); err != nil {
		return err
	}
	if f.names[filepath.Dir(name)] == nil {
		return notExist("writefile", name)
	}
	if f.names[tmp] != nil {
		delete(f.names, tmp)
		f.record(diskOp{kind: opRemove, name: tmp})
	}
	f.create(tmp).write(data, 0)
	return f.rename(tmp, name)
}

// Truncate implements MetaFS.
func (f *crashFS) Truncate(name string, size int64) error {
	f.mu.Lock()
	n := f.names[name]
	f.mu.Unlock()
	if n == nil {
		return notExist("truncate", name)
	}
	return openNode{n, name}.Truncate(size)
}

// Size implements MetaFS.
func (f *crashFS) Size(name string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("size", name, 0); err != nil {
		return 0, err
	}
	if n := f.names[name]; n != nil {
		return n.size, nil
	}
	return 0, notExist("size", name)
}

type crashSyncer struct{ fs *crashFS }

// OpenSync implements MetaFS.
func (f *crashFS) OpenSync(string) (Syncer, error) { return crashSyncer{f}, nil }

// SyncAll flushes every file and name. When it fails, no data is thrown away
// here: what did not reach the disk is for each file's own flush to tell.
func (s crashSyncer) SyncAll() error {
	f := s.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("syncall", "/", 0); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.names)) {
		n := f.names[name]
		if !n.dir {
			f.record(diskOp{kind: opSync, n: n})
		} else {
			f.record(diskOp{kind: opSyncDir, name: name})
		}
	}
	return nil
}

func (crashSyncer) Close() error { return nil }

func (f *crashFS) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("mkdir", name, 0); err != nil {
		return err
	}
	var missing []string
	for ; f.names[name] == nil; name = filepath.Dir(name) {
		missing = append(missing, name)
	}
	for _, d := range slices.Backward(missing) {
		n := &node{fs: f, dir: true}
		f.names[d] = n
		f.record(diskOp{kind: opCreate, n: n, name: d})
	}
	return nil
}

type crashLock struct {
	fs   *crashFS
	name string
}

func (f *crashFS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks[name] {
		return nil, ErrInUse
	}
	f.locks[name] = true
	return crashLock{f, name}, nil
}

func (l crashLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

func (n *node) write(b []byte, off int64) {
	if want := off + int64(len(b)); want > int64(len(n.data)) {
		data := make([]byte, want)
		copy(data, n.data[:n.size])
		n.data = data
	}
	if off > n.size {
		clear(n.data[n.size:off])
	}
	copy(n.data[off:], b)
	n.size = max(n.size, off+int64(len(b)))
	n.fs.record(diskOp{kind: opWrite, n: n, off: off, data: append([]byte(nil), b...)})
}

// sync flushes; a flush that fails has cleaned the pages all the same.
func (n *node) sync(name string) error {
	f := n.fs
	if f.syncFailed && strings.HasSuffix(name, logSuffix) {
		f.syncsAfterFail++
	}
	_, err := f.ask("datasync", name, 0)
	if err != nil && strings.HasSuffix(name, logSuffix) {
		f.syncFailed = true
	}
	f.record(diskOp{kind: opSync, n: n, failed: err != nil})
	return err
}

// openNode is an open file.
type openNode struct {
	n    *node
	name string
}

func (o openNode) Pwritev(bufs [][]byte, off int64) (int, error) {
	f := o.n.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(bufs...)
	got, err := f.ask("pwritev", o.name, len(all))
	if err != nil {
		return 0, err
	}
	if off+int64(got) > int64(len(o.n.data)) {
		return 0, fmt.Errorf("write %s: %d bytes at %d lie beyond the map", o.name, got, off)
	}
	o.n.write(all[:got], off)
	return got, nil
}

func (o openNode) op(name string) error {
	f := o.n.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.ask(name, o.name, 0)
	return err
}

func (o openNode) Allocate(off, n int64) error { return o.op("allocate") }
func (o openNode) Close() error                { return nil }

func (o openNode) Truncate(size int64) error {
	f := o.n.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.ask("truncate", o.name, 0); err != nil {
		return err
	}
	if size != o.n.size {
		o.n.size = size
		f.record(diskOp{kind: opTruncate, n: o.n, off: size})
	}
	return nil
}

func (o openNode) Datasync() error {
	f := o.n.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	return o.n.sync(o.name)
}

// loss says what happens to what was not flushed.
type loss int

const (
	loseAll   loss = iota // nothing unflushed survives
	keepAll               // everything does: the process was killed, the machine was not
	tear512               // of every 512 bytes by chance
	tear4096              // of every 4096
	keepFirst             // the oldest part in order
	losses
)

func (l loss) String() string {
	return [...]string{"all unflushed lost", "all kept", "torn by 512 bytes", "torn by 4096 bytes", "cut in order"}[l]
}

// settled says which of the first k operations are durable for sure (names
// and sizes up to the returned number), and which writes a failed flush has
// thrown away.
func (f *crashFS) settled(k int) (meta int, durable, thrown []bool) {
	durable, thrown = make([]bool, k), make([]bool, k)
	dirty := map[*node][]int{}
	for i, op := range f.ops[:k] {
		switch op.kind {
		case opWrite:
			dirty[op.n] = append(dirty[op.n], i)
		case opSync:
			for _, w := range dirty[op.n] {
				durable[w], thrown[w] = !op.failed, op.failed
			}
			delete(dirty, op.n)
			if !op.failed {
				meta = max(meta, f.lastMeta(i, func(m diskOp) bool { return m.kind == opTruncate && m.n == op.n }))
			}
		case opSyncDir:
			meta = max(meta, f.lastMeta(i, func(m diskOp) bool {
				return m.name != "" && filepath.Dir(m.name) == op.name || m.to != "" && filepath.Dir(m.to) == op.name
			}))
		}
	}
	return meta, durable, thrown
}

// lastMeta returns one more than the index of the last change before i that
// touches.
func (f *crashFS) lastMeta(i int, touches func(diskOp) bool) int {
	for j := i - 1; j >= 0; j-- {
		if k := f.ops[j].kind; k != opWrite && k != opSync && k != opSyncDir && touches(f.ops[j]) {
			return j + 1
		}
	}
	return 0
}

// image is the disk as of the first k operations after a loss of power.
func (f *crashFS) image(k int, how loss, r *rand.Rand) *crashFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	meta, durable, thrown := f.settled(k)
	cutAt := k
	switch how {
	case keepAll:
		meta = k
	case keepFirst:
		cutAt = meta + r.IntN(k-meta+1)
		meta = cutAt
	case tear512, tear4096:
		meta += r.IntN(k - meta + 1)
	}
	block := int64(512)
	if how == tear4096 {
		block = 4096
	}
	names := maps.Clone(f.first)
	files := map[*node]*node{}
	file := func(n *node) *node {
		if files[n] == nil {
			files[n] = &node{dir: n.dir, data: slices.Clone(n.first), size: int64(len(n.first))}
		}
		return files[n]
	}
	for i, op := range f.ops[:k] {
		switch {
		case op.kind == opWrite:
			x := file(op.n)
			for off, b := op.off, op.data; len(b) > 0; {
				piece := min(int64(len(b)), block-off%block)
				keep := durable[i]
				switch {
				case keep:
				case how == keepAll:
					keep = true // the page cache still has what the disk has not
				case thrown[i]:
					keep = false
				case how == keepFirst:
					keep = i < cutAt
				case how == tear512 || how == tear4096:
					keep = r.IntN(2) == 0
				}
				if keep {
					x.set(b[:piece], off)
				}
				off, b = off+piece, b[piece:]
			}
		case i >= meta:
		case op.kind == opTruncate:
			file(op.n).resize(op.off)
		case op.kind == opCreate:
			names[op.name] = op.n
		case op.kind == opRemove:
			delete(names, op.name)
		case op.kind == opRename && names[op.name] != nil:
			renameIn(names, op.name, op.to)
		}
	}
	c := newCrashFS()
	for name, n := range names {
		x := file(n)
		y := &node{fs: c, dir: x.dir, first: x.data[:x.size], data: slices.Clone(x.data[:x.size]), size: x.size}
		c.names[name], c.first[name] = y, y
	}
	return c
}

func (n *node) set(b []byte, off int64) {
	n.resize(max(n.size, off+int64(len(b))))
	copy(n.data[off:], b)
}

func (n *node) resize(size int64) {
	if size < n.size {
		clear(n.data[size:n.size])
	}
	if size > int64(len(n.data)) {
		n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
	}
	n.size = size
}

// clone is the disk as it is, everything durable.
func (f *crashFS) clone() *crashFS {
	return f.image(f.length(), keepAll, nil)
}

// fault makes errors as DiskFS would return them.
func fault(op string, err syscall.Errno) error {
	if err == syscall.ENOSPC && op != "rename" && op != "remove" && op != "syncdir" {
		return fmt.Errorf("%s: %w (%w)", op, ErrNoSpace, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}
