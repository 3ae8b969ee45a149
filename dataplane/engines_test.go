package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/compress"
	"lockstep/internal/wire"
	"lockstep/ioring"
	"lockstep/segment"
)

type realClock struct{ from time.Time }

func (c realClock) Mono() int64 { return int64(time.Since(c.from)) }
func (c realClock) Wall() int64 { return time.Now().UnixMilli() }

// server is a running engine with real sockets, threads and files.
type server struct {
	t     *testing.T
	e     *Engine
	facts *facts
	mu    sync.Mutex
	at    netip.AddrPort
}

func (s *server) addr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Serve answers Metadata and refuses all else.
func (s *server) Serve(q *ColdRequest) []byte {
	if q.Key != wire.KeyMetadata {
		return nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = q.Version
	if req.ReadFrom(q.Body) != nil {
		return nil
	}
	res := req.ResponseKind().(*kmsg.MetadataResponse)
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = 1, s.addr().Addr().String(), int32(s.addr().Port())
	res.Brokers, res.ControllerID = append(res.Brokers, b), 1
	for topic := range s.facts.View().Topics() {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = kmsg.StringPtr(topic.Name), topic.ID
		for i, x := range topic.Partitions {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR = int32(i), x.Leader, x.LeaderEpoch, x.Replicas, x.ISR
			t.Partitions = append(t.Partitions, p)
		}
		res.Topics = append(res.Topics, t)
	}
	out := wire.BeginResponse(nil, q.Key, q.Version, q.Correlation)
	out = res.AppendTo(out)
	wire.EndResponse(out, 0, 0)
	return out
}

// engines runs a test on each kernel interface with one and three reactors.
func engines(t *testing.T, f func(t *testing.T, s *server)) {
	for _, name := range []string{ioring.RingName, "portable"} {
		for _, reactors := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, reactors), func(t *testing.T) {
				if name == ioring.RingName {
					if err := ioring.Probe(); err != nil {
						t.Skip(err) // the machine does not allow it; the reason is the probe's
					}
				}
				f(t, serve(t, name, reactors))
			})
		}
	}
}

