package ioring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Probe tells whether the ring engine can run in this process: nil, or an error
// that says what is missing and the likely cause. It must run on a locked
// thread, like NewRing.
func Probe() error {
	p := params{flags: setupSingleIssuer | setupDeferTaskrun | setupSubmitAll}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return explain(errno)
	}
	err := probeOps(int(fd))
	if err := errors.Join(err, unix.Close(int(fd))); err != nil {
		return err
	}
	r, err := NewRing(NewPool(OffHeap{}, slabSize))
	if err != nil {
		return err
	}
	return r.Close()
}

func probeOps(fd int) error {
	m, err := (OffHeap{}).Map(unix.Getpagesize())
	if err != nil {
		return err
	}
	pr := (*probe)(unsafe.Pointer(&m[0]))
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), registerProbe, uintptr(unsafe.Pointer(pr)), 64, 0, 0)
	if errno != 0 {
		return fmt.Errorf("io_uring: probe of operations refused: %w", errno)
	}
	var missing []string
	for op, name := range map[int]string{opSendmsg: "SENDMSG", opAccept: "ACCEPT", opConnect: "CONNECT", opClose: "CLOSE", opRead: "READ", opMadvise: "MADVISE", opRecv: "RECV"} {
		if op > int(pr.lastOp) || pr.ops[op].flags&opProbeOK == 0 {
			missing = append(missing, name)
		}
	}
	if err := unix.Munmap(m); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("io_uring: kernel %s lacks %s", kernel(), strings.Join(missing, ", "))
	}
	return nil
}

// explained adds the likely cause to an error of the kernel's.
func explained(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return fmt.Errorf("%w (%v)", explain(errno), err)
	}
	return err
}

func explain(errno unix.Errno) error {
	cause := "unknown cause"
	switch errno {
	case unix.EPERM, unix.EACCES:
		cause = "forbidden, most likely by a seccomp profile (the default in container runtimes)"
		if v, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil && strings.TrimSpace(string(v)) != "0" {
			cause = "forbidden by sysctl kernel.io_uring_disabled=" + strings.TrimSpace(string(v))
		}
	case unix.ENOSYS:
		cause = "the kernel has no io_uring, or a seccomp profile hides it"
	case unix.EINVAL:
		cause = "kernel " + kernel() + " is too old: 6.1 is needed for SINGLE_ISSUER, DEFER_TASKRUN and buffer rings"
	case unix.ENOMEM:
		cause = "out of locked memory: raise RLIMIT_MEMLOCK (ulimit -l), " + lockedMemory + " a reactor is enough"
	case unix.EMFILE, unix.ENFILE:
		cause = "out of file descriptors: raise RLIMIT_NOFILE (ulimit -n)"
	}
	return fmt.Errorf("io_uring unavailable: %w: %s", errno, cause)
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "?"
	}
	return unix.ByteSliceToString(u.Release[:])
}
