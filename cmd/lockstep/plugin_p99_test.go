package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lockstep/perf/load"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

var pluginPairs = flag.Int("plugin.pairs", 1, "pairs of windows for each disturbance of TestPluginP99: from 10 on the ratios are judged")

var pluginOnly = flag.String("plugin.only", "", "only the disturbances of TestPluginP99 whose name has this in it")

const (
	p99Judged  = 10                     // pairs from which on a median says something
	p99Bound   = 1.05                   // of the median ratio
	p99Noise   = 3.0                    // an A/A pair this far apart voids the run
	p99Rate    = 800                    // records a second, of p99Record bytes, over p99Conns connections
	p99Record  = 512                    //
	p99Conns   = 4                      //
	p99WarmUp  = 500 * time.Millisecond // of a window, not counted
	p99Scripts = 3                      // destinations that keep the release plugin asked, in every window
)

// p99Bench is a SYNC pair under a steady open-loop load.
type p99Bench struct {
	t       *testing.T
	p       *pair
	targets []load.Target
	program map[sdk.Kind]string // another one that serves well
	sum     map[sdk.Kind]string // its SHA-256
	seed    uint64
	windows int
	records int64
}

// each calls f for the kinds that have work, each at its broker, at one moment.
func (b *p99Bench) each(f func(n *node, kind sdk.Kind, v pluginView)) {
	var wg sync.WaitGroup
	for kind, n := range map[sdk.Kind]*node{sdk.Release: b.p.src, sdk.Promotion: b.p.dst, sdk.Coordinator: b.p.dst} {
		wg.Go(func() {
			k := &kindUnderTest{n: n, kind: kind}
			v := k.view()
			if v.Pid == 0 {
				b.t.Errorf("%s: nothing to disturb: %+v", kind, v)
				return
			}
			f(n, kind, v)
		})
	}
	wg.Wait()
}

// p99Disturbance is what happens in the disturbed window of a pair.
type p99Disturbance struct {
	name   string
	window time.Duration
	do     func(b *p99Bench, window time.Duration)
}

var p99Disturbances = []p99Disturbance{
	// What `plugins swap` asks for, without the start of three more programs:
	// that is no work of the broker's.
	{"swap", 6 * time.Second, func(b *p99Bench, _ time.Duration) {
		b.each(func(n *node, kind sdk.Kind, _ pluginView) {
			var v swapView
			if err := askSwap(context.Background(), n.admin, swapRequest{Kind: kind, Path: b.program[kind], SHA256: b.sum[kind]}, &v); err != nil {
				b.t.Errorf("swap %s: %v", kind, err)
			}
		})
	}},
	{"SIGKILL", 6 * time.Second, func(b *p99Bench, _ time.Duration) {
		b.each(func(_ *node, kind sdk.Kind, v pluginView) {
			if err := syscall.Kill(v.Pid, syscall.SIGKILL); err != nil {
				b.t.Errorf("kill %s: %v", kind, err)
			}
		})
	}},
	{"SIGSTOP", 12 * time.Second, func(b *p99Bench, window time.Duration) {
		b.each(func(_ *node, kind sdk.Kind, v pluginView) {
			if err := syscall.Kill(v.Pid, syscall.SIGSTOP); err != nil {
				b.t.Errorf("stop %s: %v", kind, err)
			}
			time.Sleep(window * 10 / 12)
			if err := syscall.Kill(v.Pid, syscall.SIGCONT); err != nil {
				b.t.Errorf("continue %s: it is gone after %v: %v", kind, window*10/12, err)
			}
		})
	}},
}

