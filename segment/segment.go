package segment

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	"lockstep/internal/invariant"
	"lockstep/internal/wire"
)

// mapping is an open file with its map, closed when the last pin is gone.
// The log holds one pin for as long as the segment is in its list.
type mapping struct {
	Mapped
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
	}
}

// segment is one file of a log. base, limit, m never change. size and end are
// the published length and offset; the rest belongs to the partition's lock.
type segment struct {
	base  int64
	name  string // path of the .log file
	m     *mapping
	limit int64 // the file never grows beyond this
	size  atomic.Int64
	end   atomic.Int64
	index *index
	ring  *ring // nil once sealed
	maxTs atomic.Int64

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

func segmentName(dir string, base int64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", base, suffix))
}

func newSegment(dir string, base int64, m Mapped, limit int64, interval int32) *segment {
	s := &segment{
		base: base, name: segmentName(dir, base, logSuffix), m: &mapping{Mapped: m}, limit: limit,
		index: &index{}, ring: &ring{}, step: firstStep, interval: max(int64(interval), 1), firstTs: noTimestamp,
	}
	s.m.pins.Store(1)
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
	if s.ring != nil {
		s.ring.add(b.NextOffset(), pos+int64(b.Size()))
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
func (s *segment) batch(p border, size int64) (wire.Batch, bool) {
	if p.pos >= size {
		return nil, false
	}
	b, _, ok := wire.NextBatch(s.m.Bytes[p.pos:size])
	if !ok || b.BaseOffset() != p.off || b.NextOffset() <= p.off {
		return nil, false
	}
	return b, true
}

// floorOffset returns the last border at or below off.
func (s *segment) floorOffset(off, size int64) border {
	if s.ring != nil {
		if pos, ok := s.ring.find(off); ok {
			return border{pos, off}
		}
	}
	e := s.index.floorRel(off - s.base)
	p := border{int64(e.pos), s.base + int64(e.rel)}
	for p.off < off {
		b, ok := s.batch(p, size)
		if !ok || b.NextOffset() > off {
			break
		}
		p = border{p.pos + int64(b.Size()), b.NextOffset()}
	}
	return p
}

// floorPos returns the last border at or below position pos.
func (s *segment) floorPos(pos, size int64) border {
	e := s.index.floorPos(pos)
	p := border{int64(e.pos), s.base + int64(e.rel)}
	for p.pos < pos {
		b, ok := s.batch(p, size)
		if !ok || p.pos+int64(b.Size()) > pos {
			break
		}
		p = border{p.pos + int64(b.Size()), b.NextOffset()}
	}
	return p
}
