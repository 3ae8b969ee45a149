package wanlink

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestLineByTheBook: the pure part, to the nanosecond.
func TestLineByTheBook(t *testing.T) {
	var l line
	at := time.Unix(1_000_000, 0)
	for i, c := range []struct {
		after time.Duration // since the start
		n     int
		want  time.Duration
	}{
		{0, 1000, 6 * time.Millisecond}, // 1 ms to send at 1 MB/s, 5 ms under way
		{0, 2000, 8 * time.Millisecond}, // behind it
		{500 * time.Microsecond, 1000, 9 * time.Millisecond},
		{time.Second, 1000, time.Second + 6*time.Millisecond}, // idle time is not saved up
	} {
		if got := l.due(at.Add(c.after), c.n, 5*time.Millisecond, 0, 1e6).Sub(at); got != c.want {
			t.Errorf("chunk %d is due after %v, want %v", i, got, c.want)
		}
	}
	if got := l.due(at, 1<<30, time.Millisecond, 0, 0).Sub(at); got != time.Millisecond {
		t.Errorf("without a limit: %v", got)
	}
	if readMost(0, 1<<16) != 1<<16 || readMost(1e6, 1<<16) != minRead || readMost(20e6, 1<<16) != 20000 || readMost(20e6, 100) != 100 {
		t.Error("a slow line must be shared in small turns")
	}
}

// TestBandwidthIsShared: two connections get what the line has, together.
func TestBandwidthIsShared(t *testing.T) {
	leakCheck(t)
	const each, rate = 1 << 20, 20 << 20
	got := make(chan time.Time, 2)
	l := open(t, serve(t, func(c *net.TCPConn) {
		defer c.Close()
		if n, _ := io.Copy(io.Discard, c); n == each {
			got <- time.Now()
		}
	}), Options{RTT: 10 * time.Millisecond, Bandwidth: rate})
	began := time.Now()
	var all sync.WaitGroup
	for range 2 {
		c := dial(t, l)
		all.Go(func() {
			if _, err := c.Write(make([]byte, each)); err != nil {
				t.Error(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first := (<-got).Sub(began)
	took := (<-got).Sub(began)
	want := 105 * time.Millisecond
	t.Logf("asked %d MiB/s and 5 ms: 2 MiB in %v; got %v, the first connection %v", rate>>20, want, took, first)
	if took < want-time.Millisecond || took > want+60*time.Millisecond || first < want/2 {
		t.Error("not the line that was asked for")
	}
}

// TestJitterKeepsOrder: chunks take between half a round trip and that and the
// jitter, and none overtakes.
func TestJitterKeepsOrder(t *testing.T) {
	leakCheck(t)
	const jitter = 20 * time.Millisecond
	r := seeded(t)
	l := open(t, serve(t, echo), Options{RTT: 10 * time.Millisecond, Jitter: jitter, Seed: r.Uint64()})
	c := dial(t, l)
	const n = 150
	sent := make([]time.Time, n)
	go func() {
		var b [8]byte
		for i := range sent {
			sent[i] = time.Now()
			binary.BigEndian.PutUint64(b[:], uint64(i))
			if _, err := c.Write(b[:]); err != nil {
				return
			}
			time.Sleep(2 * jitter / 8)
		}
	}()
	var took []time.Duration
	for i := range n {
		var b [8]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint64(b[:]); got != uint64(i) {
			t.Fatalf("%d came in the place of %d", got, i)
		}
		took = append(took, time.Since(sent[i]))
	}
	slices.Sort(took)
	t.Logf("asked 10 ms and up to 20 ms more each way: least %v, median %v, most %v", took[0], took[n/2], took[n-1])
	if took[0] < 10*time.Millisecond || took[n/2] < 20*time.Millisecond || took[n-10] > 10*time.Millisecond+2*jitter+20*time.Millisecond {
		t.Error("not the jitter that was asked for")
	}
}

// TestResetTakesNewConnections: a reset ends what there is, and no more.
func TestResetTakesNewConnections(t *testing.T) {
	leakCheck(t)
	l := open(t, serve(t, echo), Options{})
	once := func(c *net.TCPConn) error {
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	old := dial(t, l)
	if err := once(old); err != nil {
		t.Fatal(err)
	}
	l.Reset()
	if err := once(old); err == nil {
		t.Error("a connection has lived through a reset")
	}
	if err := once(dial(t, l)); err != nil {
		t.Errorf("a new connection after a reset: %v", err)
	}
}

// TestOutageIsLateNotLost: what is sent during an outage comes after it.
func TestOutageIsLateNotLost(t *testing.T) {
	leakCheck(t)
	l := open(t, serve(t, echo), Options{})
	c := dial(t, l)
	const d = 150 * time.Millisecond
	began := time.Now()
	l.Outage(d)
	if _, err := c.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "late" {
		t.Fatal(string(b), err)
	}
	if took := time.Since(began); took < d || took > d+200*time.Millisecond {
		t.Errorf("an outage of %v was over after %v", d, took)
	}
	l.Outage(0) // a timer that fires after Close finds nothing to do
}
