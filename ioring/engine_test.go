package ioring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// seed of everything random here: printed, and taken from LOCKSTEP_SEED.
func seeded(t *testing.T) *rand.Rand {
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("LOCKSTEP_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s = n
	}
	t.Logf("seed %d", s)
	return rand.New(rand.NewPCG(s, s))
}

// rig is an engine on its own locked thread with a place to collect events.
type rig struct {
	t      *testing.T
	eng    Engine
	pool   *Pool
	events []Event
}

// both runs a test on each engine, on a locked thread.
func both(t *testing.T, f func(t *testing.T, r *rig)) {
	for _, name := range []string{RingName, "portable"} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			pool := NewPool(OffHeap{}, 64<<20)
			r := &rig{t: t, eng: engine(t, name, pool), pool: pool}
			f(t, r)
			if err := r.eng.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func engine(t testing.TB, name string, pool *Pool) Engine {
	mk := func() (Engine, error) { return NewPortable(pool) }
	if name == RingName {
		if err := Probe(); err != nil {
			t.Skip(err) // the machine does not allow it: the reason is the probe's
		}
		mk = func() (Engine, error) { return NewRing(pool) }
	}
	eng, err := mk()
	if err != nil {
		t.Fatal(err)
	}
	return eng
}

// until turns the engine until an event of that kind and token has come.
func (r *rig) until(k Kind, token uint64) Event {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		for i, ev := range r.events {
			if ev.Kind == k && ev.Token == token {
				r.events = append(r.events[:i], r.events[i+1:]...)
				return ev
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no %v event with token %d in 10 s; have %v", k, token, r.events)
		}
		var err error
		if r.events, err = r.eng.Turn(r.events, 100*time.Millisecond); err != nil {
			r.t.Fatal(err)
		}
	}
}

func listen(t *testing.T) (int32, netip.AddrPort) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 128); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return int32(fd), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
}

// pair is an accepted descriptor in the engine and the Go peer of it.
func (r *rig) pair(t *testing.T) (int32, *net.TCPConn) {
	ln, addr := listen(t)
	r.eng.Queue(Op{Kind: Accept, FD: ln, Token: 1})
	peer, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	ev := r.until(Accept, 1)
	if ev.Res < 0 {
		t.Fatalf("accept: %v", unix.Errno(-ev.Res))
	}
	if err := unix.Close(int(ln)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	return ev.Res, peer.(*net.TCPConn)
}

func TestRecvPiecesThenTheRestInto(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		rnd := seeded(t)
		fd, peer := r.pair(t)
		want := make([]byte, 3<<20)
		for i := range want {
			want[i] = byte(rnd.Uint32())
		}
		go func() {
			for b := want; len(b) > 0; {
				n := min(len(b), 1+rnd.IntN(100_000))
				if _, err := peer.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
		}()
		r.eng.Queue(Op{Kind: Recv, FD: fd, Token: 7})
		ev := r.until(Recv, 7)
		if ev.Res <= 0 || ev.Buf == nil || int(ev.Res) != len(ev.Buf.Data) {
			t.Fatalf("event %+v", ev)
		}
		big := r.pool.Alloc(len(want))
		n := copy(big.Data, ev.Buf.Data)
		r.pool.Free(ev.Buf)
		r.eng.Queue(Op{Kind: RecvInto, FD: fd, Token: 8, Bytes: big.Data[n:]})
		if ev = r.until(RecvInto, 8); int(ev.Res) != len(want)-n {
			t.Fatalf("got %d of %d", ev.Res, len(want)-n)
		}
		if !bytes.Equal(big.Data, want) {
			t.Fatal("bytes differ")
		}
	})
}

func TestSendGathersToASlowReader(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		rnd := seeded(t)
		fd, peer := r.pair(t)
		var pieces [][]byte
		var want []byte
		for range MaxPieces {
			b := r.pool.Alloc(1 + rnd.IntN(200_000))
			for i := range b.Data {
				b.Data[i] = byte(rnd.Uint32())
			}
			pieces = append(pieces, b.Data)
			want = append(want, b.Data...)
		}
		got := make(chan []byte)
		go func() {
			var all []byte
			buf := make([]byte, 50_000)
			for len(all) < len(want) {
				n, err := peer.Read(buf)
				if err != nil {
					break
				}
				all = append(all, buf[:n]...)
				time.Sleep(200 * time.Microsecond)
			}
			got <- all
		}()
		sent := 0
		for sent < len(want) {
			rest, skip := [][]byte(nil), sent
			for _, p := range pieces {
				if skip >= len(p) {
					skip -= len(p)
					continue
				}
				rest, skip = append(rest, p[skip:]), 0
			}
			r.eng.Queue(Op{Kind: Send, FD: fd, Token: 3, Pieces: rest})
			ev := r.until(Send, 3)
			if ev.Res <= 0 {
				t.Fatalf("send: %v", unix.Errno(-ev.Res))
			}
			sent += int(ev.Res)
		}
		if !bytes.Equal(<-got, want) {
			t.Fatal("bytes differ")
		}
	})
}

