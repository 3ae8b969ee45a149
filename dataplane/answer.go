package dataplane

import (
	"lockstep/internal/invariant"
	"lockstep/ioring"
	"lockstep/segment"
)

// answer is a reserved place in the order of a connection's responses. It is
// filled when its request is done and sent when all before it are.
type answer struct {
	conn    *conn
	orphan  bool      // the connection is gone: who completes the answer frees it
	parked  canceller // what waits to complete it and wants to hear of that
	ready   bool
	hangup  bool // close the connection in place of an answer
	head    *ioring.Buffer
	cuts    []cut
	pins    []segment.Slice
	session *fetchSession // pipelined: hears that this answer has left
	next    *answer       // free list
}

// cut is a place in the head where gathered bytes go on the wire.
type cut struct {
	at    int // offset in head
	bytes []byte
}

func (c *Core) reserve(cn *conn) *answer {
	a := c.freeAnswers
	if a == nil {
		a = &answer{}
	} else {
		c.freeAnswers, a.next = a.next, nil
	}
	a.conn = cn
	c.owed++
	cn.answers = append(cn.answers, a)
	return a
}

// canceller is told that nobody waits for its answer any more.
type canceller interface{ cancel(c *Core) }

// abandon is called for each answer a closing connection still owes.
func (c *Core) abandon(a *answer) {
	if a.ready {
		c.free(a)
		return
	}
	a.orphan = true
	if a.parked != nil {
		a.parked.cancel(c)
	}
}

// free takes an answer back with all it holds.
func (c *Core) free(a *answer) {
	c.owed--
	if a.head != nil {
		c.answers.Free(a.head)
	}
	for i := range a.pins {
		a.pins[i].Release()
	}
	clear(a.pins)
	clear(a.cuts)
	if a.session != nil {
		c.answerLeft(a.session)
	}
	*a = answer{cuts: a.cuts[:0], pins: a.pins[:0], next: c.freeAnswers}
	c.freeAnswers = a
}

// done marks an answer as complete and its connection as having work.
func (c *Core) done(a *answer) {
	if a.orphan {
		c.free(a)
		return
	}
	a.ready = true
	c.wantSend(a.conn)
}

// hangup answers by closing the connection once all before it is sent.
func (c *Core) hangUp(a *answer) {
	a.hangup = true
	c.done(a)
}

// room returns an empty head of at least n bytes for an answer. Responses are
// small beside the requests they answer, so they are not counted against the
// budget of frames: the pool of answers has its own.
func (c *Core) room(a *answer, n int) []byte {
	b := c.answers.Alloc(n)
	if b == nil { // in an if: the values of a passing check would be allocated
		invariant.Check(false, "LimitsHold", "answer of", n)
	}
	a.head = b
	return b.Data[:0]
}

// fill takes the encoded head back. It must still be the memory of room: the
// size was computed, so that nothing grows on the Go heap.
func (a *answer) fill(b []byte) {
	if len(b) > len(a.head.Data) {
		invariant.Check(false, "AnswerFitsItsRoom", len(b), " in ", len(a.head.Data))
	}
	a.head.Data = b
}

// gather notes that bytes go on the wire at this point of the head.
func (a *answer) gather(head []byte, s []byte) {
	a.cuts = append(a.cuts, cut{len(head), s})
}
