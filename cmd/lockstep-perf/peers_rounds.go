package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lockstep/perf/baseline"
	"lockstep/perf/load"
	"lockstep/perf/peer"
	"lockstep/perf/report"
)

// produceCase is a load that is put on every side.
type produceCase struct {
	acks  int16
	size  int // of a record's value
	batch int // bytes of a request's batch; 1 = one record
}

func (pc produceCase) String() string {
	acks, batch := "1", "one a request"
	if pc.acks == -1 {
		acks = "all"
	}
	if pc.batch > 1 {
		batch = fmt.Sprintf("%d KiB a request", pc.batch>>10)
	}
	return fmt.Sprintf("acks=%s (appended), %d B records, %s", acks, pc.size, batch)
}

func (pc produceCase) partitions() int32 { return peersPartitions }

// cases of P1 and P2.
func (c *comparison) cases() (list []produceCase) {
	for _, acks := range []int16{-1, 1} {
		for _, size := range []int{100, 1024} {
			for _, batch := range []int{16 << 10, 1} {
				if pc := (produceCase{acks, size, batch}); strings.Contains(pc.String(), c.o.cases) {
					list = append(list, pc)
				}
			}
		}
	}
	return list
}

// most is a load that takes as much as goes.
func (c *comparison) most(pc produceCase) load.Options {
	o := load.Options{Connections: peersConnections, RecordSize: pc.size, Batch: load.BatchFor(pc.size, pc.batch), InFlight: 5, WarmUp: c.o.warmUp, Duration: c.o.window,
		Acks: pc.acks, Timeout: ackTimeout, Seed: 1}
	if pc.batch == 1 {
		o.InFlight = peersSmallInFlight
	}
	return o
}

// metrics are figures of a side, by metric, of one round.
type metrics map[string]map[string]float64

func (m metrics) set(metric, side string, v float64) {
	if m[metric] == nil {
		m[metric] = map[string]float64{}
	}
	m[metric][side] = v
}

const (
	perCPU  = "records per CPU-second of the broker"
	perTime = "records per second"
)

// saturation is P1: each case as fast as it goes.
func (c *comparison) saturation(ctx context.Context) error {
	for _, pc := range c.cases() {
		cpu, speed := report.Series{Goal: "P1", Case: pc.String(), Metric: perCPU, Ours: sideOurs, Bound: 5}, report.Series{Goal: "P1", Case: pc.String(), Metric: perTime, Ours: sideOurs}
		for i := range c.o.pairs {
			if _, err := c.baseline(pc.batch); err != nil {
				return err
			}
			m := metrics{}
			for _, side := range order(c.sides(), i) {
				r, _, err := c.turn(ctx, side, nil, pc.partitions(), c.most(pc))
				if err != nil {
					return err
				}
				c.doc.Runs = append(c.doc.Runs, r)
				m.set(perCPU, side, r.PerCPU)
				m.set(perTime, side, r.RecordsPerS)
			}
			if err := c.bound(ctx, m, pc, i); err != nil {
				return err
			}
			if pc.batch > 1 { // a record a request is bound by requests, not by bytes
				r, _, err := c.least(ctx, pc, c.most(pc))
				if err != nil {
					return err
				}
				c.doc.Runs = append(c.doc.Runs, r)
				m.set(perCPU, sideSink, r.PerCPU)
			}
			cpu.Rounds, speed.Rounds = append(cpu.Rounds, m[perCPU]), append(speed.Rounds, m[perTime])
			c.p.Note("P1 %s, round %d: per CPU-second %s", pc, i+1, report.Sides(m[perCPU]))
		}
		c.best[pc.String()] = max(speed.Median(sideKafka), speed.Median(sideTuned)) * float64(pc.size)
		c.add(cpu, sideKafka, sideTuned)
		c.add(speed, sideKafka, sideTuned)
		cpu.Bound = 0
		c.add(cpu, sideKfake)
		if pc.batch > 1 {
			c.beside(cpu)
		}
	}
	return nil
}