func TestEndOfStreamAndClose(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		fd, peer := r.pair(t)
		if _, err := peer.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		if err := peer.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // data and end in one readiness edge
		r.eng.Queue(Op{Kind: Recv, FD: fd, Token: 1})
		if ev := r.until(Recv, 1); ev.Res != 4 {
			t.Fatalf("got %d", ev.Res)
		} else {
			r.pool.Free(ev.Buf)
		}
		r.eng.Queue(Op{Kind: Recv, FD: fd, Token: 2})
		if ev := r.until(Recv, 2); ev.Res != 0 || ev.Buf != nil {
			t.Fatalf("end of stream: %+v", ev)
		}
		r.eng.Queue(Op{Kind: Send, FD: fd, Token: 3, Pieces: [][]byte{r.pool.Alloc(3).Data}})
		if ev := r.until(Send, 3); ev.Res != 3 { // the other half is still open
			t.Fatalf("send to a half-closed peer: %d", ev.Res)
		}
		r.eng.Queue(Op{Kind: Close, FD: fd, Token: 4})
		if ev := r.until(Close, 4); ev.Res != 0 {
			t.Fatalf("close: %d", ev.Res)
		}
	})
}

func TestCloseEndsAReceiveInFlight(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		fd, _ := r.pair(t)
		r.eng.Queue(Op{Kind: Recv, FD: fd, Token: 1})
		var err error
		if r.events, err = r.eng.Turn(r.events, 0); err != nil {
			t.Fatal(err)
		}
		r.eng.Queue(Op{Kind: Close, FD: fd, Token: 2})
		r.until(Close, 2)
		if ev := r.until(Recv, 1); ev.Res > 0 || ev.Buf != nil {
			t.Fatalf("receive after close: %+v", ev)
		}
	})
}

func TestConnect(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ln, addr := listen(t)
		r.eng.Queue(Op{Kind: Accept, FD: ln, Token: 1})
		r.eng.Queue(Op{Kind: Connect, Addr: addr, Token: 2})
		out, in := r.until(Connect, 2), r.until(Accept, 1)
		if out.Res < 0 || in.Res < 0 {
			t.Fatalf("connect %d, accept %d", out.Res, in.Res)
		}
		b := r.pool.Alloc(5)
		copy(b.Data, "hello")
		r.eng.Queue(Op{Kind: Send, FD: out.Res, Token: 3, Pieces: [][]byte{b.Data}})
		r.eng.Queue(Op{Kind: Recv, FD: in.Res, Token: 4})
		if ev := r.until(Recv, 4); string(ev.Buf.Data) != "hello" {
			t.Fatalf("got %q", ev.Buf.Data)
		}
		r.until(Send, 3)
		if err := unix.Close(int(ln)); err != nil {
			t.Fatal(err)
		}
		r.eng.Queue(Op{Kind: Connect, Addr: addr, Token: 5})
		if ev := r.until(Connect, 5); ev.Res != -int32(unix.ECONNREFUSED) {
			t.Fatalf("connect to nobody: %d", ev.Res)
		}
	})
}

func TestWakeAndDeadline(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		start, turns := time.Now(), 0
		for time.Since(start) < 60*time.Millisecond { // a signal may end one wait early
			if _, err := r.eng.Turn(nil, 30*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			turns++
		}
		if d := time.Since(start); turns > 20 || d > 2*time.Second {
			t.Fatalf("waits of 30 ms: %d turns in %v", turns, d)
		}
		for range 50 {
			go func() { time.Sleep(time.Millisecond); r.eng.Wake() }()
			start := time.Now()
			if _, err := r.eng.Turn(nil, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Fatalf("woken after %v", d)
			}
		}
	})
}

