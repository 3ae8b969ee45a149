package dataplane

import (
	"math"
	"sync/atomic"

	"lockstep/internal/invariant"
	"lockstep/ioring"
	"lockstep/segment"
)

// Core is one shard: a function from completions to operations. It owns its
// connections, what is parked on them, and timers; partitions it shares with
// the other shards. Step is deterministic given its inputs and the partitions
// it locks: clock, kernel and disk come in by argument.
type Core struct {
	eng  *Engine
	id   uint
	now  int64 // monotonic, ns: of this turn
	wall int64 // Unix time, ms: of this turn
	ops  []ioring.Op

	inflated []byte       // room for a batch's records
	pool     *ioring.Pool // received frames, against a budget
	answers  *ioring.Pool // responses and parked requests

	conns     []*conn
	freeConns []int32
	toSend    []*conn
	hungry    []*conn
	open      int
	load      atomic.Int32 // connections, those on their way included, for whoever deals them out
	idle      idle

	inbox       inbox
	home        homecoming
	frames      *frame
	freeAnswers *answer
	timers      timers

	topics    directory
	moved     []*Partition
	dirty     []*Partition // queued runs, or a step to ask for, since the last commit
	write     segment.Write
	produces  *produce
	fetches   *fetch
	lanes     lanes
	populates populates
	sessions  int32 // fetch sessions given out
	owed      int   // answers reserved and not yet sent, of all connections
	stopping  bool
	quit      bool
	gone      chan struct{} // closed when the shard has ended

	finished atomic.Uint64 // index of the last View this shard has finished
	m        metrics
}

func newCore(e *Engine, id uint, mem ioring.Memory, wake func()) *Core {
	c := &Core{eng: e, id: id, gone: make(chan struct{})}
	c.pool = ioring.NewPool(mem, e.o.FrameMemory)
	c.answers = ioring.NewPool(mem, math.MaxInt)
	c.inbox.wake = wake
	c.home.wake = wake
	c.topics.init()
	c.lanes.init()
	return c
}

// op appends an operation of this turn.
func (c *Core) op(o ioring.Op) { c.ops = append(c.ops, o) }

// Step handles what has completed and returns what to do next. Appends of the
// turn are written inside it, in commit, by plain calls on segment files.
func (c *Core) Step(now, wall int64, events []ioring.Event) []ioring.Op {
	c.now, c.wall = now, wall
	c.ops = c.ops[:0]
	c.bringHome()
	for i := range events {
		c.event(&events[i])
	}
	for _, n := range c.inbox.take() {
		c.note(&n)
	}
	for at, ok := c.timers.next(); ok && at <= now; at, ok = c.timers.next() {
		t := c.timers.heap[0]
		c.timers.disarm(t)
		t.owner.expired(c)
	}
	c.settle()
	c.endTurn()
	return c.ops
}

// endTurn feeds connections that wait for memory, until nothing more has come
// home: a frame that another thread let go before this shard said that it
// starves has woken nobody.
func (c *Core) endTurn() {
	for {
		c.bringHome()
		c.feed()
		c.settle()
		if len(c.hungry) == 0 || c.home.top.Load() == nil {
			return
		}
	}
}

// settle repeats commit, wake-ups and sends until the turn has no more work:
// an append raises marks, a raised mark completes requests, their answers make
// room for more requests.
func (c *Core) settle() {
	for {
		switch {
		case len(c.dirty) > 0:
			c.commit()
		case len(c.moved) > 0:
			p := c.moved[len(c.moved)-1]
			c.moved = c.moved[:len(c.moved)-1]
			c.waitsOf(p).listed = false
			c.wakeWaiters(p)
		case len(c.toSend) > 0:
			cn := c.toSend[len(c.toSend)-1]
			c.toSend = c.toSend[:len(c.toSend)-1]
			cn.listed = false
			c.flush(cn)
		case c.lanes.pending():
			c.lanes.flush(c)
		default:
			return
		}
	}
}

// Wait is how long the shard may sleep at time now: negative for ever.
func (c *Core) Wait(now int64) int64 {
	at, ok := c.timers.next()
	if !ok {
		return -1
	}
	return max(0, at-now)
}

func (c *Core) event(ev *ioring.Event) {
	if ev.Token&tokenSpecial != 0 {
		c.special(ev)
		return
	}
	cn := c.lookup(ev.Token)
	if cn == nil {
		invariant.Check(ev.Buf == nil, "CompletionOfAnOpInFlight", ev.Kind)
		return
	}
	switch ev.Kind {
	case ioring.Recv, ioring.RecvInto:
		c.received(cn, ev)
	case ioring.Send:
		c.sent(cn, ev.Res)
	case ioring.Close:
		cn.closed = true
		c.bury(cn)
	}
}

// tokenSpecial marks tokens that are not a connection's: accepts, connects and
// populates. Connection generations stay below it.
const tokenSpecial = 1 << 63

func (c *Core) special(ev *ioring.Event) {
	switch ev.Kind {
	case ioring.Accept:
		c.accepted(ev)
	case ioring.Connect:
		c.lanes.connected(c, ev)
	case ioring.Populate:
		c.populated(ev)
	}
}

func (c *Core) note(n *note) {
	switch n.kind {
	case noteConn:
		if c.stopping {
			c.load.Add(-1)
			c.op(ioring.Op{Kind: ioring.Close, FD: n.fd, Token: tokenSpecial})
			return
		}
		c.adopt(n.fd).listener = int32(n.token)
	case noteMoved:
		c.movedOn(n.part)
	case noteCold:
		c.coldAnswered(n)
	case noteGrown:
		c.grown(n.part, n.err)
	case noteView:
		c.takeDelta(n.delta)
	case noteReport:
		c.lanes.dirty(c, n.part)
	case noteCall:
		n.fn(c)
	}
}

// movedOn lists a partition whose waiters are to be looked at this turn.
func (c *Core) movedOn(p *Partition) {
	w := c.waitsOf(p)
	if !w.listed {
		w.listed = true
		c.moved = append(c.moved, p)
	}
}

// wake tells the shards in mask that marks of p moved.
func (c *Core) wake(p *Partition, mask uint64) {
	if mask == 0 {
		return
	}
	if mask&(1<<c.id) != 0 {
		c.movedOn(p)
		mask &^= 1 << c.id
	}
	c.eng.wakeShards(p, mask)
}

func (c *Core) touch(p *Partition) {
	if w := c.waitsOf(p); !w.dirty {
		w.dirty = true
		c.dirty = append(c.dirty, p)
	}
}

func (c *Core) waitsOf(p *Partition) *waits {
	w := p.waits[c.id]
	if w == nil {
		w = &waits{}
		p.waits[c.id] = w
	}
	return w
}

// accepted deals a new connection to the shard with the fewest.
func (c *Core) accepted(ev *ioring.Event) {
	l := int(uint32(ev.Token))
	if c.stopping || l >= len(c.eng.listeners) {
		if ev.Res >= 0 {
			c.op(ioring.Op{Kind: ioring.Close, FD: ev.Res, Token: tokenSpecial})
		}
		return
	}
	if ev.Res < 0 {
		// Out of descriptors, or a peer that is gone again: try once more a
		// little later, or an accept loop would spin.
		c.m.acceptErrors.Add(1)
		c.eng.acceptRetry(c, l)
		return
	}
	c.accept(l)
	c.eng.deal(c, ev.Res, int32(l))
}

func (c *Core) accept(l int) {
	c.op(ioring.Op{Kind: ioring.Accept, FD: c.eng.listeners[l], Token: tokenSpecial | uint64(l)})
}