func serve(t *testing.T, name string, reactors int) *server {
	s := &server{t: t, facts: newFacts(t)}
	s.facts.topic(t, "t", 3)
	dir, err := segment.OpenDir(segment.DiskFS{}, t.TempDir(), segment.DirOptions{ClusterID: "here", NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.e, err = New(Options{NodeID: 1, Reactors: reactors, MaxRequestBytes: 4 << 20, FrameMemory: 8 << 20, FetchMaxBytes: 8 << 20, Unstable: true,
		Dirs: []*segment.Dir{dir}, Settings: testSettings, Views: s.facts, Cold: s, Clock: realClock{time.Now()}, Memory: ioring.OffHeap{},
		Inflate: compress.Inflate, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.e.Open(testSettings(nil, nil).Segment, func(int, int, segment.RecoveryStats) {}); err != nil {
		t.Fatal(err)
	}
	if err := s.e.Start(func(pool *ioring.Pool) (ioring.Engine, error) {
		if name == "portable" {
			return ioring.NewPortable(pool)
		}
		return ioring.NewRing(pool)
	}); err != nil {
		t.Fatal(err)
	}
	s.publish()
	at, err := s.e.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.at = at
	s.mu.Unlock()
	t.Cleanup(func() {
		if err := s.e.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
	return s
}

// publish lets the engine see the newest View and waits until it has.
func (s *server) publish() {
	s.e.ViewChanged()
	s.until("the View is applied", func() bool { return s.e.Applied() >= s.facts.View().Index() })
}

func (s *server) until(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("never: " + what)
		}
	}
}

// wired is a raw connection.
type wired struct {
	remote
	net.Conn
	t *testing.T
}

func (s *server) dial() *wired {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() }) // often closed already
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &wired{Conn: c, t: s.t}
}

func (w *wired) put(b []byte) {
	w.t.Helper()
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wired) answer(key, version int16) (int32, []byte) {
	w.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(w, size[:]); err != nil {
		w.t.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w, frame); err != nil {
		w.t.Fatal(err)
	}
	corr, body, err := wire.ParseResponseHeader(frame, key, version)
	if err != nil {
		w.t.Fatal(err)
	}
	return corr, body
}

func (w *wired) produced(v int16) (code wire.ErrorCode, base int64) {
	w.t.Helper()
	_, body := w.answer(wire.KeyProduce, v)
	var res wire.ProduceResponse
	if err := res.Parse(v, body); err != nil {
		w.t.Fatal(err)
	}
	it := res.Iter()
	it.Next()
	return it.Err, it.BaseOffset
}

// TestRealClients: what franz-go writes, in all codecs and over several
// connections, it reads again.
func TestRealClients(t *testing.T) {
	engines(t, func(t *testing.T, s *server) {
		const each = 200
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
			wg.Go(func() {
				cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr().String()), kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("t"))
				if err != nil {
					t.Error(err)
					return
				}
				defer cl.Close()
				for n := range each {
					cl.Produce(ctx, kgo.StringRecord(fmt.Sprintf("%d/%d %s", i, n, strings.Repeat("x", n*20))), func(_ *kgo.Record, err error) {
						if err != nil {
							t.Error(err)
						}
					})
				}
				if err := cl.Flush(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr().String()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		seen := map[string]bool{}
		for len(seen) < 5*each && ctx.Err() == nil && !t.Failed() {
			f := cl.PollFetches(ctx)
			for _, e := range f.Errors() {
				t.Fatal(e.Err)
			}
			f.EachRecord(func(r *kgo.Record) {
				key, _, _ := strings.Cut(string(r.Value), " ")
				if seen[key] {
					t.Errorf("%s twice", key)
				}
				seen[key] = true
			})
		}
		want(t, "records", len(seen), 5*each)
	})
}

// TestRawConnections: a frame in pieces, one far larger than a piece, a client
// that stops sending and still reads, an impossible frame, a full socket.
func TestRawConnections(t *testing.T) {
	engines(t, func(t *testing.T, s *server) {
		w := s.dial()
		b := w.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(3, 700_000/3)}))
		for i := 0; i < len(b); {
			n := min(len(b)-i, []int{1, 3, 16 << 10, 100_000}[i%4])
			w.put(b[i : i+n])
			i += n
		}
		code, base := w.produced(9)
		want(t, "large", code, wire.ErrNone)
		want(t, "base", base, 0)

		half := s.dial()
		p := consume(0, 1)
		ask := func(b []byte) []byte {
			return wire.AppendFetchRequest(b, 12, &p, []wire.FetchTarget{target("t", 0, 0)}, nil)
		}
		half.put(half.request(wire.KeyFetch, 12, ask))
		_, body := half.answer(wire.KeyFetch, 12)
		if len(body) < 700_000/3*3 {
			t.Errorf("%d bytes read", len(body))
		}
		if err := half.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := half.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after our end of the stream: %v", err)
		}

		bad := s.dial()
		bad.put([]byte{0x7f, 0xff, 0xff, 0xff})
		if _, err := bad.Read(make([]byte, 1)); err == nil {
			t.Error("an impossible frame was answered")
		}

		slow := s.dial()
		for range 60 { // 42 MB of answers nobody reads yet
			slow.put(slow.request(wire.KeyFetch, 12, ask))
		}
		time.Sleep(20 * time.Millisecond)
		w.put(w.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{1, records(1, 10)})))
		code, _ = w.produced(9)
		want(t, "beside a slow reader", code, wire.ErrNone)
		for i := range 60 {
			corr, body := slow.answer(wire.KeyFetch, 12)
			want(t, "order", corr, int32(i+1))
			if len(body) < 700_000/3*3 {
				t.Fatalf("answer %d has %d bytes", i, len(body))
			}
		}
		s.until("closed connections are forgotten", func() bool { return s.e.Metrics().Connections == 2 })
	})
}

