package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
	"lockstep/perf/load"
	"lockstep/perf/peer"
	"lockstep/perf/report"
)

// TestMain lets this program be the helpers it runs.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && slices.Contains([]string{"bare", "kfake", "sink"}, os.Args[1]) {
		os.Exit(run(os.Args[1:]))
	}
	rc := m.Run()
	if path, err := built(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(rc)
}

// built is the lockstep program, made once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lockstep-perf-test-")
	if err != nil {
		return "", err
	}
	return testcluster.Build(context.Background(), dir)
})

func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatalf("the lockstep program cannot be built: %v", err)
	}
	return path
}

// quickDir is a directory for data, in memory where that can be had: these are
// tests of the harness, and other tests may keep the disk busy.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lockstep-perf-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// answer runs a command that answers with JSON.
func answer[T any](t *testing.T, run func(p *cli.Printer) error) (v T) {
	t.Helper()
	var out, errs bytes.Buffer
	if err := run(&cli.Printer{Out: &out, Err: &errs, JSON: true}); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	return v
}

// TestProduceAndConsume runs the commands against a broker of ours.
func TestProduceAndConsume(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := quickDir(t)
	binary := program(t)
	base := produceOptions{own: ownOptions{on: true, flushAck: "appended", binary: binary}, client: "raw", acks: "all", recordSize: "1000", batch: "16KiB", rate: "2MB", inFlight: 5,
		conns: 2, partitions: 2, warmUp: 200 * time.Millisecond, duration: time.Second, dir: dir, json: true, seed: 1}
	for _, c := range []struct {
		name string
		set  func(o *produceOptions)
	}{
		{"open loop", func(*produceOptions) {}},
		{"the most, durable, counted", func(o *produceOptions) { o.max, o.mallocs, o.batch, o.own.flushAck = true, true, "1", "durable" }},
		{"kgo, acks=1", func(o *produceOptions) { o.client, o.acks = "kgo", "1" }},
		{"with readers", func(o *produceOptions) { o.readers, o.maxBytes = 2, "64KiB" }},
	} {
		o := base
		c.set(&o)
		begin := time.Now()
		r := answer[produceResult](t, func(p *cli.Printer) error { return o.run(ctx, p) })
		t.Logf("%s: %v", c.name, time.Since(begin).Round(time.Millisecond))
		if r.Errors != 0 || r.Records == 0 || r.P999 < r.P50 || r.Max < r.P999 || r.FlushAck != o.own.flushAck || r.Engine == "unknown" || r.Baseline.FdatasyncP50 <= 0 || r.Machine.Cores == 0 {
			t.Errorf("%s: %+v", c.name, r)
		}
		if o.max != (r.InFlight > 0) || !o.max && (r.MBPerS < 1.8 || r.MBPerS > 2.2) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if o.mallocs && (r.Mallocs == nil || r.Mallocs.Requests < r.Requests/2) {
			t.Errorf("%s: mallocs %+v of %d requests", c.name, r.Mallocs, r.Requests)
		}
		if o.readers > 0 && (r.Read == nil || r.Read.Records < r.Records) {
			t.Errorf("%s: read %+v of %d records", c.name, r.Read, r.Records)
		}
	}
	o := consumeOptions{own: base.own, fill: "20MB", maxBytes: "1MiB", recordSize: "1000", conns: 2, partitions: 2, dir: dir, bare: true, json: true}
	r := answer[consumeResult](t, func(p *cli.Printer) error { return o.run(ctx, p) })
	if r.Records < 20_000 || r.Records > 20_100 || r.FirstError != "" || r.MBPerS <= 0 || r.Bare <= 0 || r.Requests < 20 {
		t.Errorf("consume: %+v", r)
	}
	o.bare, o.mallocs, o.again, o.fill, o.maxBytes = false, true, 500*time.Millisecond, "1MB", "1"
	r = answer[consumeResult](t, func(p *cli.Printer) error { return o.run(ctx, p) })
	if r.Mallocs == nil || r.Mallocs.Requests < r.Requests/2 || r.Records < 2000 {
		t.Errorf("consume again: %+v, mallocs %+v", r, r.Mallocs)
	}
}

