package segment

import (
	"errors"
	"fmt"
)

// SealClean flushes logs of this directory and writes what makes their next
// start fast: index, producers, epochs. Nobody may append any more; the caller
// has stopped all writers. The logs can still be read. One that fails does not
// keep the others from being sealed.
func (d *Dir) SealClean(logs ...*Log) error {
	var errs []error
	var flushes []*Flush
	var idle []*Log
	for _, l := range logs {
		err := l.err()
		if err == nil && (!l.idle() || l.growing || l.truncating || l.flushing || l.cleaning || l.dropping) {
			err = ErrBusy
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("seal %s: %w", l.id.TopicPartition(), err))
			continue
		}
		idle = append(idle, l)
		if f, ok := l.FlushPlan(); ok {
			flushes = append(flushes, &f)
		}
	}
	d.FlushLogs(flushes)
	for _, f := range flushes {
		err := f.log.Flushed(*f)
		if err == nil && f.stale {
			err = fmt.Errorf("epochs: %w", ErrNoSpace)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("seal %s: %w", f.log.id.TopicPartition(), err))
		}
	}
	bulk := len(idle) >= bulkFlushes
	write := d.fs.Meta().WriteFile
	if bulk {
		write = d.fs.Meta().WriteHint
	}
	for _, l := range idle {
		if err := l.err(); err != nil || l.active() == nil {
			continue
		}
		err := l.giveBack()
		if err == nil && l.small() {
			d.sealed = append(d.sealed, l.encodeLog())
		} else if err == nil {
			err = l.writeHints(write)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("seal %s: %w", l.id.TopicPartition(), err))
		}
	}
	if bulk {
		errs = append(errs, d.sync.SyncAll())
	}
	return errors.Join(errs...)
}

// SealClean seals one log.
func (l *Log) SealClean() error { return l.dir.SealClean(l) }

// giveBack frees the blocks that were reserved ahead of need.
func (l *Log) giveBack() error {
	s := l.active()
	size := s.size.Load()
	if s.alloc <= size {
		return nil
	}
	if err := l.dir.fs.Meta().Truncate(s.name, size); err != nil { // it may be at rest
		return err
	}
	s.alloc = size
	return nil
}

// writeHints writes what recovery would have to find out.
func (l *Log) writeHints(write func(name string, data []byte) error) error {
	s := l.active()
	return errors.Join(write(segmentName(l.path, s.base, indexSuffix), encodeIndex(s.index, s.content())),
		write(segmentName(l.path, l.End(), snapshotSuffix), l.producers.encode(l.End())))
}