// latencies is P2: each case at half of Kafka's best rate, in an open loop.
func (c *comparison) latencies(ctx context.Context) error {
	names := []string{"p50 (ms)", "p99 (ms)", "p99.9 (ms)", perCPU}
	for _, pc := range c.cases() {
		rate, err := c.bestRate(ctx, pc)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s, %.3g MB/s", pc, rate/2e6)
		series := map[string]*report.Series{}
		for i, bound := range []float64{0, 1. / 5, 1. / 10, 5} {
			series[names[i]] = &report.Series{Goal: "P2", Case: name, Metric: names[i], Ours: sideOurs, Lower: names[i] != perCPU, Bound: bound}
		}
		for i := range c.o.pairs {
			m := metrics{}
			for _, side := range order(append(c.sides(), sideSink), i) {
				r, err := c.paced(ctx, side, pc, rate/2)
				if err != nil {
					return err
				}
				c.doc.Runs = append(c.doc.Runs, r)
				for k, v := range []float64{r.P50, r.P99, r.P999, r.PerCPU} {
					m.set(names[k], side, v)
				}
			}
			for _, n := range names {
				series[n].Rounds = append(series[n].Rounds, m[n])
			}
			c.p.Note("P2 %s, round %d: p99 (ms) %s; p99.9 %s", name, i+1, report.Sides(m[names[1]]), report.Sides(m[names[2]]))
		}
		for _, n := range names {
			c.add(*series[n], sideKafka, sideTuned)
			c.beside(*series[n])
		}
	}
	return c.sweep(ctx)
}

// beside adds what a figure is beside the sink, and what the sink in our place
// would be beside Kafka.
func (c *comparison) beside(s report.Series) {
	s.Bound = 0
	c.add(s, sideSink)
	s.Ours, s.Metric = sideSink, strings.ReplaceAll(s.Metric, "broker", "sink")+", in ours' place"
	c.add(s, sideKafka)
}

// paced is a turn in an open loop, at so many bytes of values a second.
func (c *comparison) paced(ctx context.Context, side string, pc produceCase, rate float64) (report.Run, error) {
	lo := c.most(pc)
	lo.InFlight, lo.Rate, lo.Duration = 0, rate, c.o.latency
	var r report.Run
	var res *load.Result
	var err error
	if side == sideSink {
		r, res, err = c.least(ctx, pc, lo)
	} else {
		r, res, err = c.turn(ctx, side, nil, pc.partitions(), lo)
	}
	if err == nil {
		r.Percentiles = percentiles(res)
	}
	return r, err
}

// bestRate is what P1 found, or what a turn of each Kafka finds.
func (c *comparison) bestRate(ctx context.Context, pc produceCase) (float64, error) {
	if v := c.best[pc.String()]; v > 0 {
		return v, nil
	}
	best := 0.
	for _, side := range c.sides()[1:] {
		r, _, err := c.turn(ctx, side, nil, pc.partitions(), c.most(pc))
		if err != nil {
			return 0, err
		}
		best = max(best, r.MBPerS*1e6)
	}
	c.best[pc.String()] = best
	return best, nil
}

// sweepParts rise beyond what Kafka takes: we may.
var sweepParts = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2, 3, 4, 6, 8}

// sweep puts one case on each side at rising rates, for the plot. A side is done
// when it no longer keeps up.
func (c *comparison) sweep(ctx context.Context) error {
	list := c.cases()
	if len(list) == 0 {
		return nil
	}
	pc := list[0]
	for _, one := range list {
		if one == (produceCase{-1, 1024, 16 << 10}) {
			pc = one
		}
	}
	for _, side := range c.sides() {
		for _, part := range c.parts {
			r, err := c.paced(ctx, side, pc, part*c.best[pc.String()])
			if err != nil {
				return err
			}
			c.doc.Sweep = append(c.doc.Sweep, r)
			c.p.Note("sweep %s, %s at %.1f MB/s: p99 %.3f ms", pc, side, r.RateMBPerS, r.P99)
			if r.P99 > sweepEnough {
				break
			}
		}
	}
	return nil
}

// durable is P4: acknowledgements that wait for the disk.
func (c *comparison) durable(ctx context.Context) error {
	flush := map[string]string{"flush.messages": "1"}
	one := report.Series{Goal: "P4", Case: "one 1024 B record under way, acks=all (durable)", Metric: "p50 (ms)", Ours: sideOurs, Lower: true}
	lo := c.most(produceCase{-1, 1024, 1})
	lo.InFlight, lo.OneInFlight, lo.Batch = 0, true, 1
	for i := range c.o.pairs {
		before, err := c.baseline(1100)
		if err != nil {
			return err
		}
		m := metrics{}
		for _, side := range order([]string{sideOurs, sideKafka}, i) {
			r, _, err := c.turn(ctx, side, flush, 1, lo)
			if err != nil {
				return err
			}
			c.doc.Runs = append(c.doc.Runs, r)
			m.set("", side, r.P50)
		}
		after, err := c.baseline(1100)
		if err != nil {
			return err
		}
		m.set("", sideSync, (before.FdatasyncP50+after.FdatasyncP50)/2)
		one.Rounds = append(one.Rounds, m[""])
		c.p.Note("P4 round %d: p50 (ms) %s", i+1, report.Sides(m[""]))
	}
	one.Bound = 1.5
	c.add(one, sideSync)
	one.Bound = 0
	c.add(one, sideKafka)
	for _, partitions := range []int32{1, 16} {
		if err := c.group(ctx, partitions, flush); err != nil {
			return err
		}
	}
	return nil
}

