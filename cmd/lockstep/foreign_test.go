package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/perf/peer"
)

var kafkaFlag = flag.Bool("kafka", false, "also run against Apache Kafka, fetched by Maven into the user's cache directory")

// mirrorFrom mirrors a topic from any Kafka-protocol cluster in ASYNC while it
// is written to, then compares every record, offset and timestamp.
func mirrorFrom(t *testing.T, source string, perCodec int) *node {
	ctx := ctxFor(t, 3*time.Minute)
	src := newClient(t, source)
	if _, err := kadm.NewClient(src).CreateTopic(ctx, 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	produce := func(from int) {
		for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
			cl := newClient(t, source, kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(codec))
			for n := range perCodec {
				cl.Produce(ctx, &kgo.Record{Key: fmt.Appendf(nil, "%d-%d", i, from+n), Value: []byte(strings.Repeat("value ", n%300))}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(0)
	dst := startNode(t)
	cl := newClient(t, dst.addr)
	var created msg.CreateClusterMirrorResponse
	if err := kafkareq.Do(ctx, cl, &msg.CreateClusterMirrorRequest{MirrorName: "m", Config: []msg.CreateClusterMirrorRequestMirrorConfig{{Name: "bootstrap.servers", Value: &source}}}, &created); err != nil || created.ErrorCode != 0 {
		t.Fatal(err, created.ErrorCode, deref(created.ErrorMessage))
	}
	name := "m"
	var added msg.AddTopicsToMirrorResponse
	if err := kafkareq.Do(ctx, cl, &msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{{TopicName: "orders", MirrorName: &name}}}, &added); err != nil || added.ErrorCode != 0 {
		t.Fatal(err, added.ErrorCode, deref(added.ErrorMessage))
	}
	produce(perCodec)
	want := everything(ctx, t, source, "orders")
	eventually(t, "the mirror has caught up", time.Minute, func() bool {
		ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "orders")
		sum := int64(0)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		return err == nil && ends.Error() == nil && sum == int64(len(want))
	})
	got := everything(ctx, t, dst.addr, "orders")
	if len(got) != len(want) || len(want) != 2*5*perCodec {
		t.Fatalf("%d records at the destination, %d at the source, %d produced", len(got), len(want), 10*perCodec)
	}
	for at, r := range want {
		if g := got[at]; g != r {
			t.Fatalf("%s: %.60q at the source, %.60q at the destination", at, r, g)
		}
	}
	return dst
}

// everything reads a topic to its end: partition/offset to key, value, time.
func everything(ctx context.Context, t *testing.T, addr, topic string) map[string]string {
	t.Helper()
	cl := newClient(t, addr, kgo.ConsumeTopics(topic))
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	out := map[string]string{}
	for int64(len(out)) < total {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%s: %d of %d records: %v", addr, len(out), total, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			out[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = fmt.Sprintf("%s=%s@%d", r.Key, r.Value, r.Timestamp.UnixMilli())
		})
	}
	return out
}

func TestMirrorFromKfake(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mirrorFrom(t, c.ListenAddrs()[0], 100)
}

// TestMirrorFromKafka does the same with Apache Kafka 4.3.1, and has Kafka's own
// DumpLogSegments read the files of the destination.
func TestMirrorFromKafka(t *testing.T) {
	if !*kafkaFlag {
		t.Skip("needs a JVM and Maven: make kafka")
	}
	ctx := ctxFor(t, 9*time.Minute)
	libs, err := peer.Jars(ctx)
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	kafka, err := peer.Kafka(ctx, t.TempDir(), "kafka", libs, []string{"-Xmx512m"})
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Kill()
	if err := kafka.Start(ctx); err != nil {
		t.Fatal(err)
	}
	dst := mirrorFrom(t, kafka.Addr, 2000)
	dst.stop()
	files, err := filepath.Glob(filepath.Join(dst.dir, "orders-*", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	records := 0
	for _, f := range files {
		out, err := peer.Java(ctx, libs, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", f).CombinedOutput()
		if err != nil || strings.Contains(string(out), "isvalid: false") || strings.Contains(string(out), "Found") {
			t.Fatalf("DumpLogSegments of %s: %v: %s", f, err, out[max(0, len(out)-1500):])
		}
		records += strings.Count(string(out), "| offset:")
	}
	t.Logf("Kafka's DumpLogSegments reads %d records in %d files of ours", records, len(files))
	if records != 20_000 {
		t.Errorf("DumpLogSegments saw %d records, want 20000", records)
	}
}
