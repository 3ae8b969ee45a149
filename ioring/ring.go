package ioring

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ring is the io_uring engine. See the package documentation for its rules.
type Ring struct {
	q    queues
	pool *Pool

	ops       []inflight
	freeOps   []int32
	sends     sendArea
	bufRing   []byte
	bufTail   uint32
	shared    *sharedPage
	wake      waker
	wakeArmed bool
	turnSends int
	turnBytes int
	failed    []Event  // ops that failed before the kernel saw them
	starved   []Op     // receives that found no provided buffer
	closes    []uint32 // of each descriptor, how often: a receive that is asked again must be of the same file
	spare     []int32  // provided buffers at home, the one used last on top
	lent      int      // provided buffers the kernel has
	want      int      // ... and is to have: see lending
	fresh     int32    // provided buffers that were never lent: the first so many
	short     bool     // a receive has found none since
	calm      int      // turns since one did
}

// sharedPage is what the kernel reads and writes beside rings and buffers,
// off-heap.
type sharedPage struct {
	wait     waitArg
	reg      bufReg
	wakeWord uint64
}

// inflight is an operation the kernel has. Its index and gen are user_data.
type inflight struct {
	token uint64
	gen   uint32
	kind  Kind
	slot  int32  // send area slot, -1 none
	fd    int32  // Connect, Recv: the socket
	close uint32 // Recv: of closes, when it was queued
}

// NewRing sets up a ring on the calling thread, which must be locked and must
// be the one to use and close it.
func NewRing(pool *Pool) (*Ring, error) {
	r := &Ring{pool: pool}
	if err := r.q.open(); err != nil {
		return nil, explained(err)
	}
	if err := r.init(); err != nil {
		return nil, errors.Join(explained(err), r.Close())
	}
	return r, nil
}

func (r *Ring) init() error {
	if err := r.lay(); err != nil {
		return err
	}
	reg := &r.shared.reg
	*reg = bufReg{ringAddr: addrOf(r.bufRing), ringEntries: providedCount, bgid: providedGroup}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.q.fd), registerPbufRing, uintptr(unsafe.Pointer(reg)), 1, 0, 0); errno != 0 {
		return fmt.Errorf("io_uring: register a buffer ring: %w", errno)
	}
	r.lend()
	return nil
}

// lay gets the memory that is shared with the kernel, and what the wake needs.
func (r *Ring) lay() error {
	m, err := (OffHeap{}).Map(unix.Getpagesize())
	if err != nil {
		return err
	}
	r.shared = (*sharedPage)(unsafe.Pointer(unsafe.SliceData(m)))
	w := &r.shared.wait
	w.events.ts = uint64(uintptr(unsafe.Pointer(&w.ts)))
	if err = r.sends.grow(); err != nil {
		return err
	}
	if err = r.wake.open(); err != nil {
		return err
	}
	if r.bufRing, err = (OffHeap{}).Map(providedCount * int(unsafe.Sizeof(bufEntry{}))); err != nil {
		return err
	}
	_, err = r.pool.provide()
	return err
}

// lend gives the kernel the first of the provided buffers.
func (r *Ring) lend() {
	r.spare = make([]int32, 0, providedCount)
	for i := range int32(providedCount) {
		r.pool.back = append(r.pool.back, i)
	}
	r.want, r.fresh = lendMin, providedCount
	r.recycle()
}

// lending decides how many buffers the kernel is to have. It takes them in turn: of
// many, all would become resident in the course of hours, and none would be warm.
// So it has few, those used last, and of what was never lent only what is missing to
// that; twice as many once a receive has found none, half as many when none was
// missed for long. Receives that starve while it has none are a miss too: none of
// them is asked again to find out.
func (r *Ring) lending() {
	if r.short || r.lent == 0 && len(r.starved) > 0 {
		r.want, r.short, r.calm = min(max(2*r.want, len(r.starved)), providedCount), false, 0
	} else if r.calm++; r.calm == calmTurns {
		r.want, r.calm = max(r.want/2, lendMin), 0
	}
}