// group is P4's second half: what 16 producers get with and without the disk.
func (c *comparison) group(ctx context.Context, partitions int32, flush map[string]string) error {
	s := report.Series{Goal: "P4", Case: fmt.Sprintf("16 producers, %d partitions, 1024 B records, 16 KiB a request, acks=all (durable)", partitions), Metric: "MB/s", Ours: "lockstep durable", Bound: 0.8}
	lo := c.most(produceCase{-1, 1024, 16 << 10})
	lo.Connections = 16
	turns := []struct {
		name, side string
		configs    map[string]string
	}{{"lockstep durable", sideOurs, flush}, {"lockstep appended", sideOurs, nil}, {"kafka durable", sideKafka, flush}}
	for i := range c.o.pairs {
		m := metrics{}
		for k := range turns {
			t := turns[k]
			if i%2 == 1 {
				t = turns[len(turns)-1-k]
			}
			r, _, err := c.turn(ctx, t.side, t.configs, partitions, lo)
			if err != nil {
				return err
			}
			c.doc.Runs = append(c.doc.Runs, r)
			m.set("", t.name, r.MBPerS)
		}
		raw, err := baseline.Group(c.dir, int(partitions), 16/int(partitions)*lo.InFlight*16<<10)
		if err != nil {
			return err
		}
		m.set("", sideSync, raw)
		s.Rounds = append(s.Rounds, m[""])
		c.p.Note("P4 %d partitions, round %d: MB/s %s", partitions, i+1, report.Sides(m[""]))
	}
	c.add(s, "lockstep appended")
	s.Bound = 0
	c.add(s, "kafka durable", sideSync)
	return nil
}

// catchUps is P5: reading what is in the page cache, from the beginning.
func (c *comparison) catchUps(ctx context.Context) error { return c.readers(ctx, "P5", c.sides()) }

// readers has each side read the same bytes; beside them a bare program sends as
// many out of memory.
func (c *comparison) readers(ctx context.Context, goal string, sides []string) error {
	const perGiB = "CPU-seconds of the broker per GiB"
	name := fmt.Sprintf("%d MiB from the page cache, %d connections and partitions, 1 MiB answers", c.catchUp>>20, peersReaders)
	speed, cpu := report.Series{Goal: goal, Case: name, Metric: "MB/s", Ours: sideOurs}, report.Series{Goal: goal, Case: name, Metric: perGiB, Ours: sideOurs, Lower: true}
	open := map[string]*target{}
	defer func() {
		for _, t := range open {
			_ = t.close(context.WithoutCancel(ctx)) // the brokers end with the run
		}
	}()
	for _, side := range sides {
		b, err := c.broker(ctx, side)
		if err != nil {
			return err
		}
		t, err := openTarget(ctx, b.Addr, "catch-up", peersReaders, produceVersion, nil)
		if err != nil {
			return err
		}
		open[side] = t
		if err := errors.Join(t.fillUp(ctx, c.catchUp, 1024), c.settle(ctx)); err != nil {
			return err
		}
	}
	for i := range c.o.pairs {
		m := metrics{}
		bytes := int64(0)
		for _, side := range order(sides, i) {
			r, err := c.read(ctx, open[side], c.brokers[side])
			if err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
			m.set("", side, r.MBPerS)
			m.set(perGiB, side, r.BrokerCPU/(float64(r.Bytes)/(1<<30)))
			bytes = r.Bytes
		}
		bare, err := bareMBPerS(ctx, c.dir, bytes, peersAnswer, peersReaders)
		if err != nil {
			return err
		}
		m.set("", sideBare, bare)
		speed.Rounds, cpu.Rounds = append(speed.Rounds, m[""]), append(cpu.Rounds, m[perGiB])
		c.p.Note("%s, reading, round %d: MB/s %s", goal, i+1, report.Sides(m[""]))
	}
	c.add(cpu, sides[1:]...)
	c.add(speed, sides[1:]...)
	if goal == "P5" {
		speed.Bound = 0.8
	}
	c.add(speed, sideBare)
	return nil
}

