package ioring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lockstep/internal/invariant"
)

// Ring is the io_uring engine. See the package documentation for its rules.
type Ring struct {
	fd   int
	pool *Pool

	rings, sqes       []byte
	sqHead, sqTail    *atomic.Uint32
	sqFlags           *atomic.Uint32
	sqMask, sqSize    uint32
	tail              uint32 // our tail; the kernel sees it at publish
	cqHead, cqTail    *atomic.Uint32
	cqMask            uint32
	cqesAt            uint32
	ops               []inflight
	freeOps           []int32
	sends             sendArea
	bufRing           []byte
	bufTail           uint32
	arg               []byte // geteventsArg and timespec, off-heap
	wake              waker
	wakeArmed         bool
	wakeWord          []byte
	turnSends         int
	turnBytes         int
	failed            []Event // ops that failed before the kernel saw them
	starved           []Op    // receives that found no provided buffer
	rawTurns, allTurn uint64
}

// inflight is an operation the kernel has. Its index and gen are user_data.
type inflight struct {
	token uint64
	gen   uint32
	kind  Kind
	slot  int32 // send area slot, -1 none
	fd    int32 // Connect, Recv: the socket
}

// NewRing sets up a ring on the calling thread, which must be locked and must
// be the one to use and close it.
func NewRing(pool *Pool) (*Ring, error) {
	p := params{flags: setupCQSize | setupClamp | setupSubmitAll | setupSingleIssuer | setupDeferTaskrun, cqEntries: cqEntries}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, sqEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &Ring{fd: int(fd), pool: pool}
	if err := r.init(&p); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Ring) init(p *params) error {
	if p.features&(featSingleMmap|featNoDrop|featExtArg) != featSingleMmap|featNoDrop|featExtArg {
		return fmt.Errorf("io_uring: the kernel lacks SINGLE_MMAP, NODROP or EXT_ARG (features %#x)", p.features)
	}
	size := max(p.sqOff.array+p.sqEntries*4, p.cqOff.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	var err error
	if r.rings, err = unix.Mmap(r.fd, offSQRing, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("io_uring: map the rings: %w", err)
	}
	if r.sqes, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries*64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("io_uring: map the submission entries: %w", err)
	}
	r.sqHead, r.sqTail = at32(r.rings, p.sqOff.head), at32(r.rings, p.sqOff.tail)
	r.sqFlags = at32(r.rings, p.sqOff.flags)
	r.sqSize, r.sqMask = p.sqEntries, p.sqEntries-1
	r.cqHead, r.cqTail = at32(r.rings, p.cqOff.head), at32(r.rings, p.cqOff.tail)
	r.cqMask, r.cqesAt = p.cqEntries-1, p.cqOff.cqes
	for i := range p.sqEntries { // entry i is always slot i: the index array is filled once
		at32(r.rings, p.sqOff.array+4*i).Store(i)
	}
	r.tail = r.sqTail.Load()
	if r.arg, err = (OffHeap{}).Map(unix.Getpagesize()); err != nil {
		return err
	}
	r.wakeWord = r.arg[128:136]
	if err = r.sends.grow(); err != nil {
		return err
	}
	if err = r.wake.open(); err != nil {
		return err
	}
	return r.registerBuffers()
}

// registerBuffers gives the kernel the group of provided buffers.
func (r *Ring) registerBuffers() error {
	var err error
	if r.bufRing, err = (OffHeap{}).Map(providedCount * int(unsafe.Sizeof(bufEntry{}))); err != nil {
		return err
	}
	if _, err = r.pool.provide(); err != nil {
		return err
	}
	reg := (*bufReg)(unsafe.Pointer(&r.arg[256]))
	*reg = bufReg{ringAddr: addrOf(r.bufRing), ringEntries: providedCount, bgid: providedGroup}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerPbufRing, uintptr(unsafe.Pointer(reg)), 1, 0, 0); errno != 0 {
		return fmt.Errorf("io_uring: register a buffer ring: %w", errno)
	}
	for i := range int32(providedCount) {
		r.pool.back = append(r.pool.back, i)
	}
	r.recycle()
	return nil
}

