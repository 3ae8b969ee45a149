package load

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/wire"
)

// TestBatchesKeepTheirSize: every request has the records it was told to have,
// on time and late, and all of a batch count from the moment it was due.
func TestBatchesKeepTheirSize(t *testing.T) {
	const stall = 100 * time.Millisecond
	b := newBroker(t, func(n int64) wire.ErrorCode {
		if n == 5 {
			time.Sleep(stall)
		}
		return wire.ErrNone
	})
	o := options(b.addr)
	o.Batch, o.Connections = 10, 1
	r, err := Run(context.Background(), o)
	if err != nil || r.Errors != 0 || r.Records != 300 || r.Requests != 30 || b.batches.Load() != 30 {
		t.Fatalf("%+v, %d batches, err %v", r, b.batches.Load(), err)
	}
	late := int64(0)
	for _, bar := range r.Latency.Distribution() {
		if bar.From >= (stall / 2).Microseconds() {
			late += bar.Count
		}
	}
	if late < 40 || late%10 != 0 { // five batches were due in the stall's first half
		t.Errorf("%d records are charged with the stall", late)
	}
}

// TestSaturate: never more under way than was said, never fewer while it runs.
func TestSaturate(t *testing.T) {
	const answer = 10 * time.Millisecond
	b := newBroker(t, func(int64) wire.ErrorCode { time.Sleep(answer / 5); return wire.ErrNone })
	o := options(b.addr)
	o.Batch, o.InFlight, o.Rate, o.Connections, o.WarmUp = 3, 5, 0, 1, 50*time.Millisecond
	var marks atomic.Int32
	o.Mark = func() { marks.Add(1) }
	r, err := Run(context.Background(), o)
	if err != nil || r.Errors != 0 || r.Records != 3*r.Requests || marks.Load() != 2 {
		t.Fatalf("%+v, %d marks, err %v", r, marks.Load(), err)
	}
	if p := r.Ms(50); p < 9 || p > 30 { // five under way, 2 ms each
		t.Errorf("p50 is %v ms with five of 2 ms under way", p)
	}
	if most := b.records.Load(); r.Records < 3*60 || r.Records >= most || r.Elapsed != o.Duration {
		t.Errorf("%d of %d records counted in %v", r.Records, most, r.Elapsed)
	}
}

func TestBatchFor(t *testing.T) {
	if n := BatchFor(100, 1); n != 1 {
		t.Errorf("%d records in no room", n)
	}
	for _, size := range []int{1, 100, 1024, 16 << 10} {
		n := BatchFor(size, 16<<10)
		recs := make([]wire.Record, n)
		for i := range recs {
			recs[i].Value = make([]byte, size)
		}
		if got := len(wire.BuildBatch(nil, wire.PlainParams(0), recs...)); n > 1 && (got > 16<<10 || got < 16<<10-2*size-100) {
			t.Errorf("%d records of %d bytes are a batch of %d", n, size, got)
		}
	}
}

// TestKfake: written by our codec and by kgo, in two versions, and read back by
// our own.
func TestKfake(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	addr := c.ListenAddrs()[0]
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	id := [16]byte(topics["t"].ID)
	o := options(addr)
	o.Targets = []Target{{ID: id, Topic: "t"}, {ID: id, Topic: "t", Partition: 1}}
	total := int64(0)
	for _, run := range []struct {
		name string
		with func(o Options) (*Result, error)
	}{
		{"own codec, by id", func(o Options) (*Result, error) { o.Version, o.Batch = 13, 5; return Run(ctx, o) }},
		{"own codec, by name", func(o Options) (*Result, error) { o.Version = 9; return Run(ctx, o) }},
		{"kgo", func(o Options) (*Result, error) { return RunKgo(ctx, o) }},
		{"kgo, bounded", func(o Options) (*Result, error) {
			o.InFlight, o.Batch, o.RecordSize = 2, 5, 20_000
			return RunKgo(ctx, o)
		}},
	} {
		r, err := run.with(o)
		if err != nil || r.Errors != 0 || r.Records == 0 || r.Latency.TotalCount() != r.Records {
			t.Fatalf("%s: %+v, err %v", run.name, r, err)
		}
		if run.name != "kgo, bounded" && r.Records != 300 {
			t.Errorf("%s: %d records, want 300", run.name, r.Records)
		}
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	var spans []Span
	ends.Each(func(e kadm.ListedOffset) {
		total += e.Offset
		spans = append(spans, Span{Target: Target{ID: id, Topic: "t", Partition: e.Partition}, End: e.Offset})
	})
	got, err := Consume(ctx, ConsumeOptions{Addr: addr, Spans: spans, Connections: 2, MaxBytes: 64 << 10})
	if err != nil || got.FirstError != nil || got.Records != total || got.Requests < 5 || got.Bytes < total*1000 {
		t.Errorf("%+v of %d records, err %v", got, total, err)
	}
}

func TestBare(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- ServeBare(ctx, ln) }()
	if d, err := Bare(ln.Addr().String(), 10_000_001, 300_000, 2); err != nil || d <= 0 {
		t.Errorf("%v, err %v", d, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
