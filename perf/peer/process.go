package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process runs a program; it may be run again after its end.
type process struct {
	args []string
	log  string // file
	dir  string // for temporary files

	pid  int // 0 = has not run, or has ended
	live atomic.Bool
	done chan struct{}
}

// spawn starts the program. The kernel's death signal belongs to the thread
// that starts a child, so that thread stays until the child has ended.
func (p *process) spawn() error {
	if p.live.Load() {
		return fmt.Errorf("%s runs already", p.args[0])
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+p.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		if err == nil {
			p.live.Store(true)
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended is in the log
		p.live.Store(false)
		close(done)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid, p.done = cmd.Process.Pid, done
	return nil
}

// end signals the group and waits; what does not stop is killed.
func (p *process) end(s syscall.Signal) {
	if p.done == nil {
		return
	}
	for _, s := range []syscall.Signal{s, syscall.SIGKILL} {
		if p.live.Load() { // not yet waited for: the number is still this process
			_ = syscall.Kill(-p.pid, s) // it may have ended meanwhile
		}
		select {
		case <-p.done:
			p.pid = 0
			return
		case <-time.After(stopTimeout):
		}
	}
}

func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-logTail):])
}

// RSS is a live process's resident memory in bytes; 0 if it is not there.
func RSS(pid int) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "\nVmRSS:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(f[0], 10, 64)
	return kb << 10
}

// FreeAddr finds an address on loopback nobody listens on, below the ports that
// the kernel gives to outgoing connections. Another program may still take it.
func FreeAddr() (string, error) {
	for range portTries {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portMin+rand.IntN(portMax-portMin)))
		if err == nil {
			defer ln.Close()
			return ln.Addr().String(), nil
		}
	}
	return "", errors.New("no free port on loopback")
}
