package testcluster

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/ioring"
)

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lockstep-testcluster-")
	if err != nil {
		return "", err
	}
	return Build(context.Background(), dir)
})

func TestMain(m *testing.M) {
	rc := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(strings.TrimSuffix(path, "/lockstep"))
	}
	os.Exit(rc)
}

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("the lockstep program cannot be built: %v", err)
	}
	o.Binary, o.Dir = path, t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestLifeOfACluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := start(t, Options{RTT: 10 * time.Millisecond})
	e, err := c.NewEcho()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range 5 {
		if d, err := e.Once(); err != nil || d < 10*time.Millisecond {
			t.Errorf("an echo took %v, err %v", d, err)
		}
	}
	topic := Topic{Name: "a", Mirror: "m", Partitions: 2, Sync: true}
	if id, err := c.Add(ctx, topic); err != nil || id == ([16]byte{}) {
		t.Fatalf("id %x, err %v", id, err)
	}
	if err := c.Await(ctx, topic); err != nil {
		t.Fatal(err)
	}
	if name := c.Source.Engine(ctx); name != ioring.RingName && name != "portable" {
		t.Errorf("engine %q", name)
	}

	pid := c.Destination.Pid()
	c.Destination.Kill()
	if alive(pid) || c.Destination.Pid() != 0 {
		t.Error("killed, and still there")
	}
	if c.Destination.CPU() <= 0 {
		t.Error("a dead broker has forgotten its processor time")
	}
	if err := c.Destination.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Await(ctx, topic); err != nil {
		t.Fatalf("after a restart on the same data: %v", err)
	}
	if err := c.Source.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}

	pid = c.Destination.Pid()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if alive(pid) {
		t.Error("closed, and the destination is still there")
	}
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("closed, and the directory is still there: %v", err)
	}
}

// TestFailedStart: a broker that cannot start is an error with its log, and
// leaves nothing behind.
func TestFailedStart(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatalf("the lockstep program cannot be built: %v", err)
	}
	dir := t.TempDir()
	_, err = Start(context.Background(), Options{Binary: path, Dir: dir, NoLink: true, Overrides: []string{"no.such.setting=1"}})
	if err == nil || !strings.Contains(err.Error(), "no.such.setting") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, err %v", left, err)
	}
}

func TestProcCPU(t *testing.T) {
	begin := time.Now()
	x := 0
	for time.Since(begin) < 60*time.Millisecond {
		x++
	}
	if d := ProcCPU(os.Getpid()); d < 20*time.Millisecond || d > time.Hour {
		t.Errorf("this process has used %v after %d rounds", d, x)
	}
	if d := ProcCPU(1 << 30); d != 0 {
		t.Errorf("process %s has used %v", strconv.Itoa(1<<30), d)
	}
}
