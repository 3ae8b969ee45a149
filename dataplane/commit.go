package dataplane

import (
	"lockstep/segment"
)

// commit writes what the turn has queued: one write per partition and turn,
// by whoever finds no writer. A partition whose writer is another shard is
// left to it: that shard takes these runs too before it gives the token back.
func (c *Core) commit() {
	list := c.dirty
	c.dirty = c.dirty[len(list):]
	for _, p := range list {
		c.waitsOf(p).dirty = false
		c.wake(p, c.eng.drain(c, p, &c.write))
	}
	if len(c.dirty) == 0 {
		c.dirty = list[:0]
	}
}

// drain writes a partition's queue until it is empty or another thread writes,
// and asks for what must follow: a step of the file, a flush, a report. Any
// thread may call it, with its own w; c is its shard, nil for a goroutine. It
// returns the shards to wake.
func (e *Engine) drain(c *Core, p *Partition, w *segment.Write) (wake uint64) {
	report := false
	for {
		p.lock()
		if !p.log.Take(w) {
			e.follow(p)
			p.unlock()
			break
		}
		p.unlock()
		start := e.clock()
		for done := false; !done; {
			n, err := w.File.Pwritev(w.Bufs, w.Off)
			p.lock()
			if done = p.log.Wrote(w, n, err); done {
				mask, changed := p.published()
				wake, report = wake|mask, report || changed
			}
			p.unlock()
		}
		if took := e.clock() - start; took > slowWrite {
			e.m.slowWrites.Add(1)
		}
	}
	if report {
		e.wantReport(c, p)
	}
	if p.log.Failed() {
		e.logFailed(p)
	}
	return wake
}

const slowWrite = 5e6 // ns: a write that took longer is counted

// published tells the gate of a new end and whether a source must hear of it. [L]
func (p *Partition) published() (wake uint64, report bool) {
	if p.log.Failed() {
		p.trouble.Store(true)
		return p.interest(), false
	}
	return p.regate(p.role.Load()), p.down != nil && p.down.sync
}

// logFailed says once that a log directory has failed and wakes everyone who
// waits for a partition in it.
func (e *Engine) logFailed(p *Partition) {
	d := p.log.Dir()
	if d.Failed() == nil {
		return // only this log was closed
	}
	if _, told := e.failed.LoadOrStore(d, true); told {
		return
	}
	e.o.Log.Error("log directory failed; its partitions are offline until a restart", "dir", d.Path(), "error", d.Failed())
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	for _, x := range parts {
		if x.log.Dir() == d {
			x.trouble.Store(true)
			e.wakeShards(x, x.interest())
		}
	}
}

// follow asks for what a partition needs once its queue is empty. [L]
func (e *Engine) follow(p *Partition) {
	if !p.growing && !e.sealing.Load() {
		if g, ok := p.log.GrowPlan(e.wall()); ok {
			e.startGrow(p, g)
		}
	}
	e.keepFlushing(p)
}

// startGrow is on its own so that only a step is allocated, not each look for
// one. [L]
//
//go:noinline
func (e *Engine) startGrow(p *Partition, g segment.Grow) {
	p.growing = true
	e.background(jobGrow, func() { e.grow(p, g) })
}

// keepFlushing starts a flush if the topic reports what is durable and
// something is not: after an append, and after a restart or a change of
// flush.ack, when no append may come for long. [L]
func (e *Engine) keepFlushing(p *Partition) {
	if r := p.role.Load(); r.settings.Durable && !p.flushes && p.log.Durable() < p.log.End() {
		e.startFlush(p)
	}
}

// grow carries out one segment step off the ring and lets the requests that
// wait for it go on.
func (e *Engine) grow(p *Partition, g segment.Grow) {
	g.Do()
	p.lock()
	err := p.log.Grown(g)
	p.growing = false
	stalled := p.stalled
	p.stalled = 0
	if err == nil {
		// A larger batch may still not fit: the next try asks again.
		e.follow(p)
		if g.Sealed() && !p.flushes { // also where nobody waits: what a crash has to walk ends here
			e.startFlush(p)
		}
	}
	p.unlock()
	if err != nil {
		e.m.growErrors.Add(1)
		e.o.Log.Error("no room for the log", "topic", p.topic, "partition", p.index, "error", err)
	}
	e.noteGrown(p, stalled, err)
}

// noteGrown lets shards go on with what waits for room in a partition.
func (e *Engine) noteGrown(p *Partition, shards uint64, err error) {
	for s := range e.cores {
		if shards&(1<<s) != 0 {
			e.cores[s].inbox.put(note{kind: noteGrown, part: p, err: err})
		}
	}
}

// startFlush begins a group commit: everything appended before it is covered
// when it ends, and the next starts at once if there is more. [L]
func (e *Engine) startFlush(p *Partition) {
	f, ok := p.log.FlushPlan()
	if !ok {
		return
	}
	p.flushes = true
	if e.o.Background == nil {
		select {
		case e.flushq <- flushJob{p, f}:
			return
		default:
		}
	}
	e.flushElsewhere(p, f)
}

// flushJob is a group commit on its way to a flusher. It travels by value:
// under a durable load there are thousands a second.
type flushJob struct {
	p *Partition
	f segment.Flush
}

func (e *Engine) flusher() {
	work(e.flushq, e.stop, func(j flushJob) { e.flush(j.p, j.f) })
}

// flushElsewhere is for a driver that orders jobs itself, and for a partition
// count far over what the queue holds. On its own because its closure has f
// allocated.
//
//go:noinline
func (e *Engine) flushElsewhere(p *Partition, f segment.Flush) {
	e.background(jobFlush, func() { e.flush(p, f) })
}

func (e *Engine) flush(p *Partition, f segment.Flush) {
	start := e.clock()
	f.Do()
	e.m.flushNs.Add(e.clock() - start)
	e.flushed(p, f)
}

// flushed ends a flush and tells whoever waits for it.
func (e *Engine) flushed(p *Partition, f segment.Flush) {
	e.m.flushes.Add(1)
	p.lock()
	err := p.log.Flushed(f)
	p.flushes = false
	wake, report := p.published()
	if err == nil || !p.log.Failed() { // out of descriptors for the moment: the next try is a flush like any
		e.follow(p)
	}
	p.unlock()
	e.wakeShards(p, wake)
	if report {
		e.wantReport(nil, p)
	}
	if err != nil {
		e.logFailed(p)
	}
}
