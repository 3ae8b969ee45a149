package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Soak is a long run under a mixed load, and whether what it took stayed level.
type Soak struct {
	Commit  string           `json:"commit"`
	When    string           `json:"when"` // UTC, of the start
	Machine Machine          `json:"machine"`
	Command string           `json:"command"`
	Engine  string           `json:"engine"`
	RTTMs   float64          `json:"rtt_ms"`
	WarmUpS float64          `json:"warm_up_s"` // not sampled
	Seconds float64          `json:"seconds"`   // sampled
	EveryS  float64          `json:"every_s"`
	LoadCPU float64          `json:"load_cpu_s"` // of the load and the line, in Seconds
	Did     map[string]int64 `json:"did"`        // by what was done, warm-up included
	Errors  []string         `json:"errors"`     // the first of each kind
	Brokers []SoakBroker     `json:"brokers"`
}

// SoakBroker is one broker's part.
type SoakBroker struct {
	Name    string       `json:"name"`
	CPU     float64      `json:"cpu_s"` // in Seconds
	Trends  []Trend      `json:"trends"`
	Samples []SoakSample `json:"samples"`
}

// SoakSample is one look at a broker: seconds since the end of the warm-up,
// and figures by name.
type SoakSample struct {
	S       float64            `json:"s"`
	Figures map[string]float64 `json:"figures"`
}

// Points are a figure of the samples over hours.
func (b *SoakBroker) Points(figure string) (points []Point) {
	for _, s := range b.Samples {
		points = append(points, Point{s.S / 3600, s.Figures[figure]})
	}
	return points
}

// Failed are the reasons why a run is no pass, none for one that is.
func (s *Soak) Failed() (why []string) {
	why = append(why, s.Errors...)
	for _, b := range s.Brokers {
		for _, t := range b.Trends {
			if t.Verdict != Flat {
				why = append(why, fmt.Sprintf("%s: %s is %s: %+.3g ± %.2g an hour", b.Name, t.Figure, t.Verdict, t.Slope, t.Err))
			}
		}
	}
	return why
}

// Rows are the trends as a table.
func (s *Soak) Rows() (rows [][]string) {
	for _, b := range s.Brokers {
		for _, t := range b.Trends {
			rows = append(rows, []string{b.Name, t.Figure, fmt.Sprintf("%.1f", t.Mean), fmt.Sprintf("%.1f–%.1f", t.Least, t.Most),
				fmt.Sprintf("%+.2f", t.Slope), fmt.Sprintf("%.2f", t.Err), fmt.Sprintf("%.2f", t.Bound), fmt.Sprintf("%.2f", t.Resolution), t.Verdict})
		}
	}
	return rows
}

// SoakColumns head Rows.
var SoakColumns = []string{"broker", "figure", "mean", "least–most", "slope an hour", "its error", "bound", "to be seen", "verdict"}

func (s *Soak) write(b *strings.Builder) {
	fmt.Fprintf(b, "## Mixed load for a long time\n\n%s, commit %s, `%s`.\n\n%s\n\n", s.When, s.Commit, s.Command, s.Machine)
	fmt.Fprintf(b, "%.0f minutes after a warm-up of %.0f, a sample every %.0f s; %s engine, SYNC over a line of %g ms. Slopes are least squares with their standard error;\n"+
		"growth above the bound that is twice its error is red, and so is a figure in which growth of the column before the last would not have been seen.\n\n",
		s.Seconds/60, s.WarmUpS/60, s.EveryS, s.Engine, s.RTTMs)
	table(b, SoakColumns, s.Rows())
	var use []string
	for _, x := range s.Brokers {
		use = append(use, fmt.Sprintf("%s %.1f %%", x.Name, 100*x.CPU/max(1, s.Seconds)))
	}
	fmt.Fprintf(b, "- Of one core: %s, load and line %.1f %%.\n", strings.Join(use, ", "), 100*s.LoadCPU/max(1, s.Seconds))
	var did []string
	for _, name := range slices.Sorted(maps.Keys(s.Did)) {
		did = append(did, fmt.Sprintf("%s %d", name, s.Did[name]))
	}
	fmt.Fprintf(b, "- Done: %s.\n", strings.Join(did, ", "))
	failed := s.Failed()
	if len(failed) == 0 {
		b.WriteString("- Passed: nothing grew, no error.\n\n")
		return
	}
	for _, f := range failed {
		fmt.Fprintf(b, "- **Not passed**: %s.\n", f)
	}
	b.WriteString("\n")
}
