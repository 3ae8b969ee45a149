package segment

import (
	"errors"
	"path/filepath"

	"lockstep/internal/invariant"
)

// Flush makes a log durable up to an offset. Do it without the lock, then
// hand it to Flushed.
type Flush struct {
	log    *Log
	end    int64
	segs   []*segment
	names  bool
	epochs []EpochStart
	stale  bool // the disk was too full for the epochs
	err    error
}

// End returns the offset the flush covers.
func (f *Flush) End() int64 { return f.end }

// FlushPlan returns what must be flushed to make everything published by now
// durable; false when it is, or when a flush or truncation is under way. [L]
func (l *Log) FlushPlan() (Flush, bool) {
	epochsDirty := l.epochs.dirty.Load() && l.exists
	if l.err() != nil || l.flushing || l.truncating || (l.End() <= l.Durable() && !l.namesDirty && !epochsDirty) {
		return Flush{}, false
	}
	f := Flush{log: l, end: l.End(), names: l.namesDirty}
	for _, s := range l.list() {
		if s.end.Load() > l.Durable() {
			f.segs = append(f.segs, s)
		}
	}
	if epochsDirty {
		l.epochs.dirty.Store(false)
		f.epochs = append([]EpochStart{}, l.epochs.list()...)
	}
	l.namesDirty = false
	l.flushing = true
	return f, true
}

// Do makes the system calls. Once, without the lock.
func (f *Flush) Do() {
	fs := f.log.dir.fs
	for _, s := range f.segs {
		m, err := s.pin()
		if err == errRetired {
			continue // dropped by retention since
		}
		if err == nil {
			err = m.Datasync()
			m.unpin()
		}
		if f.err = err; err != nil {
			return
		}
	}
	if f.names {
		f.err = errors.Join(fs.SyncDir(f.log.path), fs.SyncDir(f.log.dir.path))
	}
	if f.err == nil && f.epochs != nil {
		f.err = fs.Meta().WriteFile(filepath.Join(f.log.path, epochFile), encodeEpochs(f.epochs))
		if temporary(f.err) {
			// The epochs are in the batches too; the next flush writes them.
			f.log.epochs.dirty.Store(true)
			f.stale, f.err = true, nil
		}
	}
}

// Flushed ends the flush and raises Durable. An error has failed the
// directory: nothing is flushed a second time. [L]
func (l *Log) Flushed(f Flush) error {
	if f.log != l || !l.flushing {
		invariant.Check(false, "PlanDoApply", l.path)
	}
	l.flushing = false
	if f.err != nil {
		l.dir.Fail(f.err)
		return f.err
	}
	if err := l.err(); err != nil {
		return err
	}
	raise(&l.durable, f.end)
	if !f.stale {
		raise(&l.covered, f.end)
	}
	return nil
}
