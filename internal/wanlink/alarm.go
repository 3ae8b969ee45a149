package wanlink

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits for instants to within some tens of microseconds.
type alarm struct {
	f  *os.File
	rc syscall.RawConn
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wanlink: timerfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("wanlink: %w", err)
	}
	return &alarm{f: f, rc: rc}, nil
}

// until waits for t; false = closed.
func (a *alarm) until(t time.Time) bool {
	var fired [8]byte
	for {
		d := time.Until(t)
		if d <= spin {
			return true
		}
		var setErr error
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
		if a.rc.Control(func(fd uintptr) { setErr = unix.TimerfdSettime(int(fd), 0, &spec, nil) }) != nil || setErr != nil {
			return false
		}
		if _, err := a.f.Read(fired[:]); err != nil {
			return false
		}
	}
}

func (a *alarm) close() { a.f.Close() }
