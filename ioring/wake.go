package ioring

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waker lets any thread end the owner's wait. A wake costs a system call only
// when the owner sleeps. The order that makes it safe: the owner says that it
// sleeps, then looks for a wake; a caller leaves the wake, then looks whether
// the owner sleeps. One of the two sees the other.
type waker struct {
	fd       int
	sleeping atomic.Bool
	pending  atomic.Bool
	closed   atomic.Bool
}

func (w *waker) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	w.fd = fd
	return err
}

func (w *waker) wake() {
	w.pending.Store(true)
	if w.sleeping.Load() && !w.closed.Load() {
		one := uint64(1)
		// EAGAIN means that the counter is full: the owner wakes anyway.
		_, _, _ = unix.Syscall(unix.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(&one)), 8)
	}
}

// prepare is called before a wait; false means that there is no need to wait.
func (w *waker) prepare() bool {
	w.sleeping.Store(true)
	return !w.pending.Load()
}

// done is called after a wait, before the owner looks at what it was woken for.
func (w *waker) done() {
	w.sleeping.Store(false)
	w.pending.Store(false)
}

func (w *waker) close() error {
	w.closed.Store(true)
	if w.fd <= 0 {
		return errors.New("ioring: no eventfd")
	}
	return unix.Close(w.fd)
}
