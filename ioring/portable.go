package ioring

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/internal/invariant"
)

// Portable is the epoll engine: the same ops and events, carried out by
// non-blocking calls as descriptors become ready (edge-triggered, registered
// once a descriptor).
type Portable struct {
	epfd   int
	pool   *Pool
	wake   waker
	fds    []pollFD // by descriptor
	active []int32  // descriptors with work to try this turn
	ready  []Event
	starve []int32 // receives that wait for a provided buffer
	events []unix.EpollEvent
	done   chan Event // populates that helpers have finished
	helped int
	iov    [][]byte
}

// pollFD is what one descriptor has to do and is believed to be able to do.
type pollFD struct {
	open             bool
	listed           bool // in active
	canRead          bool
	canWrite         bool
	recv, send       Op // Kind 0: none
	got, sent        int
	connect          bool // send is a Connect
	generation       uint32
	readEOF, tracked bool
}

// NewPortable makes an epoll engine.
func NewPortable(pool *Pool) (*Portable, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	p := &Portable{epfd: epfd, pool: pool, events: make([]unix.EpollEvent, epollBatch), done: make(chan Event, providedCount)}
	if err = p.wake.open(); err != nil {
		return nil, errors.Join(err, unix.Close(epfd))
	}
	if _, err = pool.provide(); err != nil {
		return nil, err
	}
	for i := range int32(providedCount) {
		pool.back = append(pool.back, i)
	}
	if err = unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, p.wake.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.wake.fd)}); err != nil {
		return nil, fmt.Errorf("epoll_ctl: %w", err)
	}
	return p, nil
}

// Name is "portable".
func (p *Portable) Name() string { return "portable" }

// Wake ends the owner's wait.
func (p *Portable) Wake() { p.wake.wake() }

// Close ends the engine.
func (p *Portable) Close() error { return errors.Join(p.wake.close(), unix.Close(p.epfd)) }

func (p *Portable) fd(n int32) *pollFD {
	for int(n) >= len(p.fds) {
		p.fds = append(p.fds, make([]pollFD, max(64, len(p.fds)))...)
	}
	f := &p.fds[n]
	if !f.open {
		*f = pollFD{open: true, canRead: true, canWrite: true, generation: f.generation}
	}
	return f
}

func (p *Portable) track(n int32, f *pollFD) error {
	if f.tracked {
		return nil
	}
	f.tracked = true
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, int(n),
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: n})
}

func (p *Portable) list(n int32, f *pollFD) {
	if !f.listed {
		f.listed = true
		p.active = append(p.active, n)
	}
}

// Queue notes the op; it is tried at the next Turn. See Engine.
func (p *Portable) Queue(op Op) {
	switch op.Kind {
	case Connect:
		p.connect(op)
	case Populate:
		p.helped++
		go populate(op, p.done, &p.wake)
	case Close:
		p.closeFD(op)
	case Accept, Recv, RecvInto:
		f := p.fd(op.FD)
		if f.recv.Kind != 0 {
			invariant.Check(false, "OneReceiveInFlight", op.FD)
		}
		f.recv, f.got = op, 0
		p.list(op.FD, f)
	case Send:
		f := p.fd(op.FD)
		if f.send.Kind != 0 {
			invariant.Check(false, "OneSendInFlight", op.FD)
		}
		f.send, f.sent = op, 0
		p.list(op.FD, f)
	default:
		invariant.Check(false, "KnownOp", op.Kind)
	}
}

// populate touches pages for the reactor: a page fault would stall its thread.
func populate(op Op, done chan<- Event, w *waker) {
	res := int32(0)
	base, n := pageSpan(op.Bytes)
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(base), uintptr(n), madvPopulateRead); errno != 0 {
		res = -int32(errno)
	}
	done <- Event{Kind: Populate, Token: op.Token, Res: res}
	w.wake()
}