// window measures one window; do may be nil. It begins when every plugin serves
// and what an earlier window ended is gone, and counts from its disturbance on.
func (b *p99Bench) window(ctx context.Context, length time.Duration, do func(*p99Bench, time.Duration)) (p99 float64) {
	b.t.Helper()
	b.p.src.plugins()
	b.p.dst.plugins()
	var disturbing sync.WaitGroup
	if do != nil {
		disturbing.Go(func() {
			time.Sleep(p99WarmUp)
			do(b, length)
		})
	}
	b.windows++
	r, err := load.Run(ctx, load.Options{Addr: b.p.src.addr, Targets: b.targets, Connections: p99Conns, RecordSize: p99Record, Rate: p99Rate * p99Record,
		WarmUp: p99WarmUp, Duration: length, Acks: -1, Timeout: 30 * time.Second, Seed: b.seed + uint64(b.windows)})
	disturbing.Wait()
	if err != nil {
		b.t.Fatal(err)
	}
	if want := int64(float64(p99Rate) * length.Seconds() * 0.9); r.Errors != 0 || r.Records < want {
		b.t.Errorf("window %d: %d records, want %d; %d errors, the first: %v", b.windows, r.Records, want, r.Errors, r.FirstError)
	}
	b.records += r.Records
	time.Sleep(min(length/2, 3*time.Second)) // an old instance has 2 s to leave
	return r.Ms(99)
}

// pair measures two windows, the second first every other time, and returns how
// much slower the first is.
func (b *p99Bench) pair(ctx context.Context, i int, length time.Duration, do func(*p99Bench, time.Duration)) float64 {
	b.t.Helper()
	var at [2]float64
	for _, side := range [][]int{{0, 1}, {1, 0}}[i%2] {
		var d func(*p99Bench, time.Duration)
		if side == 0 {
			d = do
		}
		at[side] = b.window(ctx, length, d)
	}
	return at[0] / at[1]
}

// Swapping, killing or stopping all plugins does not move produce latency: of
// alternating pairs of windows, one disturbed and one calm, the median ratio of
// the p99 is at most 1.05, or inside the spread of pairs of two calm windows
// measured in between on the same machine. No produce fails, in any window.
//
// The rule for noise: an A/A pair says what the machine adds by itself. Where
// one is further apart than three to one the run is void, whatever it says;
// below ten pairs nothing is judged but errors. Percentiles count from when a
// record was due (perf/load).
func TestPluginP99(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("latency under the race detector says nothing, and 20 s are not for -short; make test runs one pair, make plugin-p99 ten")
	}
	pairs, shorter := *pluginPairs, time.Duration(1)
	if pairs < p99Judged {
		shorter = 6 // a smoke test
	}
	b := newP99Bench(t, uint64(time.Now().UnixNano()))
	ctx := ctxFor(t, time.Duration(pairs)*3*time.Minute+time.Minute)
	idle := b.ask(ctx)
	defer idle()
	ratios, spread := map[string][]float64{}, map[time.Duration][]float64{}
	for i := range pairs {
		for _, d := range p99Disturbances {
			if !strings.Contains(d.name, *pluginOnly) {
				continue
			}
			length := d.window / shorter
			ratios[d.name] = append(ratios[d.name], b.pair(ctx, i, length, d.do))
			if n := len(spread[length]); pairs >= p99Judged && n <= i {
				spread[length] = append(spread[length], b.pair(ctx, i, length, nil))
			}
		}
		t.Logf("pair %d: %s", i, p99Last(ratios, spread))
	}
	t.Logf("%d windows, %d records", b.windows, b.records)
	for _, d := range p99Disturbances {
		if !strings.Contains(d.name, *pluginOnly) {
			continue
		}
		all, calm := ratios[d.name], spread[d.window/shorter]
		slices.Sort(all)
		slices.Sort(calm)
		median := (all[(len(all)-1)/2] + all[len(all)/2]) / 2
		if pairs < p99Judged {
			t.Logf("%s: median ratio %.3f of %.3f (not judged below %d pairs)", d.name, median, all, p99Judged)
			continue
		}
		t.Logf("%s: median ratio of the p99 %.3f, of %.3f; A/A from %.3f to %.3f", d.name, median, all, calm[0], calm[len(calm)-1])
		if why := p99Judge(median, calm); why != "" {
			t.Errorf("%s: %s", d.name, why)
		}
	}
}

