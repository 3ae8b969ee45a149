package ioring

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Receives that waited for a buffer and end without one (the stream has ended)
// leave it to those behind them, though none comes home any more.
func TestABufferNotTakenIsOffered(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		const last = 20
		n := 2*providedCount + last
		var fds []int32
		for i := range n {
			fd, peer := r.pair(t)
			t.Cleanup(func() { _ = unix.Close(int(fd)) })
			err := error(nil)
			if i >= providedCount && i < n-last {
				err = peer.CloseWrite()
			} else {
				_, err = peer.Write([]byte{1})
			}
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
		for i, fd := range fds {
			r.eng.Queue(Op{Kind: Recv, FD: fd, Token: uint64(i)})
		}
		var held []*Buffer
		turns := func(enough int) {
			got := 0
			for deadline := time.Now().Add(10 * time.Second); got < enough && time.Now().Before(deadline); {
				var err error
				if r.events, err = r.eng.Turn(r.events[:0], 10*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				for _, ev := range r.events {
					got++
					if ev.Buf != nil {
						held = append(held, ev.Buf)
					}
				}
			}
			if got < enough {
				t.Fatalf("%d of %d receives ended, %d buffers held", got, enough, len(held))
			}
		}
		turns(providedCount)
		for _, b := range held {
			r.pool.Free(b)
		}
		held = held[:0]
		turns(n - providedCount)
		for _, b := range held {
			r.pool.Free(b)
		}
	})
}

// The kernel has few buffers, more when a receive has found none, and few again
// when none was missed for long.
func TestLending(t *testing.T) {
	r := &Ring{want: lendMin, lent: 1}
	turn := func(short bool, starved, want int) {
		t.Helper()
		r.short, r.starved = short, make([]Op, starved)
		if r.lending(); r.want != want || r.short {
			t.Fatalf("%d wanted, short %v; due is %d", r.want, r.short, want)
		}
	}
	turn(false, 0, lendMin)
	turn(true, 1, 2*lendMin)
	turn(true, 3*lendMin, providedCount)
	turn(true, 10*providedCount, providedCount)
	for _, want := range []int{providedCount / 2, lendMin, lendMin} {
		for range calmTurns - 1 {
			r.lending()
		}
		turn(false, 0, want)
	}
	r.lent = 0 // all are held by requests: those that starve are not asked again, so none would be missed
	turn(false, 0, lendMin)
	turn(false, 1, 2*lendMin)
}

// What the kernel is lent and a slab are resident at once, the other provided
// buffers not at all.
func TestLentIsResident(t *testing.T) {
	resident := func(b []byte) (n int) {
		t.Helper()
		vec := make([]byte, len(b)/pageSize)
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&vec[0]))); errno != 0 {
			t.Fatal(errno)
		}
		for _, v := range vec {
			n += int(v & 1)
		}
		return n
	}
	if unix.Getpagesize() != pageSize {
		t.Skip("pages of another size")
	}
	pool := NewPool(OffHeap{}, 1<<20)
	all, err := pool.provide()
	if err != nil {
		t.Fatal(err)
	}
	ring := make([]byte, providedCount*16)
	r := &Ring{pool: pool, bufRing: ring}
	r.lend()
	lent := all[(providedCount-lendMin)*ProvidedSize:]
	if n, rest := resident(lent), resident(all[:len(all)-len(lent)]); n != len(lent)/pageSize || rest != 0 {
		t.Errorf("of %d pages lent %d are resident, of the others %d", len(lent)/pageSize, n, rest)
	}
	b := pool.Alloc(1)
	slab := unsafe.Slice(unsafe.SliceData(b.Data), slabSize)
	if n := resident(slab); n != slabSize/pageSize {
		t.Errorf("%d of the %d pages of a slab are resident", n, slabSize/pageSize)
	}
	r.lent -= 3 // three are held by requests: nothing is lent in their place
	r.recycle()
	if n := resident(all); n != lendMin*ProvidedSize/pageSize || r.lent != lendMin-3 {
		t.Errorf("%d pages are resident, %d buffers lent, while three are held", n, r.lent)
	}
	r.short = true
	r.recycle()
	if n := resident(all); n != 2*lendMin*ProvidedSize/pageSize || r.lent != 2*lendMin-3 {
		t.Errorf("%d pages are resident, %d buffers lent, once a receive has found none", n, r.lent)
	}
}
