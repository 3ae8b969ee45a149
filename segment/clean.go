package segment

import (
	"errors"

	"lockstep/internal/invariant"
	"lockstep/internal/wire"
)

// Compaction keeps, of the records with one key, the last. It rewrites sealed
// segments that end at or below a limit, the gated high watermark: what a
// registered destination has not got is never touched. The log stays dense:
// runs of batches without records become one empty batch over their offsets.
// A segment keeps its base offset and its name, so the new file takes the old
// one's place by one rename.

// CleanOptions says what may be cleaned, and when it is worth it. Times are ms.
type CleanOptions struct {
	Limit             int64   // the gated high watermark
	Now               int64   // Unix time
	MinLagMs          int64   // min.compaction.lag.ms
	MaxLagMs          int64   // max.compaction.lag.ms
	DeleteRetentionMs int64   // delete.retention.ms
	MinDirtyRatio     float64 // min.cleanable.dirty.ratio
	Inflate           Decompress
	Compress          func(codec int8, src []byte) ([]byte, error)
}

// Cleaning is one pass over a log. Do it without the lock, then hand it to
// Cleaned.
type Cleaning struct {
	log   *Log
	o     CleanOptions
	segs  []*segment
	from  int64          // clean below this by an earlier pass
	to    int64          // clean below this afterwards
	held  map[int64]bool // by base offset: batches of a producer's window, which keep their headers
	most  int64          // how many keys are told apart
	keys  *keyTable
	stay  bool // records that may be superseded stay below where the pass is
	swaps []swap
	err   error

	// Removed counts records that went, Before and After the bytes of the
	// segments that were rewritten.
	Removed, Before, After int64
}

type swap struct {
	old, made *segment
	done      bool // the new file has the name
}

var (
	// errStopped: something that must not wait wants the log.
	errStopped = errors.New("cleaning was stopped")
	// errGrown: what stays of a segment packs so much worse that it has no room. To
	// leave in it what is superseded would bring that back once its tombstone goes.
	errGrown = errors.New("a cleaned segment would be larger than one may be")
)

// CleanPlan returns the next pass, or false when none is possible or worth it. [L]
func (l *Log) CleanPlan(o CleanOptions) (Cleaning, bool) {
	if l.err() != nil || l.truncating || l.cleaning {
		return Cleaning{}, false
	}
	c := Cleaning{log: l, o: o, from: l.cleaned.Load(), most: cleanerKeys}
	all := l.list()
	dirty, total, oldest := int64(0), int64(0), int64(noTimestamp)
	// What a record is removed for must be durable: a crash that takes it would
	// leave neither.
	limit := min(o.Limit, l.Durable())
	for _, s := range all[:max(len(all)-1, 0)] {
		if s.end.Load() > limit || o.MinLagMs > 0 && s.maxTs.Load() > o.Now-o.MinLagMs {
			break
		}
		c.segs = append(c.segs, s)
		total += s.size.Load()
		if s.end.Load() > c.from {
			if dirty += s.size.Load(); oldest == noTimestamp {
				oldest = s.firstTs
			}
		}
	}
	late := oldest != noTimestamp && o.Now-oldest > o.MaxLagMs
	if dirty == 0 || !late && float64(dirty) < o.MinDirtyRatio*float64(total) {
		return Cleaning{}, false
	}
	c.held = l.producers.window()
	l.stopCleaning.Store(false)
	l.cleaning = true
	return c, true
}

// StopCleaning asks a pass under way to give up.
func (l *Log) StopCleaning() { l.stopCleaning.Store(true) }

// Do makes the pass. Once, without the lock. Nothing of the log has changed
// before the first rename, and every file is whole and durable by then.
func (c *Cleaning) Do() {
	c.err = c.mapKeys()
	for _, s := range c.segs {
		if c.err != nil || s.base >= c.to {
			break
		}
		c.err = c.rewrite(s)
	}
	if c.err == nil {
		c.err = c.replaceFiles()
	}
	for _, x := range c.swaps {
		if !x.done {
			x.made.retire()
			c.err = errors.Join(c.err, c.log.dir.fs.Remove(x.made.name+newSuffix))
		}
	}
}

