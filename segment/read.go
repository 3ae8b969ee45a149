package segment

import (
	"fmt"
	"sort"

	"lockstep/internal/wire"
)

// Slice is a run of whole batches in the map of a segment.
type Slice struct {
	Bytes []byte // read-only; valid until Release
	First int64  // base offset of the first batch, at or below the asked offset
	Next  int64  // offset after the last batch: where to read on
	Cold  bool   // not written recently by this process: a touch may go to the disk

	m *mapping
}

// Release lets the bytes go. It must be called once for each Slice that
// Read returned without an error.
func (s *Slice) Release() {
	if s.m != nil {
		s.m.unpin()
		s.m, s.Bytes = nil, nil
	}
}

// Read returns whole batches: from the one that contains offset from to the
// last one that ends at or below limit (the mark of the reader), at most
// maxBytes of them, out of one segment. With atLeastOne the first batch comes
// even when it is larger than maxBytes. Nothing to read is an empty Slice.
// The error is ErrOffsetOutOfRange below Start or above End, ErrDirFailed or
// ErrClosed, a *CorruptError when the bytes are not batches any more, or why
// a file could not be opened again. No lock, no allocation, and no system call
// unless the segment was at rest.
func (l *Log) Read(from int64, maxBytes int, limit int64, atLeastOne bool) (Slice, error) {
	for {
		if err := l.err(); err != nil {
			return Slice{}, err
		}
		end := l.End()
		if from < l.Start() || from > end {
			return Slice{}, ErrOffsetOutOfRange
		}
		limit := min(limit, end)
		list := l.segs.Load()
		s := find(list, from)
		if from >= limit || s == nil || s.base >= limit {
			return Slice{First: from, Next: from}, nil
		}
		m, err := s.pin()
		if err == errRetired {
			if l.segs.Load() == list {
				// On its way out, and not open any more: as if it were gone.
				return Slice{First: from, Next: from}, nil
			}
			continue // retired since the list was read: there is a new list
		}
		if err != nil {
			return Slice{}, err
		}
		out, pos, ok := s.read(m, from, int64(maxBytes), limit, atLeastOne)
		if !ok {
			m.unpin()
			return Slice{}, &CorruptError{Path: s.name, Offset: from, Pos: pos, Reason: "no batch where one must begin"}
		}
		if len(out.Bytes) == 0 {
			m.unpin()
			return out, nil
		}
		out.m = m
		out.Cold = l.cold(s, pos)
		return out, nil
	}
}

// find returns the segment that holds an offset: the last with base <= from.
func find(list *[]*segment, from int64) *segment {
	if list == nil {
		return nil
	}
	segs := *list
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > from })
	if i == 0 {
		return nil
	}
	return segs[i-1]
}

// read returns the slice and its position; false when the segment is broken.
func (s *segment) read(m *mapping, from, maxBytes, limit int64, atLeastOne bool) (Slice, int64, bool) {
	// The end is read before the length: every border at or below that end
	// lies within that length.
	limit = min(limit, s.end.Load())
	size := s.size.Load()
	empty := Slice{First: from, Next: from}
	if from >= limit {
		return empty, 0, true
	}
	first := s.floorOffset(m, from, size)
	b, ok := s.batch(m, first, size)
	if !ok || b.NextOffset() <= from {
		return empty, first.pos, false
	}
	last := s.floorOffset(m, limit, size)
	if last.pos-first.pos > maxBytes {
		last = s.floorPos(m, first.pos+max(maxBytes, 0), size)
		if last.pos <= first.pos && atLeastOne {
			last = border{first.pos + int64(b.Size()), b.NextOffset()}
		}
	}
	if last.pos <= first.pos {
		return empty, first.pos, true
	}
	return Slice{Bytes: m.Bytes[first.pos:last.pos], First: first.off, Next: last.off}, first.pos, true
}

// cold tells whether position pos was written by an earlier process, or so
// long ago that the kernel may have dropped the page.
func (l *Log) cold(s *segment, pos int64) bool {
	at := s.mark + pos
	return at < 0 || at < l.written.Load()-warmBytes
}

// Walk calls fn for each whole batch in data, the bytes of a .log file, with
// its position, and returns how many bytes the whole batches fill. What
// follows them, if anything, is no batch. It checks lengths only: call
// CheckCRC in fn.
func Walk(data []byte, fn func(pos int64, b wire.Batch) error) (int64, error) {
	pos := int64(0)
	for rest := data; ; {
		b, after, ok := wire.NextBatch(rest)
		if !ok {
			return pos, nil
		}
		if err := fn(pos, b); err != nil {
			return pos, fmt.Errorf("batch at byte %d: %w", pos, err)
		}
		pos += int64(b.Size())
		rest = after
	}
}
