package report

import "math"

// Trend is the line through one figure of a process over time, and what it is
// held to. Slopes are per hour.
type Trend struct {
	Figure     string  `json:"figure"`
	Samples    int     `json:"samples"`
	Mean       float64 `json:"mean"`
	Least      float64 `json:"least"`
	Most       float64 `json:"most"`
	Slope      float64 `json:"slope_h"`
	Err        float64 `json:"slope_stderr_h"` // widened for samples that resemble the one before
	Bound      float64 `json:"bound_h"`        // growth that is still flat
	Resolution float64 `json:"resolution_h"`   // growth that a run must be able to see
	Verdict    string  `json:"verdict"`
}

// Verdicts of a trend.
const (
	Flat       = "flat"
	Growing    = "growing"
	Unresolved = "not resolved" // growth of Resolution would not have been seen
)

// sure is how many standard errors a slope must be from 0 to be one.
const sure = 2

// fewest samples make a line with an error.
const fewest = 8

// NewTrend fits a line by least squares through points of hours and a figure,
// and judges it.
func NewTrend(figure string, points []Point, bound, resolution float64) Trend {
	t := Trend{Figure: figure, Samples: len(points), Bound: bound, Resolution: resolution}
	t.fit(points)
	t.Verdict = t.judge()
	return t
}

func (t *Trend) fit(points []Point) {
	n := float64(len(points))
	if len(points) == 0 {
		return
	}
	var x, y float64
	t.Least, t.Most = math.Inf(1), math.Inf(-1)
	for _, p := range points {
		x, y = x+p.X/n, y+p.Y/n
		t.Least, t.Most = min(t.Least, p.Y), max(t.Most, p.Y)
	}
	t.Mean = y
	var xx, xy float64
	for _, p := range points {
		xx, xy = xx+(p.X-x)*(p.X-x), xy+(p.X-x)*(p.Y-y)
	}
	if len(points) < fewest || xx == 0 {
		return
	}
	t.Slope = xy / xx
	var square, next, before float64
	for i, p := range points {
		r := p.Y - y - t.Slope*(p.X-x)
		square += r * r
		if i > 0 {
			next += r * before
		}
		before = r
	}
	if square > 0 {
		// A collector's saw and a log's roll last for several samples: so many
		// are worth less than independent ones.
		like := min(max(next/square, 0), 0.98)
		t.Err = math.Sqrt(square/(n-2)/xx) * math.Sqrt((1+like)/(1-like))
	}
}

// judge finds growth first, so that a steep leak is called one in a short run.
func (t *Trend) judge() string {
	switch {
	case t.Samples < fewest:
		return Unresolved
	case t.Slope > t.Bound && t.Slope > sure*t.Err:
		return Growing
	case sure*t.Err > t.Resolution:
		return Unresolved
	}
	return Flat
}
