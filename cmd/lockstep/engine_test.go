package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/config"
	"lockstep/ioring"
)

// load keeps produce and fetch busy and counts errors of both.
type trafficCounts struct{ produced, consumed, errors atomic.Int64 }

func traffic(ctx context.Context, t *testing.T, addr, topic string) (*trafficCounts, *sync.WaitGroup) {
	c := &trafficCounts{}
	var wg sync.WaitGroup
	wg.Add(2)
	// The id of an idempotent producer and the topic's metadata are facts of
	// the quorum: they are asked for before it is held.
	cl := newClient(t, addr, kgo.DefaultProduceTopic(topic))
	if err := cl.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err == nil {
				c.produced.Add(1)
			} else if ctx.Err() == nil {
				c.errors.Add(1)
			}
		}
	}()
	reader := newClient(t, addr, kgo.ConsumeTopics(topic))
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			fs := reader.PollFetches(ctx)
			if fs.Err() != nil && ctx.Err() == nil {
				c.errors.Add(1)
			}
			c.consumed.Add(int64(fs.NumRecords()))
		}
	}()
	return c, &wg
}

// The data plane never waits for the metadata quorum: with Apply held for five
// seconds under load there is no error and no pause.
func TestHeldQuorumDoesNotStopTraffic(t *testing.T) {
	cfg, _, err := config.Load(nil, []string{"log.dirs=" + t.TempDir(), "listeners=PLAINTEXT://" + freeAddr(t), "lockstep.admin.listener="})
	if err != nil {
		t.Fatal(err)
	}
	b, err := startBroker(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", b.bound[0].Port)
	ctx, cancel := context.WithCancel(ctxFor(t, time.Minute))
	adm := kadm.NewClient(newClient(t, addr))
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "busy"); err != nil {
		t.Fatal(err)
	}
	c, wg := traffic(ctx, t, addr, "busy")
	held := make(chan struct{})
	b.node.HoldApply(func() { <-held })
	created := make(chan error, 1)
	go func() {
		_, err := adm.CreateTopic(ctx, 1, 1, nil, "later")
		created <- err
	}()
	var slowest time.Duration
	for last, end := time.Now(), time.Now().Add(5*time.Second); time.Now().Before(end); {
		before := c.produced.Load()
		time.Sleep(10 * time.Millisecond)
		if c.produced.Load() > before {
			slowest, last = max(slowest, time.Since(last)), time.Now()
		}
	}
	select {
	case <-created:
		t.Error("the quorum was not held")
	default:
	}
	close(held)
	if err := <-created; err != nil {
		t.Errorf("the held command: %v", err)
	}
	cancel()
	wg.Wait()
	t.Logf("with Apply held 5 s: produced %d, consumed %d, errors %d, longest pause %v", c.produced.Load(), c.consumed.Load(), c.errors.Load(), slowest)
	if c.errors.Load() > 0 || c.produced.Load() < 100 || c.consumed.Load() < 100 || slowest > 2*time.Second {
		t.Error("traffic waited for the quorum")
	}
	if err := b.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// A connection is a few words on its shard: no goroutine, no thread.
func TestConnectionsCostNoThreads(t *testing.T) {
	n := startNode(t)
	if err := newClient(t, n.addr).Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	n.plugins() // their start has goroutines of its own
	time.Sleep(300 * time.Millisecond)
	goroutines, threads := n.goroutines(), n.threads()
	conns := make([]net.Conn, 0, 2000)
	for range 2000 {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	eventually(t, "2,000 connections", 10*time.Second, func() bool { return n.metric("kafka_server_broker_connections") >= 2000 })
	g, th := n.goroutines(), n.threads()
	t.Logf("0 connections: %d goroutines, %d threads; 2,000: %d, %d", goroutines, threads, g, th)
	if abs(g-goroutines) > 4 || abs(th-threads) > 4 {
		t.Error("connections cost goroutines or threads")
	}
	if err := newClient(t, n.addr).Ping(context.Background()); err != nil {
		t.Errorf("no room for one more: %v", err)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "they are gone", 10*time.Second, func() bool { return n.metric("kafka_server_broker_connections") < 50 })
}

func abs(n int) int { return max(n, -n) }

func (n *node) goroutines() int {
	m := regexp.MustCompile(`total (\d+)`).FindStringSubmatch(get("http://" + n.admin + "/debug/pprof/goroutine?debug=1"))
	if m == nil {
		n.t.Fatal("no goroutine profile")
	}
	v, _ := strconv.Atoi(m[1])
	return v
}

func (n *node) threads() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	m := regexp.MustCompile(`Threads:\s+(\d+)`).FindSubmatch(b)
	v, _ := strconv.Atoi(string(m[1]))
	return v
}

// On the ring engine sockets are the ring's: under load the broker makes next
// to no read, recv, write or send system call.
func TestRingMakesNoSocketCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	n := startNode(t)
	if n.metric(`lockstep_info{engine="`+ioring.RingName+`"}`) != 1 {
		t.Skip("this machine does not allow io_uring: the broker's log says why")
	}
	n.plugins() // what a process that starts calls is not the ring's
	ctx, cancel := context.WithCancel(ctxFor(t, time.Minute))
	if _, err := kadm.NewClient(newClient(t, n.addr)).CreateTopic(ctx, 1, 1, nil, "busy"); err != nil {
		t.Fatal(err)
	}
	_, wg := traffic(ctx, t, n.addr, "busy")
	before := n.metric("kafka_network_requests_total")
	cmd := exec.Command(strace, "-c", "-f", "-p", strconv.Itoa(n.cmd.Process.Pid),
		"-e", "trace=read,readv,recvfrom,recvmsg,recvmmsg,write,writev,sendto,sendmsg,sendmmsg")
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	requests := n.metric("kafka_network_requests_total") - before
	cancel()
	wg.Wait()
	if strings.Contains(out.String(), "Operation not permitted") {
		t.Skip("this machine does not allow ptrace: " + out.String())
	}
	calls := 0
	for line := range strings.Lines(out.String()) {
		f := strings.Fields(line)
		if len(f) >= 5 && f[len(f)-1] != "total" {
			if v, err := strconv.Atoi(f[3]); err == nil {
				calls += v
			}
		}
	}
	t.Logf("%v requests, %d socket-like system calls in 5 s\n%s", requests, calls, out.String())
	if requests < 200 || float64(calls) >= requests/100 {
		t.Errorf("%d calls for %v requests", calls, requests)
	}
}

// TestLargestRequestHasABuffer: what the configuration allows the engine can
// receive, and no more is allowed.
func TestLargestRequestHasABuffer(t *testing.T) {
	set := func(n int) error {
		_, _, err := config.Load(fmt.Appendf(nil, "socket.request.max.bytes=%d", n), nil)
		return err
	}
	if err := set(ioring.MaxBuffer); err != nil {
		t.Error(err)
	}
	if err := set(ioring.MaxBuffer + 1); err == nil || !strings.Contains(err.Error(), "socket.request.max.bytes") {
		t.Errorf("a frame that no buffer holds is allowed: %v", err)
	}
	pool := ioring.NewPool(ioring.OffHeap{}, 1)
	if b := pool.Alloc(ioring.MaxBuffer); b == nil || pool.Alloc(ioring.MaxBuffer+1) != nil {
		t.Error("MaxBuffer is not the largest buffer")
	}
}
