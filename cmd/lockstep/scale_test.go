package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/admin"
	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
)

var (
	scaleTopics     = flag.Int("scale.topics", 10, "topics of TestScale: 1000 for the whole size")
	scalePartitions = flag.Int("scale.partitions", 20, "partitions of each topic of TestScale: 100 for the whole size")
	scaleIdle       = flag.Duration("scale.idle", 2*time.Second, "how long TestScale measures an idle broker")
	scaleWithin     = flag.Duration("scale.within", 4*time.Minute, "how long TestScaleSync waits for SYNC")
	scaleProfiles   = flag.String("scale.profiles", "", "directory that profiles of TestScaleSync go to: processor while it settles, processor and heap when idle")
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

// scaled is a running broker of a scale test and what was said of it.
type scaled struct {
	t     *testing.T
	b     *testcluster.Broker
	empty int // RSS before the first topic, KiB
	all   int // partitions
	judge bool
}

func newScaled(t *testing.T, b *testcluster.Broker) *scaled {
	all := *scaleTopics * *scalePartitions
	return &scaled{t: t, b: b, empty: procStatus(t, b.Pid(), "VmRSS"), all: all, judge: all >= 100_000}
}

func (s *scaled) say(what string) {
	s.t.Helper()
	files := procFiles(s.t, s.b.Pid())
	s.t.Logf("%-48s %s: RSS %d MiB, %d descriptors, %d threads, CPU %v", what, s.b.Name, procStatus(s.t, s.b.Pid(), "VmRSS")/1024, files,
		procStatus(s.t, s.b.Pid(), "Threads"), s.b.CPU().Round(10*time.Millisecond))
	if files >= 20_000 {
		s.t.Errorf("%d descriptors, 20,000 are too many", files)
	}
}

// idle measures a broker that nobody uses. At the whole size P6 is judged: at
// most 5 % of a processor, at most 4 KiB resident for a partition.
func (s *scaled) idle(what string, bytes bool) {
	s.t.Helper()
	before := s.b.CPU()
	time.Sleep(*scaleIdle)
	cpu := 100 * float64(s.b.CPU()-before) / float64(*scaleIdle)
	each := (procStatus(s.t, s.b.Pid(), "VmRSS") - s.empty) * 1024 / s.all
	s.t.Logf("%-48s %s: idle CPU %.1f %%, %d bytes resident for each partition", what, s.b.Name, cpu, each)
	if s.judge && cpu > 5 {
		s.t.Errorf("%s: idle CPU %.1f %%, wanted at most 5", s.b.Name, cpu)
	}
	if s.judge && bytes && each > 4096 {
		s.t.Errorf("%s: %d bytes resident for each partition, wanted at most 4096", s.b.Name, each)
	}
}

// restart stops the broker cleanly, or kills it, and starts it again. After a
// clean stop it must serve within 10 s.
func (s *scaled) restart(ctx context.Context, clean bool) {
	s.t.Helper()
	begun := time.Now()
	if !clean {
		s.b.Kill()
	} else if err := s.b.Stop(); err != nil {
		text, _ := os.ReadFile(s.b.Log)
		s.t.Fatalf("%v; the end of its log:\n%s", err, text[max(0, len(text)-4000):])
	}
	stopped := time.Since(begun).Round(time.Millisecond)
	begun = time.Now()
	if err := s.b.Start(ctx); err != nil {
		s.t.Fatal(err)
	}
	took := time.Since(begun).Round(time.Millisecond)
	s.say(fmt.Sprintf("clean %v: stopped in %v, serves after %v", clean, stopped, took))
	if s.judge && clean && took > 10*time.Second {
		s.t.Errorf("%s serves %v after a clean stop, wanted at most 10 s", s.b.Name, took)
	}
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
	s := newScaled(t, c.Source)
	begun := time.Now()
	names := scaleMake(ctx, t, s.b.Addr)
	s.say(fmt.Sprintf("%d partitions made in %v", s.all, time.Since(begun).Round(time.Millisecond)))
	s.idle("made", true)
	begun = time.Now()
	scaleProduce(ctx, t, s.b.Addr, names)
	s.say(fmt.Sprintf("a record in each in %v", time.Since(begun).Round(time.Millisecond)))
	s.idle("one record in each", false)
	read := func() {
		begun := time.Now()
		if n := scaleConsume(ctx, t, s.b.Addr, names, s.all); n != s.all {
			t.Errorf("read %d records of %d", n, s.all)
		}
		s.say(fmt.Sprintf("all read in %v", time.Since(begun).Round(time.Millisecond)))
	}
	read()
	s.restart(ctx, true)
	s.idle("started again", true)
	s.restart(ctx, false)
	read()
}

// TestScaleSync is two nodes whose partitions are all mirrored in SYNC.
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
	both := []*scaled{newScaled(t, c.Source), newScaled(t, c.Destination)}
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
	for _, s := range both {
		s.say(fmt.Sprintf("added after %v", time.Since(begun).Round(time.Millisecond)))
	}
	scaleAwait(ctx, t, dst, both, len(names), begun)
	took := time.Since(begun)
	for _, s := range both {
		s.say(fmt.Sprintf("SYNC after %v", took.Round(time.Millisecond)))
	}
	for _, s := range both {
		s.idle("SYNC", true)
	}
	scaleProfile(ctx, t, both, "idle", 10)
	some := names[:min(len(names), 10)] // a first record stalls for room, and a stall has all partitions of the lane looked at
	begun = time.Now()
	scaleProduce(ctx, t, c.Source.Addr, some)
	t.Logf("a record in each partition of %d topics, acks=all, in %v", len(some), time.Since(begun).Round(time.Millisecond))
	for _, s := range both {
		s.restart(ctx, true)
	}
	for _, s := range both {
		s.idle("SYNC, both started again", true)
	}
}

