package wanlink

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random tests, 0 = from the clock")

func seeded(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// serve runs f on each connection to a listener of its own.
func serve(t *testing.T, f func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f(c.(*net.TCPConn))
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func echo(c *net.TCPConn) {
	defer c.Close()
	io.Copy(c, c)
}

func open(t *testing.T, target string, o Options) *Link {
	t.Helper()
	l, err := Listen("127.0.0.1:0", target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func leakCheck(t *testing.T) {
	t.Helper()
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, opt) })
}

// Whatever the sizes of writes and reads, and whatever happens to the RTT
// meanwhile, the bytes come back as they went, and the end of the stream too.
func TestBytesAreExact(t *testing.T) {
	leakCheck(t)
	rnd := seeded(t)
	l := open(t, serve(t, echo), Options{RTT: 4 * time.Millisecond, QueueBytes: 1 << 20})
	for range 4 {
		c := dial(t, l)
		want := make([]byte, 1+rnd.IntN(3<<20))
		for i := range want {
			want[i] = byte(rnd.Uint32())
		}
		sizes := rand.New(rand.NewPCG(rnd.Uint64(), 2))
		go func() {
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+sizes.IntN([]int{1, 100, 5000, 200_000}[sizes.IntN(4)]))
				c.Write(rest[:n])
				rest = rest[n:]
				if sizes.IntN(50) == 0 {
					l.SetRTT(time.Duration(sizes.IntN(8)) * time.Millisecond)
				}
			}
			c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes came back of %d, equal %v, err %v", len(got), len(want), bytes.Equal(got, want), err)
		}
	}
}

// echoTimes measures n round trips of one byte.
func echoTimes(t *testing.T, c net.Conn, n int) []time.Duration {
	t.Helper()
	var b [1]byte
	times := make([]time.Duration, n)
	for i := range times {
		begin := time.Now()
		if _, err := c.Write(b[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Fatal(err)
		}
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return times
}

func TestRTT(t *testing.T) {
	leakCheck(t)
	l := open(t, serve(t, echo), Options{})
	c := dial(t, l)
	for _, rtt := range []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond} {
		l.SetRTT(rtt)
		times := echoTimes(t, c, 25)
		p50, best := times[12], times[0]
		t.Logf("asked %v: best %v, p50 %v, worst %v", rtt, best, p50, times[24])
		if best < rtt {
			t.Errorf("asked %v, one echo took only %v", rtt, best)
		}
		if p50 > rtt+3*time.Millisecond { // 0.7 ms on an idle machine; tests share it
			t.Errorf("asked %v, p50 is %v", rtt, p50)
		}
	}
}

// All targets of a link share its delay and its cuts.
func TestForward(t *testing.T) {
	leakCheck(t)
	l := open(t, serve(t, echo), Options{RTT: 10 * time.Millisecond})
	addr, err := l.Forward("127.0.0.1:0", serve(t, echo))
	if err != nil || addr == l.Addr() {
		t.Fatalf("second end at %s, first at %s, err %v", addr, l.Addr(), err)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if best := echoTimes(t, c, 5)[0]; best < 10*time.Millisecond {
		t.Errorf("an echo took %v", best)
	}
	l.Cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the second end outlived the cut")
	}
	l.Close()
	if _, err := l.Forward("127.0.0.1:0", addr); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed link opened another end: %v", err)
	}
}

// A chunk must not wait for later ones, nor the later ones for the earlier:
// records sent each millisecond arrive each millisecond.
func TestPipelined(t *testing.T) {
	leakCheck(t)
	const n, rtt = 100, 40 * time.Millisecond
	l := open(t, serve(t, echo), Options{RTT: rtt})
	c := dial(t, l)
	sent := make([]time.Time, n)
	go func() {
		for i := range sent {
			sent[i] = time.Now()
			c.Write([]byte{byte(i)})
			time.Sleep(time.Millisecond)
		}
	}()
	var b [1]byte
	var worst time.Duration
	for i := range n {
		if _, err := io.ReadFull(c, b[:]); err != nil || b[0] != byte(i) {
			t.Fatalf("byte %d: got %d, err %v", i, b[0], err)
		}
		worst = max(worst, time.Since(sent[i]))
	}
	t.Logf("worst of %d: %v", n, worst)
	if worst > 2*rtt {
		t.Errorf("worst round trip %v with %v asked", worst, rtt)
	}
}

