package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics that live as long as the run: one in SYNC, one in ASYNC, one at the
// source alone.
const orders, clicks, local = "orders", "clicks", "local"

// writer is a producer that lasts.
type writer struct {
	topic   string
	records int // in each burst
	size    int // of a value, in bytes
	pause   time.Duration
	opts    []kgo.Opt
}

func writers() []writer {
	one, plain := kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()
	codec := func(c kgo.CompressionCodec) kgo.Opt { return kgo.ProducerBatchCompression(c) }
	return []writer{
		{orders, 10, 1024, 100 * time.Millisecond, []kgo.Opt{codec(kgo.NoCompression())}},
		{orders, 1, 200, 50 * time.Millisecond, []kgo.Opt{plain, codec(kgo.NoCompression())}},
		{orders, 100, 1024, time.Second, []kgo.Opt{codec(kgo.ZstdCompression())}},
		{clicks, 100, 512, 500 * time.Millisecond, []kgo.Opt{plain, one, codec(kgo.Lz4Compression())}},
		{clicks, 20, 2048, 500 * time.Millisecond, []kgo.Opt{codec(kgo.SnappyCompression())}},
		{local, 64, 2048, 500 * time.Millisecond, []kgo.Opt{plain, one, codec(kgo.NoCompression())}},
		{local, 50, 1024, time.Second, []kgo.Opt{codec(kgo.GzipCompression())}},
	}
}

// value is half text that compresses and half bytes that do not.
func value(r *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		if b[i] = 'a'; i%2 == 0 {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

func (x *run) write(ctx context.Context, w writer, seed uint64) {
	cl, err := kgo.NewClient(append(w.opts, kgo.SeedBrokers(x.c.Source.Addr), kgo.DefaultProduceTopic(w.topic))...)
	if err != nil {
		x.tally.end(ctx, "a producer", err)
		return
	}
	defer cl.Close()
	r := rand.New(rand.NewPCG(seed, 0))
	every(ctx, w.pause, func(int) {
		for range w.records {
			cl.Produce(ctx, &kgo.Record{Value: value(r, w.size)}, func(_ *kgo.Record, err error) { x.tally.end(ctx, "records written", err) })
		}
	})
}

// follow reads at the tail and checks that no offset is left out or comes twice.
func (x *run) follow(ctx context.Context, addr string, topics ...string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		x.tally.end(ctx, "a reader", err)
		return
	}
	defer cl.Close()
	next := map[string]int64{}
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		fs.EachError(func(topic string, p int32, err error) {
			x.tally.end(ctx, "reading at the tail", fmt.Errorf("%s-%d: %w", topic, p, err))
		})
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			at := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
			for _, r := range p.Records {
				if want, known := next[at]; known && want != r.Offset {
					x.tally.end(ctx, "reading at the tail", fmt.Errorf("%s: offset %d after %d", at, r.Offset, want-1))
				}
				next[at] = r.Offset + 1
			}
			x.tally.add("records read at the tail", int64(len(p.Records)))
		})
	}
}

// reread reads a topic from its beginning to the end it has now, on a connection
// of its own. What retention takes meanwhile is passed over.
func (x *run) reread(ctx context.Context, addr, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d partitions of %s were not read to their end: %w", len(left), topic, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if end, waits := left[r.Partition]; waits && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
		x.tally.add("records read from the beginning", int64(fs.NumRecords()))
	}
	return nil
}

// fresh is an idempotent producer that writes a few records and goes.
func (x *run) fresh(ctx context.Context, addr, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range 10 {
		rs = append(rs, kgo.StringRecord(fmt.Sprintf("fresh %d", i)))
	}
	return cl.ProduceSync(ctx, rs...).FirstErr()
}
