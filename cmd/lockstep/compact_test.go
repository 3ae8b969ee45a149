package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/testcluster"
)

// TestCompactedTopic: a real client finds the last record of every key, at its
// offset, before and after a restart; superseded ones are gone; and a mirror in
// SYNC has as many offsets.
func TestCompactedTopic(t *testing.T) {
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx := ctxFor(t, 2*time.Minute)
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: path, NoLink: true, Dir: t.TempDir(), Overrides: []string{"log.cleaner.backoff.ms=200",
		"log.cleanup.policy=compact", "log.segment.bytes=1048576", "log.cleaner.min.cleanable.ratio=0.01"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topic := testcluster.Topic{Name: "compacted", Mirror: "dr", Partitions: 1, Sync: true}
	if _, err := c.Add(ctx, topic); err != nil {
		t.Fatal(err)
	}
	if err := c.Await(ctx, topic); err != nil {
		t.Fatal(err)
	}
	const records, keys = 12_000, 17
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Source.Addr), kgo.DefaultProduceTopic("compacted"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range records {
		cl.Produce(ctx, &kgo.Record{Key: fmt.Append(nil, "key-", i%keys), Value: fmt.Append(nil, i, strings.Repeat("x", 500))}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if i%500 == 0 { // batches of their own
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	left := records
	for left > records/2 && ctx.Err() == nil {
		if left = compactedRead(ctx, t, c.Source.Addr, records, keys); left > records/2 {
			time.Sleep(200 * time.Millisecond)
		}
	}
	t.Logf("%d of %d records are left", left, records)
	if err := c.Source.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Source.Start(ctx); err != nil {
		t.Fatal(err)
	}
	compactedRead(ctx, t, c.Source.Addr, records, keys)
	compactedRead(ctx, t, c.Destination.Addr, records, keys)
}

// compactedRead reads the topic to its end and returns how many records it has.
func compactedRead(ctx context.Context, t *testing.T, addr string, records, keys int) (n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("compacted"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "compacted")
	if end, ok := ends.Lookup("compacted", 0); err != nil || !ok || end.Offset != int64(records) {
		t.Fatalf("end %+v, %v", end, err)
	}
	last, at := map[string]int64{}, int64(-1)
	for at < int64(records-1) && ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		for _, e := range fs.Errors() {
			t.Fatal(e)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset <= at || string(r.Key) != fmt.Sprint("key-", r.Offset%int64(keys)) || !strings.HasPrefix(string(r.Value), fmt.Sprint(r.Offset, "x")) {
				t.Fatalf("offset %d after %d: %s %.20s", r.Offset, at, r.Key, r.Value)
			}
			at, last[string(r.Key)] = r.Offset, r.Offset
			n++
		})
	}
	for off := records - keys; off < records; off++ {
		if k := fmt.Sprint("key-", off%keys); last[k] != int64(off) {
			t.Fatalf("the last record of %s is at %d, read was one at %d", k, off, last[k])
		}
	}
	return n
}