// What the target has after a cut is a prefix of what was sent, and it does not
// grow after Cut has returned.
func TestCut(t *testing.T) {
	leakCheck(t)
	rnd := seeded(t)
	var got atomic.Int64
	wrong := make(chan int64, 1)
	ended := make(chan struct{}, 16)
	target := serve(t, func(c *net.TCPConn) {
		defer func() { ended <- struct{}{} }()
		defer c.Close()
		b := make([]byte, 64<<10)
		var pos int64
		for {
			n, err := c.Read(b)
			for _, x := range b[:n] {
				if x != byte(pos*7) {
					select {
					case wrong <- pos:
					default:
					}
				}
				pos++
			}
			got.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	l := open(t, target, Options{RTT: 20 * time.Millisecond})
	for round := range 8 {
		got.Store(0)
		c := dial(t, l)
		var sent atomic.Int64
		writer := make(chan error, 1)
		go func() {
			b := make([]byte, 1000)
			for {
				for i := range b {
					b[i] = byte((sent.Load() + int64(i)) * 7)
				}
				n, err := c.Write(b)
				sent.Add(int64(n))
				if err != nil {
					writer <- err
					return
				}
				if sent.Load()%50_000 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
		for deadline := time.Now().Add(10 * time.Second); got.Load() == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // a busy machine is late
		}
		time.Sleep(time.Duration(5_000+rnd.IntN(10_000)) * time.Microsecond)
		l.Cut()
		atCut := sent.Load()
		<-ended // the target has read all that reached it
		if err := <-writer; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the writer saw %v, not a reset", err)
		}
		final := got.Load()
		time.Sleep(15 * time.Millisecond) // longer than one direction takes
		if got.Load() != final || len(ended) > 0 {
			t.Fatalf("round %d: bytes arrived after the cut", round)
		}
		if final == 0 || final >= atCut {
			t.Errorf("round %d: %d of %d bytes arrived: the cut was meant to hit bytes under way", round, final, atCut)
		}
		select {
		case pos := <-wrong:
			t.Fatalf("round %d: byte %d is wrong", round, pos)
		default:
		}
		if c, err := net.Dial("tcp", l.Addr()); err == nil {
			if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 {
				t.Error("a connection was served while the line is cut")
			}
			c.Close()
		}
		l.Restore()
	}
}

// Bytes that are in the queue when the line is cut are never seen, even when
// the target reads late.
func TestCutDropsTheQueue(t *testing.T) {
	leakCheck(t)
	read := make(chan int, 1)
	l := open(t, serve(t, func(c *net.TCPConn) {
		defer c.Close()
		b, _ := io.ReadAll(c)
		read <- len(b)
	}), Options{RTT: 200 * time.Millisecond})
	c := dial(t, l)
	if _, err := c.Write(make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // read by the link, due in 80 ms
	l.Cut()
	if n := <-read; n != 0 {
		t.Errorf("%d bytes arrived through a cut line", n)
	}
}

// A target that does not read stops the sender: the queue stays within its
// bound, and nothing is lost when it reads at last.
func TestBackPressure(t *testing.T) {
	leakCheck(t)
	const bound = 256 << 10
	const total = 64 << 20
	begin := make(chan struct{})
	read := make(chan int64, 1)
	l := open(t, serve(t, func(c *net.TCPConn) {
		defer c.Close()
		<-begin
		n, _ := io.Copy(io.Discard, c)
		read <- n
	}), Options{RTT: time.Millisecond, QueueBytes: bound})
	c := dial(t, l)
	var sent atomic.Int64
	go func() {
		b := make([]byte, 64<<10)
		for sent.Load() < total {
			n, err := c.Write(b)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
		c.CloseWrite()
	}()
	last := int64(-1)
	for stuck := 0; stuck < 5; time.Sleep(20 * time.Millisecond) {
		if s := sent.Load(); s == last {
			stuck++
		} else {
			last, stuck = s, 0
		}
	}
	if last >= total {
		t.Fatalf("all %d bytes were taken though nobody reads", last)
	}
	var tun *tunnel
	l.mu.Lock()
	for tun = range l.tuns {
	}
	l.mu.Unlock()
	p := tun.pipes[ToTarget]
	p.mu.Lock()
	peak := p.peak
	p.mu.Unlock()
	t.Logf("the sender stopped after %d bytes, %d in the queue at most", last, peak)
	if peak < bound || peak > bound+slabBytes+chunkCost {
		t.Errorf("the queue held %d bytes, bound %d", peak, bound)
	}
	close(begin)
	if n := <-read; n != sent.Load() || n < total {
		t.Errorf("%d bytes arrived of %d", n, sent.Load())
	}
}

func TestStall(t *testing.T) {
	leakCheck(t)
	l := open(t, serve(t, echo), Options{})
	c := dial(t, l)
	echoTimes(t, c, 1)
	for _, d := range []Direction{ToTarget, ToClient} {
		l.Stall(d)
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatalf("direction %d: a byte came through a stalled link", d)
		}
		c.SetReadDeadline(time.Time{})
		l.Resume(d)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("direction %d: after resume: %v", d, err)
		}
	}
	l.Stall(ToTarget)
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	l.Cut() // must not hang on the stalled writer
}

// A target that is not there resets the connection, and the link stays usable.
func TestNoTarget(t *testing.T) {
	leakCheck(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, ln.Addr().String(), Options{RTT: 10 * time.Millisecond})
	ln.Close()
	begin := time.Now()
	if _, err := dial(t, l).Read(make([]byte, 1)); err == nil {
		t.Error("read from a target that is not there")
	}
	if d := time.Since(begin); d < 10*time.Millisecond {
		t.Errorf("the refusal took %v, less than the round trip", d)
	}
}
