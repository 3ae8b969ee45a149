package dataplane

import "lockstep/segment"

// crowded begins to put logs to rest, unless that is under way. Any thread may
// call it, a shard too, and one that holds a partition's lock. A thread that
// opens files faster than they are closed does some of the closing itself.
func (e *Engine) crowded() {
	if e.resting.CompareAndSwap(false, true) {
		e.background(jobRest, e.rest)
	}
	for _, d := range e.o.Dirs {
		if d.Overfull() {
			e.restSome(restInline)
			return
		}
	}
}

// rest closes files until there is room again, or all were looked at twice.
// Files with bytes that are not durable stay open, so those are flushed first.
func (e *Engine) rest() {
	e.FlushAll()
	for n := e.restSome(restInline); n > 0 && e.anyCrowded(); n-- {
		e.restSome(restInline)
	}
	e.resting.Store(false) // the next file that is opened above the budget begins it anew
}

func (e *Engine) anyCrowded() bool {
	for _, d := range e.o.Dirs {
		if d.Crowded(true) {
			return true
		}
	}
	return false
}

// restSome moves the hand of a clock over n partitions: whoever was not used
// since it passed goes. It returns how many such steps are two rounds. It
// waits for no lock: a partition whose lock is held is in use.
func (e *Engine) restSome(n int) (twoRounds int) {
	if !e.mu.TryRLock() {
		return 0
	}
	parts := e.parts
	e.mu.RUnlock()
	if len(parts) == 0 {
		return 0
	}
	for range n {
		p := parts[e.hand.Add(1)%uint64(len(parts))]
		if !p.mu.TryLock() {
			continue
		}
		r, ok := p.log.RestPlan()
		p.unlock()
		if ok {
			r.Do()
			e.m.rested.Add(1)
		}
	}
	return 2*len(parts)/n + 1
}

// restOpened does the same for logs that have just been recovered and that
// nobody else knows of yet.
func (e *Engine) restOpened(d *segment.Dir, logs []*segment.Log) error {
	var flushes []*segment.Flush
	for _, l := range logs {
		if f, ok := l.FlushPlan(); ok {
			flushes = append(flushes, &f)
		}
	}
	d.FlushLogs(flushes)
	for _, f := range flushes {
		if err := f.Log().Flushed(*f); err != nil {
			return err
		}
	}
	for _, l := range logs {
		if r, ok := l.RestPlan(); ok {
			r.Do()
		}
	}
	return nil
}
