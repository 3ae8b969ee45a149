package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/perf/baseline"
)

func series() *Series {
	return &Series{Goal: "P1", Case: "a case", Metric: "records", Ours: "lockstep", Base: "kafka", Bound: 5,
		Rounds: []map[string]float64{{"lockstep": 60, "kafka": 10}, {"lockstep": 100, "kafka": 50}, {"lockstep": 90, "kafka": 10}}}
}

// TestRatios: pair by pair, and then the median.
func TestRatios(t *testing.T) {
	s := series()
	if r := s.Ratios(); len(r) != 3 || r[0] != 2 || r[1] != 6 || r[2] != 9 {
		t.Errorf("ratios %v", r)
	}
	if s.Judged() != 6 || !s.Met() || s.Behind() || s.Median("kafka") != 10 {
		t.Errorf("judged %v, met %v, behind %v", s.Judged(), s.Met(), s.Behind())
	}
	s.Bound = 6.1
	if s.Met() {
		t.Error("a goal of 6.1 is met by 6")
	}
	s.Lower, s.Bound = true, 5
	if s.Met() || !s.Behind() {
		t.Error("six times as much of what should be little is met, or is not behind")
	}
	s.Base, s.Bound = "", 90
	if s.Judged() != 90 || !s.Met() || s.Behind() {
		t.Errorf("without a base: %v", s.Judged())
	}
	if m := Median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median %v", m)
	}
}

// TestRows: a series of a side that took no part is no row; one that measured is.
func TestRows(t *testing.T) {
	absent := series()
	absent.Ours = "sink"
	if rows := Rows([]*Series{absent, series()}); len(rows) != 1 || rows[0][4] != "10 kafka" {
		t.Errorf("%q", rows)
	}
}

func TestPage(t *testing.T) {
	run := Run{Broker: "lockstep", FlushAck: "appended", Acks: -1, RecordSize: 100, Batch: 1, RateMBPerS: 5, MBPerS: 5, P99: 3, Percentiles: []Point{{50, 1}, {99.9, 20}}}
	other := run
	other.Broker, other.P99 = "kafka", 0 // nothing a logarithm is of
	missed := series()
	missed.Bound, missed.Metric = 7, "widgets"
	behind := series()
	behind.Lower, behind.Bound, behind.Metric = true, 0, "delays"
	p := &Peers{Part: Part{Commit: "abc"}, Sides: []Side{{Name: "kafka", What: "Kafka", Settings: []string{"-Xmx1G"}}}, Baselines: []baseline.Figures{{FdatasyncP50: 0.2}},
		Series: []*Series{series(), missed, behind}, Runs: []Run{run, other}, Sweep: []Run{run, other}}
	a := &Acks{Rows: []AckRow{{RTTMs: 40, Echo: 40, FlushAck: "durable", Mode: ModeOne, Runs: 5, P50: 40.6}, {RTTMs: 10, Mode: ModeMax, FlushAck: "durable", Runs: 1, MBPerS: 100},
		{RTTMs: 100, Mode: ModeMax, FlushAck: "durable", Runs: 1, MBPerS: 79}, {RTTMs: 10, Mode: ModeRate, FlushAck: "appended", Void: 1}}}
	page, plots := (&Results{Peers: p, Acks: a, OneFetch: a}).Page("old text\n" + remarkBegin + "\nby hand\n" + remarkEnd + "\nmore old text")
	for _, want := range []string{"\nby hand\n", "≥ 5: met", "P1 is missed: a case, widgets beside kafka: 6, wanted ≥ 7.", "a case, delays: kafka 10, ours 90 (ratio 6).", "`-Xmx1G`",
		"raw fdatasync p50 0.200", "p50 ≤ rtt + 0.5 ms: not met", "ratio 0.79 (≥ 0.8: not met)", "no run counts", "### With one fetch", "(plots/latency-1.svg)", "(plots/throughput.svg)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "old text") {
		t.Error("what is not a remark was kept")
	}
	if len(plots) != 2 {
		t.Errorf("%d plots", len(plots))
	}
	again, _ := (&Results{Peers: p, Acks: a, OneFetch: a}).Page(page)
	if again != page {
		t.Error("made again from itself the page is another one")
	}
	for name, svg := range plots {
		if err := wellFormed(svg); err != nil {
			t.Errorf("%s: %v\n%s", name, err, svg)
		}
		if !strings.Contains(svg, "<polyline") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s:\n%s", name, svg)
		}
	}
}

