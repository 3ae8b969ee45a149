package segment

import (
	"errors"
	"fmt"

	"lockstep/internal/wire"
)

// TimestampOffset is a record's place in time and in the log.
type TimestampOffset struct {
	Timestamp   int64 // ms
	Offset      int64
	LeaderEpoch int32
}

// OffsetForTimestamp returns the first record at or above Start and below
// limit whose timestamp is at or above ts; false if there is none. It may
// touch cold pages and inflate a batch: not for a reactor.
func (l *Log) OffsetForTimestamp(ts, limit int64, d Decompress) (TimestampOffset, bool, error) {
	limit = min(limit, l.End())
	start := l.Start()
	for _, s := range l.list() {
		if s.end.Load() <= start || s.maxTs.Load() < ts {
			continue
		}
		t, ok, err := l.inSegment(s, limit, func(s *segment) border { return s.entryBorder(s.index.floorTs(ts)) },
			func(b wire.Batch) bool { return b.MaxTimestamp() >= ts },
			func(recordTs, off int64) bool { return recordTs >= ts && off >= start }, d)
		if ok || err != nil {
			return t, ok, err
		}
	}
	return TimestampOffset{}, false, nil
}

// MaxTimestamp returns the first record with the greatest timestamp among
// those at or above Start in batches that end at or below limit; false if
// there are none. Not for a reactor.
func (l *Log) MaxTimestamp(limit int64, d Decompress) (TimestampOffset, bool, error) {
	limit = min(limit, l.End())
	start := l.Start()
	var best *segment
	at, most := border{}, int64(noTimestamp)
	var err error
	for _, s := range l.list() {
		if s.base >= limit || s.end.Load() <= start || s.maxTs.Load() <= most {
			continue
		}
		err2 := l.batches(s, limit, border{0, s.base}, func(p border, b wire.Batch) bool {
			ts := b.MaxTimestamp()
			if b.BaseOffset() < start && ts > most { // its greatest may lie below start
				ts = noTimestamp
				_, _, err = inBatch(b, func(recordTs, off int64) bool {
					if off >= start {
						ts = max(ts, recordTs)
					}
					return false
				}, d)
			}
			if ts > most {
				best, at, most = s, p, ts
			}
			return err == nil
		})
		if err = errors.Join(err, err2); err != nil {
			return TimestampOffset{}, false, err
		}
	}
	if best == nil {
		return TimestampOffset{}, false, l.err()
	}
	return l.inSegment(best, limit, func(*segment) border { return at },
		func(b wire.Batch) bool { return b.MaxTimestamp() >= most },
		func(recordTs, off int64) bool { return recordTs == most && off >= start }, d)
}

func (s *segment) entryBorder(e entry) border { return border{int64(e.pos), s.base + int64(e.rel)} }

// batches calls fn for the batches of a segment from p that end at or below
// limit, until it returns false. A retired segment has none.
func (l *Log) batches(s *segment, limit int64, p border, fn func(border, wire.Batch) bool) error {
	if err := l.err(); err != nil {
		return err
	}
	m, err := s.pin()
	if err == errRetired {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.unpin()
	size := s.size.Load()
	for {
		b, ok := s.batch(m, p, size)
		if !ok || b.NextOffset() > limit || !fn(p, b) {
			return nil
		}
		p = border{p.pos + int64(b.Size()), b.NextOffset()}
	}
}

// inSegment finds the first record that fits in the batches that may hold it.
func (l *Log) inSegment(s *segment, limit int64, from func(*segment) border, mayHold func(wire.Batch) bool,
	fits func(ts, off int64) bool, d Decompress) (out TimestampOffset, found bool, err error) {
	err2 := l.batches(s, limit, from(s), func(_ border, b wire.Batch) bool {
		if !mayHold(b) {
			return true
		}
		out, found, err = inBatch(b, fits, d)
		return !found && err == nil
	})
	return out, found, errors.Join(err, err2)
}

func inBatch(b wire.Batch, fits func(ts, off int64) bool, d Decompress) (TimestampOffset, bool, error) {
	if b.LogAppendTime() { // one time for the whole batch
		for off := b.BaseOffset(); off <= b.LastOffset(); off++ {
			if fits(b.MaxTimestamp(), off) {
				return TimestampOffset{b.MaxTimestamp(), off, b.PartitionLeaderEpoch()}, true, nil
			}
		}
		return TimestampOffset{}, false, nil
	}
	payload := b.Payload()
	if b.Codec() != 0 {
		var err error
		if payload, err = d(b.Codec(), payload, maxRecordsLimit); err != nil {
			return TimestampOffset{}, false, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
	}
	it := wire.Records(payload)
	for it.Next() {
		r := it.Record()
		ts, off := b.BaseTimestamp()+r.TimestampDelta, b.BaseOffset()+int64(r.OffsetDelta)
		if fits(ts, off) {
			return TimestampOffset{ts, off, b.PartitionLeaderEpoch()}, true, nil
		}
	}
	if err := it.Err(); err != nil {
		return TimestampOffset{}, false, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	return TimestampOffset{}, false, nil
}