// recycle gives the kernel provided buffers that are at home, as many as it is to
// have. The tail shares its word with the buffer id of entry 0: both are stored as
// one.
func (r *Ring) recycle() {
	r.spare = append(r.spare, r.pool.back...)
	r.pool.back = r.pool.back[:0]
	r.lending()
	if r.lent >= r.want || len(r.spare) == 0 {
		return
	}
	for r.lent < r.want && len(r.spare) > 0 {
		i := r.spare[len(r.spare)-1]
		if i < r.fresh { // never lent ones are at the bottom, in their order
			if providedCount-int(r.fresh) >= r.want {
				break // those held by requests count too: memory grows by a miss, not by chance
			}
			touch(r.pool.provided[i].mem)
			r.fresh = i
		}
		r.spare = r.spare[:len(r.spare)-1]
		r.lent++
		e := (*bufEntry)(unsafe.Pointer(&r.bufRing[(r.bufTail&(providedCount-1))*16]))
		e.addr, e.len = addrOf(r.pool.provided[i].mem), ProvidedSize
		if r.bufTail&(providedCount-1) == 0 {
			word := at32(r.bufRing, 12)
			word.Store(word.Load()&0xffff0000 | uint32(i))
		} else {
			e.bid = uint16(i)
		}
		r.bufTail++
	}
	word := at32(r.bufRing, 12)
	word.Store(word.Load()&0xffff | r.bufTail<<16)
}

// feed asks again for as many starved receives as the kernel has buffers: of
// thousands, all but those would be refused again.
func (r *Ring) feed() {
	n := min(r.lent, len(r.starved))
	for _, op := range r.starved[:n] {
		r.Queue(op)
	}
	rest := copy(r.starved, r.starved[n:])
	r.starved = r.starved[:rest]
}

// Name is RingName.
func (r *Ring) Name() string { return RingName }

// Wake ends the owner's wait.
func (r *Ring) Wake() { r.wake.wake() }

// Turn submits, waits and reaps. See Engine.
func (r *Ring) Turn(events []Event, wait time.Duration) ([]Event, error) {
	r.recycle()
	r.feed()
	r.armWake()
	had := len(events)
	events = append(events, r.failed...)
	r.failed = r.failed[:0]
	raw := r.turnSends <= rawSendsMax && r.turnBytes <= rawBytesMax
	r.turnSends, r.turnBytes = 0, 0
	if raw || len(events) > had {
		if err := r.enter(true, 0, 0); err != nil {
			return events, err
		}
		if events = r.reap(events); len(events) > had || wait == 0 {
			return events, nil
		}
	}
	if r.short { // the kernel may be given more: who starves must not sleep beside them
		r.recycle()
		r.feed()
	}
	r.armWake() // the peek may have reaped its completion
	if !r.wake.prepare() {
		wait = 0
	}
	err := r.enter(false, 1, wait)
	r.wake.done()
	return r.reap(events), err
}

// enter submits everything queued and, with min > 0, waits for a completion.
func (r *Ring) enter(raw bool, min uint32, wait time.Duration) error {
	var w *waitArg
	if wait == 0 {
		min = 0
	}
	if min > 0 && wait > 0 {
		w = &r.shared.wait
		w.ts = timespec{int64(wait / time.Second), int64(wait % time.Second)}
	}
	for {
		switch errno := r.q.enter(raw, min, w); errno {
		case 0:
			if r.q.unsubmitted() == 0 || r.q.completed() {
				return nil
			}
		case unix.ETIME:
			return nil
		case unix.EINTR:
			// The Go runtime signals its threads. What was to be submitted may
			// have been: the head tells; a wait that was cut short is taken up
			// by the next turn, so that its deadline is looked at again.
			if min > 0 {
				return nil
			}
		case unix.EAGAIN, unix.EBUSY:
			return nil // short of kernel memory, or completions must be reaped first: next turn
		default:
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
	}
}

// armWake keeps one read on the eventfd in the ring.
func (r *Ring) armWake() {
	if r.wakeArmed {
		return
	}
	e := r.sqe()
	e.opcode, e.fd, e.addr, e.len, e.userData = opRead, int32(r.wake.fd), uint64(uintptr(unsafe.Pointer(&r.shared.wakeWord))), 8, wakeData
	r.wakeArmed = true
}

// Close unmaps and closes the ring; the kernel cancels what is in flight.
func (r *Ring) Close() error {
	// bufRing, shared and the send area stay mapped: the kernel tears the ring
	// down asynchronously and may still read them.
	return errors.Join(r.q.close(), r.wake.close())
}
