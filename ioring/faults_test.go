//go:build !giouring

package ioring

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var faultSeed = flag.Uint64("ring.seed", 0, "seed of TestRingFaults; 0 = of the clock")

// TestRingFaults drives the ring over a kernel that does what the real one may
// and seldom does: it is interrupted, takes a part of what is submitted or nothing,
// has no buffer, completes in any order, and has its completion queue overflow.
// EveryOperationEndsOnce: nothing is lost, nothing ends twice, bytes come in order,
// buffers come home. DescriptorsAreOurs: nothing is asked of a number that was
// closed.
func TestRingFaults(t *testing.T) {
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rounds := 50
	if testing.Short() {
		rounds = 15
	}
	seen := map[string]int{}
	for i := range uint64(rounds) {
		if err := ringFaults(seed+i, seen); err != nil {
			t.Fatalf("-ring.seed=%d: %v", seed+i, err)
		}
	}
	for _, what := range []string{"EINTR", "EAGAIN", "EBUSY", "ENOBUFS", "ETIME", "a part submitted", "overflow", "a full submission queue", "EMFILE", "reset", "short send", "end of stream", "cancelled"} {
		if seen[what] == 0 {
			t.Errorf("seed %d: %s never happened", seed, what)
		}
	}
	t.Logf("seed %d: %v", seed, seen)
}

const (
	fakeSQ, fakeCQ = 8, 32 // slots
	fakeSockets    = 48
	fakeFD         = 60_000 // no descriptor of this process is as large
)

// fakeSocket is the peer's side of a connection.
type fakeSocket struct {
	sent, left, taken int  // bytes: handed out, still to come, received
	reset, closed     bool // by the peer, by us
}

// pattern is the byte at a place of a socket's stream.
func pattern(fd int32, at int) byte { return byte(at*7 + at>>8 + int(fd)) }

// fakeOp is an operation the kernel has, and the file it had found.
type fakeOp struct {
	sqe
	s *fakeSocket
}

// fakeKernel stands behind a ring's queues.
type fakeKernel struct {
	r        *Ring
	rnd      *rand.Rand
	calm     bool
	sockets  map[int32]*fakeSocket
	pending  []fakeOp
	overflow []cqe
	bufs     uint16 // provided buffers that it has used
	seen     map[string]int
	err      error
	maps     [][]byte
}

// Map and Unmap are a Pool's Memory, which goes with the run.
func (k *fakeKernel) Map(n int) ([]byte, error) {
	b, err := OffHeap{}.Map(n)
	k.maps = append(k.maps, b)
	return b, err
}

func (k *fakeKernel) Unmap([]byte) error { return nil }

func newFakeKernel(rnd *rand.Rand, seen map[string]int) (*fakeKernel, error) {
	k := &fakeKernel{rnd: rnd, seen: seen, sockets: map[int32]*fakeSocket{}}
	r := &Ring{pool: NewPool(k, 64<<20)}
	k.r = r
	if err := r.lay(); err != nil {
		return nil, err
	}
	q := &r.q
	var err error
	if q.rings, err = (OffHeap{}).Map(64 + fakeCQ*16); err != nil {
		return nil, err
	}
	if q.sqes, err = (OffHeap{}).Map(fakeSQ * 64); err != nil {
		return nil, err
	}
	q.sqHead, q.sqTail, q.cqHead, q.cqTail = at32(q.rings, 0), at32(q.rings, 4), at32(q.rings, 8), at32(q.rings, 12)
	q.sqSize, q.sqMask, q.cqMask, q.cqesAt = fakeSQ, fakeSQ-1, fakeCQ-1, 64
	q.fake = k.enter
	r.lend()
	return k, nil
}

func (k *fakeKernel) sometimes(what string, in int) bool {
	if k.calm || k.rnd.IntN(in) != 0 {
		return false
	}
	if what != "" {
		k.seen[what]++
	}
	return true
}

// enter is io_uring_enter.
func (k *fakeKernel) enter(submit, min uint32, w *waitArg) unix.Errno {
	q := &k.r.q
	if submit == fakeSQ {
		k.seen["a full submission queue"]++
	}
	switch {
	case k.sometimes("EINTR", 10):
		return unix.EINTR
	case submit > 0 && k.sometimes("EAGAIN", 10):
		return unix.EAGAIN
	case submit > 1 && k.sometimes("a part submitted", 10):
		submit = 1 + uint32(k.rnd.IntN(int(submit-1)))
	}
	for range submit {
		head := q.sqHead.Load()
		e := *(*sqe)(unsafe.Pointer(&q.sqes[(head&q.sqMask)*64]))
		s := k.sockets[e.fd]
		if s == nil && e.fd >= fakeFD {
			k.fail("operation %d on %d, which is closed", e.opcode, e.fd)
		}
		k.pending = append(k.pending, fakeOp{e, s})
		q.sqHead.Store(head + 1)
	}
	k.flush()
	if !k.sometimes("", 3) {
		k.work(3)
	}
	if min > 0 && q.cqHead.Load() == q.cqTail.Load() {
		if w == nil || k.calm || k.rnd.IntN(2) == 0 {
			k.work(1)
		}
		if q.cqHead.Load() == q.cqTail.Load() {
			if w == nil {
				k.fail("a wait for ever with %d operations that cannot end", len(k.pending))
			}
			k.seen["ETIME"]++
			return unix.ETIME
		}
	}
	if len(k.overflow) > 0 && k.sometimes("EBUSY", 2) {
		return unix.EBUSY
	}
	return 0
}

