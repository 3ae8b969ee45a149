package dataplane

import "lockstep/ioring"

// What keeps the number of connections in bounds: a limit where they come in,
// and the end of those that say nothing.

// refusals is when connections above the limit were last spoken of. It belongs
// to the shard that accepts.
type refusals struct{ nextLine int64 }

// deal gives a connection to the shard with the fewest. It is counted before its
// shard has heard of it, or a storm would pass the limit.
func (e *Engine) deal(from *Core, fd, listener int32) {
	best, total := from, int32(0)
	for _, c := range e.cores {
		total += c.load.Load()
		if c.load.Load() < best.load.Load() {
			best = c
		}
	}
	if total >= int32(e.o.MaxConnections) {
		e.refuse(from, fd)
		return
	}
	best.load.Add(1)
	if best == from {
		from.adopt(fd).listener = listener
		return
	}
	best.inbox.put(note{kind: noteConn, fd: fd, token: uint64(listener)})
}

// refuse ends a connection at once: a client that is left to wait in the listen
// queue cannot tell a full broker from a dead one.
func (e *Engine) refuse(c *Core, fd int32) {
	c.m.refused.Add(1)
	c.op(ioring.Op{Kind: ioring.Close, FD: fd, Token: tokenSpecial})
	if c.now >= e.refusals.nextLine {
		e.refusals.nextLine = c.now + refusedEvery
		e.o.Log.Warn("connection refused: too many", "open", e.o.MaxConnections, "refused_so_far", c.m.refused.Load(),
			"hint", "max.connections, or the limit of open files of the process")
	}
}

// idle looks for connections that have been silent for too long, some in a turn.
type idle struct {
	timer timer
	next  int // slot to look at
}

// watch begins to look, if there is a limit.
func (i *idle) watch(c *Core) {
	if c.eng.o.IdleMS > 0 && i.timer.index == 0 {
		i.timer.owner = i
		c.timers.arm(&i.timer, c.now+i.pause(c))
	}
}

func (i *idle) pause(c *Core) int64 { return max(c.eng.o.IdleMS*1e6/idleLooks, idlePause) }

func (i *idle) expired(c *Core) {
	end := min(i.next+idleBatch, len(c.conns))
	for ; i.next < end; i.next++ {
		if cn := c.conns[i.next]; !cn.closed && !cn.closing && c.isIdle(cn) {
			c.m.idled.Add(1)
			c.close(cn)
		}
	}
	switch {
	case i.next < len(c.conns):
		c.timers.arm(&i.timer, c.now+idlePause)
		return
	case c.open > 0:
		c.timers.arm(&i.timer, c.now+i.pause(c))
	}
	i.next = 0
}

// isIdle tells whether a client is silent and it is not us it waits for. One that
// does not read its answers is; a large frame has the whole time to come in, for
// its pieces are not seen.
func (c *Core) isIdle(cn *conn) bool {
	switch {
	case cn.lane != nil || cn.muted || cn.hungry || c.now-cn.moved < c.eng.o.IdleMS*1e6:
		return false
	case cn.sending:
		return true
	}
	return len(cn.answers) == 0
}
