package dataplane

import (
	"slices"

	"lockstep/internal/mirror"
	"lockstep/internal/wire"
)

// A mirror of our own kind keeps many fetches under way on one session (R6): a
// record then finds a fetch waiting whenever it comes, and reaches the
// destination half a round trip later. Requests queue; the oldest is looked at,
// and an answer moves the session's cursor past what it carries. The cursor
// lives as long as the connection.
//
// A partition's cursor has a generation, named by the destination together with
// an offset and stamped on each answer. An error, or a log that differs, stops
// the partition until a new generation; answers of an older one mean nothing.
//
// Two things hold an answer back, so that one answer carries more: two answers
// that have not left yet (the line is slower than the log), and, when less than half of the
// window is left, the pace at which the destination can renew it.

// pipeline is the part of a fetch session that has to do with it.
type pipeline struct {
	pipelined       bool
	over            bool    // its connection is gone
	hot, spare      []int32 // partitions that may have something new, by place in parts
	mirror, cluster string
	queue           []*fetch
	unsent          int
	held            bool // the oldest waits for an answer to leave
	turn            int  // which share is looked at when nothing has moved
	answers         int64
	given           [mirrorWindow]int64 // when the last answers were
	last            int64
	rtt             int64 // from an answer to the request it sets free; 0 unknown
}

// queueFetch takes one more request. What it says of partitions holds at once:
// the requests before it are looked at with it.
func (c *Core) queueFetch(f *fetch, req *wire.FetchRequest) {
	s := f.session
	if n := int64(req.Taken); n > 0 && n <= s.answers && n > s.answers-mirrorWindow {
		if took := c.now - s.given[(n-1)%mirrorWindow]; s.rtt == 0 {
			s.rtt = took
		} else {
			s.rtt += (took - s.rtt) / 8
		}
	}
	s.queue = append(s.queue, f)
	head := s.queue[0]
	switch {
	case head == f:
		c.lookAt(f)
	case req.NumPartitions+req.NumForgotten+req.Mirror.NumReports > 0:
		head.gen++ // where it is registered as waiting is of the old parts
		head.cold, head.warmed = 0, false
		// Behind it they would be answered when each before them has waited its
		// time out: half a minute later, and of a registration that may be another.
		head.reports, f.reports = append(head.reports, f.reports...), f.reports[:0]
		head.parts = s.parts
		c.pursue(head)
	}
}

// pipelineFor tells by the request that opens a session whether the destination
// follows generations.
func pipelineFor(req *wire.FetchRequest) (p pipeline) {
	for it := req.Partitions(); it.Next(); {
		if it.Generation > 0 {
			p.pipelined, p.mirror, p.cluster = true, string(req.Mirror.MirrorName), string(req.Mirror.ClusterID)
			return p
		}
	}
	return p
}

// lookAt makes a request the one that is looked at. Its time runs from here:
// those behind it have nothing to be late for.
func (c *Core) lookAt(f *fetch) {
	f.parts, f.deadline = f.session.parts, c.now+f.wait
	c.pursue(f)
}

// pursue answers the oldest request of a session, or leaves it parked.
func (c *Core) pursue(f *fetch) {
	c.timers.arm(&f.timer, f.deadline)
	for range 4 { // marks that move all the time end it sooner
		if f.deadline > c.now && c.holdsBack(f) {
			return // its partitions stay hot: there is another look
		}
		if c.tryFetch(f) {
			return
		}
		f.drop()
		if !c.coolDown(f.session) {
			return
		}
	}
	c.timers.arm(&f.timer, min(f.deadline, c.now+1e6))
}

// holdsBack tells whether an answer of a pipelined session must wait.
func (c *Core) holdsBack(f *fetch) bool {
	s := f.session
	if s == nil || !s.pipelined {
		return false
	}
	if s.unsent >= unsentAnswers {
		s.held = true
		return true
	}
	if at := s.earliest(); c.now < at {
		c.timers.arm(&f.timer, min(at, f.deadline))
		return true
	}
	return false
}

