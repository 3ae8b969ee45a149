package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/perf/baseline"
)

// Marks around what a person writes on the page.
const (
	remarkBegin = "<!-- remarks: written by hand, kept -->"
	remarkEnd   = "<!-- end of remarks -->"
)

// Results are what was measured; each part may be nil.
type Results struct {
	Peers   *Peers
	Engines *Peers // our own engines beside each other
	Acks    *Acks
	// OneFetch is the same with one fetch of the mirror under way.
	OneFetch *Acks
	Soak     *Soak
}

// Page makes the text of the results and its plots, by file name. old is the
// page as it was, whose remarks are kept.
func (r *Results) Page(old string) (page string, plots map[string]string) {
	var b strings.Builder
	plots = map[string]string{}
	b.WriteString("# Results\n\nMade by `make perf-peers`, `make perf-engines`, `make perf-ack` and `make soak`, from the files in `perf/results`; do not edit but\n" +
		"between the marks. [README.md](README.md) says what the figures mean. A ratio is ours to the other's, of two figures of one round;\n" +
		"shown is the median of the rounds, and the least and the most.\n\n")
	b.WriteString(remarks(old))
	if r.Peers != nil {
		r.Peers.write(&b, plots)
	}
	if r.Engines != nil {
		r.Engines.writeEngines(&b)
	}
	if r.Acks != nil {
		r.Acks.write(&b, "## Acknowledgements over a long line (P3)")
	}
	if r.OneFetch != nil {
		r.OneFetch.write(&b, "### With one fetch of the mirror under way, for contrast")
	}
	if r.Soak != nil {
		r.Soak.write(&b)
	}
	return b.String(), plots
}

// remarks are what stands between the marks of a page, marks included.
func remarks(old string) string {
	_, rest, found := strings.Cut(old, remarkBegin)
	kept, _, closed := strings.Cut(rest, remarkEnd)
	if !found || !closed {
		kept = "\n"
	}
	return remarkBegin + kept + remarkEnd + "\n\n"
}

