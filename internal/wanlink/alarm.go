package wanlink

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm waits for instants to within some tens of microseconds, where the timers
// of the Go runtime are up to a millisecond late.
type Alarm struct {
	f  *os.File
	rc syscall.RawConn
}

// NewAlarm makes an Alarm for one goroutine at a time.
func NewAlarm() (*Alarm, error) {
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
	return &Alarm{f: f, rc: rc}, nil
}

// Until waits for t; false = closed.
func (a *Alarm) Until(t time.Time) bool {
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

// Close ends a wait that is going on and all later ones.
func (a *Alarm) Close() { a.f.Close() }