// each calls f for the batches of a segment, until it fails.
func (c *Cleaning) each(s *segment, f func(b wire.Batch) error) error {
	err := s.with(func(m *mapping) error {
		size := s.size.Load()
		for p := (border{0, s.base}); p.pos < size; {
			if c.log.stopCleaning.Load() || c.log.err() != nil {
				return errStopped
			}
			b, ok := s.batch(m, p, size)
			if !ok {
				return &CorruptError{s.name, p.off, p.pos, "no whole batch"}
			}
			if err := f(b); err != nil {
				return err
			}
			p = border{p.pos + int64(b.Size()), b.NextOffset()}
		}
		return nil
	})
	if err == errRetired {
		return errStopped
	}
	return err
}

// fixed tells a batch that is kept as it is: records of transactions are not
// told apart into committed and aborted yet, and control records are no data.
func fixed(b wire.Batch) bool { return b.Control() || b.Transactional() }

// mapped tells a batch whose keys supersede those before it. The offsets count,
// not the records: of those, a later pass finds fewer.
func (c *Cleaning) mapped(b wire.Batch) bool {
	return !fixed(b) && b.NextOffset()-b.BaseOffset() <= c.most
}

// pass takes note of a batch that is left behind.
func (c *Cleaning) pass(b wire.Batch) {
	c.stay = c.stay || b.Transactional() && !b.Control()
}

func (c *Cleaning) plain(b wire.Batch) ([]byte, error) {
	if b.Codec() == wire.CodecNone || b.RecordCount() == 0 {
		return b.Payload(), nil
	}
	return c.o.Inflate(b.Codec(), b.Payload(), maxRecordsLimit)
}