func (p *Portable) connect(op Op) {
	fail := func(err error) {
		var errno unix.Errno
		if !errors.As(err, &errno) {
			errno = unix.EIO
		}
		p.ready = append(p.ready, Event{Kind: Connect, Token: op.Token, Res: -int32(errno)})
	}
	fd, err := newSocket(op.Addr, unix.SOCK_NONBLOCK)
	if err != nil {
		fail(err)
		return
	}
	var sa unix.Sockaddr
	if ip := op.Addr.Addr().Unmap(); ip.Is4() {
		sa = &unix.SockaddrInet4{Port: int(op.Addr.Port()), Addr: ip.As4()}
	} else {
		sa = &unix.SockaddrInet6{Port: int(op.Addr.Port()), Addr: op.Addr.Addr().As16()}
	}
	if err = unix.Connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		fail(err)
		return
	}
	f := p.fd(int32(fd))
	op.FD = int32(fd)
	f.send, f.connect, f.canWrite = op, true, false
	if err = p.track(op.FD, f); err != nil {
		_ = unix.Close(fd)
		f.open = false
		fail(err)
	}
}

// closeFD ends the descriptor; operations it still has are answered first.
func (p *Portable) closeFD(op Op) {
	f := p.fd(op.FD)
	for _, o := range []Op{f.recv, f.send} {
		if o.Kind != 0 {
			p.ready = append(p.ready, Event{Kind: o.Kind, Token: o.Token, Res: -int32(unix.ECANCELED)})
		}
	}
	f.recv, f.send = Op{}, Op{}
	f.open = false
	f.generation++
	res := int32(0)
	if err := unix.Close(int(op.FD)); err != nil {
		res = -int32(unix.EBADF)
	}
	p.ready = append(p.ready, Event{Kind: Close, Token: op.Token, Res: res})
}

// Turn tries what can be done, then waits for readiness. See Engine.
func (p *Portable) Turn(events []Event, wait time.Duration) ([]Event, error) {
	had := len(events)
	events = p.work(events)
	if len(events) > had {
		wait = 0
	}
	if !p.wake.prepare() {
		wait = 0
	}
	n, err := p.poll(wait)
	p.wake.done()
	if err != nil {
		return events, err
	}
	for i := range n {
		e := &p.events[i]
		if e.Fd == int32(p.wake.fd) {
			var word [8]byte
			_, _ = unix.Read(p.wake.fd, word[:]) // only resets the counter
			continue
		}
		f := &p.fds[e.Fd]
		if !f.open {
			continue
		}
		if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			f.canRead = true
		}
		if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			f.readEOF = true
		}
		if e.Events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			f.canWrite = true
		}
		p.list(e.Fd, f)
	}
	return p.work(events), nil
}

func (p *Portable) poll(wait time.Duration) (int, error) {
	ms := -1
	if wait >= 0 {
		ms = int((wait + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.EpollWait(p.epfd, p.events, ms)
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("epoll_wait: %w", err)
	}
	return n, nil
}

// work tries every listed descriptor once and collects what has ended.
func (p *Portable) work(events []Event) []Event {
	for p.helped > 0 {
		select {
		case ev := <-p.done:
			p.helped--
			events = append(events, ev)
			continue
		default:
		}
		break
	}
	if len(p.pool.back) > 0 && len(p.starve) > 0 {
		for _, n := range p.starve {
			if f := &p.fds[n]; f.open && f.recv.Kind == Recv {
				p.list(n, f)
			}
		}
		p.starve = p.starve[:0]
	}
	active := p.active
	p.active = p.active[len(p.active):]
	for _, n := range active {
		f := &p.fds[n]
		f.listed = false
		if f.open && f.recv.Kind != 0 && f.canRead {
			p.tryRecv(n, f)
		}
		if f.open && f.send.Kind != 0 && f.canWrite {
			p.trySend(n, f)
		}
	}
	if len(p.active) == 0 {
		p.active = active[:0]
	}
	events = append(events, p.ready...)
	p.ready = p.ready[:0]
	return events
}
