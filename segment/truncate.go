package segment

import (
	"errors"
	"fmt"
	"path/filepath"

	"lockstep/internal/invariant"
)

// Truncation takes the end of a log away. Do it without the lock, then hand
// it to Truncated.
type Truncation struct {
	log    *Log
	err    error
	noop   bool
	begun  bool       // the disk is being changed
	to     int64      // the new end offset
	full   bool       // nothing stays: the log starts again at to
	first  bool       // the partition's directory is to be made
	there  bool       // ... and was
	keep   []*segment // whole segments that stay
	cut    *segment   // the segment to be sealed shorter, if to lies inside one
	at     border     // where it is cut
	remove []*segment // segments that go
	left   []int64    // bases of files that retention could not unlink: they go when all goes
	limit  int64
	step   int32
	epochs []EpochStart

	short     *segment
	made      *segment
	producers *Producers
}

// End returns the log end offset after the truncation.
func (t *Truncation) End() int64 { return t.to }

// TruncatePlan returns the plan that makes to the end offset of the log; to
// inside a batch cuts at that batch's start. Below Start everything goes and
// the log starts again at to. ErrBusy while appends are queued or being
// written or another step is under way. Until Truncated, Room says RoomGrow.
// [L]
func (l *Log) TruncatePlan(to int64) (Truncation, error) {
	if err := l.truncatable(); err != nil {
		return Truncation{}, err
	}
	if to >= l.End() {
		return Truncation{log: l, noop: true, to: l.End()}, nil
	}
	if to < l.Start() || len(l.list()) == 0 {
		return l.RestartPlan(to)
	}
	t := Truncation{log: l, limit: l.nextLimit(), step: l.cfg.IndexIntervalBytes}
	segs := l.list()
	i := len(segs) - 1
	for segs[i].base > to {
		i--
	}
	s := segs[i]
	err := s.with(func(m *mapping) error { // opens it, in the rare case that it was at rest
		t.at = s.floorOffset(m, to, s.size.Load())
		return nil
	})
	if err != nil {
		return Truncation{}, err
	}
	t.to = t.at.off
	t.keep = segs[:i:i]
	t.remove = segs[i+1:]
	if t.at.pos > 0 {
		t.cut = s
	} else {
		t.remove = segs[i:]
	}
	return l.beginTruncation(t), nil
}

// RestartPlan returns the plan that drops everything and lets the log start
// again, empty, at an offset: for a follower whose log ends below its
// leader's start. [L]
func (l *Log) RestartPlan(at int64) (Truncation, error) {
	if err := l.truncatable(); err != nil {
		return Truncation{}, err
	}
	if at < 0 {
		return Truncation{}, fmt.Errorf("%w: restart at %d", ErrOffsetOutOfRange, at)
	}
	t := Truncation{log: l, to: at, full: true, first: !l.exists, remove: l.list(), left: l.left, limit: l.nextLimit(), step: l.cfg.IndexIntervalBytes}
	return l.beginTruncation(t), nil
}

func (l *Log) truncatable() error {
	if err := l.err(); err != nil {
		return err
	}
	if l.cleaning {
		l.stopCleaning.Store(true)
	}
	if !l.idle() || l.growing || l.truncating || l.flushing || l.cleaning || l.dropping {
		return fmt.Errorf("truncate %s: %w", l.id.TopicPartition(), ErrBusy)
	}
	return nil
}

func (l *Log) nextLimit() int64 {
	return min(max(l.cfg.SegmentBytes, int64(l.cfg.MaxMessageBytes), l.want), maxSegment)
}

