package segment

import (
	"errors"

	"lockstep/internal/invariant"
)

// SegmentInfo is what retention looks at.
type SegmentInfo struct {
	Base         int64
	End          int64 // offset after the last record
	Bytes        int64
	MaxTimestamp int64 // ms; below 0 if unknown, then the segment has no age
}

// Expired returns how many leading segments may go: those wholly below the
// log start offset, those whose newest record is older than retentionMs, and
// those without which the log still has retentionBytes. The last segment
// always stays, and so does everything at or above limit, the gated high
// watermark. Negative retention is none.
func Expired(segs []SegmentInfo, start, limit, now, retentionMs, retentionBytes int64) int {
	total := int64(0)
	for _, s := range segs {
		total += s.Bytes
	}
	n := 0
	for ; n < len(segs)-1; n++ {
		s := segs[n]
		below := s.End <= start
		old := retentionMs >= 0 && s.MaxTimestamp >= 0 && now-s.MaxTimestamp > retentionMs
		surplus := retentionBytes >= 0 && total-s.Bytes >= retentionBytes
		if s.End > limit || !(below || old || surplus) {
			break
		}
		total -= s.Bytes
	}
	return n
}

// Segments describes the segments of the log, oldest first.
func (l *Log) Segments() []SegmentInfo {
	segs := l.list()
	out := make([]SegmentInfo, 0, len(segs))
	for _, s := range segs {
		out = append(out, SegmentInfo{s.base, s.end.Load(), s.size.Load(), s.maxTs.Load()})
	}
	return out
}

// RetentionPlan returns how many leading segments may be dropped at time now
// (ms) when limit is the gated high watermark. What is not flushed yet stays: its
// file may be there again after a loss of power, or still, when it could not be
// unlinked. With its end torn it would be a hole, and recovery would cut what was
// flushed behind it. [L]
func (l *Log) RetentionPlan(now, limit int64) int {
	if !l.droppable() || len(l.list()) < 2 {
		return 0
	}
	return Expired(l.Segments(), l.Start(), min(limit, l.Durable()), now, l.cfg.RetentionMs, l.cfg.RetentionBytes)
}

func (l *Log) droppable() bool { return l.err() == nil && !l.truncating && !l.cleaning && !l.dropping }

// Dropped is segments that left the log and whose files are to be unlinked. Do it
// without the lock, then hand it to Unlinked.
type Dropped struct {
	log  *Log
	segs []*segment
	left []int64 // bases of the files, the oldest first
}

// Drop takes n leading segments, as RetentionPlan counted them, out of the
// log and raises its start offset. Readers keep what they have pinned. Files that
// could not be unlinked before go first. It returns false when there are none of
// either, and while another step needs the files. [L]
func (l *Log) Drop(n int) (Dropped, bool) {
	old := l.list()
	n = max(0, min(n, len(old)-1))
	if n+len(l.left) == 0 || !l.droppable() {
		return Dropped{}, false
	}
	d := Dropped{log: l, segs: old[:n:n], left: l.left}
	l.dropping, l.left = true, nil
	if n == 0 {
		return d, true
	}
	raise(&l.start, old[n].base)
	l.epochs.truncateStart(old[n].base)
	l.setList(append([]*segment(nil), old[n:]...))
	for _, s := range d.segs {
		l.size.Add(-s.size.Load())
		d.left = append(d.left, s.base)
	}
	return d, true
}

// Do unlinks the files, the oldest first and none after one that stays: what is
// there after a crash has no hole. What stays is part of the log to the next
// OpenLog.
func (d *Dropped) Do() error {
	var err error
	for len(d.left) > 0 && err == nil {
		if err = d.log.removeFiles(d.left[0]); err == nil {
			d.left = d.left[1:]
		}
	}
	d.log.unlinked.Store(true) // after the calls: a flush before them does not cover them
	for _, s := range d.segs {
		s.retire()
	}
	return err
}

// Unlinked ends a drop and keeps what could not be unlinked for the next. [L]
func (l *Log) Unlinked(d Dropped) {
	if d.log != l || !l.dropping {
		invariant.Check(false, "PlanDoApply", l.path)
	}
	l.dropping, l.left = false, d.left
}

// removeFiles unlinks a segment's files: the log first, hints after it.
func (l *Log) removeFiles(base int64) error {
	return errors.Join(
		l.dir.fs.Remove(segmentName(l.path, base, logSuffix)),
		l.dir.fs.Remove(segmentName(l.path, base, indexSuffix)),
		l.dir.fs.Remove(segmentName(l.path, base, snapshotSuffix)))
}

// SealExpired seals the active segment when every record in it is past
// retention.ms, so that the next step rolls it and retention can drop it: a
// topic nobody writes to any more must not keep its last segment for ever. It
// tells whether a step is to be asked for. [L]
func (l *Log) SealExpired(now int64) bool {
	s := l.active()
	return l.cfg.RetentionMs >= 0 && s != nil && l.sealAged(now, s.maxTs.Load(), l.cfg.RetentionMs)
}

// SealForCleaning seals the active segment when its first record is older than
// max.compaction.lag.ms: the cleaner takes only sealed ones. It tells whether a
// step is to be asked for. [L]
func (l *Log) SealForCleaning(now, maxLagMs int64) bool {
	s := l.active()
	return s != nil && l.sealAged(now, s.firstTs, maxLagMs)
}

func (l *Log) sealAged(now, ts, age int64) bool {
	if l.err() != nil || l.sealing || l.truncating || !l.idle() || l.active().size.Load() == 0 || ts < 0 || now-ts <= age {
		return false
	}
	l.sealing = true
	return true
}
