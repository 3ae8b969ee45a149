package ioring

import (
	"golang.org/x/sys/unix"

	"lockstep/internal/invariant"
)

// reap turns completions into events.
func (r *Ring) reap(events []Event) []Event {
	var c cqe
	for r.q.take(&c) {
		if c.userData == wakeData {
			r.wakeArmed = false
			continue
		}
		if ev := r.complete(&c); ev.Kind != 0 {
			events = append(events, ev)
		}
	}
	return events
}

func (r *Ring) complete(c *cqe) Event {
	i, gen := uint32(c.userData), uint32(c.userData>>32)
	if int(i) >= len(r.ops) || r.ops[i].gen != gen { // not as an argument: boxing the values would allocate
		invariant.Check(false, "CompletionOfAnOpInFlight", i, gen)
	}
	f := &r.ops[i]
	ev := Event{Kind: f.kind, Token: f.token, Res: c.res}
	if c.flags&cqeFBuffer != 0 {
		r.lent--
		b := r.pool.take(int32(c.flags>>cqeBufferShift), int(max(c.res, 0)))
		if c.res > 0 {
			ev.Buf = b
		} else {
			r.pool.Free(b)
		}
	}
	switch {
	case f.kind == Connect && c.res < 0:
		_ = unix.Close(int(f.fd))
	case f.kind == Connect:
		ev.Res = f.fd
	case f.kind == Recv && c.res == -int32(unix.ENOBUFS) && *r.closed(f.fd) != f.close:
		ev.Res = -int32(unix.ECANCELED) // the number may be another connection's by now
	case f.kind == Recv && c.res == -int32(unix.ENOBUFS):
		r.short = true
		r.starved = append(r.starved, Op{Kind: Recv, FD: f.fd, Token: f.token})
		ev.Kind = 0
	}
	if f.slot >= 0 {
		r.sends.give(f.slot)
	}
	f.gen++
	r.freeOps = append(r.freeOps, int32(i))
	return ev
}