// beginTruncation lowers Durable, CleanedTo and the start that a checkpoint may
// name at once, so that none written from here on can promise what is about to go.
func (l *Log) beginTruncation(t Truncation) Truncation {
	l.truncating = true
	for _, s := range t.remove {
		s.retired.Store(true) // not opened again: another file may take its name
	}
	if t.full { // a crash may leave any part of it, and then it starts at to
		l.durable.Store(0)
	}
	l.lowering.Store(t.to + 1) // the start may lie inside the batch that is cut
	l.durable.Store(min(l.Durable(), t.to))
	l.covered.Store(min(l.covered.Load(), t.to))
	l.cleaned.Store(min(l.cleaned.Load(), t.to))
	var after epochs
	after.p.Store(l.epochs.p.Load())
	if t.full {
		after.truncateEnd(0)
	} else {
		after.truncateEnd(t.to)
	}
	t.epochs = append([]EpochStart{}, after.list()...)
	return t
}

// Do makes the system calls. Once, without the lock. Order is what makes a
// crash harmless: the recovery point falls first, then the new empty file ends
// the content of what is before it; what lies behind an empty file, above the
// recovery point, is a torn tail to recovery.
func (t *Truncation) Do() {
	l := t.log
	if t.noop || !t.full && !l.existsOnDisk(t) {
		t.producers = newProducers()
		return
	}
	if t.err = l.dir.lowerCheckpoints(l.id.TopicPartition()); t.err != nil {
		return
	}
	if t.first { // where it starts must be on disk before it can be said to be durable
		if t.err = l.makeDir(); t.err != nil {
			return
		}
		t.there = true
	}
	if t.err = t.create(); t.err != nil {
		return // a full disk shows before anything is gone
	}
	t.begun = true
	if t.full {
		t.err = t.removeAll()
	}
	if t.err == nil {
		t.err = t.place()
	}
	if t.err == nil && !t.full {
		t.err = t.removeAbove()
	}
	meta := l.dir.fs.Meta()
	if t.err == nil && t.cut != nil {
		t.err = t.cut.with(func(m *mapping) error { t.short = t.cut.shorten(m, t.at); return nil })
	}
	if t.err == nil && t.cut != nil {
		t.err = meta.WriteFile(segmentName(l.path, t.cut.base, indexSuffix), encodeIndex(t.short.index, t.short.content()))
	}
	if t.err == nil {
		t.err = meta.WriteFile(filepath.Join(l.path, epochFile), encodeEpochs(t.epochs))
	}
	if t.err == nil {
		t.producers, t.err = t.rebuild()
	}
}

func (l *Log) existsOnDisk(t *Truncation) bool {
	return len(t.keep) > 0 || t.cut != nil || len(t.remove) > 0
}

// create makes the new empty segment file, not yet under its name.
func (t *Truncation) create() error {
	l := t.log
	name := segmentName(l.path, t.to, logSuffix)
	if err := l.dir.fs.Remove(name + newSuffix); err != nil {
		return err
	}
	m, err := l.dir.fs.Open(name+newSuffix, t.limit, true)
	if err == nil {
		t.made = newSegment(l, t.to, m, t.limit, t.step)
	}
	return err
}

// place gives it its name, replacing a file of the same.
func (t *Truncation) place() error {
	l := t.log
	name := segmentName(l.path, t.to, logSuffix)
	return errors.Join(l.dir.fs.Rename(name+newSuffix, name), l.dir.fs.SyncDir(l.path))
}

// removeAbove unlinks what lay above the new end, the newest first, and the
// hints of the new segment's name.
func (t *Truncation) removeAbove() error {
	l := t.log
	err := errors.Join(
		l.dir.fs.Remove(segmentName(l.path, t.to, indexSuffix)),
		l.removeSnapshots(func(off int64) bool { return off > t.to }))
	for i := len(t.remove) - 1; i >= 0 && err == nil; i-- {
		if base := t.remove[i].base; base != t.to {
			err = l.removeFiles(base)
		}
	}
	return errors.Join(err, l.dir.fs.SyncDir(l.path))
}