func (p *Peers) write(b *strings.Builder, plots map[string]string) {
	b.WriteString("## Beside Apache Kafka\n\n")
	p.writeParts(b)
	for _, s := range p.Sides {
		fmt.Fprintf(b, "- **%s**: %s.", s.Name, s.What)
		if len(s.Settings) > 0 {
			fmt.Fprintf(b, " `%s`", strings.Join(s.Settings, " "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nEach case says after `acks` what an acknowledgement promises: *appended* is the page cache, the default of both brokers; *durable* is\n" +
		"the disk, by the topic's setting `flush.messages=1` on both. Both get the same bytes, by Produce 13 of our own codec.\n\n")
	p.writeBaselines(b)
	table(b, []string{"goal", "case", "figure", "ours", "the other's", "ratio", "least", "most", "wanted"}, Rows(p.Series))
	p.behind(b)
	p.plots(b, plots)
}

// writeParts says what was measured when, and of what.
func (p *Peers) writeParts(b *strings.Builder) {
	for _, x := range append(slices.Clone(p.Earlier), p.Part) {
		fmt.Fprintf(b, "- %s: %s, commit %s, `%s`\n", strings.Join(x.Goals, ", "), x.When, x.Commit, x.Command)
	}
	fmt.Fprintf(b, "\n%s\n\n", p.Machine)
}

// writeEngines is one table: a row a figure, a column a side, medians; in
// brackets the median ratio to the first side.
func (p *Peers) writeEngines(b *strings.Builder) {
	b.WriteString("## Our engines beside each other\n\n")
	p.writeParts(b)
	b.WriteString("Medians of the rounds; in brackets the median of the ratios to the first column, round by round. `io_uring` is our own ring and the\n" +
		"default, one reactor a core.\n\n")
	var sides, figures []string
	rows := map[string][]string{}
	for _, s := range p.Series {
		name := s.Case + " | " + s.Metric
		if rows[name] == nil {
			rows[name], figures = []string{s.Case, s.Metric, short(s.Median(s.Ours))}, append(figures, name)
		}
		rows[name] = append(rows[name], fmt.Sprintf("%s (%s)", short(s.Median(s.Base)), short(Median(inverse(s.Ratios())))))
		if !slices.Contains(sides, s.Base) {
			sides = append(sides, s.Base)
		}
	}
	var list [][]string
	for _, f := range figures {
		list = append(list, rows[f])
	}
	table(b, append([]string{"case", "figure", "io_uring"}, sides...), list)
}

func inverse(v []float64) (list []float64) {
	for _, x := range v {
		list = append(list, 1/x)
	}
	return list
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %d MB, %s, %s", m.CPU, m.Cores, m.Kernel, m.MemMB, m.Go, m.FS)
}

func (p *Peers) writeBaselines(b *strings.Builder) {
	of := func(f func(baseline.Figures) float64) (v []float64) {
		for _, x := range p.Baselines {
			v = append(v, f(x))
		}
		slices.Sort(v)
		return v
	}
	sync, loop := of(func(f baseline.Figures) float64 { return f.FdatasyncP50 }), of(func(f baseline.Figures) float64 { return f.LoopbackP50 })
	if len(sync) > 0 {
		fmt.Fprintf(b, "The machine meanwhile, before each round: raw fdatasync p50 %.3f to %.3f ms, one byte over loopback and back p50 %.3f to %.3f ms.\n\n", sync[0], sync[len(sync)-1], loop[0], loop[len(loop)-1])
	}
}

// behind says where the other does as well or better, and what goals are missed.
func (p *Peers) behind(b *strings.Builder) {
	b.WriteString("### Where Kafka is as good or better, and what is missed\n\n")
	n := 0
	for _, s := range p.Series {
		if !strings.HasPrefix(s.Base, "kafka") || !s.Behind() {
			continue
		}
		n++
		fmt.Fprintf(b, "- %s, %s: %s %s, ours %s (ratio %s).\n", s.Case, s.Metric, s.Base, short(s.Median(s.Base)), short(s.Median(s.Ours)), short(Median(s.Ratios())))
	}
	if n == 0 {
		b.WriteString("- In none of the figures above is the median of Kafka's as good as ours.\n")
	}
	for _, s := range p.Series {
		if !s.Met() {
			beside := ""
			if s.Base != "" {
				beside = " beside " + s.Base
			}
			fmt.Fprintf(b, "- %s is missed: %s, %s%s: %s, wanted %s.\n", s.Goal, s.Case, s.Metric, beside, short(s.Judged()), strings.TrimSuffix(s.wanted(), ": not met"))
		}
	}
	b.WriteString("- Not measured: replication between brokers, TLS, compression, transactions, consumer groups, more than two cores, disks without a cache.\n\n")
}

// plots draws latencies by percentile, one plot a case, and latency against
// throughput.
func (p *Peers) plots(b *strings.Builder, plots map[string]string) {
	var list []Run
	for _, r := range p.Runs {
		if len(r.Percentiles) > 0 {
			list = append(list, r)
		}
	}
	if len(list)+len(p.Sweep) > 0 {
		b.WriteString("### Plots\n\n")
	}
	drawn := map[string]bool{}
	for _, r := range list {
		name := fmt.Sprintf("acks=%s, %d B records, %d a request, %.1f MB/s", acksName(r.Acks), r.RecordSize, r.Batch, r.RateMBPerS)
		if drawn[name] {
			continue
		}
		drawn[name] = true
		file := fmt.Sprintf("latency-%d.svg", len(drawn))
		plots[file] = SVG(name+" ("+r.FlushAck+"), last round", Axis{Name: "percentile", Nines: true}, Axis{Name: "milliseconds", Log: true}, latest(list, r))
		fmt.Fprintf(b, "![%s](plots/%s)\n\n", name, file)
	}
	if len(p.Sweep) > 0 {
		first := p.Sweep[0]
		name := fmt.Sprintf("throughput and p99: acks=%s (%s), %d B records, %d a request", acksName(first.Acks), first.FlushAck, first.RecordSize, first.Batch)
		plots["throughput.svg"] = SVG(name, Axis{Name: "MB/s, acknowledged"}, Axis{Name: "p99, milliseconds", Log: true}, sweepCurves(p.Sweep))
		fmt.Fprintf(b, "![%s](plots/throughput.svg)\n\n", name)
	}
}

// latest are the last curves of each side, of the case of a run.
func latest(list []Run, of Run) (curves []Curve) {
	for _, r := range list {
		if r.Acks != of.Acks || r.RecordSize != of.RecordSize || r.Batch != of.Batch || r.RateMBPerS != of.RateMBPerS {
			continue
		}
		i := slices.IndexFunc(curves, func(c Curve) bool { return c.Name == r.Broker })
		if i < 0 {
			i, curves = len(curves), append(curves, Curve{Name: r.Broker})
		}
		curves[i].Points = r.Percentiles
	}
	return ordered(curves)
}

// ordered gives a side the same colour in all plots: ours first.
func ordered(curves []Curve) []Curve {
	slices.SortFunc(curves, func(a, b Curve) int {
		if own := "lockstep"; (a.Name == own) != (b.Name == own) {
			if a.Name == own {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return curves
}

// acksName is Kafka's word for it.
func acksName(acks int) string {
	if acks == -1 {
		return "all"
	}
	return strconv.Itoa(acks)
}

func sweepCurves(runs []Run) (curves []Curve) {
	for _, r := range runs {
		i := slices.IndexFunc(curves, func(c Curve) bool { return c.Name == r.Broker })
		if i < 0 {
			i, curves = len(curves), append(curves, Curve{Name: r.Broker})
		}
		curves[i].Points = append(curves[i].Points, Point{r.MBPerS, r.P99})
	}
	return ordered(curves)
}

func (a *Acks) write(b *strings.Builder, head string) {
	fmt.Fprintf(b, "%s\n\n%s, commit %s, `%s`.\n\n%s\n\n", head, a.When, a.Commit, a.Command, a.Machine)
	b.WriteString("SYNC mirror, acks=all; medians of the runs. The round trip is what echoes through the same line took meanwhile.\n\n")
	var rows [][]string
	for _, r := range a.Rows {
		rows = append(rows, []string{fmt.Sprintf("%g ms", r.RTTMs), r.FlushAck, r.Mode, fmt.Sprintf("%.2f", r.Echo), fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f–%.2f", r.Least, r.Most),
			fmt.Sprintf("%.2f", r.P99), fmt.Sprintf("%.2f", r.P999), fmt.Sprintf("%.1f", r.MBPerS), fmt.Sprint(r.Runs), fmt.Sprint(r.Void), fmt.Sprint(r.Errors), r.Wanted()})
	}
	table(b, []string{"line", "flush.ack", "load", "rtt (ms)", "ack p50 (ms)", "of runs", "p99", "p99.9", "MB/s", "runs", "void", "errors", "wanted"}, rows)
	for _, t := range a.Throughput() {
		fmt.Fprintf(b, "- %s\n", t)
	}
	b.WriteString("\n")
}

// Modes of rows.
const (
	ModeOne  = "one record in flight"
	ModeRate = "20 MB/s"
	ModeMax  = "one partition, as much as goes"
)

// Wanted says what P3 wants of a row and whether it is met.
func (r AckRow) Wanted() string {
	met := func(ok bool) string {
		if ok {
			return "met"
		}
		return "not met"
	}
	switch {
	case r.Runs == 0:
		return "no run counts"
	case r.Mode == ModeOne:
		return fmt.Sprintf("p50 ≤ rtt + 0.5 ms: %s", met(r.P50 <= r.Echo+0.5))
	case r.Mode == ModeRate:
		return fmt.Sprintf("p50 ≤ 1.05 rtt: %s; p99 ≤ 1.2 rtt: %s", met(r.P50 <= 1.05*r.Echo), met(r.P99 <= 1.2*r.Echo))
	}
	return ""
}

// Throughput holds what one partition carries over the longest line beside the
// shortest.
func (a *Acks) Throughput() (list []string) {
	for _, flush := range []string{"appended", "durable"} {
		var rows []AckRow
		for _, r := range a.Rows {
			if r.Mode == ModeMax && r.FlushAck == flush && r.Runs > 0 {
				rows = append(rows, r)
			}
		}
		if len(rows) < 2 {
			continue
		}
		slices.SortFunc(rows, func(a, b AckRow) int { return int(a.RTTMs - b.RTTMs) })
		near, far := rows[0], rows[len(rows)-1]
		verdict := "met"
		if far.MBPerS < 0.8*near.MBPerS {
			verdict = "not met"
		}
		list = append(list, fmt.Sprintf("One partition, %s: %.1f MB/s at %g ms beside %.1f at %g ms, ratio %.2f (≥ 0.8: %s).", flush, far.MBPerS, far.RTTMs, near.MBPerS, near.RTTMs, far.MBPerS/near.MBPerS, verdict))
	}
	return list
}

func table(b *strings.Builder, head []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, r := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(r, " | "))
	}
	b.WriteString("\n")
}