// TestPeers runs the comparison short, with kfake in Kafka's place, and makes
// the page of it.
func TestPeers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := quickDir(t)
	binary := program(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fake, err := peer.Program(dir, sideKafka, self, "kfake")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "results", peersFile)
	c := &comparison{o: peersOptions{pairs: 1, window: 200 * time.Millisecond, latency: 200 * time.Millisecond, warmUp: 50 * time.Millisecond, out: out, cases: "acks=all (appended), 1024 B records, 16"},
		p: &cli.Printer{Out: new(bytes.Buffer), Err: new(bytes.Buffer)}, dir: dir, binary: binary, catchUp: 4 << 20, brokers: map[string]*peer.Broker{sideKafka: fake}, best: map[string]float64{}, rested: map[string]bool{}, parts: []float64{0.5, 1}}
	defer func() {
		for _, b := range c.brokers {
			b.Kill()
		}
	}()
	if err := fake.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c.best[c.cases()[0].String()] = 4e6 // kfake's own would be too much for a page cache of a test machine
	if err := c.run(ctx, []string{"P2", "P4", "P5"}); err != nil {
		t.Fatal(err)
	}
	metrics := map[string]int{}
	for _, s := range c.doc.Series {
		metrics[s.Goal]++
		short := strings.Contains(s.Metric, "CPU") // the kernel counts in 10 ms
		if len(s.Rounds) != 1 || !short && (s.Median(s.Ours) <= 0 || s.Median(s.Base) <= 0) {
			t.Errorf("%+v", s)
		}
	}
	if metrics["P2"] != 12 || metrics["P4"] < 4 || metrics["P5"] != 3 || len(c.doc.Sweep) < 2 {
		t.Errorf("series by goal: %v, sweep of %d", metrics, len(c.doc.Sweep))
	}
	page := filepath.Join(dir, "RESULTS.md")
	if err := makeReport(filepath.Dir(out), page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "16 producers, 1 partitions") {
		t.Errorf("%v: %s", err, text)
	}
	if makeReport(dir, page) == nil {
		t.Error("a page of no results")
	}
}

func TestOrder(t *testing.T) {
	sides := []string{"a", "b", "c"}
	if o := order(sides, 1); !slices.Equal(o, []string{"c", "b", "a"}) || !slices.Equal(order(sides, 2), sides) || sides[0] != "a" {
		t.Errorf("%v, %v", o, sides)
	}
}

func TestCommandHasNoPlaces(t *testing.T) {
	if got := command([]string{"peers", "--dir", "somewhere", "--out=there", "--pairs", "3", "--giouring", "y", "--binary=x"}); got != "lockstep-perf peers --pairs 3" {
		t.Error(got)
	}
}

// TestAckTable runs one cell.
func TestAckTable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := quickDir(t)
	binary := program(t)
	out := filepath.Join(dir, acksFile)
	o := ackTableOptions{fetches: 63, runs: 1, rtts: []time.Duration{20 * time.Millisecond}, flushes: []string{"durable"}, modes: []string{"max"}, warmUp: 100 * time.Millisecond, duration: 500 * time.Millisecond,
		binary: binary, dir: dir, out: out}
	if err := o.run(ctx, &cli.Printer{Out: new(bytes.Buffer), Err: new(bytes.Buffer)}); err != nil {
		t.Fatal(err)
	}
	a, err := readJSON[report.Acks](out)
	if err != nil || len(a.Rows) != 1 {
		t.Fatal(err, a)
	}
	if r := a.Rows[0]; r.Runs+r.Void != 1 || r.Runs == 1 && (r.MBPerS < 1 || r.P50 < 20) || r.Errors != 0 {
		t.Errorf("%+v", r)
	}
	o.modes = []string{"most"}
	if o.run(ctx, &cli.Printer{}) == nil {
		t.Error("an unknown mode was taken")
	}
}

func TestFirstAck(t *testing.T) {
	if d, err := firstAck(context.Background(), deadBroker(t), load.Target{}); err == nil {
		t.Errorf("acknowledged in %v by nobody", d)
	}
}

func deadBroker(t *testing.T) *peer.Broker {
	t.Helper()
	b, err := peer.Program(t.TempDir(), "none", filepath.Join(t.TempDir(), "no program"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