// work ends about one in so many of what can end.
func (k *fakeKernel) work(in int) {
	kept := k.pending[:0]
	k.rnd.Shuffle(len(k.pending), func(i, j int) { k.pending[i], k.pending[j] = k.pending[j], k.pending[i] })
	for _, e := range k.pending {
		if !k.calm && k.rnd.IntN(in) != 0 || !k.try(&e) {
			kept = append(kept, e)
		}
	}
	k.pending = kept
}

func (k *fakeKernel) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

// post makes a completion; what has no room waits.
func (k *fakeKernel) post(c cqe) bool {
	q := &k.r.q
	if tail := q.cqTail.Load(); len(k.overflow) == 0 && tail-q.cqHead.Load() < fakeCQ {
		*(*cqe)(unsafe.Pointer(&q.rings[q.cqesAt+(tail&q.cqMask)*16])) = c
		q.cqTail.Store(tail + 1)
		return true
	}
	k.seen["overflow"]++
	k.overflow = append(k.overflow, c)
	return true
}

func (k *fakeKernel) flush() {
	list := k.overflow
	k.overflow = nil
	for _, c := range list {
		k.post(c)
	}
}

// try ends an operation if it can end.
func (k *fakeKernel) try(e *fakeOp) bool {
	c := cqe{userData: e.userData}
	s := e.s
	switch e.opcode {
	case opRead: // of the eventfd
		n, err := unix.Read(int(e.fd), make([]byte, 8))
		if err == unix.EAGAIN && !k.sometimes("", 40) {
			return false
		}
		c.res = int32(n)
		if err != nil {
			c.res = -int32(unix.EINTR)
		}
		return k.post(c)
	case opAccept:
		if k.sometimes("EMFILE", 4) {
			c.res = -int32(unix.EMFILE)
			return k.post(c)
		}
		for c.res = fakeFD; k.sockets[c.res] != nil; { // the lowest that is free
			c.res++
		}
		k.sockets[c.res] = &fakeSocket{left: k.rnd.IntN(400_000)}
		return k.post(c)
	case opConnect:
		if k.rnd.IntN(2) == 0 {
			c.res = -int32(unix.ECONNREFUSED)
		}
		return k.post(c)
	case opMadvise:
		if k.rnd.IntN(4) == 0 {
			c.res = -int32(unix.ENOMEM)
		}
		return k.post(c)
	}
	if s == nil {
		k.fail("operation %d on %d, which is no socket", e.opcode, e.fd)
		return true
	}
	switch {
	case e.opcode == opClose:
		s.closed = true
		delete(k.sockets, e.fd)
	case s.closed:
		k.seen["cancelled"]++
		c.res = -int32(unix.ECANCELED)
	case s.reset || k.sometimes("reset", 200):
		s.reset, c.res = true, -int32(unix.ECONNRESET)
	case e.opcode == opSendmsg:
		c.res = k.send(e, s)
	case e.opcode == opRecv && e.flags&sqeBufferSelect != 0:
		return k.recv(e, s, c)
	case e.opcode == opRecv:
		for ; int(c.res) < int(e.len) && s.left > 0; c.res++ {
			*(*byte)(unsafe.Add(pointer(e.addr), c.res)) = s.next(e.fd)
		}
	default:
		k.fail("operation %d is not known", e.opcode)
	}
	return k.post(c)
}

// pointer is that of memory outside of the heap.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

func (s *fakeSocket) next(fd int32) byte {
	s.sent++
	s.left--
	return pattern(fd, s.sent-1)
}

