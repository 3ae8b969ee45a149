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
	segs   []*segment // the end of the log's list, which never changes
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
	if l.err() != nil || l.flushing || l.truncating || (l.End() <= l.Durable() && !l.namesDirty && !l.unlinked.Load() && !epochsDirty) {
		return Flush{}, false
	}
	f := Flush{log: l, end: l.End(), names: l.namesDirty}
	f.names = l.unlinked.Swap(false) || f.names
	f.segs = l.list()
	for len(f.segs) > 0 && f.segs[0].end.Load() <= f.log.Durable() {
		f.segs = f.segs[1:]
	}
	if epochsDirty {
		l.epochs.dirty.Store(false)
		f.epochs = append([]EpochStart{}, l.epochs.list()...)
	}
	l.namesDirty = false
	l.flushing = true
	return f, true
}

// Log returns the log that is flushed.
func (f *Flush) Log() *Log { return f.log }

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

// FlushLogs carries out flushes of this directory, as Do does for each, but
// many of them by one flush of the whole file system. When that fails, each
// file is asked by itself: it may have been another's. Once, without a lock.
func (d *Dir) FlushLogs(flushes []*Flush) {
	if len(flushes) >= bulkFlushes && d.flushAll(flushes) == nil {
		return
	}
	for _, f := range flushes {
		f.Do()
	}
}

func (d *Dir) flushAll(flushes []*Flush) error {
	for _, f := range flushes {
		if f.epochs == nil {
			continue
		}
		if err := d.fs.Meta().WriteHint(filepath.Join(f.log.path, epochFile), encodeEpochs(f.epochs)); err != nil {
			return err
		}
	}
	return d.sync.SyncAll()
}

// Flushed ends the flush and raises Durable. ErrTooManyFiles: it may be planned
// again. Any other error has failed the directory: nothing is flushed a second
// time. [L]
func (l *Log) Flushed(f Flush) error {
	if f.log != l || !l.flushing {
		invariant.Check(false, "PlanDoApply", l.path)
	}
	l.flushing = false
	if errors.Is(f.err, ErrTooManyFiles) {
		// Something could not be opened, so nothing was flushed in vain.
		l.namesDirty = l.namesDirty || f.names
		l.epochs.dirty.Store(l.epochs.dirty.Load() || f.epochs != nil)
		return f.err
	}
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
