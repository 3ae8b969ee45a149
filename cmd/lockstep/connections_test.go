package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/testcluster"
	"lockstep/internal/wire"
)

var (
	connCount = flag.Int("connections.count", 400, "connections of TestManyConnections: 5000 for the whole size")
	connIdle  = flag.Duration("connections.idle", time.Second, "how long TestManyConnections measures idle processor time")
)

const (
	connWhole    = 5000 // from here on the bounds hold: below, what a broker warms up by is most of it
	connBytes    = 4096 // resident for each
	connCPU      = 2    // % of a core while they idle
	connLatency  = 50 * time.Millisecond
	connRest     = 8 << 20 // resident after they have closed, more than after as many before
	connTopic    = "many"
	connParts    = 8
	connDialers  = 64
	connHalf     = 10  // each so many-th leaves a frame half sent,
	connDrip     = 20  // sends a large one byte by byte,
	connDeaf     = 100 // asks and does not read
	connDeafAsks = 127 // answers of connDeafSize that nobody reads
	connDeafSize = 32 << 10
)

// manyConn is one of the connections, and how it behaves.
type manyConn struct {
	*rawConn
	i    int
	well bool
}

// TestManyConnections opens many connections to one broker. Each produces and
// fetches and then idles, but for some that leave half a frame, drip or do not
// read. make connections runs 5,000.
func TestManyConnections(t *testing.T) {
	for _, engine := range []string{"io_uring", "portable"} {
		t.Run(engineNames[engine], func(t *testing.T) { manyConnections(t, engine) })
	}
}

func manyConnections(t *testing.T, engine string) {
	ctx := ctxFor(t, 10*time.Minute)
	n := startNode(t, "lockstep.io.engine="+engine, "num.partitions=8")
	cl := newClient(t, n.addr)
	topic, err := kadm.NewClient(cl).CreateTopic(ctx, connParts, 1, nil, connTopic)
	if err != nil {
		t.Fatal(err)
	}
	n.plugins()
	fill := newClient(t, n.addr, kgo.DefaultProduceTopic(connTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(connParts) {
		if err := fill.ProduceSync(ctx, &kgo.Record{Partition: p, Value: bytes.Repeat([]byte("x"), connDeafSize)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	fill.Close()
	cl.Close()
	pid := n.cmd.Process.Pid
	eventually(t, "no connection", 5*time.Second, func() bool { return n.metric("kafka_server_broker_connections") == 0 })
	goroutines, files, before := n.rest(), procFiles(t, pid), procStatus(t, pid, "VmRSS")
	t.Logf("before: RSS %d MiB, %d descriptors, %d goroutines", before>>10, files, goroutines)
	var after [2]int
	for round := range after {
		begun, rss := time.Now(), procStatus(t, pid, "VmRSS")
		conns := openMany(t, n.addr, topic.ID)
		if t.Failed() {
			return
		}
		took := time.Since(begun)
		misbehave(t, conns, topic.ID)
		each := 1024 * (procStatus(t, pid, "VmRSS") - rss) / len(conns)
		cpu := testcluster.ProcCPU(pid)
		time.Sleep(*connIdle)
		idle := 100 * float64(testcluster.ProcCPU(pid)-cpu) / float64(*connIdle)
		p50, p99 := freshClients(ctx, t, n.addr, topic.ID)
		g, f := n.goroutines(), procFiles(t, pid)
		stillThere(t, conns)
		for _, c := range conns {
			_ = c.Close()
		}
		eventually(t, "descriptors and connections as before", 15*time.Second, func() bool {
			return procFiles(t, pid) <= files && n.metric("kafka_server_broker_connections") == 0
		})
		eventually(t, "goroutines as before", 15*time.Second, func() bool { return abs(n.goroutines()-goroutines) <= 4 })
		after[round] = procStatus(t, pid, "VmRSS")
		t.Logf("round %d: %d connections produced and fetched in %v, %d bytes resident for each, idle CPU %.2f %%, %d goroutines, %d descriptors; a fresh client meanwhile: connect, produce and fetch p50 %v, p99 %v; closed: RSS %d MiB",
			round+1, len(conns), took.Round(time.Millisecond), each, idle, g, f, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), after[round]>>10)
		if abs(g-goroutines) > 4 {
			t.Errorf("%d goroutines with the connections, %d without", g, goroutines)
		}
		if *connCount >= connWhole && (each > connBytes || idle > connCPU || p99 > connLatency) {
			t.Errorf("wanted at most %d bytes for each, %d %% of a core, p99 %v", connBytes, connCPU, connLatency)
		}
	}
	if more := (after[1] - after[0]) << 10; more > connRest {
		t.Errorf("RSS %d MiB after the first round, %d after the second", after[0]>>10, after[1]>>10)
	}
	n.stop()
}

// openMany opens the connections, a few at a time; each is answered.
func openMany(t *testing.T, addr string, id [16]byte) []*manyConn {
	conns := make([]*manyConn, *connCount)
	next := make(chan int)
	var wg sync.WaitGroup
	for range connDialers {
		wg.Go(func() {
			for i := range next {
				c, err := dialRaw(addr)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					continue
				}
				t.Cleanup(func() { _ = c.Close() })
				conns[i] = &manyConn{rawConn: c, i: i, well: true}
				if err := conns[i].work(id); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			}
		})
	}
	for i := range conns {
		next <- i
	}
	close(next)
	wg.Wait()
	return conns
}

// work produces a record and fetches what is at its offset.
func (c *manyConn) work(id [16]byte) error {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	value, part := fmt.Appendf(nil, "value %d", c.i), int32(c.i%connParts)
	made, err := c.produce(13, connTopic, id, part, 10*time.Second, value)
	if err != nil || made.code != wire.ErrNone {
		return fmt.Errorf("produce: %+v, %w", made, err)
	}
	if _, err := c.Write(c.fetchRequest(id, part, made.base, 1<<20)); err != nil {
		return err
	}
	answer, err := c.readFrame()
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	if !bytes.Contains(answer, value) {
		return fmt.Errorf("fetch: %d bytes without %q", len(answer), value)
	}
	return nil
}

func (c *rawConn) fetchRequest(id [16]byte, part int32, from int64, most int32) []byte {
	p := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: 5000, MinBytes: 1, MaxBytes: most, SessionEpoch: -1}
	b := wire.BeginRequest(nil, wire.KeyFetch, 13, c.corr, "test")
	b = wire.AppendFetchRequest(b, 13, &p, []wire.FetchTarget{{TopicID: id, Partition: part, CurrentLeaderEpoch: -1, FetchOffset: from,
		LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: most, HighWatermark: -1}}, nil)
	wire.EndRequest(b, 0)
	c.corr++
	return b
}

func (c *rawConn) readFrame() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, frame)
	return frame, err
}