// recycle gives provided buffers that came home back to the kernel. The tail
// shares its word with the buffer id of entry 0: both are stored as one.
func (r *Ring) recycle() {
	if len(r.pool.back) == 0 {
		return
	}
	for _, i := range r.pool.back {
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
	r.pool.back = r.pool.back[:0]
	word := at32(r.bufRing, 12)
	word.Store(word.Load()&0xffff | r.bufTail<<16)
	for _, op := range r.starved {
		r.Queue(op)
	}
	r.starved = r.starved[:0]
}

// Name is "io_uring".
func (r *Ring) Name() string { return "io_uring" }

// Wake ends the owner's wait.
func (r *Ring) Wake() { r.wake.wake() }

// Turn submits, waits and reaps. See Engine.
func (r *Ring) Turn(events []Event, wait time.Duration) ([]Event, error) {
	r.recycle()
	r.armWake()
	had := len(events)
	events = append(events, r.failed...)
	r.failed = r.failed[:0]
	raw := r.turnSends <= rawSendsMax && r.turnBytes <= rawBytesMax
	r.turnSends, r.turnBytes = 0, 0
	r.allTurn++
	if raw || len(events) > had {
		r.rawTurns++
		if err := r.enter(true, 0, 0); err != nil {
			return events, err
		}
		if events = r.reap(events); len(events) > had || wait == 0 {
			return events, nil
		}
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
func (r *Ring) enter(raw bool, min uintptr, wait time.Duration) error {
	r.sqTail.Store(r.tail)
	flags, argp, argsz := uintptr(enterGetevents), uintptr(0), uintptr(0)
	if wait == 0 {
		min = 0
	}
	if min > 0 && wait > 0 {
		ts := (*timespec)(unsafe.Pointer(&r.arg[64]))
		*ts = timespec{int64(wait / time.Second), int64(wait % time.Second)}
		a := (*geteventsArg)(unsafe.Pointer(&r.arg[0]))
		*a = geteventsArg{ts: uint64(uintptr(unsafe.Pointer(ts)))}
		flags, argp, argsz = flags|enterExtArg, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a)
	}
	for {
		submit := uintptr(r.tail - r.sqHead.Load())
		var errno unix.Errno
		if raw {
			_, _, errno = unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), submit, min, flags, argp, argsz)
		} else {
			_, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), submit, min, flags, argp, argsz)
		}
		switch errno {
		case 0:
			if r.tail == r.sqHead.Load() || r.cqReady() > 0 {
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

func (r *Ring) cqReady() uint32 { return r.cqTail.Load() - r.cqHead.Load() }

// armWake keeps one read on the eventfd in the ring.
func (r *Ring) armWake() {
	if r.wakeArmed {
		return
	}
	e := r.sqe()
	e.opcode, e.fd, e.addr, e.len, e.userData = opRead, int32(r.wake.fd), addrOf(r.wakeWord), 8, wakeData
	r.wakeArmed = true
}

// Close unmaps and closes the ring; the kernel cancels what is in flight.
func (r *Ring) Close() error {
	errs := []error{unix.Close(r.fd)}
	for _, m := range [][]byte{r.rings, r.sqes} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	// bufRing, arg and the send area stay mapped: the kernel tears the ring
	// down asynchronously and may still read them.
	errs = append(errs, r.wake.close())
	return errors.Join(errs...)
}

// Stats tells how many turns were entered raw, of all.
func (r *Ring) Stats() (raw, all uint64) { return r.rawTurns, r.allTurn }

func (r *Ring) checkRoom() {
	invariant.Check(r.tail-r.sqHead.Load() < r.sqSize, "SubmissionQueueHasRoom")
}
