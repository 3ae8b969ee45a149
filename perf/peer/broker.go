package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/testcluster"
)

// Broker is a cluster of one broker, running or not.
type Broker struct {
	Name     string   // what tables call it
	Addr     string   // of clients
	Admin    string   // of our own admin listener; empty for others
	Dir      string   // data and log
	Settings []string // what is not a default
	p        process
}

// Start runs the broker and waits until it answers.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.Spawn(); err != nil {
		return err
	}
	return b.Ready(ctx)
}

// Spawn runs the broker and waits for nothing.
func (b *Broker) Spawn() error {
	if err := b.p.spawn(); err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	return nil
}

// Ready waits until the broker answers requests for metadata.
func (b *Broker) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if b.answers(ctx) {
			return nil
		}
		select {
		case <-b.p.done:
			return fmt.Errorf("%s did not start; end of %s:\n%s", b.Name, b.p.log, b.p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w; end of %s:\n%s", b.Name, ctx.Err(), b.p.log, b.p.tail())
		case <-time.After(readyPoll):
		}
	}
}

func (b *Broker) answers(ctx context.Context) bool {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RetryTimeout(time.Second), kgo.DialTimeout(time.Second))
	if err != nil {
		return false
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return cl.Ping(ctx) == nil
}

// Pid is the process id, 0 when it does not run.
func (b *Broker) Pid() int { return b.p.pid }

// CPU is the processor time of the running broker.
func (b *Broker) CPU() time.Duration { return testcluster.ProcCPU(b.p.pid) }

// RSS is its resident memory in bytes.
func (b *Broker) RSS() int64 { return RSS(b.p.pid) }

// Stop ends the broker cleanly, or kills it if it does not stop.
func (b *Broker) Stop() { b.p.end(syscall.SIGTERM) }

// Kill ends the broker by SIGKILL and waits for its end.
func (b *Broker) Kill() { b.p.end(syscall.SIGKILL) }

// Pause stops the broker where it is, until Resume: it takes nothing meanwhile.
// What it has started by itself goes on.
func (b *Broker) Pause() error { return b.signal(syscall.SIGSTOP) }

// Resume lets a paused broker go on.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) error {
	if !b.p.live.Load() {
		return fmt.Errorf("%s does not run", b.Name)
	}
	return syscall.Kill(b.p.pid, s)
}

// newBroker makes the directory of a broker below dir.
func newBroker(dir, name string) (*Broker, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	b := &Broker{Name: name, Addr: addr, Dir: filepath.Join(dir, name)}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return nil, err
	}
	b.p.log, b.p.dir = filepath.Join(b.Dir, "output.log"), b.Dir
	return b, nil
}

// Program is any other program that is a broker, or serves one: it is run with
// its arguments and the address it is to listen on.
func Program(dir, name, path string, args ...string) (*Broker, error) {
	b, err := newBroker(dir, name)
	if err != nil {
		return nil, err
	}
	b.p.args = append(append([]string{path}, args...), b.Addr)
	return b, nil
}

// Lockstep is our own broker. binary is the lockstep program, overrides are
// settings, NAME=VALUE.
func Lockstep(dir, name, binary string, overrides ...string) (*Broker, error) {
	b, err := newBroker(dir, name)
	if err != nil {
		return nil, err
	}
	if b.Admin, err = FreeAddr(); err != nil {
		return nil, err
	}
	b.Settings = overrides
	b.p.args = []string{binary, "broker", "--log-level", "warn"}
	for _, s := range append([]string{"listeners=PLAINTEXT://" + b.Addr, "lockstep.admin.listener=" + b.Admin, "log.dirs=" + filepath.Join(b.Dir, "data")}, overrides...) {
		b.p.args = append(b.p.args, "--override", s)
	}
	return b, nil
}
