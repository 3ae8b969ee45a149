package dataplane

import (
	"lockstep/ioring"
)

// parkFetch lets a fetch wait for more, on each partition's marks.
func (c *Core) parkFetch(f *fetch) {
	f.drop()
	c.timers.arm(&f.timer, f.deadline)
	ready := false
	for i := range f.parts {
		x := &f.parts[i]
		if x.p == nil || x.stopped {
			continue
		}
		w := c.waitsOf(x.p)
		if len(w.fetches) >= purgeAbove {
			w.fetches = liveFetches(w.fetches)
		}
		w.fetches = append(w.fetches, fetchWait{f, f.gen})
		ready = c.interested(x, x.offset+1) || ready
	}
	if ready { // a mark moved between the look and the wait
		c.again(f)
	}
}

// interested registers with the mark that a partition's share waits for and
// tells whether it has passed offset already.
func (c *Core) interested(x *fetchPart, offset int64) bool {
	if x.ahead {
		return x.p.tail.Wait(c.id, offset)
	}
	return x.p.high.Wait(c.id, offset)
}

func liveFetches(list []fetchWait) []fetchWait {
	kept := list[:0]
	for _, w := range list {
		if w.f.gen == w.gen {
			kept = append(kept, w)
		}
	}
	clear(list[len(kept):])
	return kept
}

// retryFetches looks again at the fetches parked on p. One that stays parked
// registers its interest anew.
func (c *Core) retryFetches(p *Partition, w *waits) {
	list := w.fetches
	w.fetches = nil
	for _, x := range list {
		if x.f.gen == x.gen && x.f.cold == 0 {
			c.again(x.f)
		}
	}
	for _, x := range list {
		if x.f.gen == x.gen {
			w.fetches = append(w.fetches, x)
		}
	}
}

// again evaluates a parked fetch once more; one that goes on waiting asks to
// be woken by whichever of its partitions moves next.
func (c *Core) again(f *fetch) {
	for range 4 { // a mark that moves all the time ends it sooner
		if c.tryFetch(f) {
			return
		}
		f.drop()
		moved := false
		for i := range f.parts {
			x := &f.parts[i]
			if x.p == nil || x.stopped {
				continue
			}
			// Fewer bytes than min.bytes are there: the next rise counts.
			now := x.p.high.Load()
			if x.ahead {
				now = x.p.tail.Load()
			}
			moved = c.interested(x, max(now, x.offset)+1) || moved
		}
		if !moved {
			return
		}
	}
}

// expired answers a parked fetch with what there is.
func (f *fetch) expired(c *Core) {
	if s := f.session; s != nil && s.pipelined {
		if f.cold > 0 {
			return
		}
		if c.now >= f.deadline { // now and then all of them are looked at, those of a large session in turns
			f.drop()
			s.heatShare()
		}
		c.pursue(f)
		return
	}
	if f.cold == 0 {
		c.tryFetch(f)
	}
}

// cancel ends a parked fetch whose connection is gone.
func (f *fetch) cancel(c *Core) {
	a := f.ans
	c.freeFetch(f)
	c.free(a)
}

// populate asks for the pages of cold ranges before they are sent: a page
// fault in a send would stall the whole ring for its disk read. It returns
// false when everything is warm. The slices stay pinned until the pages are
// there; then the request is evaluated anew.
func (c *Core) populate(f *fetch) bool {
	for k := range f.count() {
		if s := &f.part(k).slice; s.Cold && len(s.Bytes) > 0 {
			f.cold++
			c.op(ioring.Op{Kind: ioring.Populate, Token: tokenSpecial | uint64(c.populates.put(f)), Bytes: s.Bytes})
		}
	}
	return f.cold > 0
}

// populated goes on with a fetch when its last cold range is in memory. An
// error of the advice changes nothing: the send will then fault or fail.
func (c *Core) populated(ev *ioring.Event) {
	f := c.populates.take(uint32(ev.Token))
	if f == nil {
		return
	}
	if f.cold--; f.cold > 0 {
		return
	}
	f.warmed = true
	if f.session != nil && f.session.pipelined {
		c.pursue(f)
	} else if !c.tryFetch(f) {
		c.parkFetch(f)
	}
}

// populates are the fetches that wait for pages, by slot.
type populates struct {
	slots []fetchWait
	free  []uint32
}

func (t *populates) put(f *fetch) uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[i] = fetchWait{f, f.gen}
		return i
	}
	t.slots = append(t.slots, fetchWait{f, f.gen})
	return uint32(len(t.slots) - 1)
}

func (t *populates) take(i uint32) *fetch {
	x := t.slots[i]
	t.slots[i] = fetchWait{}
	t.free = append(t.free, i)
	if x.f.gen != x.gen {
		return nil
	}
	return x.f
}
