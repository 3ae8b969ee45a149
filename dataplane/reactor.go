package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/ioring"
)

// MakeEngine makes the kernel side of one shard. It is called on the shard's
// own locked thread, with the pool of its frames.
type MakeEngine func(pool *ioring.Pool) (ioring.Engine, error)

// Start runs the shards and the pools of goroutines. It returns when every
// shard has its ring, or the first error.
func (e *Engine) Start(mk MakeEngine) error {
	for range coldWorkers {
		e.spawn(e.coldWorker)
	}
	for range preparers {
		e.spawn(func() { e.jobWorker(e.grows) })
	}
	for range flushers {
		e.spawn(e.flusher)
	}
	e.spawn(func() { e.jobWorker(e.rests) })
	ready := make(chan error)
	for _, c := range e.cores {
		e.spawn(func() { e.react(c, mk, ready) })
	}
	var errs []error
	for range e.cores {
		errs = append(errs, <-ready)
	}
	return errors.Join(errs...)
}

// spawn is the only place of this package that starts goroutines.
func (e *Engine) spawn(f func()) {
	e.running.Add(1)
	go func() {
		defer e.running.Done()
		f()
	}()
}

func (e *Engine) jobWorker(q chan func()) {
	work(q, e.stop, func(job func()) { job() })
}

// work does what comes, and after the stop what was begun: a flush somebody
// waits for.
func work[T any](q <-chan T, stop <-chan struct{}, do func(T)) {
	for {
		select {
		case job := <-q:
			do(job)
		case <-stop:
			for {
				select {
				case job := <-q:
					do(job)
				default:
					return
				}
			}
		}
	}
}

// react is the shell of a shard: wait, step, submit, on one locked thread that
// creates, enters and closes its own ring and never exits while it is in use.
func (e *Engine) react(c *Core, mk MakeEngine, ready chan<- error) {
	runtime.LockOSThread()
	k, err := mk(c.pool)
	if err != nil {
		ready <- fmt.Errorf("reactor %d: %w", c.id, err)
		return
	}
	c.SetWake(k.Wake)
	e.names[c.id].Store(k.Name())
	ready <- nil
	events := make([]ioring.Event, 0, 1024)
	for !c.quit {
		events, err = k.Turn(events[:0], time.Duration(c.Wait(e.clock())))
		if err != nil {
			e.o.Log.Error("reactor cannot go on", "reactor", c.id, "error", err)
			e.fatal(err)
			return
		}
		for _, op := range c.Step(e.clock(), e.wall(), events) {
			k.Queue(op)
		}
	}
	if err := k.Close(); err != nil {
		e.o.Log.Warn("ring not closed clean", "reactor", c.id, "error", err)
	}
}

// EngineName is the kernel interface in use: io_uring (giouring in a build
// with that tag) or portable.
func (e *Engine) EngineName() string {
	name, _ := e.names[0].Load().(string)
	return name
}

// Listen opens a listener; shard 0 accepts on it. It returns the address with
// the port the kernel chose.
func (e *Engine) Listen(addr netip.AddrPort) (netip.AddrPort, error) {
	fd, err := openListener(addr)
	// The kernel takes a killed broker's ring down after the process is gone,
	// and an accept in it holds the port until then.
	for range bindTries {
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		time.Sleep(bindPause)
		fd, err = openListener(addr)
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("listen on %s: %w", addr, err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, errors.Join(err, unix.Close(fd))
	}
	port := addr.Port()
	switch x := sa.(type) {
	case *unix.SockaddrInet4:
		port = uint16(x.Port)
	case *unix.SockaddrInet6:
		port = uint16(x.Port)
	}
	e.ListenOn(int32(fd))
	return netip.AddrPortFrom(addr.Addr(), port), nil
}

// ListenOn accepts on a descriptor that listens already. It returns at once.
func (e *Engine) ListenOn(fd int32) {
	e.cores[0].inbox.put(note{kind: noteCall, fn: func(c *Core) {
		e.listeners = append(e.listeners, fd)
		c.accept(len(e.listeners) - 1)
	}})
}

func openListener(addr netip.AddrPort) (int, error) {
	family := unix.AF_INET
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: [4]byte{}}
	if ip := addr.Addr().Unmap(); ip.Is4() {
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: ip.As4()}
	} else {
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)) // inherited by what it accepts
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// acceptRetry accepts again a little later.
func (e *Engine) acceptRetry(c *Core, l int) {
	t := &retryAccept{l: l}
	t.owner = t
	c.timers.arm(&t.timer, c.now+int64(50*time.Millisecond))
}

type retryAccept struct {
	timer
	l int
}

func (t *retryAccept) expired(c *Core) { c.accept(t.l) }
