//go:build !giouring

package ioring

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ways that were not taken, beside those that were: ADR 0016 has what they
// gave. They use the ring from inside, because it does not offer them.

const (
	opSend          = 26
	opSendZC        = 47
	recvMultishot   = 1 << 1 // ioprio
	cqeMore         = 1 << 1
	cqeNotification = 1 << 3
)

func ways(b *testing.B) (*Ring, *Pool) {
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	pool := NewPool(OffHeap{}, 64<<20)
	r, ok := engine(b, RingName, pool).(*Ring)
	if !ok {
		b.Skip("not our own ring")
	}
	b.Cleanup(func() { _ = r.Close() })
	return r, pool
}

func tcpPair(b *testing.B) (near, far *net.TCPConn) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // what MPTCP accepts knows no zero copy
	ln, err := plain.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// fdOf is a descriptor of its own of a socket.
func fdOf(b *testing.B, c *net.TCPConn) int {
	f, err := c.File()
	if err != nil {
		b.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		b.Fatal(err)
	}
	_ = f.Close()
	b.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// BenchmarkReceiveWays: 100 bytes come in on each of so many connections, taken
// by a receive that is asked for each time, or by one that goes on.
func BenchmarkReceiveWays(b *testing.B) {
	for _, pairs := range []int{1, 16, 128} {
		for _, way := range []string{"single", "multishot"} {
			b.Run(fmt.Sprintf("pairs=%d/way=%s", pairs, way), func(b *testing.B) {
				r, pool := ways(b)
				var in, out []int
				for range pairs {
					near, far := tcpPair(b)
					in, out = append(in, fdOf(b, near)), append(out, fdOf(b, far))
				}
				arm := func(i int) {
					e := r.sqe()
					e.opcode, e.fd, e.flags, e.bufGroup, e.userData = opRecv, int32(in[i]), sqeBufferSelect, providedGroup, uint64(i)
					if way == "multishot" {
						e.ioprio = recvMultishot
					}
				}
				for i := range in {
					arm(i)
				}
				message := make([]byte, 100)
				cpu := threadCPU(b)
				for b.Loop() {
					for _, fd := range out {
						if _, err := unix.Write(fd, message); err != nil {
							b.Fatal(err)
						}
					}
					for got := 0; got < pairs; {
						if err := r.enter(false, 1, -1); err != nil {
							b.Fatal(err)
						}
						var c cqe
						for r.q.take(&c) {
							if c.res <= 0 {
								b.Fatalf("receive: %d", c.res)
							}
							r.lent--
							pool.Free(pool.take(int32(c.flags>>cqeBufferShift), int(c.res)))
							if got++; c.flags&cqeMore == 0 {
								arm(int(c.userData))
							}
						}
						r.recycle()
					}
				}
				b.ReportMetric(float64(threadCPU(b)-cpu)/float64(b.N*pairs), "cpu-ns/msg")
			})
		}
	}
}

// BenchmarkSendWays: bytes of a file, in the page cache, to a socket that a
// thread reads from: out of the map of the file by SENDMSG, as the broker does,
// the same without a copy if the kernel can, or by sendfile.
func BenchmarkSendWays(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 256 << 10, 1 << 20} {
		for _, way := range []string{"sendmsg", "send_zc", "sendfile"} {
			b.Run(fmt.Sprintf("bytes=%d/way=%s", size, way), func(b *testing.B) { sendWay(b, size, way) })
		}
	}
}

func sendWay(b *testing.B, size int, way string) {
	r, _ := ways(b)
	near, far := tcpPair(b)
	fd := fdOf(b, near)
	go func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{far}, make([]byte, 256<<10))
	}()
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	iov := &iovec{addrOf(data), uint64(size)}
	head := &msghdr{iov: uint64(uintptr(unsafe.Pointer(iov))), iovLen: 1}
	var pin runtime.Pinner
	pin.Pin(iov)
	pin.Pin(head)
	defer pin.Unpin()
	b.SetBytes(int64(size))
	cpu := processCPU(b)
	for b.Loop() {
		if way == "sendfile" {
			for off := int64(0); off < int64(size); {
				if _, err := unix.Sendfile(fd, int(f.Fd()), &off, size-int(off)); err != nil {
					b.Fatal(err)
				}
			}
			continue
		}
		e := r.sqe()
		e.fd, e.opFlags, e.userData = int32(fd), unix.MSG_WAITALL|unix.MSG_NOSIGNAL, 1
		if e.opcode, e.addr, e.len = opSendmsg, uint64(uintptr(unsafe.Pointer(head))), 1; way == "send_zc" {
			e.opcode, e.addr, e.len = opSendZC, addrOf(data), uint32(size)
		}
		for sent, left := false, true; left; {
			if err := r.enter(false, 1, -1); err != nil {
				b.Fatal(err)
			}
			var c cqe
			for r.q.take(&c) {
				if c.flags&cqeNotification == 0 {
					if sent = true; c.res != int32(size) {
						b.Fatalf("sent %d of %d", c.res, size)
					}
				}
				left = !sent || c.flags&cqeMore != 0
			}
		}
	}
	b.ReportMetric(float64(processCPU(b)-cpu)/float64(b.N), "cpu-ns/op") // with the reader's
}