func (c *comparison) read(ctx context.Context, t *target, b *peer.Broker) (*consumeResult, error) {
	spans, err := t.spans(ctx)
	if err != nil {
		return nil, err
	}
	before := b.CPU()
	got, err := load.Consume(ctx, load.ConsumeOptions{Addr: t.addr, Spans: spans, Connections: peersReaders, Version: t.fetch, MaxBytes: peersAnswer})
	if err == nil {
		err = got.FirstError
	}
	if err != nil {
		return nil, err
	}
	return &consumeResult{consumeFigures: *figuresOf(got), BrokerCPU: (b.CPU() - before).Seconds()}, nil
}

// starts is P7: from the start of a process to the first acknowledgement, and
// what memory it keeps when nothing happens.
func (c *comparison) starts(ctx context.Context) error {
	const start, rss, idle = "start to first acknowledgement (ms)", "resident memory when idle (MiB)", "processor when idle (% of a core)"
	name := "one topic, one record, acks=all (appended)"
	ack, mem := report.Series{Goal: "P7", Case: name, Metric: start, Ours: sideOurs, Lower: true}, report.Series{Goal: "P7", Case: name, Metric: rss, Ours: sideOurs, Lower: true}
	rest := report.Series{Goal: "P7", Case: name, Metric: idle, Ours: sideOurs, Lower: true}
	fresh := map[string]*peer.Broker{}
	targets := map[string]load.Target{}
	for _, side := range []string{sideOurs, sideKafka} {
		b, _, err := c.make(ctx, side, side+"-start")
		if err != nil {
			return err
		}
		defer b.Kill()
		fresh[side] = b
		if err := b.Start(ctx); err != nil {
			return err
		}
		t, err := openTarget(ctx, b.Addr, "start", 1, produceVersion, nil)
		if err != nil {
			return err
		}
		targets[side] = t.targets[0]
		t.cl.Close()
		b.Stop()
	}
	for i := range c.o.pairs {
		m := metrics{}
		for _, side := range order([]string{sideOurs, sideKafka}, i) {
			took, err := firstAck(ctx, fresh[side], targets[side])
			if err != nil {
				return err
			}
			m.set(start, side, took.Seconds()*1000)
			cpu, err := idleCPU(ctx, fresh[side])
			if err != nil {
				return err
			}
			m.set(idle, side, cpu)
			m.set(rss, side, float64(fresh[side].RSS())/(1<<20))
			fresh[side].Stop()
		}
		ack.Rounds, mem.Rounds = append(ack.Rounds, m[start]), append(mem.Rounds, m[rss])
		rest.Rounds = append(rest.Rounds, m[idle])
		c.p.Note("P7 round %d: ms %s; MiB %s; %% %s", i+1, report.Sides(m[start]), report.Sides(m[rss]), report.Sides(m[idle]))
	}
	c.add(ack, sideKafka)
	c.add(mem, sideKafka)
	c.add(rest, sideKafka)
	ack.Bound, mem.Bound = 150, 64
	c.add(ack, "")
	c.add(mem, "")
	return nil
}

// idleCPU rests and says how much of a core, in percent, the broker took in the
// second half of it.
func idleCPU(ctx context.Context, b *peer.Broker) (float64, error) {
	var at [2]time.Duration
	for i := range at {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(idleFor / 2):
		}
		at[i] = b.CPU()
	}
	return 100 * (at[1] - at[0]).Seconds() / (idleFor / 2).Seconds(), nil
}

// firstAck starts a broker and asks it to take a record until it does.
func firstAck(ctx context.Context, b *peer.Broker, t load.Target) (time.Duration, error) {
	batch := load.OneRecord(100)
	begin := time.Now()
	if err := b.Spawn(); err != nil {
		return 0, err
	}
	for time.Since(begin) < startTimeout && ctx.Err() == nil {
		if tryAck(b.Addr, t, batch) {
			return time.Since(begin), nil
		}
		time.Sleep(startPoll)
	}
	return 0, errors.Join(ctx.Err(), fmt.Errorf("%s took no record in %v", b.Name, startTimeout))
}

func tryAck(addr string, t load.Target, batch []byte) bool {
	c, err := load.DialVersion(addr, produceVersion)
	if err != nil {
		return false
	}
	defer c.Close()
	if c.Deadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	a, err := c.Produce(t, -1, time.Second, batch)
	return err == nil && a.Err == 0
}
