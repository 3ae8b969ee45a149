package main

import (
	"context"

	"lockstep/perf/load"
	"lockstep/perf/report"
)

// The sides of a comparison of our own engines: how the kernel is entered, and
// by how many threads. sideOurs is the default: our ring, a reactor a core.
const (
	sideOne      = "one reactor"
	sidePortable = "portable"
	sideGiouring = "giouring"
	goalEngines  = "engines"
)

// variant is our own broker of a side: the program and its settings.
func (c *comparison) variant(side string) (binary string, overrides []string) {
	switch side {
	case sideOne:
		return c.binary, []string{"lockstep.io.reactors=1"}
	case sidePortable:
		return c.binary, []string{"lockstep.io.engine=portable"}
	case sideGiouring:
		return c.o.giouring, nil
	}
	return c.binary, nil
}

// figure is a value of a run.
type figure struct {
	metric string
	lower  bool // is better
	of     func(report.Run) float64
}

// engines puts loads of P1, P4 and P5 on each engine.
func (c *comparison) engines(ctx context.Context) error {
	sides := []string{sideOurs, sideOne, sidePortable}
	if c.o.giouring != "" {
		sides = append(sides, sideGiouring)
	}
	cpu, speed := figure{perCPU, false, func(r report.Run) float64 { return r.PerCPU }}, figure{perTime, false, func(r report.Run) float64 { return r.RecordsPerS }}
	p50 := figure{"p50 (ms)", true, func(r report.Run) float64 { return r.P50 }}
	for _, pc := range []produceCase{{-1, 100, 1}, {-1, 1024, 16 << 10}} {
		if err := c.compare(ctx, pc.String(), sides, nil, pc.partitions(), c.most(pc), cpu, speed); err != nil {
			return err
		}
	}
	lone := c.most(produceCase{-1, 1024, 1})
	lone.InFlight, lone.OneInFlight, lone.Batch = 0, true, 1
	if err := c.compare(ctx, "one 1024 B record under way, acks=all (appended)", sides, nil, 1, lone, p50, cpu); err != nil {
		return err
	}
	if err := c.compare(ctx, "one 1024 B record under way, acks=all (durable)", sides, map[string]string{"flush.messages": "1"}, 1, lone, p50, cpu); err != nil {
		return err
	}
	return c.readers(ctx, goalEngines, sides)
}

// compare gives every side a turn in each round.
func (c *comparison) compare(ctx context.Context, name string, sides []string, configs map[string]string, partitions int32, lo load.Options, figures ...figure) error {
	series := make([]report.Series, len(figures))
	for k, f := range figures {
		series[k] = report.Series{Goal: goalEngines, Case: name, Metric: f.metric, Ours: sideOurs, Lower: f.lower}
	}
	for i := range c.o.pairs {
		for k := range series {
			series[k].Rounds = append(series[k].Rounds, map[string]float64{})
		}
		for _, side := range order(sides, i) {
			r, _, err := c.turn(ctx, side, configs, partitions, lo)
			if err != nil {
				return err
			}
			c.doc.Runs = append(c.doc.Runs, r)
			for k, f := range figures {
				series[k].Rounds[i][side] = f.of(r)
			}
		}
		for _, s := range series {
			c.p.Note("%s, round %d: %s %s", name, i+1, s.Metric, report.Sides(s.Rounds[i]))
		}
	}
	for _, s := range series {
		c.add(s, sides[1:]...)
	}
	return nil
}
