package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
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
	libs := kafkaJars(t)
	dir, addr, ctl := t.TempDir(), freeAddr(t), freeAddr(t)
	props := filepath.Join(dir, "server.properties")
	text := fmt.Sprintf("process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@%s\nlisteners=PLAINTEXT://%s,CONTROLLER://%s\n"+
		"advertised.listeners=PLAINTEXT://%s\ncontroller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"+
		"log.dirs=%s\noffsets.topic.replication.factor=1\n", ctl, addr, ctl, addr, filepath.Join(dir, "data"))
	if err := os.WriteFile(props, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := java(libs, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", props).CombinedOutput(); err != nil {
		t.Fatalf("format: %v: %s", err, out)
	}
	cmd := java(libs, "kafka.Kafka", props)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(dir, "kafka.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	eventually(t, "Kafka is up", time.Minute, func() bool {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryTimeout(time.Second), kgo.DialTimeout(time.Second))
		if err != nil {
			return false
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return cl.Ping(ctx) == nil
	})
	dst := mirrorFrom(t, addr, 2000)
	dst.stop()
	files, err := filepath.Glob(filepath.Join(dst.dir, "orders-*", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	records := 0
	for _, f := range files {
		out, err := java(libs, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", f).CombinedOutput()
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

func java(libs string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-Xmx512m", "-cp", filepath.Join(libs, "*")}, args...)...)
}

// kafkaJars fetches Kafka by its Maven coordinates, once.
func kafkaJars(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed: it runs Kafka, or fetches it")
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "lockstep", "kafka-4.3.1")
	libs := filepath.Join(dir, "libs")
	if list, _ := filepath.Glob(filepath.Join(libs, "kafka_2.13-*.jar")); len(list) > 0 {
		return libs
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var deps strings.Builder
	for _, d := range []string{"org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1",
		"org.apache.logging.log4j:log4j-slf4j-impl:2.25.1", "org.apache.logging.log4j:log4j-core:2.25.1",
		"org.apache.logging.log4j:log4j-api:2.25.1", "org.apache.logging.log4j:log4j-1.2-api:2.25.1"} {
		f := strings.Split(d, ":")
		fmt.Fprintf(&deps, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>", f[0], f[1], f[2])
	}
	pom := `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>lockstep</groupId><artifactId>peer</artifactId><version>1</version><dependencies>` + deps.String() + `</dependencies></project>`
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mvn: %v: %s", err, out)
	}
	return libs
}
