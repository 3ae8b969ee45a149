package sim

import (
	"syscall"

	"lockstep/dataplane"
	"lockstep/ioring"
)

// stream is one direction of a connection.
type stream struct {
	buf  []byte
	eof  bool // the writer is done
	dead bool // reset, or the reader is gone

	until int64 // nothing arrives before
}

// silent tells that nothing arrives, not even the end.
func (s *stream) silent(w *World) bool { return w.mono < s.until && !w.calm }

// end is one side of a connection.
type end struct {
	rx, tx *stream
	closed bool
}

// pipe makes a connection.
func pipe() (a, b *end) {
	x, y := &stream{}, &stream{}
	return &end{rx: x, tx: y}, &end{rx: y, tx: x}
}

func (e *end) close() {
	e.closed = true
	e.tx.eof = true
	e.rx.dead = true
}

func (e *end) reset() {
	e.closed = true
	e.tx.dead, e.rx.dead = true, true
	e.tx.buf, e.rx.buf = nil, nil
}

// heap is memory for a Pool.
type heap struct{}

func (heap) Map(n int) ([]byte, error) { return make([]byte, n), nil }
func (heap) Unmap(b []byte) error {
	for i := range b {
		b[i] = 0xdd // whoever still reads it shall notice
	}
	return nil
}

// pending is an operation the kernel has and the engine waits for.
type pending struct {
	op  ioring.Op
	e   *end // of FD when it was queued
	got int  // RecvInto
}

// kernel carries out the operations of one shard.
type kernel struct {
	n     *node
	core  *dataplane.Core
	awake bool
	ops   []pending
}

// turn completes some operations, in any order, and lets the shard step if it
// has a reason to: a real one sleeps in its ring otherwise.
func (k *kernel) turn(all bool) bool {
	w := k.n.w
	var events []ioring.Event
	for _, i := range w.rnd.Perm(len(k.ops)) {
		p := &k.ops[i]
		if !all && w.rnd.IntN(10) < 4 {
			continue
		}
		if ev, ok := k.try(p); ok {
			events = append(events, ev)
			p.op.Kind = 0
		}
	}
	if len(events) == 0 && !k.awake && k.core.Wait(w.mono) != 0 {
		return false
	}
	kept := k.ops[:0]
	for _, p := range k.ops {
		if p.op.Kind != 0 {
			kept = append(kept, p)
		}
	}
	clear(k.ops[len(kept):])
	k.ops = kept
	k.awake = false
	w.mono += 1000
	for _, op := range k.core.Step(w.mono, w.wall(), events) {
		e := k.n.fds[op.FD]
		w.check(e != nil || op.Kind == ioring.Accept || op.Kind == ioring.Connect || op.Kind == ioring.Populate ||
			op.Kind == ioring.Close && op.FD == listener,
			"DescriptorsAreOurs", op.Kind, " of ", op.FD)
		k.ops = append(k.ops, pending{op: op, e: e})
	}
	w.note("%s shard %d: %d events, %d in flight", k.n.name, k.index(), len(events), len(k.ops))
	return true
}

func (k *kernel) index() int {
	for i, x := range k.n.kernels {
		if x == k {
			return i
		}
	}
	return -1
}

// faults is what operations end with now and then though peer and disk are well:
// the machine is short of descriptors or memory, or a call was interrupted.
var faults = map[ioring.Kind]struct {
	in  int // one in so many
	res []syscall.Errno
}{
	ioring.Accept:   {8, []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.EINTR}},
	ioring.Connect:  {20, []syscall.Errno{syscall.EMFILE, syscall.EADDRNOTAVAIL, syscall.EINTR}},
	ioring.Populate: {4, []syscall.Errno{syscall.ENOMEM, syscall.EFAULT, syscall.EINTR}},
	ioring.Recv:     {400, []syscall.Errno{syscall.ENOMEM, syscall.EINTR, syscall.ETIMEDOUT}},
	ioring.RecvInto: {400, []syscall.Errno{syscall.ENOMEM, syscall.EINTR, syscall.ETIMEDOUT}},
	ioring.Send:     {400, []syscall.Errno{syscall.ENOMEM, syscall.ENOBUFS, syscall.EINTR}},
}

