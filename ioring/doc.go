// Package ioring is the kernel, and nothing else: it carries out operations
// that are plain data and hands back what came of them as plain data.
//
//	Op ──Queue──► Engine ──Turn──► kernel ──► Event
//
// Two engines speak the same ops. The ring (ring.go) is io_uring by hand: one
// ring a thread, created, entered and closed on that thread (SINGLE_ISSUER |
// DEFER_TASKRUN), entered adaptively: a small turn by a raw call that does not
// give up the thread's P, all else by one submit-and-wait through the Go
// scheduler. What touches its two queues (set up, next entry, enter, take) is
// one small type, queues: ring_native.go has ours and, with the build tag
// giouring, ring_giouring.go that of a library (docs/adr/0010). The portable
// engine (portable.go) is an epoll reactor for kernels, containers and seccomp
// profiles that have no io_uring for us.
//
// # Memory
//
// Everything the kernel is given lives off the Go heap: rings, message headers
// and iovecs here, bytes in a Pool (buffers.go) or in a mapped segment. What
// goes into user_data is an index with a generation, never a pointer: the
// collector cannot see it there, and a late completion of a slot that has been
// used again is told from the new one.
//
// # Owner thread
//
// An Engine and a Pool belong to one thread, the one that called its
// constructor under runtime.LockOSThread. Wake alone may be called from any
// thread, at any time until Close has returned.
//
// # Kernel floor
//
// io_uring needs 6.1 (DEFER_TASKRUN, provided buffer rings). Anything older or
// forbidden is named by Probe with its likely cause: sysctl, seccomp, memlock.
package ioring