// recv takes a buffer of the group, if there is one.
func (k *fakeKernel) recv(e *fakeOp, s *fakeSocket, c cqe) bool {
	word := func(at uint32) uint32 { return at32(k.r.bufRing, at).Load() }
	if tail := uint16(word(12) >> 16); k.bufs == tail || k.sometimes("", 10) {
		k.seen["ENOBUFS"]++
		c.res = -int32(unix.ENOBUFS)
		return k.post(c)
	}
	if s.left == 0 {
		k.seen["end of stream"]++
		if k.rnd.IntN(2) == 0 {
			return k.post(c) // without a buffer
		}
	}
	at := uint32(k.bufs&(providedCount-1)) * 16
	k.bufs++
	entry := (*bufEntry)(unsafe.Pointer(&k.r.bufRing[at]))
	c.flags = cqeFBuffer | (word(at+12)&0xffff)<<cqeBufferShift
	for n := min(1+k.rnd.IntN(int(entry.len)), s.left); int(c.res) < n; c.res++ {
		*(*byte)(unsafe.Add(pointer(entry.addr), c.res)) = s.next(e.fd)
	}
	return k.post(c)
}

// send takes bytes that go on where the last ended.
func (k *fakeKernel) send(e *fakeOp, s *fakeSocket) (n int32) {
	m := (*msghdr)(pointer(e.addr))
	for i := range m.iovLen {
		v := *(*iovec)(unsafe.Add(pointer(m.iov), i*16))
		for j := range v.len {
			if n > 0 && k.sometimes("short send", 5000) {
				return n
			}
			if b := *(*byte)(unsafe.Add(pointer(v.base), j)); b != pattern(e.fd, s.taken) {
				k.fail("byte %d of %d is sent as %d", s.taken, e.fd, b)
				return n
			}
			s.taken++
			n++
		}
	}
	return n
}

// ringUser is the ring's owner: it knows what must come.
type ringUser struct {
	*fakeKernel
	conns   map[int32]*ringConn
	ops     map[uint64]ringOp // under way, by token
	token   uint64
	held    []*Buffer // received, not freed yet
	accepts int
}

// ringOp is an operation and whose it is.
type ringOp struct {
	Op
	c *ringConn
}

type ringConn struct {
	s                   *fakeSocket
	got, put            int // bytes
	recv, send, closing bool
	in, out             *Buffer
}

func (u *ringUser) queue(op Op) {
	u.token++
	op.Token = u.token
	u.ops[op.Token] = ringOp{op, u.conns[op.FD]}
	u.r.Queue(op)
}

// ringFaults is one run: a while of faults, then none, and then all must end.
func ringFaults(seed uint64, seen map[string]int) error {
	rnd := rand.New(rand.NewPCG(seed, 1))
	k, err := newFakeKernel(rnd, seen)
	if err != nil {
		return err
	}
	defer func() {
		for _, b := range k.maps {
			_ = OffHeap{}.Unmap(b)
		}
	}()
	u := &ringUser{fakeKernel: k, conns: map[int32]*ringConn{}, ops: map[uint64]ringOp{}}
	for turn := 0; turn < 400 || len(u.ops) > 0 || len(u.held) > 0; turn++ {
		if turn == 400 {
			k.calm = true
		}
		if turn == 2000 {
			return fmt.Errorf("%d operations do not end", len(u.ops))
		}
		if !k.calm {
			u.ask()
		}
		u.free(k.calm)
		if rnd.IntN(10) == 0 {
			k.r.Wake()
		}
		wait := time.Duration(rnd.IntN(2)) * time.Millisecond
		events, err := k.r.Turn(nil, wait)
		if err != nil {
			return err
		}
		for _, ev := range events {
			if err := u.ended(ev); err != nil {
				return err
			}
		}
		if k.err != nil {
			return k.err
		}
		if k.calm {
			for fd, c := range u.conns {
				u.close(fd, c)
			}
		}
	}
	return u.home()
}

// free gives up some of what was received: seldom enough that buffers run out.
func (u *ringUser) free(all bool) {
	u.rnd.Shuffle(len(u.held), func(i, j int) { u.held[i], u.held[j] = u.held[j], u.held[i] })
	n := 0
	switch {
	case all:
		n = len(u.held)
	case len(u.held) > 0 && u.rnd.IntN(8) == 0:
		n = 1 + u.rnd.IntN(len(u.held))
	}
	for _, b := range u.held[:n] {
		u.r.pool.Free(b)
	}
	u.held = u.held[n:]
}

