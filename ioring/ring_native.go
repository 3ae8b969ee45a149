//go:build !giouring

package ioring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RingName is the ring engine of this build, as in output and metrics.
const RingName = "io_uring"

// lockedMemory is for one ring (200 KiB) and the probe's, which the kernel
// gives back a while after its close.
const lockedMemory = "512 KiB"

const (
	enterGetevents = 1 << 0
	enterExtArg    = 1 << 3

	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8

	offSQRing = 0
	offSQEs   = 0x10000000
)

// queues are the submission and the completion queue of a ring, by hand. The
// giouring build has its own: see ring_giouring.go.
type queues struct {
	fd             int
	rings, sqes    []byte
	sqHead, sqTail *atomic.Uint32
	sqMask, sqSize uint32
	tail           uint32 // our tail; the kernel sees it at enter
	cqHead, cqTail *atomic.Uint32
	cqMask, cqesAt uint32
	head, ready    uint32 // of the completions: the next one, and the end of what was seen; the kernel hears of head when all is taken

	fake func(submit, min uint32, w *waitArg) unix.Errno // a test's in place of the kernel's
}

func (q *queues) open() error {
	p := params{flags: setupFlags | setupCQSize, cqEntries: cqEntries}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, sqEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return fmt.Errorf("io_uring_setup: %w", errno)
	}
	q.fd = int(fd)
	if err := q.mapRings(&p); err != nil {
		return errors.Join(err, q.close())
	}
	return nil
}

func (q *queues) mapRings(p *params) error {
	if p.features&(featSingleMmap|featNoDrop|featExtArg) != featSingleMmap|featNoDrop|featExtArg {
		return fmt.Errorf("io_uring: the kernel lacks SINGLE_MMAP, NODROP or EXT_ARG (features %#x)", p.features)
	}
	size := max(p.sqOff.array+p.sqEntries*4, p.cqOff.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	var err error
	if q.rings, err = unix.Mmap(q.fd, offSQRing, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("io_uring: map the rings: %w", err)
	}
	if q.sqes, err = unix.Mmap(q.fd, offSQEs, int(p.sqEntries*64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("io_uring: map the submission entries: %w", err)
	}
	q.sqHead, q.sqTail = at32(q.rings, p.sqOff.head), at32(q.rings, p.sqOff.tail)
	q.sqSize, q.sqMask = p.sqEntries, p.sqEntries-1
	q.cqHead, q.cqTail = at32(q.rings, p.cqOff.head), at32(q.rings, p.cqOff.tail)
	q.cqMask, q.cqesAt = p.cqEntries-1, p.cqOff.cqes
	for i := range p.sqEntries { // entry i is always slot i: the index array is filled once
		at32(q.rings, p.sqOff.array+4*i).Store(i)
	}
	q.tail = q.sqTail.Load()
	q.head = q.cqHead.Load()
	q.ready = q.head
	return nil
}

// next is the next submission entry as the last user left it, nil when all are
// taken.
func (q *queues) next() *sqe {
	if q.unsubmitted() >= q.sqSize {
		return nil
	}
	e := (*sqe)(unsafe.Pointer(&q.sqes[(q.tail&q.sqMask)*64]))
	q.tail++
	return e
}

// unsubmitted is how many entries the kernel has not taken.
func (q *queues) unsubmitted() uint32 { return q.tail - q.sqHead.Load() }

// completed tells whether there is something to take.
func (q *queues) completed() bool { return q.head != q.cqTail.Load() }

// enter submits, and with min > 0 waits for so many completions, with w for at
// most its time: one system call, raw or through the scheduler.
func (q *queues) enter(raw bool, min uint32, w *waitArg) unix.Errno {
	q.sqTail.Store(q.tail)
	if q.fake != nil {
		return q.fake(q.unsubmitted(), min, w)
	}
	flags, argp, argsz := uintptr(enterGetevents), uintptr(0), uintptr(0)
	if w != nil {
		flags, argp, argsz = flags|enterExtArg, uintptr(unsafe.Pointer(&w.events)), unsafe.Sizeof(w.events)
	}
	var errno unix.Errno
	if raw {
		_, _, errno = unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(q.fd), uintptr(q.unsubmitted()), uintptr(min), flags, argp, argsz)
	} else {
		_, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(q.fd), uintptr(q.unsubmitted()), uintptr(min), flags, argp, argsz)
	}
	return errno
}

// take copies the next completion out.
func (q *queues) take(c *cqe) bool {
	if q.head == q.ready {
		if q.ready = q.cqTail.Load(); q.head == q.ready {
			q.cqHead.Store(q.head)
			return false
		}
	}
	*c = *(*cqe)(unsafe.Pointer(&q.rings[q.cqesAt+(q.head&q.cqMask)*16]))
	q.head++
	return true
}

func (q *queues) close() error {
	errs := []error{unix.Close(q.fd)}
	for _, m := range [][]byte{q.rings, q.sqes} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(errs...)
}