// scaleAwait waits until all topics are in SYNC. One description serves for all
// of them: to ask for each would cost more than what is measured.
func scaleAwait(ctx context.Context, t *testing.T, dst *cli.Session, both []*scaled, topics int, begun time.Time) {
	t.Helper()
	for round := 0; ; round++ {
		got, err := dst.Mirrors.DescribeMirrors(ctx, "scale")
		if err != nil {
			t.Fatal(err)
		}
		sync, example := 0, ""
		for _, m := range got.Mirrors {
			for i := range m.Topics {
				if x := &m.Topics[i]; x.Effective == admin.Sync {
					sync++
				} else {
					example = fmt.Sprintf("%s: registration %d, %s", x.Topic, x.RegistrationEpoch, x.Remarks)
				}
			}
		}
		if sync == topics {
			return
		}
		t.Logf("%d of %d topics in SYNC after %v; CPU %v, %v; %s", sync, topics, time.Since(begun).Round(time.Millisecond), both[0].b.CPU(), both[1].b.CPU(), example)
		if time.Since(begun) > *scaleWithin {
			t.Fatalf("%d of %d topics in SYNC after %v; %s", sync, topics, *scaleWithin, example)
		}
		if *scaleProfiles == "" {
			time.Sleep(2 * time.Second)
		} else {
			scaleProfile(ctx, t, both, strconv.Itoa(round), 5)
		}
	}
}

// scaleProfile writes profiles of both brokers, if they are wanted.
func scaleProfile(ctx context.Context, t *testing.T, both []*scaled, what string, seconds int) {
	if *scaleProfiles == "" {
		return
	}
	var all sync.WaitGroup
	for _, s := range both {
		all.Go(func() {
			for kind, page := range map[string]string{"cpu": fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds), "heap": "/debug/pprof/heap?gc=1"} {
				if kind == "heap" && what != "idle" {
					continue
				}
				text, err := s.b.Page(ctx, page)
				if err == nil {
					err = os.WriteFile(filepath.Join(*scaleProfiles, s.b.Name+"."+what+"."+kind), []byte(text), 0o644)
				}
				if err != nil {
					t.Errorf("profile: %v", err)
				}
			}
		})
	}
	all.Wait()
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
