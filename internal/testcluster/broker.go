package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Broker is a broker process, running or not.
type Broker struct {
	Name  string // source, destination, destination-2
	Addr  string // of the CLIENT listener
	Admin string // of the admin listener
	Data  string // log directory
	Log   string // file with the output of all its runs

	binary string
	args   []string

	mu   sync.Mutex
	pid  int // 0 = not running
	done chan struct{}
	exit error // of the last run, valid when done is closed
	used time.Duration
}

// Start runs the broker and waits until it is ready.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.spawn(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	b.mu.Lock()
	done := b.done
	b.mu.Unlock()
	for {
		if b.ready(ctx) {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("%s did not start: %w; end of %s:\n%s", b.Name, errors.Join(b.exit, errors.New("it ended")), b.Log, b.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; end of %s:\n%s", b.Name, ctx.Err(), b.Log, b.tail())
		case <-time.After(readyPoll):
		}
	}
}

func (b *Broker) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Admin+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (b *Broker) tail() string {
	data, err := os.ReadFile(b.Log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-logTail):])
}

// spawn starts the process. The kernel's death signal belongs to the thread
// that starts a child, so that thread stays until the child has ended.
func (b *Broker) spawn() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pid != 0 {
		return fmt.Errorf("%s runs already", b.Name)
	}
	log, err := os.OpenFile(b.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(b.binary, b.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(b.Log)) // removed with the rest, however the broker ends
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		exit := cmd.Wait()
		b.mu.Lock()
		b.exit, b.pid = exit, 0
		b.used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		b.mu.Unlock()
		close(done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	b.pid, b.done = cmd.Process.Pid, done
	return nil
}

// Pid is the process id, 0 when it does not run.
func (b *Broker) Pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pid
}

// Signal sends a signal to the broker's process group, if it runs.
func (b *Broker) Signal(s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pid != 0 { // not yet waited for: the number is still this process
		_ = syscall.Kill(-b.pid, s) // it may have ended meanwhile
	}
}

// wait waits for the end of the running process, if any.
func (b *Broker) wait(d time.Duration) bool {
	b.mu.Lock()
	done := b.done
	b.mu.Unlock()
	if done == nil {
		return true
	}
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// Kill ends the broker by SIGKILL and waits for its end.
func (b *Broker) Kill() {
	b.Signal(syscall.SIGKILL)
	b.wait(stopTimeout)
}

// Stop ends the broker cleanly; one that does not stop is killed and named.
func (b *Broker) Stop() error {
	b.Signal(syscall.SIGTERM)
	if !b.wait(stopTimeout) {
		b.Kill()
		return fmt.Errorf("%s did not stop within %v and was killed", b.Name, stopTimeout)
	}
	return b.exit
}

// CPU is the processor time of all runs so far.
func (b *Broker) CPU() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used + ProcCPU(b.pid)
}

// ProcCPU is a live process's user and system time, in steps of 10 ms; 0 if it
// is not there.
func ProcCPU(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	text := string(data)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from the state, field 3
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100) // the kernel counts in 1/100 s
}

// Page reads a page of the admin listener, such as /metrics.
func (b *Broker) Page(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

// Engine is the name of the engine the broker runs on.
func (b *Broker) Engine(ctx context.Context) string {
	if name := b.metric(ctx, `lockstep_info{engine="`, `"`); name != "" {
		return name
	}
	return "unknown"
}

// Reactors is how many ring threads the broker runs, 0 if it does not answer.
func (b *Broker) Reactors(ctx context.Context) int {
	n, _ := strconv.Atoi(b.metric(ctx, "lockstep_io_reactors ", "\n"))
	return n
}

// metric is what stands between two strings on the metrics page.
func (b *Broker) metric(ctx context.Context, from, to string) string {
	page, err := b.Page(ctx, "/metrics")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(page, from)
	value, _, _ := strings.Cut(rest, to)
	return value
}
