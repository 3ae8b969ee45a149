package load

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/wire"
)

// broker answers Produce on a listener; each frame passes through handle first.
type broker struct {
	addr    string
	batches atomic.Int64
	records atomic.Int64
}

func newBroker(t *testing.T, handle func(n int64) wire.ErrorCode) *broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	b := &broker{addr: ln.Addr().String()}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go b.serve(t, c, handle)
		}
	}()
	return b
}

func (b *broker) serve(t *testing.T, c net.Conn, handle func(n int64) wire.ErrorCode) {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		h, body, err := wire.ParseHeader(frame)
		var req wire.ProduceRequest
		if err != nil || h.Version != Version || req.Parse(h.Version, body) != nil {
			t.Errorf("a frame that is no Produce %d: %v", Version, err)
			return
		}
		it := req.Iter()
		it.Next()
		batch := wire.Batch(it.Records())
		if code := wire.ValidateProduce(batch, Version, 1<<20); code != wire.ErrNone || !wire.CheckRecords(batch.Payload(), batch.RecordCount()) {
			t.Errorf("a batch that is not valid: %v", code)
		}
		b.records.Add(int64(batch.RecordCount()))
		code := handle(b.batches.Add(1))
		out := wire.BeginResponse(nil, h.Key, h.Version, h.Correlation)
		out = wire.AppendProduceHead(out, Version, 1)
		out = wire.AppendProduceTopic(out, Version, nil, it.TopicID(), 1)
		out = wire.AppendProducePartition(out, Version, &wire.ProducePartition{Index: it.Partition(), Err: code, BaseOffset: 7})
		out = wire.AppendProduceTopicEnd(out, Version)
		out = wire.AppendProduceTail(out, Version, 0, nil)
		wire.EndResponse(out, 0, 0)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func fine(int64) wire.ErrorCode { return wire.ErrNone }

func options(addr string) Options {
	return Options{Addr: addr, Targets: []Target{{ID: [16]byte{1}}, {ID: [16]byte{1}, Partition: 1}}, Connections: 2, RecordSize: 1000,
		Rate: 1e6, Linger: time.Millisecond, Duration: 300 * time.Millisecond, Acks: -1, Timeout: time.Second, Seed: 1}
}

func TestRate(t *testing.T) {
	b := newBroker(t, fine)
	r, err := Run(context.Background(), options(b.addr))
	if err != nil || r.Errors != 0 || r.FirstError != nil {
		t.Fatalf("%+v, err %v", r, err)
	}
	if r.Records != 300 || b.records.Load() != 300 || r.Latency.TotalCount() != 300 { // 1 MB/s of 1 kB for 0.3 s
		t.Errorf("%d records counted, %d at the broker, want 300", r.Records, b.records.Load())
	}
	if n := b.batches.Load(); n < 60 {
		t.Errorf("all in %d requests: the load came in lumps", n)
	}
}

// TestStallIsCharged: a broker that stands still for 200 ms delays all records
// that were due meanwhile, not only the ones it had. This is what a closed
// loop would hide.
func TestStallIsCharged(t *testing.T) {
	const stall = 200 * time.Millisecond
	b := newBroker(t, func(n int64) wire.ErrorCode {
		if n == 10 {
			time.Sleep(stall)
		}
		return wire.ErrNone
	})
	o := options(b.addr)
	o.Connections, o.Duration = 1, 500*time.Millisecond
	r, err := Run(context.Background(), o)
	if err != nil || r.Records != 500 {
		t.Fatalf("%+v, err %v", r, err)
	}
	late := 0 // by at least half of the stall: due in its first half
	for _, bar := range r.Latency.Distribution() {
		if bar.From >= (stall / 2).Microseconds() {
			late += int(bar.Count)
		}
	}
	if late < 80 {
		t.Errorf("%d records are charged with the stall, about 100 were due in its first half", late)
	}
}

func TestRefusedIsNoLatency(t *testing.T) {
	b := newBroker(t, func(n int64) wire.ErrorCode {
		if n%2 == 0 {
			return wire.ErrNotEnoughReplicas
		}
		return wire.ErrNone
	})
	r, err := Run(context.Background(), options(b.addr))
	if err != nil || r.Errors == 0 || r.Records == 0 || r.Records+r.Errors != 300 || r.Latency.TotalCount() != r.Records {
		t.Fatalf("%d records, %d errors, %d latencies, err %v", r.Records, r.Errors, r.Latency.TotalCount(), err)
	}
	if r.FirstError == nil || !strings.Contains(r.FirstError.Error(), "NOT_ENOUGH_REPLICAS") {
		t.Errorf("first error %v", r.FirstError)
	}
}

func TestLostConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				time.Sleep(50 * time.Millisecond)
				c.Close()
			}()
		}
	}()
	r, err := Run(context.Background(), options(ln.Addr().String()))
	if err != nil || r.Records != 0 || r.Errors == 0 || r.FirstError == nil {
		t.Errorf("%+v, err %v", r, err)
	}
}

func TestWarmUpAndOneInFlight(t *testing.T) {
	b := newBroker(t, func(int64) wire.ErrorCode { time.Sleep(2 * time.Millisecond); return wire.ErrNone })
	o := options(b.addr)
	o.OneInFlight, o.WarmUp, o.Duration = true, 100*time.Millisecond, 200*time.Millisecond
	r, err := Run(context.Background(), o)
	if err != nil || r.Errors != 0 {
		t.Fatalf("%+v, err %v", r, err)
	}
	if all := b.records.Load(); r.Records < 20 || r.Records > 100 || r.Records > all*4/5 {
		t.Errorf("%d of %d records counted: the first third is to warm up", r.Records, all)
	}
	if p := r.Ms(50); p < 2 || p > 20 {
		t.Errorf("p50 is %v ms where the broker takes 2", p)
	}
}

func TestCancel(t *testing.T) {
	b := newBroker(t, func(int64) wire.ErrorCode { time.Sleep(time.Second); return wire.ErrNone })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	o := options(b.addr)
	o.Duration = time.Minute
	begin := time.Now()
	if _, err := Run(ctx, o); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %v to end", d)
	}
	if _, err := Run(context.Background(), Options{}); err == nil {
		t.Error("a run without anything to do was accepted")
	}
}

// TestSink: the least that a broker does still answers every request.
func TestSink(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- ServeSink(ctx, ln, t.TempDir(), 13) }()
	for _, batch := range []int{1, 300} { // frames smaller and larger than a piece
		r, err := Run(ctx, Options{Addr: ln.Addr().String(), Targets: make([]Target, 2), Connections: 2, Version: 13, RecordSize: 1000, Batch: batch, InFlight: 5,
			Duration: 200 * time.Millisecond, Acks: -1, Timeout: time.Second})
		if err != nil || r.Records == 0 || r.Errors > 0 {
			t.Fatalf("%+v %v", r, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
