package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/perf/report"
)

type ackTableOptions struct {
	runs             int
	rtts             []time.Duration
	flushes          []string
	modes            []string
	warmUp, duration time.Duration
	linger           time.Duration
	fetches          int
	binary, dir, out string
}

// ackModes are the loads of the table, by what --modes calls them.
var ackModes = map[string]struct {
	name string
	set  func(o *ackOptions)
}{
	"one":  {report.ModeOne, func(o *ackOptions) { o.single = true }},
	"rate": {report.ModeRate, func(o *ackOptions) { o.rate = "20MB" }},
	// 64 MiB are under way, more than what two cores carry in 100 ms.
	"max": {report.ModeMax, func(o *ackOptions) { o.max, o.partitions, o.conns, o.inFlight = true, 1, 16, 64 }},
}

func ackTableCommand() *cobra.Command {
	o := ackTableOptions{}
	cmd := &cobra.Command{
		Use: "ack-table", Short: "ack for several round trips, loads and flush modes; medians", Args: cobra.NoArgs,
		Example: "  lockstep-perf ack-table --runs 5 --out perf/results/ack.json\n  lockstep-perf ack-table --fetches 1 --out perf/results/ack-one-fetch.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.runs, "runs", 5, "runs of each cell; the table has their medians")
	f.DurationSliceVar(&o.rtts, "rtts", []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond}, "round trips")
	f.StringSliceVar(&o.flushes, "flush-ack", []string{"appended", "durable"}, "flush modes of both brokers")
	f.StringSliceVar(&o.modes, "modes", []string{"one", "rate", "max"}, "one = one record in flight, rate = 20 MB/s over 4 partitions, max = one partition, as much as goes")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "of each run")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "of each run, counted")
	f.DurationVar(&o.linger, "linger", time.Millisecond, "least time between two requests of a connection, of 20 MB/s")
	f.IntVar(&o.fetches, "fetches", 63, "fetches of a mirror that may be under way; 1 for contrast")
	f.StringVar(&o.binary, "binary", "", "the lockstep program; empty = beside this one, or in PATH")
	f.StringVar(&o.dir, "dir", "", "parent of the data directories; empty = the system's for temporary files")
	f.StringVar(&o.out, "out", "", "file to write the JSON to, after each round; empty = none")
	return cmd
}

// cell gathers the runs of a row.
type cell struct {
	row                      report.AckRow
	o                        ackOptions
	p50, p99, p999, mb, echo []float64
}

func (o *ackTableOptions) cells() (list []*cell, err error) {
	for _, flush := range o.flushes {
		for _, mode := range o.modes {
			m, known := ackModes[mode]
			if !known {
				return nil, cli.Usage("--modes: of one, rate and max, not %q", mode)
			}
			for _, rtt := range o.rtts {
				c := &cell{row: report.AckRow{RTTMs: ms(rtt), FlushAck: flush, Mode: m.name}, o: ackOptions{rtt: rtt, rate: "20MB", recordSize: "1KiB", warmUp: o.warmUp, duration: o.duration,
					linger: o.linger, batch: "64KiB", inFlight: 128, fetches: o.fetches, flushAck: flush, engine: "auto", conns: 4, partitions: 4, binary: o.binary, dir: o.dir, seed: 1}}
				m.set(&c.o)
				if _, err := c.o.load(); err != nil {
					return nil, err
				}
				list = append(list, c)
			}
		}
	}
	return list, nil
}

func (o *ackTableOptions) run(ctx context.Context, p *cli.Printer) error {
	cells, err := o.cells()
	if err != nil {
		return err
	}
	if o.runs < 1 {
		return cli.Usage("--runs is positive")
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	doc := &report.Acks{Commit: buildCommit(), When: time.Now().UTC().Format("2006-01-02 15:04"), Machine: machineFacts(cmp.Or(o.dir, os.TempDir())), Command: command(os.Args[1:])}
	for i := range o.runs {
		for _, c := range cells {
			if err := c.run(ctx, p, i+1); err != nil {
				return err
			}
		}
		doc.Rows = doc.Rows[:0]
		for _, c := range cells {
			doc.Rows = append(doc.Rows, c.median())
		}
		if o.out != "" {
			if err := writeJSON(o.out, doc); err != nil {
				return err
			}
		}
	}
	var rows [][]string
	for _, r := range doc.Rows {
		rows = append(rows, []string{fmt.Sprintf("%g ms", r.RTTMs), r.FlushAck, r.Mode, fmt.Sprintf("%.2f", r.Echo), fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f", r.P99), fmt.Sprintf("%.1f", r.MBPerS),
			fmt.Sprint(r.Runs), fmt.Sprint(r.Void), r.Wanted()})
	}
	p.Table(cli.Columns("LINE", "FLUSH", "LOAD", "RTT (ms)", "ACK p50", "p99", "MB/s", "RUNS", "VOID", "WANTED"), rows)
	for _, t := range doc.Throughput() {
		p.Line("%s", t)
	}
	return nil
}

// run adds one run to the cell. A void one is counted and left out.
func (c *cell) run(ctx context.Context, p *cli.Printer, n int) error {
	r, err := c.o.once(ctx)
	if err != nil {
		return err
	}
	p.Note("%g ms, %s, %s, run %d: rtt %.2f, ack p50 %.2f, p99 %.2f ms, %.1f MB/s %v", c.row.RTTMs, c.row.FlushAck, c.row.Mode, n, r.RTTMs, r.AckP50, r.AckP99, r.MBPerS, r.Void)
	c.row.Errors += r.Errors
	if len(r.Void) > 0 {
		c.row.Void++
		return nil
	}
	c.row.Runs++
	c.p50, c.p99, c.p999, c.mb, c.echo = append(c.p50, r.AckP50), append(c.p99, r.AckP99), append(c.p999, r.AckP999), append(c.mb, r.MBPerS), append(c.echo, r.RTTMs)
	return nil
}

func (c *cell) median() report.AckRow {
	r := c.row
	if r.Runs > 0 {
		r.P50, r.P99, r.P999, r.MBPerS, r.Echo = report.Median(c.p50), report.Median(c.p99), report.Median(c.p999), report.Median(c.mb), report.Median(c.echo)
		r.Least, r.Most = slices.Min(c.p50), slices.Max(c.p50)
	}
	return r
}
