package report

import (
	"slices"

	"lockstep/perf/baseline"
)

// Machine is what a figure depends on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	MemMB  int64  `json:"mem_mb"`
	Go     string `json:"go"`
	FS     string `json:"fs"` // of the data directories
}

// Run is one load against one broker. Latencies are milliseconds.
type Run struct {
	Broker      string  `json:"broker"`
	Client      string  `json:"client"`    // raw = our own codec, or kgo
	FlushAck    string  `json:"flush_ack"` // what an acknowledgement promises
	Acks        int     `json:"acks"`
	RecordSize  int     `json:"record_size"`
	Batch       int     `json:"records_per_request"`
	Connections int     `json:"connections"`
	Partitions  int     `json:"partitions"`
	InFlight    int     `json:"in_flight"`    // requests under way per connection; 0 = open loop
	RateMBPerS  float64 `json:"rate_mb_s"`    // asked for; 0 = as much as goes
	Seconds     float64 `json:"seconds"`      // that were counted
	Records     int64   `json:"records"`      // acknowledged
	Requests    int64   `json:"requests"`     // likewise; 0 = not known
	Errors      int64   `json:"errors"`       // records refused or not answered
	RecordsPerS float64 `json:"records_s"`    //
	MBPerS      float64 `json:"mb_s"`         // 10^6 bytes of values, acknowledged
	P50         float64 `json:"p50_ms"`       //
	P99         float64 `json:"p99_ms"`       //
	P999        float64 `json:"p999_ms"`      //
	Max         float64 `json:"max_ms"`       //
	LoadCPU     float64 `json:"load_cpu_s"`   // of the load's process
	BrokerCPU   float64 `json:"broker_cpu_s"` // 0 = not known
	PerCPU      float64 `json:"records_per_broker_cpu_s"`
	FirstError  string  `json:"first_error,omitempty"`
	Percentiles []Point `json:"percentiles,omitempty"` // percentile, milliseconds
}

// Point of a plot.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Series is one figure of two sides, taken in rounds.
type Series struct {
	Goal   string               `json:"goal"` // P1 … P7
	Case   string               `json:"case"`
	Metric string               `json:"metric"`
	Ours   string               `json:"ours"`            // a side
	Base   string               `json:"base"`            // the side it is put beside; empty = Bound is absolute
	Lower  bool                 `json:"lower_is_better"` //
	Bound  float64              `json:"bound"`           // of the median ratio, or of our median without a Base; 0 = no goal
	Rounds []map[string]float64 `json:"rounds"`          // by side
}

// Ratios are ours to the base's, round by round, sorted.
func (s *Series) Ratios() (all []float64) {
	for _, r := range s.Rounds {
		if ours, ok := r[s.Ours]; ok && r[s.Base] > 0 {
			all = append(all, ours/r[s.Base])
		}
	}
	slices.Sort(all)
	return all
}

// Median of a side over the rounds.
func (s *Series) Median(side string) float64 {
	var all []float64
	for _, r := range s.Rounds {
		if v, ok := r[side]; ok {
			all = append(all, v)
		}
	}
	return Median(all)
}

// Judged is the value that is held to the bound.
func (s *Series) Judged() float64 {
	if s.Base == "" {
		return s.Median(s.Ours)
	}
	return Median(s.Ratios())
}

// Met tells whether the goal is reached; true without one.
func (s *Series) Met() bool {
	switch v := s.Judged(); {
	case s.Bound == 0:
		return true
	case s.Lower:
		return v <= s.Bound
	default:
		return v >= s.Bound
	}
}

// Behind tells whether the base does as well or better.
func (s *Series) Behind() bool {
	r := Median(s.Ratios())
	return s.Base != "" && r > 0 && (s.Lower && r >= 1 || !s.Lower && r <= 1)
}

// Median of values; 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Side is a broker that took part.
type Side struct {
	Name     string   `json:"name"`
	What     string   `json:"what"`
	Settings []string `json:"settings"` // what is not a default
}

// Part is what was measured in one go.
type Part struct {
	Commit  string   `json:"commit"`
	When    string   `json:"when"` // UTC
	Command string   `json:"command"`
	Goals   []string `json:"goals"`
}

// Peers is a comparison.
type Peers struct {
	Part
	Earlier   []Part             `json:"earlier,omitempty"` // of the same file, with what of their goals is kept
	Machine   Machine            `json:"machine"`
	Sides     []Side             `json:"sides"`
	Baselines []baseline.Figures `json:"baselines"` // one a round
	Series    []*Series          `json:"series"`
	Runs      []Run              `json:"runs"`
	Sweep     []Run              `json:"sweep"` // one case at rising rates
}

// Keep takes over what an earlier run measured of goals that this one does not.
func (p *Peers) Keep(old *Peers, goals []string) {
	p.Goals = goals
	if old == nil {
		return
	}
	again := func(goal string) bool { return slices.Contains(goals, goal) }
	for _, part := range append(slices.Clone(old.Earlier), old.Part) {
		if part.Goals = slices.DeleteFunc(slices.Clone(part.Goals), again); len(part.Goals) > 0 {
			p.Earlier = append(p.Earlier, part)
		}
	}
	if len(p.Earlier) == 0 {
		return
	}
	p.Sides, p.Baselines = old.Sides, old.Baselines
	p.Series = slices.DeleteFunc(old.Series, func(s *Series) bool { return again(s.Goal) })
	if !again("P2") { // the plots are of it
		p.Runs, p.Sweep = old.Runs, old.Sweep
	}
}

// AckRow is a cell of the table of acknowledgements over a line: medians.
type AckRow struct {
	RTTMs    float64 `json:"rtt_asked_ms"`
	Echo     float64 `json:"rtt_ms"` // measured through the line
	FlushAck string  `json:"flush_ack"`
	Mode     string  `json:"mode"`
	Runs     int     `json:"runs"` // that count
	Void     int     `json:"void"` // that do not
	P50      float64 `json:"ack_p50_ms"`
	P99      float64 `json:"ack_p99_ms"`
	P999     float64 `json:"ack_p999_ms"`
	MBPerS   float64 `json:"mb_per_s"`
	Least    float64 `json:"ack_p50_least_ms"`
	Most     float64 `json:"ack_p50_most_ms"`
	Errors   int64   `json:"errors"`
}

// Acks is that table.
type Acks struct {
	Commit  string   `json:"commit"`
	When    string   `json:"when"`
	Machine Machine  `json:"machine"`
	Command string   `json:"command"`
	Rows    []AckRow `json:"rows"`
}