// removeAll unlinks every segment, the oldest first: what a crash leaves is
// the end of the log, never one with a hole. The newest first would bring back
// what an earlier truncation took: its bytes are in their file still, and only
// the base of the next segment says that they are not part of the log.
func (t *Truncation) removeAll() error {
	l := t.log
	bases := t.left
	for _, s := range t.remove {
		bases = append(bases[:len(bases):len(bases)], s.base)
	}
	for _, base := range bases {
		if err := l.removeFiles(base); err != nil {
			return err
		}
	}
	return l.removeSnapshots(func(int64) bool { return true })
}

// removeSnapshots unlinks the producer snapshots whose offset is not wanted.
func (l *Log) removeSnapshots(unwanted func(offset int64) bool) error {
	names, err := l.dir.fs.Meta().ReadDir(l.path)
	for _, name := range names {
		if off, ok := parseName(name, snapshotSuffix); ok && unwanted(off) && err == nil {
			err = l.dir.fs.Remove(filepath.Join(l.path, name))
		}
	}
	return err
}

// shorten returns the segment as it is after a cut. It will share the map: the
// bytes above the cut stay where readers may still be looking at them.
func (s *segment) shorten(m *mapping, at border) *segment {
	n := &segment{
		base: s.base, name: s.name, dir: s.dir, limit: at.pos, index: s.index.cut(at.pos),
		mark: s.mark, alloc: at.pos, interval: s.interval, firstTs: s.firstTs, shortened: true,
	}
	e := n.index.floorPos(at.pos)
	maxTs := e.maxTs
	for p := (border{int64(e.pos), s.base + int64(e.rel)}); p.pos < at.pos; {
		b, ok := s.batch(m, p, at.pos)
		if !ok {
			break
		}
		maxTs = max(maxTs, b.MaxTimestamp())
		p = border{p.pos + int64(b.Size()), b.NextOffset()}
	}
	n.maxTs.Store(maxTs)
	n.size.Store(at.pos)
	n.end.Store(at.off)
	return n
}

// rebuild returns the producers as they were at the new end: the nearest
// snapshot and the batches after it.
func (t *Truncation) rebuild() (*Producers, error) {
	segs := t.keep
	if t.cut != nil {
		segs = append(segs[:len(segs):len(segs)], t.cut)
	}
	return t.log.producersAt(segs, t.to)
}

// Truncated ends the truncation. ErrNoSpace and ErrTooManyFiles: nothing has
// changed and it may be planned again. Any other error has failed the directory. [L]
func (l *Log) Truncated(t Truncation) error {
	if t.noop {
		return nil
	}
	if t.log != l || !l.truncating {
		invariant.Check(false, "PlanDoApply", l.path)
	}
	l.truncating = false
	l.exists = l.exists || t.there
	if t.err != nil {
		if t.made != nil {
			t.made.retire()
		}
		for _, s := range t.remove {
			s.retired.Store(false)
		}
		if t.begun || !temporary(t.err) {
			l.dir.Fail(t.err) // half done: memory and disk no longer agree
		}
		l.lowering.Store(0)
		return t.err
	}
	segs := append([]*segment(nil), t.keep...)
	if t.short != nil {
		t.short.m.Store(t.cut.m.Load())
		t.cut.retired.Store(true) // its pin is the other's now
		t.cut.m.Store(nil)
		segs = append(segs, t.short)
	}
	if t.made != nil {
		t.made.mark = l.written.Load()
		segs = append(segs, t.made)
		l.namesDirty = true
	}
	size := int64(0)
	for _, s := range segs {
		size += s.size.Load()
	}
	// A reader that meets the new list with the old end finds less to read,
	// one that meets the old list with the new end reads what was there.
	l.setList(segs)
	l.end.Store(t.to)
	l.size.Store(size)
	l.start.Store(min(l.Start(), t.to))
	l.lowering.Store(0)
	if t.full {
		l.left = nil
		l.start.Store(t.to)
		l.durable.Store(t.to)
		l.covered.Store(t.to)
	}
	l.next, l.sealing = t.to, false
	l.producers = t.producers
	l.epochs.replace(t.epochs)
	for _, s := range t.remove {
		s.retire()
	}
	return nil
}
