package main

import (
	"context"
	"fmt"

	"lockstep/perf/load"
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

// least puts the load on a program that only receives, writes to a file and
// answers: what of a broker's time is the kernel's, and so what its ratio to
// another can be at most. A record a request is bound by requests, not by bytes.
func (c *comparison) least(ctx context.Context, m metrics, pc produceCase) error {
	if pc.batch == 1 {
		return nil
	}
	b, end, err := ownHelper(ctx, c.dir, sideSink)
	if err != nil {
		return err
	}
	defer end()
	lo := c.most(pc)
	lo.Addr, lo.Targets, lo.Version = b.Addr, make([]load.Target, pc.partitions()), produceVersion
	r, _, err := measured(ctx, lo, "raw", b.Pid())
	if err != nil {
		return fmt.Errorf("%s: %w", sideSink, err)
	}
	r.Broker, r.FlushAck = sideSink, "nothing"
	c.doc.Runs = append(c.doc.Runs, r)
	m.set(perCPU, sideSink, r.PerCPU)
	m.set(perTime, sideSink, r.RecordsPerS)
	end()
	return c.ready(ctx)
}