// mapKeys notes where each key of the dirty part was written last. A table
// that is full ends the part: the rest is for the next pass.
func (c *Cleaning) mapKeys() error {
	records := int64(0)
	c.to = c.from
	for _, s := range c.segs {
		if s.end.Load() <= c.from {
			continue
		}
		err := c.each(s, func(b wire.Batch) error {
			if b.NextOffset() > c.from && c.mapped(b) {
				records += int64(b.RecordCount())
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	c.keys = newKeyTable(min(records, c.most))
	errFull := errors.New("the table is full")
	for _, s := range c.segs {
		if s.end.Load() <= c.from {
			continue
		}
		err := c.each(s, func(b wire.Batch) error {
			if b.NextOffset() <= c.from {
				return nil
			}
			if c.mapped(b) {
				if c.keys.room() < int(b.RecordCount()) {
					return errFull
				}
				plain, err := c.plain(b)
				if err != nil {
					return err
				}
				for it := wire.Records(plain); it.Next(); {
					if r := it.Record(); r.Key != nil {
						c.keys.put(r.Key, b.BaseOffset()+int64(r.OffsetDelta))
					}
				}
			}
			c.to = b.NextOffset()
			return nil
		})
		if err == errFull {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// output is a segment that is being written.
type output struct {
	made  *segment
	buf   []byte
	pos   int64 // of what is in the file
	batch []byte

	// The run of batches without records that has not been written.
	gap       bool
	base, end int64
	epoch     int32
}

// rewrite writes a segment anew beside the old one, unless every batch stays
// as it is.
func (c *Cleaning) rewrite(s *segment) error {
	changed := false
	err := c.each(s, func(b wire.Batch) error {
		c.pass(b)
		if changed || fixed(b) {
			return nil
		}
		out, kept, err := c.filter(nil, b)
		if err == nil {
			_, was := b.DeleteHorizon()
			_, is := wire.Batch(out).DeleteHorizon()
			changed = kept < int(b.RecordCount()) || is != was || b.IsEmpty()
		}
		return err
	})
	if err != nil || !changed {
		return err
	}
	name := s.name + newSuffix
	if err := c.log.dir.fs.Remove(name); err != nil {
		return err
	}
	// Fewer records can pack worse: a little growth is room in the map.
	limit := min(2*s.size.Load(), max(maxSegment, s.size.Load()))
	m, err := c.log.dir.fs.Open(name, limit, true)
	if err != nil {
		return err
	}
	o := output{made: &segment{base: s.base, name: s.name, dir: s.dir, limit: limit, index: &index{}, mark: s.mark,
		step: firstStep, interval: s.interval, firstTs: noTimestamp}}
	o.made.maxTs.Store(noTimestamp)
	o.made.end.Store(s.base)
	o.made.m.Store(newMapping(s.dir, m))
	c.swaps = append(c.swaps, swap{old: s, made: o.made})
	if err := c.each(s, func(b wire.Batch) error { return c.copyBatch(&o, b) }); err != nil {
		return err
	}
	if err := errors.Join(o.closeGap(), o.write(), m.Datasync()); err != nil {
		return err
	}
	o.made.ring.Store(nil)
	o.made.alloc = o.made.size.Load()
	c.Before += s.size.Load()
	c.After += o.made.alloc
	if o.made.end.Load() != s.end.Load() {
		invariant.Check(false, "DenseOffsets", s.name, o.made.end.Load(), s.end.Load())
	}
	return nil
}

// filter appends a batch with the records that stay. A tombstone stays for
// delete.retention.ms from the first pass that meets it as the last of its key,
// and goes only when nothing is left below it that it stands for.
func (c *Cleaning) filter(dst []byte, b wire.Batch) (out []byte, kept int, err error) {
	plain, err := c.plain(b)
	if err != nil {
		return dst, 0, err
	}
	horizon, set := b.DeleteHorizon()
	f := wire.Filter{Horizon: -1, Compress: c.o.Compress}
	tombstones := false
	stays := func(r *wire.Record) bool {
		if r.Key == nil {
			return true
		}
		off := b.BaseOffset() + int64(r.OffsetDelta)
		if off >= c.to {
			return true
		}
		if last, ok := c.keys.get(r.Key); ok && last > off {
			return false
		}
		if r.Value == nil && set && c.o.Now > horizon && c.mapped(b) && !c.stay {
			return false
		}
		tombstones = tombstones || r.Value == nil
		return true
	}
	f.Keep = stays
	if !set {
		for it := wire.Records(plain); it.Next() && !tombstones; {
			stays(it.Record())
		}
		if tombstones {
			f.Horizon = c.o.Now + c.o.DeleteRetentionMs
		}
	}
	return b.Rewrite(dst, plain, f)
}

// copyBatch adds what stays of a batch.
func (c *Cleaning) copyBatch(o *output, b wire.Batch) error {
	c.pass(b)
	out := []byte(b)
	if !fixed(b) && b.BaseOffset() < c.to {
		kept, err := 0, error(nil)
		if o.batch, kept, err = c.filter(o.batch[:0], b); err != nil {
			return err
		}
		c.Removed += int64(b.RecordCount()) - int64(kept)
		if kept == 0 && !c.held[b.BaseOffset()] {
			return o.addGap(b)
		}
		out = o.batch
	}
	if err := o.closeGap(); err != nil {
		return err
	}
	return o.add(out)
}

// addGap adds a batch to the run of those without records.
func (o *output) addGap(b wire.Batch) error {
	if o.gap && (o.epoch != b.PartitionLeaderEpoch() || b.NextOffset()-o.base > wire.MaxEmptySpan) {
		if err := o.closeGap(); err != nil {
			return err
		}
	}
	if !o.gap {
		o.gap, o.base, o.epoch = true, b.BaseOffset(), b.PartitionLeaderEpoch()
	}
	o.end = b.NextOffset()
	return nil
}

func (o *output) closeGap() error {
	if !o.gap {
		return nil
	}
	o.gap = false
	return o.add(wire.EmptyBatch(nil, o.base, o.end, o.epoch))
}

func (o *output) add(b []byte) error {
	s := o.made
	if s.size.Load()+int64(len(b)) > s.limit {
		return errGrown
	}
	s.note(b, s.size.Load())
	s.publish(s.size.Load()+int64(len(b)), wire.Batch(b).NextOffset())
	if o.buf = append(o.buf, b...); len(o.buf) < cleanerBuffer {
		return nil
	}
	return o.write()
}

func (o *output) write() error {
	for rest := o.buf; len(rest) > 0; {
		n, err := o.made.m.Load().Pwritev([][]byte{rest}, o.pos)
		if err == nil && n <= 0 {
			err = errShortWrite
		}
		if err != nil {
			return err
		}
		o.pos, rest = o.pos+int64(n), rest[n:]
	}
	o.buf = o.buf[:0]
	return nil
}

// replaceFiles gives the new files the old ones' names. The old index goes
// first: it would be another file's. From here on an old file that is at rest
// is not opened again, so that nobody reads the new one by the old index.
func (c *Cleaning) replaceFiles() error {
	l := c.log
	for i := range c.swaps {
		x := &c.swaps[i]
		x.old.retired.Store(true)
		err := l.dir.fs.Remove(segmentName(l.path, x.old.base, indexSuffix))
		if err == nil {
			err = l.dir.fs.Rename(x.made.name+newSuffix, x.made.name)
		}
		if err != nil {
			return err
		}
		x.done = true
		if err := l.dir.fs.Meta().WriteHint(segmentName(l.path, x.made.base, indexSuffix), encodeIndex(x.made.index, x.made.content())); err != nil && !temporary(err) {
			return err
		}
	}
	if len(c.swaps) == 0 {
		return nil
	}
	return l.dir.fs.SyncDir(l.path)
}

// Cleaned ends the pass. After an error that says nothing of the disk, or one of
// a full disk or a busy machine, the pass may be planned again; any other has
// failed the directory. [L]
func (l *Log) Cleaned(c Cleaning) error {
	if c.log != l || !l.cleaning {
		invariant.Check(false, "PlanDoApply", l.path)
	}
	l.cleaning = false
	segs := append([]*segment(nil), l.list()...)
	for _, x := range c.swaps {
		if !x.done {
			x.old.retired.Store(false)
			continue
		}
		for i, s := range segs {
			if s == x.old {
				segs[i] = x.made
				l.size.Add(x.made.size.Load() - x.old.size.Load())
			}
		}
	}
	if l.closed.Load() {
		for _, x := range c.swaps {
			x.made.retire()
		}
		return ErrClosed
	}
	l.setList(segs)
	for _, x := range c.swaps {
		if x.done {
			x.old.retire()
		}
	}
	var corrupt *CorruptError
	switch {
	case c.err == nil:
		raise(&l.cleaned, c.to)
	case errors.Is(c.err, errStopped) || errors.Is(c.err, errGrown) || temporary(c.err) || errors.As(c.err, &corrupt):
	default:
		l.dir.Fail(c.err)
	}
	return c.err
}

// Stopped tells that a pass was given up for something that goes first.
func Stopped(err error) bool { return errors.Is(err, errStopped) || errors.Is(err, ErrClosed) }

// CleanedTo is where the dirty part of the log begins.
func (l *Log) CleanedTo() int64 { return l.cleaned.Load() }

// window is where the batches begin by which a repeated one is known: a recovery
// that reads them again must find all of them, for any may not be answered yet.
func (p *Producers) window() map[int64]bool {
	m := make(map[int64]bool, len(p.byID))
	for _, e := range p.byID {
		for _, s := range e.batches[:e.n] {
			m[s.base] = true
		}
	}
	return m
}
