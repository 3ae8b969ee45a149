package main

import (
	"context"
	"fmt"

	"lockstep/perf/load"
	"lockstep/perf/report"
)

// bound gives kfake one turn, in the first round. It keeps all it is sent, so it
// is a fresh one each time.
func (c *comparison) bound(ctx context.Context, m metrics, pc produceCase, round int) error {
	if !c.o.kfake || round > 0 {
		return nil
	}
	r, _, err := c.turn(ctx, sideKfake, nil, pc.partitions(), c.most(pc))
	if b := c.brokers[sideKfake]; b != nil {
		b.Kill()
		delete(c.brokers, sideKfake)
	}
	if err != nil {
		return err
	}
	c.doc.Runs = append(c.doc.Runs, r)
	m.set(perCPU, sideKfake, r.PerCPU)
	return nil
}

// least puts a load on a program that only receives, writes to a file and
// answers: what of a broker's time is the kernel's and the load's own, and so
// what its ratio to another can be at most.
func (c *comparison) least(ctx context.Context, pc produceCase, lo load.Options) (report.Run, *load.Result, error) {
	b, end, err := ownHelper(ctx, c.dir, sideSink)
	if err != nil {
		return report.Run{}, nil, err
	}
	defer end()
	lo.Addr, lo.Targets, lo.Version = b.Addr, make([]load.Target, pc.partitions()), produceVersion
	r, res, err := c.measured(ctx, sideSink, lo, b.Pid())
	if err != nil {
		return report.Run{}, nil, fmt.Errorf("%s: %w", sideSink, err)
	}
	r.Broker, r.FlushAck = sideSink, "nothing"
	end()
	return r, res, c.ready(ctx)
}