// TestSVG: points lie where they should, whatever is drawn.
func TestSVG(t *testing.T) {
	svg := SVG("a < b & c", Axis{Name: "percentile", Nines: true}, Axis{Name: "ms", Log: true}, []Curve{{"one", []Point{{90, 1}, {99.9, 1000}, {99, 0}}}})
	if err := wellFormed(svg); err != nil || !strings.Contains(svg, "a &lt; b &amp; c") {
		t.Errorf("%v\n%s", err, svg)
	}
	// Left below to right above, and the point without a logarithm left out.
	if want := `points="80.0,364.0 600.0,40.0"`; !strings.Contains(svg, want) {
		t.Errorf("no %s in\n%s", want, svg)
	}
	if n := nines(99.9); math.Abs(n-3) > 1e-9 {
		t.Errorf("99.9 is at %v", n)
	}
	for _, c := range [][]Curve{nil, {{"none", nil}}, {{"one", []Point{{5, 5}}}}} {
		for _, log := range []bool{false, true} {
			if s := SVG("t", Axis{}, Axis{Log: log}, c); wellFormed(s) != nil || strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
				t.Errorf("%v:\n%s", c, s)
			}
		}
	}
}

func wellFormed(svg string) error {
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 9.876: "9.88", 150: "150", 1234.5: "1234", 65432: "65.4k", 2.5e6: "2.5M"} {
		if got := short(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}

// TestSoakOnThePage: what is not level is said, and why, and a level run passes.
func TestSoakOnThePage(t *testing.T) {
	k := &Soak{Commit: "abc", Seconds: 1800, Did: map[string]int64{"swaps": 30, "a": 1}, Brokers: []SoakBroker{{Name: "source", CPU: 18, Trends: []Trend{{Figure: "maps", Slope: 1, Err: 2, Verdict: Flat}}}}}
	page, _ := (&Results{Soak: k}).Page("")
	for _, want := range []string{"source 1.0 %", "Done: a 1, swaps 30.", "| source | maps |", "Passed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	k.Brokers[0].Trends[0].Verdict, k.Errors = Growing, []string{"a record is gone"}
	page, _ = (&Results{Soak: k}).Page("")
	if strings.Contains(page, "Passed") || !strings.Contains(page, "**Not passed**: source: maps is growing: +1 ± 2 an hour.") || !strings.Contains(page, "**Not passed**: a record is gone.") {
		t.Error(page)
	}
}

// TestKeep: a run of some goals leaves the others of the file.
func TestKeep(t *testing.T) {
	old := &Peers{Part: Part{Commit: "a", Goals: []string{"P1", "P2"}}, Series: []*Series{{Goal: "P1"}, {Goal: "P2"}}, Sweep: []Run{{}}, Sides: []Side{{Name: "kafka"}}}
	now := &Peers{Part: Part{Commit: "b"}}
	now.Keep(old, []string{"P1", "P5"})
	if len(now.Earlier) != 1 || now.Earlier[0].Commit != "a" || !slices.Equal(now.Earlier[0].Goals, []string{"P2"}) || len(now.Series) != 1 || now.Series[0].Goal != "P2" || len(now.Sweep) != 1 || len(now.Sides) != 1 {
		t.Errorf("%+v", now)
	}
	if !slices.Equal(old.Goals, []string{"P1", "P2"}) {
		t.Error("the old one was changed")
	}
	again := &Peers{}
	again.Keep(now, []string{"P1", "P2", "P5"})
	if len(again.Earlier) != 0 || len(again.Series) != 0 || len(again.Sweep) != 0 {
		t.Errorf("%+v", again)
	}
	again.Keep(nil, nil)
}

// TestEnginesTable: a row a figure, a column a side.
func TestEnginesTable(t *testing.T) {
	of := func(metric, base string, rounds ...map[string]float64) *Series {
		return &Series{Goal: "engines", Case: "lone", Metric: metric, Ours: "lockstep", Base: base, Rounds: rounds}
	}
	round := map[string]float64{"lockstep": 10, "portable": 20, "giouring": 5}
	p := &Peers{Part: Part{Commit: "abc", Goals: []string{"engines"}}, Series: []*Series{of("p50", "portable", round), of("p50", "giouring", round), of("cpu", "portable", round), of("cpu", "giouring", round)}}
	page, _ := (&Results{Engines: p}).Page("")
	for _, want := range []string{"| case | figure | io_uring | portable | giouring |", "| lone | p50 | 10 | 20 (2) | 5 (0.5) |", "| lone | cpu | 10 | 20 (2) | 5 (0.5) |", "- engines: , commit abc"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}
