package segment

import (
	"errors"
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
	if l.err() != nil || l.truncating || l.cleaning || len(l.list()) < 2 {
		return 0
	}
	return Expired(l.Segments(), l.Start(), min(limit, l.Durable()), now, l.cfg.RetentionMs, l.cfg.RetentionBytes)
}

// Dropped is segments that left the log and whose files are to be unlinked.
type Dropped struct {
	log  *Log
	segs []*segment
}

// Drop takes n leading segments, as RetentionPlan counted them, out of the
// log and raises its start offset. Readers keep what they have pinned. [L]
func (l *Log) Drop(n int) Dropped {
	old := l.list()
	n = min(n, len(old)-1)
	if n <= 0 || l.truncating || l.cleaning {
		return Dropped{log: l}
	}
	d := Dropped{log: l, segs: old[:n:n]}
	raise(&l.start, old[n].base)
	l.epochs.truncateStart(old[n].base)
	l.setList(append([]*segment(nil), old[n:]...))
	for _, s := range d.segs {
		l.size.Add(-s.size.Load())
	}
	return d
}

// Do unlinks the files, the oldest first so that a crash leaves no hole. An
// error leaves files behind that the next OpenLog takes for part of the log;
// retention then drops them again.
func (d *Dropped) Do() error {
	var err error
	for _, s := range d.segs {
		if err == nil {
			err = d.log.removeFiles(s.base)
			d.log.unlinked.Store(true) // after the call: a flush before it does not cover it
		}
		s.retire()
	}
	if err != nil {
		d.log.leftFiles.Store(true)
	}
	d.segs = nil
	return err
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