// misbehave makes some of the connections what clients at the far end of a bad
// line are.
func misbehave(t *testing.T, conns []*manyConn, id [16]byte) {
	t.Helper()
	kinds := map[string]int{}
	for _, c := range conns {
		var b []byte
		switch {
		case c.i%connHalf == 1:
			kinds["half a frame"]++
			b = c.fetchRequest(id, 0, 0, 1<<20)
			b = b[:len(b)/2]
		case c.i%connDrip == 2:
			kinds["dripping"]++
			b = binary.BigEndian.AppendUint32(nil, 20_000)
		case c.i%connDeaf == 3:
			kinds["deaf"]++
			for range connDeafAsks {
				b = append(b, c.fetchRequest(id, int32(c.i%connParts), 0, connDeafSize)...)
			}
		default:
			kinds["idle"]++
			continue
		}
		c.well = false
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // a byte each, a moment between
		for _, c := range conns {
			if c.i%connDrip == 2 && !c.well {
				if _, err := c.Write([]byte{0}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%v", kinds)
}

// freshClients come one after another, and produce and fetch.
func freshClients(ctx context.Context, t *testing.T, addr string, id [16]byte) (p50, p99 time.Duration) {
	t.Helper()
	var took []time.Duration
	for i := range 200 {
		begun := time.Now()
		c, err := dialRaw(addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&manyConn{rawConn: c, i: 1_000_000 + i}).work(id); err != nil {
			t.Errorf("a fresh client: %v", err)
		}
		took = append(took, time.Since(begun))
		_ = c.Close()
	}
	cl := newClient(t, addr)
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		t.Errorf("a fresh client of a library: %v", err)
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// stillThere asks once more on each connection that behaves.
func stillThere(t *testing.T, conns []*manyConn) {
	t.Helper()
	for _, c := range conns {
		if !c.well {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(hello(c.corr)); err != nil {
			t.Fatalf("connection %d: %v", c.i, err)
		}
		if _, err := c.readFrame(); err != nil {
			t.Fatalf("connection %d after idling: %v", c.i, err)
		}
	}
}

// hello is ApiVersions 0.
func hello(corr int32) []byte {
	b := wire.BeginRequest(nil, wire.KeyApiVersions, 0, corr, "test")
	wire.EndRequest(b, 0)
	return b
}

// TestConnectionLimit: who comes above max.connections hears so at once, by the
// end of the connection; who is there is served, and one that goes makes room.
func TestConnectionLimit(t *testing.T) {
	const limit = 20
	for _, engine := range []string{"io_uring", "portable"} {
		t.Run(engineNames[engine], func(t *testing.T) {
			n := startNode(t, "lockstep.io.engine="+engine, fmt.Sprintf("max.connections=%d", limit), "lockstep.io.reactors=2")
			var conns []*manyConn
			for i := range limit {
				c, err := dialRaw(n.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				conns = append(conns, &manyConn{rawConn: c, i: i, well: true})
			}
			stillThere(t, conns)
			const more = 150
			for range more {
				refused(t, n.addr)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.RequestRetries(0))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			if err := cl.Ping(ctx); err == nil || ctx.Err() != nil {
				t.Errorf("a client library hears %v, %v", err, ctx.Err())
			}
			stillThere(t, conns)
			if got := n.metric("kafka_server_broker_connections"); got != limit {
				t.Errorf("%v connections, the limit is %d", got, limit)
			}
			if got := n.metric("lockstep_connections_refused_total"); got < more {
				t.Errorf("%v counted as refused, of %d and more", got, more)
			}
			if lines := strings.Count(n.whole(), "connection refused"); lines < 1 || lines > 5 || !strings.Contains(n.whole(), "max.connections") {
				t.Errorf("%d lines about it:\n%s", lines, n.tail())
			}
			_ = conns[0].Close()
			eventually(t, "room again", 5*time.Second, func() bool {
				c, err := dialRaw(n.addr)
				if err != nil {
					return false
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(2 * time.Second))
				_, _ = c.Write(hello(0))
				_, err = c.readFrame()
				return err == nil
			})
			n.stop()
		})
	}
}

// refused wants the end of a connection, and soon.
func refused(t *testing.T, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = c.Write(hello(0)) // it may be gone by now
	var b [1]byte
	if n, err := c.Read(b[:]); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("above the limit: %d bytes, %v", n, err)
	}
}

// TestIdleConnections: connections.max.idle.ms ends a connection that says
// nothing, also in the middle of a frame or with an answer it does not read, and
// no other.
func TestIdleConnections(t *testing.T) {
	const idle = 2 * time.Second
	for _, engine := range []string{"io_uring", "portable"} {
		t.Run(engineNames[engine], func(t *testing.T) {
			n := startNode(t, "lockstep.io.engine="+engine, fmt.Sprintf("connections.max.idle.ms=%d", idle.Milliseconds()), "lockstep.io.reactors=2")
			dial := func(b []byte) *rawConn {
				c, err := dialRaw(n.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
				return c
			}
			begun := time.Now()
			quiet := map[string]*rawConn{"silent": dial(nil), "half": dial(hello(0)[:7]), "large": dial(append(binary.BigEndian.AppendUint32(nil, 1<<20), make([]byte, 100)...))}
			busy := &manyConn{rawConn: dial(nil), well: true}
			for time.Since(begun) < idle+idle/2 {
				stillThere(t, []*manyConn{busy})
				time.Sleep(100 * time.Millisecond)
			}
			for name, c := range quiet {
				_ = c.SetDeadline(begun.Add(3 * idle))
				var b [1]byte
				if _, err := c.Read(b[:]); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v after %v", name, err, time.Since(begun))
				}
			}
			stillThere(t, []*manyConn{busy})
			n.stop()
		})
	}
}