func processCPU(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkEnterWays: one message to itself and back, entering the kernel past
// the scheduler of Go or through it.
func BenchmarkEnterWays(b *testing.B) {
	for _, raw := range []bool{true, false} {
		b.Run(fmt.Sprintf("raw=%v", raw), func(b *testing.B) {
			r, pool := ways(b)
			near, far := tcpPair(b)
			in, out := fdOf(b, near), fdOf(b, far)
			message := pool.Alloc(100).Data
			cpu := threadCPU(b)
			for b.Loop() {
				e := r.sqe()
				e.opcode, e.fd, e.addr, e.len, e.userData = opSend, int32(out), addrOf(message), uint32(len(message)), 1
				e = r.sqe()
				e.opcode, e.fd, e.flags, e.bufGroup, e.userData = opRecv, int32(in), sqeBufferSelect, providedGroup, 2
				for got := 0; got < 2; {
					if err := r.enter(raw, 1, -1); err != nil {
						b.Fatal(err)
					}
					var c cqe
					for r.q.take(&c) {
						if got++; c.flags&cqeFBuffer != 0 {
							r.lent--
							pool.Free(pool.take(int32(c.flags>>cqeBufferShift), int(c.res)))
						}
					}
					r.recycle()
				}
			}
			b.ReportMetric(float64(threadCPU(b)-cpu)/float64(b.N), "cpu-ns/msg")
		})
	}
}

// BenchmarkSpinWays: a client sends 100 bytes, waits for them to come back and
// rests a while; the ring's thread looks for completions for some time before it
// sleeps. p50 is the client's, cpu the ring thread's.
func BenchmarkSpinWays(b *testing.B) {
	for _, rest := range []time.Duration{0, 100 * time.Microsecond} {
		for _, spin := range []time.Duration{0, 20 * time.Microsecond, 100 * time.Microsecond} {
			b.Run(fmt.Sprintf("rest=%v/spin=%v", rest, spin), func(b *testing.B) {
				r, pool := ways(b)
				near, far := tcpPair(b)
				in := int32(fdOf(b, near))
				n := b.N
				took := make(chan []time.Duration)
				go func() { took <- pingPong(far, n, rest) }()
				cpu := threadCPU(b)
				var events []Event
				var err error
				for done := 0; done < n; {
					r.Queue(Op{Kind: Recv, FD: in})
					for events = events[:0]; len(events) == 0; {
						for until := time.Now().Add(spin); spin > 0 && len(events) == 0 && time.Now().Before(until); {
							if events, err = r.Turn(events, 0); err != nil {
								b.Fatal(err)
							}
						}
						if len(events) == 0 {
							if events, err = r.Turn(events, time.Second); err != nil {
								b.Fatal(err)
							}
						}
					}
					for _, ev := range events {
						if ev.Kind == Recv {
							if _, err := unix.Write(int(in), ev.Buf.Data); err != nil {
								b.Fatal(err)
							}
							pool.Free(ev.Buf)
							done++
						}
					}
				}
				b.ReportMetric(float64(threadCPU(b)-cpu)/float64(n), "cpu-ns/msg")
				all := <-took
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
			})
		}
	}
}

func pingPong(c *net.TCPConn, n int, rest time.Duration) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	message := make([]byte, 100)
	all := make([]time.Duration, 0, n)
	for range n {
		begin := time.Now()
		if _, err := c.Write(message); err != nil {
			break
		}
		if _, err := io.ReadFull(c, message); err != nil {
			break
		}
		all = append(all, time.Since(begin))
		if rest > 0 {
			time.Sleep(rest)
		}
	}
	return all
}
