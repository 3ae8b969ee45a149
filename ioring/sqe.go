package ioring

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"lockstep/internal/invariant"
)

const wakeData = ^uint64(0)

// sqe returns the next submission entry, cleared. A full queue is submitted
// first: the kernel consumes all of it (SUBMIT_ALL) or says EAGAIN, in which
// case it is tried until there is room.
func (r *Ring) sqe() *sqe {
	e := r.q.next()
	for e == nil {
		if err := r.enter(false, 0, 0); err != nil {
			break
		}
		e = r.q.next()
	}
	invariant.Check(e != nil, "SubmissionQueueHasRoom")
	*e = sqe{}
	return e
}

// begin takes a place in the table of operations in flight.
func (r *Ring) begin(op *Op, slot, fd int32) uint64 {
	if len(r.freeOps) == 0 {
		n := int32(len(r.ops))
		more := max(opSlotsMin, n)
		r.ops = append(r.ops, make([]inflight, more)...)
		for i := n + more - 1; i >= n; i-- {
			r.freeOps = append(r.freeOps, i)
		}
	}
	i := r.freeOps[len(r.freeOps)-1]
	r.freeOps = r.freeOps[:len(r.freeOps)-1]
	f := &r.ops[i]
	f.token, f.kind, f.slot, f.fd = op.Token, op.Kind, slot, fd
	return uint64(f.gen)<<32 | uint64(i)
}

// Queue turns an op into a submission entry. See Engine.
func (r *Ring) Queue(op Op) {
	switch op.Kind {
	case Accept:
		e := r.sqe()
		e.opcode, e.fd, e.opFlags, e.userData = opAccept, op.FD, unix.SOCK_CLOEXEC, r.begin(&op, -1, -1)
	case Connect:
		r.connect(&op)
	case Recv:
		e := r.sqe()
		id := r.begin(&op, -1, op.FD)
		r.ops[uint32(id)].close = *r.closed(op.FD)
		e.opcode, e.fd, e.flags, e.bufGroup, e.userData = opRecv, op.FD, sqeBufferSelect, providedGroup, id
	case RecvInto:
		e := r.sqe()
		e.opcode, e.fd, e.addr, e.len = opRecv, op.FD, addrOf(op.Bytes), uint32(len(op.Bytes))
		e.opFlags, e.userData = unix.MSG_WAITALL, r.begin(&op, -1, -1)
	case Send:
		r.send(&op)
	case Populate:
		e := r.sqe()
		base, n := pageSpan(op.Bytes)
		e.opcode, e.fd, e.addr, e.len, e.opFlags, e.userData = opMadvise, -1, base, n, madvPopulateRead, r.begin(&op, -1, -1)
	case Close:
		// A receive in flight holds the file: closing the descriptor would not
		// end it, shutting the socket down does. Not a socket: no harm.
		_ = unix.Shutdown(int(op.FD), unix.SHUT_RDWR)
		r.unstarve(op.FD)
		*r.closed(op.FD)++
		e := r.sqe()
		e.opcode, e.fd, e.userData = opClose, op.FD, r.begin(&op, -1, -1)
	default:
		invariant.Check(false, "KnownOp", op.Kind)
	}
}

// closed counts the closes of a descriptor.
func (r *Ring) closed(fd int32) *uint32 {
	if int(fd) >= len(r.closes) {
		r.closes = append(r.closes, make([]uint32, max(int(fd)+1, 2*len(r.closes))-len(r.closes))...)
	}
	return &r.closes[fd]
}

// unstarve ends a receive that still waits for a buffer.
func (r *Ring) unstarve(fd int32) {
	kept := r.starved[:0]
	for _, op := range r.starved {
		if op.FD == fd {
			r.failed = append(r.failed, Event{Kind: Recv, Token: op.Token, Res: -int32(unix.ECANCELED)})
			continue
		}
		kept = append(kept, op)
	}
	r.starved = kept
}