// earliest is when the next answer may be given.
func (s *fetchSession) earliest() int64 {
	if len(s.queue) > mirrorWindow/2 {
		return 0
	}
	return s.last + s.rtt/mirrorWindow
}

// moveCursor takes a partition's cursor past what its answer carries.
func (x *fetchPart) moveCursor() {
	x.out.Generation, x.out.Cursor = x.gen, x.offset
	if len(x.slice.Bytes) > 0 {
		x.offset = x.slice.Next
		x.last = x.p.log.EpochAt(x.offset - 1)
	}
	x.stopped = x.out.Err != wire.ErrNone || x.out.DivergingEpoch >= 0
}

// heat notes that a partition may have something new.
func (s *fetchSession) heat(i int) {
	if x := &s.parts[i]; s.pipelined && !x.hot {
		x.hot = true
		s.hot = append(s.hot, int32(i))
	}
}

// heatShare notes it of a share of all of them, another one each time. What
// moves a mark, or ends what may be read, is told by a wake-up; this is for what
// is not, such as a new log start.
func (s *fetchSession) heatShare() {
	phases := mirror.ReportPhases(len(s.parts))
	for i := s.turn % phases; i < len(s.parts); i += phases {
		s.heat(i)
	}
	s.turn++
}

// coolDown leaves hot what an evaluation has found something to tell of, in the
// order in which it is read next. The marks of all of them will wake the
// session. It tells whether one has moved meanwhile.
func (c *Core) coolDown(s *fetchSession) (moved bool) {
	if s.start > 0 && s.start < len(s.hot) {
		s.spare = append(append(s.spare[:0], s.hot[s.start:]...), s.hot[:s.start]...)
		s.hot, s.spare = s.spare, s.hot
	}
	s.start = 0
	kept := s.hot[:0]
	for _, i := range s.hot {
		x := &s.parts[i]
		something := x.more || x.out.Err != wire.ErrNone || x.out.DivergingEpoch >= 0 || x.out.HighWatermark != x.sentHigh || x.out.LogStart != x.sentStart
		if x.p != nil && !x.stopped && c.interested(x, max(x.seen, x.offset)+1) {
			moved, something = true, true
		}
		if something && !x.stopped {
			kept = append(kept, i)
		} else {
			x.hot = false
		}
	}
	s.hot = kept
	return moved
}

// wakeSessions looks again at the pipelined sessions that read p.
func (c *Core) wakeSessions(p *Partition, w *waits) {
	kept := w.sessions[:0]
	for _, s := range w.sessions {
		i, ok := s.at[sessionKey{p.id, p.index}]
		if !s.over && ok && s.parts[i].p == p {
			kept = append(kept, s)
			s.heat(i)
		}
	}
	clear(w.sessions[len(kept):])
	w.sessions = kept
	for _, s := range kept {
		if len(s.queue) > 0 && s.queue[0].cold == 0 {
			c.pursue(s.queue[0])
		}
	}
}

// answered follows the session over an answer.
func (c *Core) answered(f *fetch) {
	s := f.session
	s.queue = slices.Delete(s.queue, 0, 1) // it is the oldest
	s.given[s.answers%mirrorWindow], s.last = c.now, c.now
	s.answers++
	s.unsent++
	f.ans.session = s
}

// nextFetch looks at the next request, if there is one.
func (c *Core) nextFetch(s *fetchSession) {
	if len(s.queue) > 0 {
		c.lookAt(s.queue[0])
	}
}

// answerLeft: an answer of a pipelined session is on its way, or its connection
// is gone.
func (c *Core) answerLeft(s *fetchSession) {
	s.unsent--
	if s.held && len(s.queue) > 0 {
		s.held = false
		c.timers.arm(&s.queue[0].timer, c.now) // not from here: answers are being freed
	}
}
