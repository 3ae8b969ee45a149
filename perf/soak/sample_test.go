package soak

import (
	"math"
	"math/rand/v2"
	"testing"

	"lockstep/perf/report"
)

// halfAnHour are samples of a broker whose figures scatter about as seen, and grow
// by leak an hour.
func halfAnHour(seed uint64, leak map[string]float64) *report.SoakBroker {
	r, b := rand.New(rand.NewPCG(seed, 0)), &report.SoakBroker{Name: "source"}
	for s := 0.0; s <= 1800; s += 10 {
		f := map[string]float64{noFile: 10.8 + 0.005*r.NormFloat64(), liveHeap: 7.37 + 0.06*r.NormFloat64(), "RSS without files, MiB": 18.5 + 0.2*r.NormFloat64(), "RSS, MiB": 77 + 0.7*r.NormFloat64(), "threads": 11}
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

// TestVerdicts: a broker that keeps nothing passes, and a leak of one figure, as
// large as a run is said to see, is red by that figure.
func TestVerdicts(t *testing.T) {
	const seeds = 50
	red := 0
	for seed := range uint64(seeds) {
		b := halfAnHour(seed, nil)
		if b.Trends = judge(b); len((&report.Soak{Brokers: []report.SoakBroker{*b}}).Failed()) > 0 {
			red++
		}
	}
	if red > seeds/10 {
		t.Errorf("%d of %d runs of a broker that keeps nothing are red", red, seeds)
	}
	for _, f := range figures {
		leak, seen := countSeen, 0
		if f.memory {
			leak = memorySeen * halfAnHour(0, nil).Samples[0].Figures[f.name]
		}
		for seed := range uint64(seeds) {
			for _, x := range judge(halfAnHour(seed, map[string]float64{f.name: leak})) {
				if x.Figure == f.name && x.Verdict == report.Growing {
					seen++
				}
			}
		}
		if seen < seeds*9/10 {
			t.Errorf("%s: a leak of %.3g an hour is seen in %d of %d runs", f.name, leak, seen, seeds)
		}
	}
}