// A wake whose completion is reaped by the peek of a later turn must not be the
// last one that is heard: the read on the eventfd is armed before each wait.
func TestWakeReapedByAPeek(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		var w *waker
		switch e := r.eng.(type) {
		case *Ring:
			w = &e.wake
		case *Portable:
			w = &e.wake
		}
		if _, err := r.eng.Turn(nil, 0); err != nil { // arms the read
			t.Fatal(err)
		}
		w.sleeping.Store(true) // a wake came while the owner slept ...
		r.eng.Wake()
		w.done() // ... and it woke for another reason
		time.AfterFunc(50*time.Millisecond, r.eng.Wake)
		start := time.Now()
		for time.Since(start) < 40*time.Millisecond { // until the second wake
			if _, err := r.eng.Turn(nil, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Fatalf("the second wake was heard after %v", d)
		}
	})
}

// The runtime signals its threads to stop the world: enter and epoll_wait end
// with EINTR then. The garbage here provokes it under a stream of messages.
func TestSignalsDuringWaits(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		fd, peer := r.pair(t)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		}()
		go func() {
			for i := range 300 {
				if _, err := peer.Write([]byte{byte(i)}); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		for got := 0; got < 300; {
			r.eng.Queue(Op{Kind: Recv, FD: fd, Token: uint64(got)})
			ev := r.until(Recv, uint64(got))
			if ev.Res <= 0 {
				t.Fatalf("after %d: %v", got, unix.Errno(-ev.Res))
			}
			for i, b := range ev.Buf.Data {
				if b != byte(got+i) {
					t.Fatalf("byte %d is %d", got+i, b)
				}
			}
			got += int(ev.Res)
			r.pool.Free(ev.Buf)
		}
	})
}

// More receives than provided buffers: those without wait until some come home.
func TestReceivesOutnumberBuffers(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		var fds []int32
		n := providedCount + 20
		for i := range n {
			fd, peer := r.pair(t)
			fds = append(fds, fd)
			if _, err := peer.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		for i, fd := range fds {
			r.eng.Queue(Op{Kind: Recv, FD: fd, Token: uint64(100 + i)})
		}
		held, seen := []*Buffer{}, 0
		for deadline := time.Now().Add(10 * time.Second); seen < n && time.Now().Before(deadline); {
			var err error
			if r.events, err = r.eng.Turn(r.events, 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			for _, ev := range r.events {
				if ev.Kind != Recv || ev.Res != 1 || ev.Buf.Data[0] != byte(ev.Token-100) {
					t.Fatalf("event %+v", ev)
				}
				held = append(held, ev.Buf)
				seen++
			}
			r.events = r.events[:0]
			if len(held) == providedCount {
				for _, b := range held {
					r.pool.Free(b)
				}
				held = held[:0]
			}
		}
		if seen != n {
			t.Fatalf("%d of %d receives ended", seen, n)
		}
	})
}

// More operations than either queue holds, queued before a turn: the first
// full queue submits itself, completions past the other wait in the kernel.
// Each comes once.
func TestMoreOpsThanTheQueuesHold(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		const nobody = 1 << 16 // a descriptor that is not open
		seen := make([]int, 2*cqEntries+5)
		for i := range seen {
			r.eng.Queue(Op{Kind: Close, FD: nobody, Token: uint64(i)})
		}
		n := 0
		for deadline := time.Now().Add(10 * time.Second); n < len(seen) && time.Now().Before(deadline); {
			var err error
			if r.events, err = r.eng.Turn(r.events[:0], 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			for _, ev := range r.events {
				if ev.Kind != Close || ev.Res != -int32(unix.EBADF) {
					t.Fatalf("event %+v", ev)
				}
				seen[ev.Token]++
				n++
			}
		}
		for i, times := range seen {
			if times != 1 {
				t.Fatalf("operation %d of %d ended %d times", i, len(seen), times)
			}
		}
	})
}

