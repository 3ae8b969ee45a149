package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
)

var (
	scaleTopics     = flag.Int("scale.topics", 10, "topics of TestScale: 1000 for the whole size")
	scalePartitions = flag.Int("scale.partitions", 20, "partitions of each topic of TestScale: 100 for the whole size")
	scaleIdle       = flag.Duration("scale.idle", 2*time.Second, "how long TestScale measures an idle broker")
)

// procStatus is a figure of /proc/PID/status, KiB for sizes.
func procStatus(t *testing.T, pid int, name string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in /proc/%d/status", name, pid)
	return 0
}

func procFiles(t *testing.T, pid int) int {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestScale is a node with many partitions: make scale runs 1,000 topics of 100.
func TestScale(t *testing.T) {
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx := ctxFor(t, time.Hour)
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: path, NoLink: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := c.Source
	all := *scaleTopics * *scalePartitions
	say := func(what string) {
		t.Logf("%-40s RSS %d MiB, %d descriptors, %d threads, CPU so far %v", what, procStatus(t, b.Pid(), "VmRSS")/1024, procFiles(t, b.Pid()), procStatus(t, b.Pid(), "Threads"), b.CPU().Round(10*time.Millisecond))
	}
	say("empty")
	empty := procStatus(t, b.Pid(), "VmRSS")
	begun := time.Now()
	names := scaleMake(ctx, t, b.Addr)
	say(fmt.Sprintf("%d partitions made in %v", all, time.Since(begun).Round(time.Millisecond)))
	idle := func(what string) {
		before := b.CPU()
		time.Sleep(*scaleIdle)
		say(fmt.Sprintf("%s: idle CPU %.1f %%", what, 100*float64(b.CPU()-before)/float64(*scaleIdle)))
	}
	idle("made")
	t.Logf("bytes resident for each partition: %d", (procStatus(t, b.Pid(), "VmRSS")-empty)*1024/all)

	begun = time.Now()
	scaleProduce(ctx, t, b.Addr, names)
	say(fmt.Sprintf("a record in each in %v", time.Since(begun).Round(time.Millisecond)))
	idle("one record in each")
	t.Logf("bytes resident for each partition: %d", (procStatus(t, b.Pid(), "VmRSS")-empty)*1024/all)
	begun = time.Now()
	if n := scaleConsume(ctx, t, b.Addr, names, all); n != all {
		t.Errorf("read %d records of %d", n, all)
	}
	say(fmt.Sprintf("all read in %v", time.Since(begun).Round(time.Millisecond)))

	begun = time.Now()
	if err := b.Stop(); err != nil {
		text, _ := os.ReadFile(b.Log)
		t.Fatalf("%v; the end of its log:\n%s", err, text[max(0, len(text)-4000):])
	}
	t.Logf("stopped cleanly in %v", time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	say(fmt.Sprintf("ready again after %v", time.Since(begun).Round(time.Millisecond)))
	idle("started again")
	t.Logf("bytes resident for each partition: %d", (procStatus(t, b.Pid(), "VmRSS")-empty)*1024/all)
	b.Kill()
	begun = time.Now()
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	say(fmt.Sprintf("ready after kill -9 after %v", time.Since(begun).Round(time.Millisecond)))
	begun = time.Now()
	if n := scaleConsume(ctx, t, b.Addr, names, all); n != all {
		t.Errorf("read %d records of %d", n, all)
	}
	say(fmt.Sprintf("all read in %v", time.Since(begun).Round(time.Millisecond)))
}

// TestScaleSync is a node whose partitions are all mirrored in SYNC.
func TestScaleSync(t *testing.T) {
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx := ctxFor(t, time.Hour)
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: path, NoLink: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := *scaleTopics * *scalePartitions
	say := func(what string) {
		for _, b := range []*testcluster.Broker{c.Source, c.Destination} {
			t.Logf("%-40s %s: RSS %d MiB, %d descriptors, CPU so far %v", what, b.Name, procStatus(t, b.Pid(), "VmRSS")/1024, procFiles(t, b.Pid()), b.CPU().Round(10*time.Millisecond))
		}
	}
	say("empty")
	names := scaleMake(ctx, t, c.Source.Addr)
	begun := time.Now()
	dst, m, err := c.Destination.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := m.CreateWith(ctx, "scale", map[string]string{"bootstrap.servers": c.SourceAddr}); err != nil {
		t.Fatal(err)
	}
	only, err := cli.ParsePatterns("scale-.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(ctx, "scale", only, true); err != nil {
		t.Fatal(err)
	}
	say(fmt.Sprintf("added after %v", time.Since(begun).Round(time.Millisecond)))
	for _, name := range names {
		if err := m.Await(ctx, "scale", name, "SYNC"); err != nil {
			text, _ := os.ReadFile(c.Destination.Log)
			t.Fatalf("%v\n%s", err, text[max(0, len(text)-2000):])
		}
	}
	say(fmt.Sprintf("%d partitions SYNC after %v", all, time.Since(begun).Round(time.Millisecond)))
	idle := func(what string) {
		s, d := c.Source.CPU(), c.Destination.CPU()
		time.Sleep(*scaleIdle)
		t.Logf("%s: idle CPU source %.1f %%, destination %.1f %%", what, 100*float64(c.Source.CPU()-s)/float64(*scaleIdle), 100*float64(c.Destination.CPU()-d)/float64(*scaleIdle))
	}
	idle("SYNC")
	begun = time.Now()
	scaleProduce(ctx, t, c.Source.Addr, names)
	say(fmt.Sprintf("a record in each, acks=all, in %v", time.Since(begun).Round(time.Millisecond)))
	idle("SYNC, one record in each")
}

func scaleMake(ctx context.Context, t *testing.T, addr string) (names []string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(60000)
	for i := range *scaleTopics {
		names = append(names, fmt.Sprintf("scale-%04d", i))
	}
	for at := 0; at < len(names); at += 50 {
		rs, err := adm.CreateTopics(ctx, int32(*scalePartitions), 1, nil, names[at:min(at+50, len(names))]...)
		if err != nil {
			t.Fatal(err)
		}
		if err := rs.Error(); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func scaleProduce(ctx context.Context, t *testing.T, addr string, names []string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<20), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, name := range names {
		for p := range *scalePartitions {
			cl.Produce(ctx, &kgo.Record{Topic: name, Partition: int32(p), Value: []byte(name)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func scaleConsume(ctx context.Context, t *testing.T, addr string, names []string, want int) int {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(names...), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	n, last := 0, time.Now()
	for n < want && time.Since(last) < 30*time.Second {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		fs := cl.PollFetches(wait)
		cancel()
		if k := fs.NumRecords(); k > 0 {
			n, last = n+k, time.Now()
		}
	}
	return n
}
