package segment

import (
	"maps"
	"slices"
	"strings"
)

// SectorBytes is what a disk writes whole or not at all.
const SectorBytes = 512

// Loss says what a loss of power takes of what no sync has covered. A nil field
// takes nothing. The functions are called in the order of the names.
type Loss struct {
	// Tail returns how many of the n bytes that a file grew by since its last
	// sync are still part of it.
	Tail func(name string, n int64) int64
	// Sector tells whether a sector that was written since then reads as it was before, or as zeros.
	Sector func(name string, at int64) bool
	// Names returns how many of the n newest changes of the names in a
	// directory, the oldest first, survive.
	Names func(dir string, n int) int
}

// span is a part of a file, in bytes.
type span struct{ from, to int64 }

// nameOp is a change of a name that no SyncDir has covered yet.
type nameOp struct {
	kind     string // create, remove, rename, mkdir
	dir      string
	name, to string
	f, old   *memFile // what had the name before; the file to replaced
}

// journal notes a change of a name in a directory. m.mu is held.
func (m *MemFS) journal(op nameOp) { m.names = append(m.names, op) }

// syncNames makes the names of a directory durable. m.mu is held.
func (m *MemFS) syncNames(dir string) {
	m.names = slices.DeleteFunc(m.names, func(op nameOp) bool { return op.dir == dir })
}

// wrote notes bytes that only the page cache has.
func (f *memFile) wrote(off, n int64) {
	if last := len(f.dirty) - 1; last >= 0 && f.dirty[last].to == off {
		f.dirty[last].to += n
	} else {
		f.dirty = append(f.dirty, span{off, off + n})
	}
	var kept []span // what is written again will be flushed after all
	for _, s := range f.lost {
		if s.from < off {
			kept = append(kept, span{s.from, min(s.to, off)})
		}
		if s.to > off+n {
			kept = append(kept, span{max(s.from, off+n), s.to})
		}
	}
	f.lost = kept
}

// flushFailed is a failed fdatasync as ext4 has it: the pages are marked clean
// and never written, and the next one reports success.
func (f *memFile) flushFailed() {
	f.lost = append(f.lost, f.dirty...)
	f.dirty = nil
}

// revert makes a part of the content what the disk has: what was flushed before,
// or zeros.
func (f *memFile) revert(s span) {
	s.to = min(s.to, f.size)
	if s.from >= s.to {
		return
	}
	n := 0
	if s.from < int64(len(f.disk)) {
		n = copy(f.data[s.from:s.to], f.disk[s.from:])
	}
	clear(f.data[s.from+int64(n) : s.to])
}

// flushed brings the disk up to what was written.
func (f *memFile) flushed() {
	f.disk = append(f.disk, make([]byte, max(0, f.size-int64(len(f.disk))))...)
	for _, s := range f.dirty {
		copy(f.disk[s.from:s.to], f.data[s.from:s.to])
	}
	f.synced, f.dirty = f.size, nil
}

// Crash returns the disk as it is after a loss of power: of each file the
// synced bytes, and as many of the bytes after them as keep says (0..n).
// Open files of the old disk go on as if nothing had happened.
func (m *MemFS) Crash(keep func(name string, n int64) int64) *MemFS {
	return m.PowerCut(Loss{Tail: keep})
}

// PowerCut returns the disk as it is after a loss of power.
func (m *MemFS) PowerCut(loss Loss) *MemFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clone()
	c.undoNames(loss.Names)
	c.names = nil
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		f := c.files[name]
		if n := f.size - f.synced; loss.Tail != nil {
			f.size = f.synced + loss.Tail(name, n)
		}
		for _, s := range f.lost {
			f.revert(s)
		}
		for _, s := range f.dirty {
			for at := s.from; at < min(s.to, f.size) && loss.Sector != nil; at = (at/SectorBytes + 1) * SectorBytes {
				if loss.Sector(name, at) {
					f.revert(span{at, min(s.to, (at/SectorBytes+1)*SectorBytes)})
				}
			}
		}
		f.data, f.disk, f.dirty, f.lost = f.data[:f.size], nil, []span{{0, f.size}}, nil
		f.flushed()
	}
	return c
}

// Died returns the disk as the next process finds it when this one was killed:
// nothing is gone, and nothing more is durable. Pages that a failed flush gave
// up are read from the disk again when evict says so.
func (m *MemFS) Died(evict func(name string) bool) *MemFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clone()
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		f := c.files[name]
		if len(f.lost) > 0 && evict != nil && evict(name) {
			for _, s := range f.lost {
				f.revert(s)
			}
			f.lost = nil
		}
	}
	return c
}

// clone copies everything but locks and faults. m.mu is held.
func (m *MemFS) clone() *MemFS {
	c := NewMemFS()
	maps.Copy(c.dirs, m.dirs)
	seen := map[*memFile]*memFile{nil: nil}
	again := func(f *memFile) *memFile {
		g, ok := seen[f]
		if !ok {
			g = &memFile{fs: c, name: f.name, data: append([]byte(nil), f.data[:f.size]...), size: f.size, synced: f.synced, disk: slices.Clone(f.disk),
				dirty: slices.Clone(f.dirty), lost: slices.Clone(f.lost)}
			seen[f] = g
		}
		return g
	}
	for name, f := range m.files {
		c.files[name] = again(f)
	}
	for _, op := range m.names {
		op.f, op.old = again(op.f), again(op.old)
		c.names = append(c.names, op)
	}
	return c
}

// undoNames takes back what keep does not let survive, the newest first.
func (m *MemFS) undoNames(keep func(dir string, n int) int) {
	if keep == nil {
		return
	}
	count, left := map[string]int{}, map[string]int{}
	for _, op := range m.names {
		count[op.dir]++
	}
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		left[dir] = count[dir] - keep(dir, count[dir])
	}
	for i := len(m.names) - 1; i >= 0; i-- {
		if op := m.names[i]; left[op.dir] > 0 {
			left[op.dir]--
			m.undo(op)
		}
	}
}

func (m *MemFS) undo(op nameOp) {
	switch op.kind {
	case "create":
		delete(m.files, op.name)
	case "mkdir":
		delete(m.dirs, op.name)
		for name := range m.files {
			if strings.HasPrefix(name, op.name+"/") {
				delete(m.files, name)
			}
		}
	case "remove":
		if op.f == nil {
			m.dirs[op.name] = true
		} else if m.files[op.name] == nil {
			m.files[op.name] = op.f
		}
	case "rename":
		if op.f == nil {
			m.moveDir(op.to, op.name)
			return
		}
		delete(m.files, op.to)
		if op.old != nil {
			m.files[op.to] = op.old
		}
		m.files[op.name] = op.f
	}
}

// spansBelow cuts spans at a size.
func spansBelow(spans []span, size int64) (kept []span) {
	for _, s := range spans {
		if s.from < size {
			kept = append(kept, span{s.from, min(s.to, size)})
		}
	}
	return kept
}