// ask queues what a reactor might.
func (u *ringUser) ask() {
	rnd := u.rnd
	if u.accepts < fakeSockets {
		u.accepts++
		u.queue(Op{Kind: Accept, FD: 3})
	}
	if rnd.IntN(8) == 0 {
		u.queue(Op{Kind: Populate, Bytes: u.r.bufRing})
	}
	if rnd.IntN(40) == 0 {
		u.queue(Op{Kind: Connect, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1)})
	}
	for fd := int32(fakeFD); fd < fakeFD+fakeSockets; fd++ {
		c := u.conns[fd]
		if c == nil || c.closing {
			continue
		}
		if !c.recv {
			c.recv = true
			if rnd.IntN(4) == 0 {
				c.in = u.r.pool.Alloc(1 + rnd.IntN(5000))
				u.queue(Op{Kind: RecvInto, FD: fd, Bytes: c.in.Data})
			} else {
				u.queue(Op{Kind: Recv, FD: fd})
			}
		}
		if !c.send {
			c.send, c.out = true, u.r.pool.Alloc(1+rnd.IntN(3000))
			for i := range c.out.Data {
				c.out.Data[i] = pattern(fd, c.put+i)
			}
			cut := rnd.IntN(len(c.out.Data))
			pieces := [][]byte{c.out.Data[cut:]}
			if cut > 0 {
				pieces = [][]byte{c.out.Data[:cut], c.out.Data[cut:]}
			}
			u.queue(Op{Kind: Send, FD: fd, Pieces: pieces})
		}
		if rnd.IntN(300) == 0 {
			u.close(fd, c)
		}
	}
}

func (u *ringUser) close(fd int32, c *ringConn) {
	if !c.closing {
		c.closing = true
		u.queue(Op{Kind: Close, FD: fd})
	}
}

// ended takes an event: of an operation that is under way, and only once.
func (u *ringUser) ended(ev Event) error {
	op, ok := u.ops[ev.Token]
	if !ok || op.Kind != ev.Kind {
		return fmt.Errorf("an event of %v, token %d, under way is %v (%v)", ev.Kind, ev.Token, op.Kind, ok)
	}
	delete(u.ops, ev.Token)
	if (ev.Buf != nil) != (ev.Kind == Recv && ev.Res > 0) {
		return fmt.Errorf("%v with %d: buffer %v", ev.Kind, ev.Res, ev.Buf)
	}
	if ev.Res == -int32(unix.ENOBUFS) || ev.Res == -int32(unix.EINTR) {
		return fmt.Errorf("%v ends with %d, which is the ring's own affair", ev.Kind, ev.Res)
	}
	c := op.c
	switch ev.Kind {
	case Accept:
		if ev.Res < 0 {
			u.accepts--
			return nil
		}
		u.conns[ev.Res] = &ringConn{s: u.sockets[ev.Res]}
	case Connect:
		if ev.Res >= 0 {
			return unix.Close(int(ev.Res))
		}
	case Close:
		if ev.Res < 0 {
			return fmt.Errorf("close of %d: %d", op.FD, ev.Res)
		}
		u.accepts--
	case Recv:
		c.recv = false
		if ev.Buf != nil {
			u.held = append(u.held, ev.Buf)
			if len(ev.Buf.Data) != int(ev.Res) {
				return fmt.Errorf("%d bytes in a buffer of %d", ev.Res, len(ev.Buf.Data))
			}
			return c.take(op.FD, ev.Buf.Data)
		}
	case RecvInto:
		c.recv = false
		n := max(ev.Res, 0)
		if u.held = append(u.held, c.in); int(n) > len(op.Bytes) {
			return fmt.Errorf("%d bytes where %d have room", n, len(op.Bytes))
		}
		return c.take(op.FD, op.Bytes[:n])
	case Send:
		c.send = false
		c.put += int(max(ev.Res, 0))
		u.r.pool.Free(c.out)
	}
	if c != nil && (ev.Res < 0 || ev.Res == 0 && ev.Kind == Recv) {
		u.close(op.FD, c)
	}
	if c != nil && c.closing && !c.recv && !c.send && (c.got != c.s.sent || c.put != c.s.taken) {
		return fmt.Errorf("of %d bytes for %d came %d, of %d it took %d", c.s.sent, op.FD, c.got, c.put, c.s.taken)
	}
	return nil
}

func (c *ringConn) take(fd int32, b []byte) error {
	for _, x := range b {
		if x != pattern(fd, c.got) {
			return fmt.Errorf("byte %d of %d is %d", c.got, fd, x)
		}
		c.got++
	}
	return nil
}

// home tells whether all is where it was at first.
func (u *ringUser) home() error {
	r := u.r
	r.recycle()
	wake := 0
	if r.wakeArmed {
		wake = 1
	}
	if len(r.spare)+r.lent != providedCount || len(r.starved) != 0 || len(r.failed) != 0 || len(r.freeOps) != len(r.ops) || len(r.sends.free) != len(r.sends.chunks)*sendSlots || r.pool.InUse() != 0 || len(u.pending) != wake {
		return fmt.Errorf("%d buffers are at home, %d receives starve, %d events wait, %d of %d places and %d of %d headers are free, %d bytes in use, %d operations stay", len(r.spare)+r.lent, len(r.starved),
			len(r.failed), len(r.freeOps), len(r.ops), len(r.sends.free), len(r.sends.chunks)*sendSlots, r.pool.InUse(), len(u.pending))
	}
	return r.wake.close()
}