// TestSharedPartition: producers on all reactors and one partition; offsets are
// dense, each connection's rise.
func TestSharedPartition(t *testing.T) {
	engines(t, func(t *testing.T, s *server) {
		const conns, each = 6, 150
		var mu sync.Mutex
		got := map[int64]bool{}
		var wg sync.WaitGroup
		for range conns {
			w := s.dial()
			wg.Go(func() {
				for range each {
					w.put(w.request(wire.KeyProduce, 9, produceBody(9, -1, 5000, "t", part{0, records(1, 100)})))
				}
				last := int64(-1)
				for range each {
					code, base := w.produced(9)
					if code != wire.ErrNone || base <= last {
						t.Errorf("%s at %d after %d", code.Name(), base, last)
						return
					}
					last = base
					mu.Lock()
					got[base] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		want(t, "offsets", len(got), conns*each)
		st, _ := s.e.Status(topicID("t"), 0)
		want(t, "end", st.End, conns*each)
		want(t, "mark", st.High, conns*each)
	})
}

// TestIdleConnections: a connection is no goroutine and no thread.
func TestIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 connections")
	}
	engines(t, func(t *testing.T, s *server) {
		w := s.dial()
		w.put(w.request(wire.KeyApiVersions, 0, func(b []byte) []byte { return b }))
		w.answer(wire.KeyApiVersions, 0)
		goroutines, threads := runtime.NumGoroutine(), threadCount(t)
		var all []*net.TCPConn
		for range 2000 {
			c, err := net.Dial("tcp", s.addr().String())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c.(*net.TCPConn))
		}
		s.until("all are there", func() bool { return s.e.Metrics().Connections == 2001 })
		if n := runtime.NumGoroutine() - goroutines; n > 4 {
			t.Errorf("%d more goroutines", n)
		}
		if n := threadCount(t) - threads; n > 4 {
			t.Errorf("%d more threads", n)
		}
		for _, c := range all {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
		s.until("all are gone", func() bool { return s.e.Metrics().Connections == 1 })
	})
}

func threadCount(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestMallocs counts what a warm request allocates in the whole process, on real
// sockets and files.
func TestMallocs(t *testing.T) {
	engines(t, func(t *testing.T, s *server) {
		w := s.dial()
		p, at := consume(0, 1), target("t", 0, 0)
		at.MaxBytes = 1
		for name, req := range map[string][]byte{
			"produce": w.request(wire.KeyProduce, 9, produceBody(9, -1, 5000, "t", part{0, records(1, 100)})),
			"fetch":   w.request(wire.KeyFetch, 12, func(b []byte) []byte { return wire.AppendFetchRequest(b, 12, &p, []wire.FetchTarget{at}, nil) }),
		} {
			in := make([]byte, 4<<10)
			turn := func() {
				if _, err := w.Write(req); err != nil {
					t.Fatal(err)
				}
				for n, size := 0, 4; n < size; {
					m, err := w.Read(in[n:])
					if err != nil {
						t.Fatal(err)
					}
					if n += m; n >= 4 {
						size = 4 + int(binary.BigEndian.Uint32(in))
					}
				}
			}
			for range 500 {
				turn()
			}
			const runs = 2000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range runs {
				turn()
			}
			runtime.ReadMemStats(&after)
			each := float64(after.Mallocs-before.Mallocs) / runs
			t.Logf("%s: %.3f allocations a request", name, each)
			if each > 0.5 {
				t.Errorf("%s: %.3f allocations a request", name, each)
			}
		}
	})
}

// TestAppendControl: the broker's own batches go through the same log, wait for
// room and for the mark, and end with their context while a mirror gates.
func TestAppendControl(t *testing.T) {
	engines(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		reset := func() []byte { return wire.MirrorPidReset(nil, "far", 1_700_000_000_000) }
		if err := s.e.AppendControl(ctx, topicID("t"), 2, reset); err != nil {
			t.Fatal(err)
		}
		w := s.dial()
		w.put(w.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{2, records(1, 10)})))
		_, base := w.produced(9)
		want(t, "the next offset", base, 1)
		if err := s.e.AppendControl(ctx, topicID("x"), 0, reset); err != ErrNotLeader {
			t.Errorf("no such topic: %v", err)
		}
		s.facts.register(t, "m", "t")
		s.publish()
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		if err := s.e.AppendControl(short, topicID("t"), 2, reset); err != context.DeadlineExceeded {
			t.Errorf("behind a mirror: %v", err)
		}
		st, _ := s.e.Status(topicID("t"), 2)
		want(t, "end", st.End, 3)
		want(t, "mark", st.High, 2)
	})
}
