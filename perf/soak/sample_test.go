package soak

import (
	"math"
	"math/rand/v2"
	"testing"

	"lockstep/perf/report"
)

// halfAnHour are samples of a broker that keeps nothing: counts scatter, and how
// much of Go's garbage is resident wanders within its tenth, as seen.
func halfAnHour(seed uint64, leak map[string]float64) *report.SoakBroker {
	r, b, garbage := rand.New(rand.NewPCG(seed, 0)), &report.SoakBroker{Name: "source"}, 0.3
	for s := 0.0; s <= 1800; s += 10 {
		garbage = min(max(garbage+0.1*r.NormFloat64(), 0), 0.7)
		f := map[string]float64{noFile: 10.8 + 0.005*r.NormFloat64(), liveHeap: 7.37 + 0.06*r.NormFloat64(), "RSS without files, MiB": 18.1 + garbage, "RSS, MiB": 77 + garbage + 0.5*r.NormFloat64(), "threads": 11}
		for _, name := range []string{"descriptors", "goroutines", "maps", "files on disk"} {
			f[name] = math.Round(100 + 2*r.NormFloat64())
		}
		for name, an := range leak {
			f[name] += an * s / 3600
		}
		b.Samples = append(b.Samples, report.SoakSample{S: s, Figures: f})
	}
	return b
}

// TestVerdicts: a broker that keeps nothing passes, and one leak of a figure,
// as large as a run is said to see, is red by that figure.
func TestVerdicts(t *testing.T) {
	const seeds = 50
	leaks := map[string]float64{"RSS, MiB": 77 * memorySeen, noFile: 10.8 * memorySeen, liveHeap: 7.37 * memorySeen,
		"descriptors": countSeen, "goroutines": countSeen, "threads": countSeen, "maps": countSeen, "files on disk": countSeen}
	for _, f := range figures {
		if f.told {
			continue
		}
		if leaks[f.name] == 0 {
			t.Fatalf("no leak of %s is tried", f.name)
		}
		seen := 0
		for seed := range uint64(seeds) {
			for _, x := range judge(halfAnHour(seed, map[string]float64{f.name: leaks[f.name]})) {
				if x.Figure == f.name && x.Verdict == report.Growing {
					seen++
				}
			}
		}
		if seen < seeds*9/10 {
			t.Errorf("%s: a leak of %.3g an hour is seen in %d of %d runs", f.name, leaks[f.name], seen, seeds)
		}
	}
	red, sum := 0, 0
	for seed := range uint64(seeds) {
		b := halfAnHour(seed, nil)
		if b.Trends = judge(b); len((&report.Soak{Brokers: []report.SoakBroker{*b}}).Failed()) > 0 {
			red++
		}
		p := b.Points("RSS without files, MiB")
		if report.NewTrend("", p, memoryBound*18, memorySeen*18).Verdict != report.Flat {
			sum++
		}
	}
	if red > seeds/10 {
		t.Errorf("%d of %d runs of a broker that keeps nothing are red", red, seeds)
	}
	t.Logf("nothing kept: %d of %d runs red; by the sum with Go's garbage it would be %d", red, seeds, sum)
}