// fault is such an end, 0 for none.
func (k *kernel) fault(kind ioring.Kind) int32 {
	f, rnd := faults[kind], k.n.w.rnd
	if k.n.w.calm || f.in == 0 || rnd.IntN(f.in) != 0 {
		return 0
	}
	return -int32(f.res[rnd.IntN(len(f.res))])
}

// try carries out one operation if it can end now.
func (k *kernel) try(p *pending) (ioring.Event, bool) {
	ev := ioring.Event{Kind: p.op.Kind, Token: p.op.Token}
	if p.op.Kind == ioring.Accept && len(k.n.backlog) == 0 {
		return ev, false
	}
	if ev.Res = k.fault(p.op.Kind); ev.Res != 0 {
		return ev, true
	}
	switch p.op.Kind {
	case ioring.Accept:
		ev.Res = k.n.install(k.n.backlog[0])
		k.n.backlog = k.n.backlog[1:]
		return ev, true
	case ioring.Connect:
		ev.Res = k.n.w.connect(k.n, p.op.Addr)
		return ev, true
	case ioring.Populate:
		return ev, true
	case ioring.Close:
		if p.e != nil && !p.e.closed {
			p.e.close()
			k.n.shut = append(k.n.shut, p.e)
		}
		delete(k.n.fds, p.op.FD)
		return ev, true
	}
	if p.e == nil || p.e.closed {
		ev.Res = -int32(syscall.ECANCELED)
		return ev, true
	}
	var ok bool
	switch p.op.Kind {
	case ioring.Recv:
		ok = k.recv(p, &ev)
	case ioring.RecvInto:
		ok = k.recvInto(p, &ev)
	case ioring.Send:
		ok = k.send(p, &ev)
	}
	return ev, ok
}

func (k *kernel) recv(p *pending, ev *ioring.Event) bool {
	s := p.e.rx
	switch {
	case s.silent(k.n.w):
		return false
	case s.dead:
		ev.Res = -int32(syscall.ECONNRESET)
	case len(s.buf) > 0:
		n := k.n.w.some(min(len(s.buf), ioring.ProvidedSize))
		buf := k.core.Pool().Alloc(n)
		if buf == nil {
			return false // no buffers: the kernel waits too
		}
		copy(buf.Data, s.buf)
		s.buf = s.buf[n:]
		ev.Buf, ev.Res = buf, int32(n)
	default:
		return s.eof
	}
	return true
}

func (k *kernel) recvInto(p *pending, ev *ioring.Event) bool {
	s := p.e.rx
	if s.silent(k.n.w) {
		return false
	}
	n := copy(p.op.Bytes[p.got:], s.buf)
	s.buf = s.buf[n:]
	p.got += n
	ev.Res = int32(p.got)
	switch {
	case p.got == len(p.op.Bytes), s.eof && len(s.buf) == 0:
		return true
	case s.dead:
		ev.Res = -int32(syscall.ECONNRESET)
		return true
	}
	return false
}

func (k *kernel) send(p *pending, ev *ioring.Event) bool {
	s := p.e.tx
	switch {
	case s.dead:
		ev.Res = -int32(syscall.EPIPE)
		return true
	case len(s.buf) >= socketBytes:
		return false
	}
	total := 0
	for _, x := range p.op.Pieces {
		k.n.w.check(len(x) > 0, "LimitsHold", "an empty piece in a send")
		total += len(x)
	}
	k.n.w.check(total > 0 && len(p.op.Pieces) <= ioring.MaxPieces, "LimitsHold", "send of", len(p.op.Pieces), "pieces,", total, "bytes")
	n := k.n.w.some(total)
	ev.Res = int32(n)
	for _, x := range p.op.Pieces {
		x = x[:min(n, len(x))]
		s.buf = append(s.buf, x...)
		if n -= len(x); n == 0 {
			break
		}
	}
	return true
}