// p99Judge says what is wrong with a median ratio, beside the sorted ratios of
// A/A pairs; "" nothing.
func p99Judge(median float64, calm []float64) string {
	low, high := calm[0], calm[len(calm)-1]
	switch {
	case high > p99Noise || low < 1/p99Noise:
		return fmt.Sprintf("void: two calm windows differ by %.2f to %.2f; measure on a quiet machine", low, high)
	case median > p99Bound && median > high:
		return fmt.Sprintf("median ratio %.3f is above %.2f and above every A/A pair (%.3f)", median, p99Bound, high)
	}
	return ""
}

func TestP99Judge(t *testing.T) {
	for _, c := range []struct {
		median float64
		calm   []float64
		want   string
	}{
		{1.04, []float64{0.99, 1.01}, ""},                // within the bound
		{1.20, []float64{0.80, 1.25}, ""},                // within the spread
		{0.50, []float64{0.99, 1.01}, ""},                // faster is no harm
		{1.06, []float64{0.99, 1.01}, "above every A/A"}, // neither
		{1.30, []float64{0.80, 1.25}, "above every A/A"}, // not even in that spread
		{1.00, []float64{0.99, 3.10}, "void"},            // a pair of calm windows is too far apart
		{1.00, []float64{0.30, 1.01}, "void"},            // likewise, the other way
	} {
		if got := p99Judge(c.median, c.calm); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v beside %v: %q", c.median, c.calm, got)
		}
	}
}

func p99Last(ratios map[string][]float64, spread map[time.Duration][]float64) string {
	var list []string
	for name, r := range ratios {
		list = append(list, fmt.Sprintf("%s %.3f", name, r[len(r)-1]))
	}
	for length, r := range spread {
		list = append(list, fmt.Sprintf("A/A of %v %.3f", length, r[len(r)-1]))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func newP99Bench(t *testing.T, seed uint64) *p99Bench {
	ctx := ctxFor(t, time.Minute)
	b := &p99Bench{t: t, p: startPair(t, 0), program: map[sdk.Kind]string{}, sum: map[sdk.Kind]string{}, seed: seed}
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	if out, err := exec.Command("go", "build", "-o", plugin, "./testdata/plugin").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	for _, kind := range kinds {
		b.program[kind] = filepath.Join(dir, string(kind))
		if err := os.WriteFile(b.program[kind], []byte("#!/bin/sh\nexec "+plugin+" other "+string(kind)+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		sum, err := host.Checksum(b.program[kind])
		if err != nil {
			t.Fatal(err)
		}
		b.sum[kind] = sum
	}
	id := b.p.topic(ctx, "orders", p99Conns, nil)
	for i := range int32(p99Conns) {
		b.targets = append(b.targets, load.Target{ID: id, Partition: i})
	}
	b.p.mirror(ctx, true, "orders")
	b.p.until(ctx, "SYNC", 20*time.Second, inSync)
	return b
}

// ask keeps the release plugin asked at a low rate, so that one that stands
// still has something not to answer. The returned function ends it.
func (b *p99Bench) ask(ctx context.Context) (end func()) {
	var wg sync.WaitGroup
	var fenced atomic.Int64
	over := make(chan struct{})
	for i := range p99Scripts {
		topic := fmt.Sprintf("pool-%d", i)
		x := &script{mirror: fmt.Sprintf("script-%02d", i), topic: topic, id: b.p.topic(ctx, topic, 1, nil), cl: newClient(b.t, b.p.src.addr),
			r: rand.New(rand.NewPCG(b.seed, uint64(i)))}
		wg.Go(func() {
			for !closed(over) && len(x.faults) == 0 {
				x.step(ctx, &fenced)
				time.Sleep(100 * time.Millisecond)
			}
			for _, f := range x.faults {
				b.t.Error(f)
			}
		})
	}
	return func() { close(over); wg.Wait() }
}