func (r *Ring) send(op *Op) {
	slot := r.sends.take()
	if slot < 0 {
		r.failed = append(r.failed, Event{Kind: Send, Token: op.Token, Res: -int32(unix.ENOMEM)})
		return
	}
	e := r.sqe()
	e.opcode, e.fd, e.addr, e.len = opSendmsg, op.FD, r.sends.fill(slot, op.Pieces), 1
	e.opFlags, e.userData = unix.MSG_NOSIGNAL|unix.MSG_WAITALL, r.begin(op, slot, -1)
	r.turnSends++
	for _, p := range op.Pieces {
		r.turnBytes += len(p)
	}
}

func (r *Ring) connect(op *Op) {
	slot := r.sends.take()
	fd, err := newSocket(op.Addr, 0)
	if slot < 0 || err != nil {
		if slot >= 0 {
			r.sends.give(slot)
		}
		r.failed = append(r.failed, Event{Kind: Connect, Token: op.Token, Res: -int32(unix.EMFILE)})
		return
	}
	addr, n := r.sends.sockaddr(slot, op.Addr)
	e := r.sqe()
	e.opcode, e.fd, e.addr, e.off, e.userData = opConnect, int32(fd), addr, uint64(n), r.begin(op, slot, int32(fd))
}

// newSocket opens a TCP socket fit for addr, without delay.
func newSocket(addr netip.AddrPort, flags int) (int, error) {
	family := unix.AF_INET
	if addr.Addr().Is6() && !addr.Addr().Is4In6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func pageSpan(b []byte) (uint64, uint32) {
	page := uint64(unix.Getpagesize())
	base := addrOf(b) &^ (page - 1)
	end := (addrOf(b) + uint64(len(b)) + page - 1) &^ (page - 1)
	return base, uint32(end - base)
}

// sendArea is off-heap room for message headers: a msghdr, then its iovecs.
type sendArea struct {
	chunks [][]byte
	free   []int32
}

const (
	sendSlotSize = 64 + MaxPieces*16
	iovOffset    = 64
)

func (a *sendArea) grow() error {
	m, err := (OffHeap{}).Map(sendSlots * sendSlotSize)
	if err != nil {
		return err
	}
	base := int32(len(a.chunks) * sendSlots)
	a.chunks = append(a.chunks, m)
	for i := base + sendSlots - 1; i >= base; i-- {
		a.free = append(a.free, i)
	}
	return nil
}

func (a *sendArea) take() int32 {
	if len(a.free) == 0 && a.grow() != nil {
		return -1
	}
	s := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	return s
}

func (a *sendArea) give(slot int32) { a.free = append(a.free, slot) }

func (a *sendArea) mem(slot int32) []byte {
	at := int(slot%sendSlots) * sendSlotSize
	return a.chunks[slot/sendSlots][at : at+sendSlotSize]
}

func (a *sendArea) fill(slot int32, pieces [][]byte) uint64 {
	if len(pieces) == 0 || len(pieces) > MaxPieces {
		invariant.Check(false, "LimitsHold", len(pieces))
	}
	m := a.mem(slot)
	iov := unsafe.Slice((*iovec)(unsafe.Pointer(&m[iovOffset])), MaxPieces)
	for i, p := range pieces {
		iov[i] = iovec{addrOf(p), uint64(len(p))}
	}
	*(*msghdr)(unsafe.Pointer(&m[0])) = msghdr{iov: addrOf(m) + iovOffset, iovLen: uint64(len(pieces))}
	return addrOf(m)
}

func (a *sendArea) sockaddr(slot int32, addr netip.AddrPort) (uint64, int) {
	m := a.mem(slot)
	m[2], m[3] = byte(addr.Port()>>8), byte(addr.Port())
	if ip := addr.Addr().Unmap(); ip.Is4() {
		*(*uint16)(unsafe.Pointer(&m[0])) = unix.AF_INET
		b := ip.As4()
		copy(m[4:8], b[:])
		clear(m[8:16])
		return addrOf(m), unix.SizeofSockaddrInet4
	}
	*(*uint16)(unsafe.Pointer(&m[0])) = unix.AF_INET6
	clear(m[4:28])
	b := addr.Addr().As16()
	copy(m[8:24], b[:])
	return addrOf(m), unix.SizeofSockaddrInet6
}
