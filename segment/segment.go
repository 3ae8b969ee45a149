package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"lockstep/internal/invariant"
	"lockstep/internal/wire"
)

// mapping is an open file with its map, closed when the last pin is gone.
// The log holds one pin for as long as the segment is in its list.
type mapping struct {
	Mapped
	dir  *Dir
	pins atomic.Int64
}

// pin returns false when the mapping is already gone.
func (m *mapping) pin() bool {
	for {
		n := m.pins.Load()
		if n <= 0 {
			return false
		}
		if m.pins.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// unpin closes the file when it was the last pin. The error of that close is
// of no consequence: the file is read-only by then and unlinked or synced.
func (m *mapping) unpin() {
	n := m.pins.Add(-1)
	if n < 0 {
		invariant.Check(false, "PinsBalance", n)
	}
	if n == 0 {
		_ = m.Close()
		m.dir.open.Add(-1)
	}
}

func newMapping(d *Dir, f Mapped) *mapping {
	m := &mapping{Mapped: f, dir: d}
	m.pins.Store(1)
	if d.open.Add(1) > d.opts.MaxOpenFiles && d.onCrowded != nil {
		d.onCrowded()
	}
	return m
}

// segment is one file of a log. base, name and limit never change. size and
// end are the published length and offset; the rest belongs to the
// partition's lock.
type segment struct {
	base  int64
	name  string // path of the .log file
	dir   *Dir
	limit int64 // the file never grows beyond this
	size  atomic.Int64
	end   atomic.Int64
	index *index
	ring  atomic.Pointer[ring] // nil before the second batch, and once at rest
	maxTs atomic.Int64

	m       atomic.Pointer[mapping] // nil while at rest
	used    atomic.Bool             // since Rest last looked
	retired atomic.Bool             // out of the list, or on its way: never opened again
	waking  sync.Mutex

	// mark is the log's count of bytes written by this process when position
	// 0 of this file was written; negative for bytes of an earlier process.
	mark int64

	alloc     int64 // [L] blocks are reserved up to here
	step      int64 // [L] size of the next reservation
	indexed   int64 // [L] position of the last index entry
	interval  int64 // [L] bytes between index entries
	firstTs   int64 // [L] greatest timestamp of the first batch, noTimestamp if empty
	shortened bool  // [L] sealed by a truncation: the file holds more than size
}

var errRetired = errors.New("segment is retired")

func (s *segment) use() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}

// pin returns the mapping with a pin, opening the file again if it was at
// rest; errRetired when the segment has left the log.
func (s *segment) pin() (*mapping, error) {
	s.use()
	for {
		m := s.m.Load()
		if m != nil && m.pin() {
			return m, nil
		}
		if s.retired.Load() {
			return nil, errRetired
		}
		if m == nil {
			if err := s.wake(); err != nil {
				return nil, err
			}
		}
	}
}

// with calls f with the mapping pinned.
func (s *segment) with(f func(m *mapping) error) error {
	m, err := s.pin()
	if err != nil {
		return err
	}
	defer m.unpin()
	return f(m)
}

// wake opens the file of a segment at rest.
func (s *segment) wake() error {
	s.waking.Lock()
	defer s.waking.Unlock()
	if s.m.Load() != nil || s.retired.Load() {
		return nil
	}
	f, err := s.dir.fs.Open(s.name, s.limit, false)
	if err != nil {
		return err
	}
	s.m.Store(newMapping(s.dir, f))
	if s.retired.Load() {
		s.retire()
	}
	return nil
}

// retire gives the log's pin up for good.
func (s *segment) retire() {
	s.retired.Store(true)
	if m := s.m.Swap(nil); m != nil {
		m.unpin()
	}
}

func segmentName(dir string, base int64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", base, suffix))
}

func newSegment(l *Log, base int64, f Mapped, limit int64, interval int32) *segment {
	s := &segment{
		base: base, name: segmentName(l.path, base, logSuffix), dir: l.dir, limit: limit,
		index: &index{}, step: firstStep, interval: max(int64(interval), 1), firstTs: noTimestamp,
	}
	s.m.Store(newMapping(l.dir, f))
	s.end.Store(base)
	s.maxTs.Store(noTimestamp)
	return s
}

func (s *segment) content() content {
	return content{base: s.base, size: s.size.Load(), end: s.end.Load(), maxTs: s.maxTs.Load(), firstTs: s.firstTs}
}

// note enters the batch at pos into index, ring and timestamps. It comes
// before publish, so what the index names is not yet readable. [L]
func (s *segment) note(b wire.Batch, pos int64) {
	if pos > 0 && pos-s.indexed >= s.interval {
		s.index.add(entry{rel: uint32(b.BaseOffset() - s.base), pos: uint32(pos), maxTs: s.maxTs.Load()})
		s.indexed = pos
	}
	ts := b.MaxTimestamp()
	if pos == 0 {
		s.firstTs = ts
	}
	if ts > s.maxTs.Load() {
		s.maxTs.Store(ts)
	}
	if pos > 0 {
		r := s.ring.Load()
		if r == nil {
			r = &ring{}
			s.ring.Store(r)
		}
		r.add(b.NextOffset(), pos+int64(b.Size()))
	}
}

// publish makes everything up to size and end readable: length first. [L]
func (s *segment) publish(size, end int64) {
	if size < s.size.Load() || end < s.end.Load() || size > s.limit {
		invariant.Check(false, "PublishedBytesNeverChange", size, s.size.Load(), end, s.end.Load(), s.limit)
	}
	s.size.Store(size)
	s.end.Store(end)
}

// border is a place where a batch begins, or where the content ends.
type border struct {
	pos, off int64
}

// batch returns the batch that begins at p below size; false at the end, and
// where the disk no longer holds what was written.
func (s *segment) batch(m *mapping, p border, size int64) (wire.Batch, bool) {
	if p.pos >= size {
		return nil, false
	}
	b, _, ok := wire.NextBatch(m.Bytes[p.pos:size])
	if !ok || b.BaseOffset() != p.off || b.NextOffset() <= p.off {
		return nil, false
	}
	return b, true
}

// floorOffset returns the last border at or below off.
func (s *segment) floorOffset(m *mapping, off, size int64) border {
	if r := s.ring.Load(); r != nil {
		if pos, ok := r.find(off); ok {
			return border{pos, off}
		}
	}
	e := s.index.floorRel(off - s.base)
	p := border{int64(e.pos), s.base + int64(e.rel)}
	for p.off < off {
		b, ok := s.batch(m, p, size)
		if !ok || b.NextOffset() > off {
			break
		}
		p = border{p.pos + int64(b.Size()), b.NextOffset()}
	}
	return p
}

// floorPos returns the last border at or below position pos.
func (s *segment) floorPos(m *mapping, pos, size int64) border {
	e := s.index.floorPos(pos)
	p := border{int64(e.pos), s.base + int64(e.rel)}
	for p.pos < pos {
		b, ok := s.batch(m, p, size)
		if !ok || p.pos+int64(b.Size()) > pos {
			break
		}
		p = border{p.pos + int64(b.Size()), b.NextOffset()}
	}
	return p
}
