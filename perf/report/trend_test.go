package report

import (
	"math"
	"math/rand/v2"
	"testing"
)

// run makes n samples over a time in hours: a mean, a slope, noise of a deviation whose
// neighbours resemble each other by like.
func run(n int, hours, mean, slope, deviation, like float64, seed uint64) (points []Point) {
	r, last := rand.New(rand.NewPCG(seed, 1)), 0.0
	for i := range n {
		x := hours * float64(i) / float64(n)
		last = like*last + math.Sqrt(1-like*like)*r.NormFloat64()*deviation
		points = append(points, Point{x, mean + slope*x + last})
	}
	return points
}

func TestTrendOfALine(t *testing.T) {
	got := NewTrend("f", run(180, 0.5, 100, 40, 0, 0, 1), 2, 6)
	if math.Abs(got.Slope-40) > 1e-9 || got.Err > 1e-9 || got.Verdict != Growing || math.Abs(got.Mean-109.94) > 0.01 {
		t.Errorf("%+v", got)
	}
	if got := NewTrend("f", run(180, 0.5, 100, 0, 0, 0, 1), 1, 1); got.Verdict != Flat || math.Abs(got.Slope) > 1e-9 || got.Err > 1e-9 {
		t.Errorf("a constant: %+v", got)
	}
	if got := NewTrend("f", run(fewest-1, 0.5, 100, 1000, 0, 0, 1), 2, 6); got.Verdict != Unresolved {
		t.Errorf("too few samples: %+v", got)
	}
	if got := NewTrend("f", nil, 2, 6); got.Verdict != Unresolved {
		t.Errorf("none: %+v", got)
	}
}

// TestTrendVerdicts: growth is seen in noise, noise is no growth, and noise in
// which growth would hide is no pass.
func TestTrendVerdicts(t *testing.T) {
	for _, x := range []struct {
		name                   string
		slope, deviation, like float64
		want                   string
	}{
		{"flat", 0, 0.3, 0, Flat},
		{"flat, samples alike", 0, 0.15, 0.8, Flat},
		{"shrinking", -10, 0.3, 0, Flat},
		{"growing", 6, 0.3, 0, Growing},
		{"growing, samples alike", 12, 0.3, 0.8, Growing},
		{"too much noise", 0, 10, 0, Unresolved},
		{"a leak in too much noise", 6, 10, 0.8, ""},
		{"a steep leak in much noise", 200, 10, 0, Growing},
	} {
		wrong := 0
		for seed := range uint64(200) {
			got := NewTrend("f", run(180, 0.5, 100, x.slope, x.deviation, x.like, seed), 2, 6).Verdict
			if x.want == "" && got == Flat || x.want != "" && got != x.want { // "": either, but no pass
				wrong++
			}
		}
		if wrong > 10 {
			t.Errorf("%s: %d of 200 are not %q", x.name, wrong, x.want)
		}
	}
}

// TestTrendKnowsLikeSamples: the error is what slopes of many runs scatter by,
// also where a sample resembles the one before.
func TestTrendKnowsLikeSamples(t *testing.T) {
	for _, like := range []float64{0, 0.5, 0.8} {
		var square, told float64
		const runs = 400
		for seed := range uint64(runs) {
			x := NewTrend("f", run(180, 0.5, 100, 0, 1, like, seed), 2, 6)
			square, told = square+x.Slope*x.Slope/runs, told+x.Err/runs
		}
		if ratio := told / math.Sqrt(square); ratio < 0.8 || ratio > 1.25 {
			t.Errorf("likeness %g: the error is %.2f of the scatter", like, ratio)
		}
	}
}
