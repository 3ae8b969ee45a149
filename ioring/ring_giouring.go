//go:build giouring

package ioring

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/pawelgaczynski/giouring"
	"golang.org/x/sys/unix"
)

// RingName is the ring engine of this build, as in output and metrics.
const RingName = "giouring"

// lockedMemory is for one ring (404 KiB) and the probe's, which the kernel
// gives back a while after its close.
const lockedMemory = "1 MiB"

// Its entries are laid out as ours: a difference does not compile.
var (
	_ [unsafe.Sizeof(sqe{}) - unsafe.Sizeof(giouring.SubmissionQueueEntry{})]byte
	_ [unsafe.Sizeof(giouring.SubmissionQueueEntry{}) - unsafe.Sizeof(sqe{})]byte
	_ [unsafe.Sizeof(cqe{}) - unsafe.Sizeof(giouring.CompletionQueueEvent{})]byte
	_ [unsafe.Sizeof(giouring.CompletionQueueEvent{}) - unsafe.Sizeof(cqe{})]byte
)

// queues are the submission and the completion queue of a ring, by giouring,
// of which no Prepare and no Register function is used: several are wrong (ADR
// 0010). What it cannot do is enter raw: every call goes through the scheduler.
type queues struct {
	fd   int
	ring *giouring.Ring
}

// open is CreateRing with flags. The number of completion slots cannot be
// chosen, only had as twice the submission slots: those are four times the
// native ring's, 204 KiB more.
func (q *queues) open() error {
	r := giouring.NewRing()
	if err := r.QueueInit(cqEntries/2, setupFlags); err != nil {
		return fmt.Errorf("io_uring_setup: %w", err)
	}
	q.ring, q.fd = r, r.RingFd()
	return nil
}

// next is the next submission entry as the last user left it, nil when all are
// taken.
func (q *queues) next() *sqe { return (*sqe)(unsafe.Pointer(q.ring.GetSQE())) }

// unsubmitted is how many entries the kernel has not taken.
func (q *queues) unsubmitted() uint32 { return q.ring.SQReady() }

// completed tells whether there is something to take.
func (q *queues) completed() bool { return q.ring.CQReady() > 0 }

// enter submits, and with min > 0 waits for so many completions, with w for at
// most its time. GETEVENTS must be asked for: without it a deferred completion
// is not made, and the library sees no reason to ask.
func (q *queues) enter(_ bool, min uint32, w *waitArg) unix.Errno {
	var err error
	switch {
	case min == 0:
		_, err = q.ring.SubmitAndGetEvents()
	case w == nil:
		_, err = q.ring.SubmitAndWait(min)
	default:
		_, err = q.ring.SubmitAndWaitTimeout(min, (*syscall.Timespec)(unsafe.Pointer(&w.ts)), nil)
	}
	if err == nil {
		return 0
	}
	errno, ok := err.(syscall.Errno)
	if !ok {
		return unix.EIO
	}
	return errno
}

// take copies the next completion out.
func (q *queues) take(c *cqe) bool {
	e, err := q.ring.PeekCQE()
	if err != nil { // EAGAIN: none
		return false
	}
	*c = *(*cqe)(unsafe.Pointer(e))
	q.ring.CQESeen(e)
	return true
}

// close cannot say whether it went well: the library drops the errors.
func (q *queues) close() error {
	q.ring.QueueExit()
	return nil
}