// Every submission slot is used by one kind of operation after another, over
// and over: nothing of the last user may show in the next.
func TestSlotsAreUsedAgain(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		const nobody = 1 << 16 // a descriptor that is not open
		msg := r.pool.Alloc(8)
		for i := range cqEntries { // three operations a round: the kinds rotate over the slots
			binary.LittleEndian.PutUint64(msg.Data, uint64(i))
			r.eng.Queue(Op{Kind: Send, FD: int32(fds[0]), Token: 1, Pieces: [][]byte{msg.Data}})
			r.eng.Queue(Op{Kind: Recv, FD: int32(fds[1]), Token: 2})
			r.eng.Queue(Op{Kind: Close, FD: nobody, Token: 3})
			if ev := r.until(Close, 3); ev.Res != -int32(unix.EBADF) {
				t.Fatalf("round %d, close: %v", i, unix.Errno(-ev.Res))
			}
			if ev := r.until(Send, 1); ev.Res != 8 {
				t.Fatalf("round %d, send: %d", i, ev.Res)
			}
			ev := r.until(Recv, 2)
			if ev.Res != 8 || !bytes.Equal(ev.Buf.Data, msg.Data) {
				t.Fatalf("round %d, receive: %+v", i, ev)
			}
			r.pool.Free(ev.Buf)
		}
		for _, fd := range fds {
			if err := unix.Close(fd); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A reactor with work never waits: what has come must be found by turns that
// only look.
func TestTurnsThatOnlyLook(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		fd, peer := r.pair(t)
		r.eng.Queue(Op{Kind: Recv, FD: fd, Token: 1})
		for range 10 {
			if got, err := r.eng.Turn(nil, 0); err != nil || len(got) > 0 {
				t.Fatalf("events %v, err %v", got, err)
			}
		}
		if _, err := peer.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Second); ; {
			got, err := r.eng.Turn(nil, 0)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("nothing found, err %v", err)
			}
			if len(got) == 1 && got[0].Kind == Recv && got[0].Res == 1 {
				r.pool.Free(got[0].Buf)
				return
			}
		}
	})
}

// Whoever asked for the ring hears why it cannot be had, and what to do.
func TestRefusalNamesItsCause(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := Probe(); err != nil {
		t.Skip(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := NewRing(NewPool(OffHeap{}, 1<<20))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Fatalf("with no descriptors left: %v", err)
	}
}

func TestPoolKeepsItsBudget(t *testing.T) {
	p := NewPool(OffHeap{}, 1<<20)
	a := p.Alloc(600 << 10) // takes a class of 1 MiB
	if a == nil || p.Alloc(1) != nil {
		t.Fatal("budget not kept")
	}
	p.Free(a)
	if p.InUse() != 0 {
		t.Fatalf("in use %d", p.InUse())
	}
	if b := p.Alloc(50 << 20); b == nil || len(b.Data) != 50<<20 { // alone it may pass
		t.Fatal("a single large request must be possible")
	} else {
		p.Free(b)
	}
	for n := range 3000 {
		b := p.Alloc(n)
		if b == nil || len(b.Data) != n {
			t.Fatalf("alloc %d", n)
		}
		p.Free(b)
	}
	if got := testing.AllocsPerRun(100, func() { p.Free(p.Alloc(4000)) }); got != 0 {
		t.Fatalf("%v allocations", got)
	}
}

// BenchmarkEcho sends 100 bytes over each of so many socket pairs and receives
// them, in one turn or more. cpu-ns is the processor time of the ring's thread
// for one message; on a busy machine it is the figure to look at.
func BenchmarkEcho(b *testing.B) {
	for _, name := range []string{RingName, "portable"} {
		for _, pairs := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("pairs=%d/engine=%s", pairs, name), func(b *testing.B) { echo(b, name, pairs) })
		}
	}
}

func echo(b *testing.B, name string, pairs int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := NewPool(OffHeap{}, 64<<20)
	eng := engine(b, name, pool)
	var err error
	fds := make([][2]int, pairs)
	for i := range fds {
		if fds[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			b.Fatal(err)
		}
	}
	pieces := [][]byte{pool.Alloc(100).Data}
	events := make([]Event, 0, 2*pairs)
	b.ReportAllocs()
	start := threadCPU(b)
	for b.Loop() {
		for _, p := range fds {
			eng.Queue(Op{Kind: Send, FD: int32(p[0]), Token: 1, Pieces: pieces})
			eng.Queue(Op{Kind: Recv, FD: int32(p[1]), Token: 2})
		}
		for done := 0; done < 2*pairs; {
			if events, err = eng.Turn(events[:0], time.Second); err != nil {
				b.Fatal(err)
			}
			for _, ev := range events {
				if ev.Buf != nil {
					pool.Free(ev.Buf)
				}
				done++
			}
		}
	}
	b.ReportMetric(float64(threadCPU(b)-start)/float64(b.N*pairs), "cpu-ns/msg")
	for _, p := range fds {
		if err := errors.Join(unix.Close(p[0]), unix.Close(p[1])); err != nil {
			b.Error(err)
		}
	}
	if err := eng.Close(); err != nil {
		b.Error(err)
	}
}

func threadCPU(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
