package ioring

import (
	"sync/atomic"
	"unsafe"
)

// The kernel's structures and numbers (include/uapi/linux/io_uring.h), by hand:
// x/sys/unix has the three system call numbers only.

type sqe struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	userData uint64
	bufGroup uint16
	_        uint16
	_        int32
	_        uint64
	_        uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, resv1 uint32
	userAddr                                                        uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1 uint32
	userAddr                                                        uint64
}

type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	_                                                                      [3]uint32
	sqOff                                                                  sqOffsets
	cqOff                                                                  cqOffsets
}

type bufReg struct {
	ringAddr    uint64
	ringEntries uint32
	bgid        uint16
	flags       uint16
	_           [3]uint64
}

type bufEntry struct {
	addr uint64
	len  uint32
	bid  uint16
	tail uint16 // of entry 0 only: the ring's tail
}

type geteventsArg struct {
	sigmask   uint64
	sigmaskSz uint32
	_         uint32
	ts        uint64
}

type timespec struct{ sec, nsec int64 }

// waitArg is a wait with a deadline: events.ts is the address of ts.
type waitArg struct {
	events geteventsArg
	ts     timespec
}

type probeOp struct {
	op    uint8
	_     uint8
	flags uint16
	_     uint32
}

type probe struct {
	lastOp uint8
	opsLen uint8
	_      uint16
	_      [3]uint32
	ops    [64]probeOp
}

type iovec struct {
	base uint64
	len  uint64
}

type msghdr struct {
	name       uint64
	nameLen    uint32
	_          uint32
	iov        uint64
	iovLen     uint64
	control    uint64
	controlLen uint64
	flags      int32
	_          int32
}

// Sizes the kernel relies on: a wrong one does not compile.
var (
	_ [64 - unsafe.Sizeof(sqe{})]byte
	_ [unsafe.Sizeof(sqe{}) - 64]byte
	_ [16 - unsafe.Sizeof(cqe{})]byte
	_ [120 - unsafe.Sizeof(params{})]byte
	_ [unsafe.Sizeof(params{}) - 120]byte
	_ [16 - unsafe.Sizeof(bufEntry{})]byte
	_ [40 - unsafe.Sizeof(bufReg{})]byte
	_ [unsafe.Sizeof(bufReg{}) - 40]byte
	_ [24 - unsafe.Sizeof(geteventsArg{})]byte
	_ [56 - unsafe.Sizeof(msghdr{})]byte
	_ [unsafe.Sizeof(msghdr{}) - 56]byte
)

const (
	opSendmsg = 9
	opAccept  = 13
	opConnect = 16
	opClose   = 19
	opRead    = 22
	opMadvise = 25
	opRecv    = 27
	opProbeOK = 1 // IO_URING_OP_SUPPORTED

	sqeBufferSelect = 1 << 5

	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupSubmitAll    = 1 << 7
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupFlags        = setupClamp | setupSubmitAll | setupSingleIssuer | setupDeferTaskrun

	registerProbe    = 8
	registerPbufRing = 22
	cqeFBuffer       = 1 << 0
	cqeBufferShift   = 16
	madvPopulateRead = 22
)

func at32(b []byte, off uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[off]))
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
