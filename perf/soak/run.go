package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"lockstep/internal/testcluster"
	"lockstep/perf/report"
)

// Options of a run.
type Options struct {
	Binary                  string // the lockstep program
	Dir                     string // parent of the data; empty = the system's
	RTT                     time.Duration
	WarmUp, Duration, Every time.Duration
	Fill                    bool                 // makes bounded memory resident first
	OwnCPU                  func() time.Duration // of this process: load and line
	Note                    func(format string, args ...any)
	Leak                    func(n int, figures map[string]float64) // for tests: changes what the n-th sample saw
}

// run is a pair of clusters and what is done to it.
type run struct {
	c       *testcluster.Cluster
	tally   *tally
	pending sync.WaitGroup
}

// mirrored topics, by what they are mirrored as.
var mirrored = []testcluster.Topic{{Name: orders, Mirror: "soak-" + orders, Partitions: 4, Sync: true}, {Name: clicks, Mirror: "soak-" + clicks, Partitions: 2}}

// Run starts the clusters, loads them and judges what they took. It fills what it
// knows; a run that could not be judged is an error, one that is red is not.
func Run(ctx context.Context, o Options) (*report.Soak, error) {
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: o.Binary, Dir: o.Dir, RTT: o.RTT, LogLevel: "warn", Overrides: settings})
	if err != nil {
		return nil, err
	}
	x := &run{c: c, tally: newTally()}
	s, err := x.run(ctx, o)
	return s, errors.Join(err, c.Close())
}

func (x *run) run(ctx context.Context, o Options) (*report.Soak, error) {
	if err := x.prepare(ctx); err != nil {
		return nil, err
	}
	s := &report.Soak{Engine: x.c.Source.Engine(ctx), RTTMs: float64(o.RTT) / float64(time.Millisecond), WarmUpS: o.WarmUp.Seconds(), Seconds: o.Duration.Seconds(), EveryS: o.Every.Seconds()}
	if o.Fill {
		for _, b := range []*testcluster.Broker{x.c.Source, x.c.Destination} {
			if err := x.fill(ctx, b); err != nil {
				return nil, err
			}
		}
	}
	load, stop := context.WithCancel(ctx)
	defer func() { stop(); x.pending.Wait() }()
	x.load(load)
	o.Note("loaded; the warm-up lasts %v", o.WarmUp)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(o.WarmUp):
	}
	own := o.OwnCPU()
	look := &sampler{every: o.Every, brokers: []*testcluster.Broker{x.c.Source, x.c.Destination}, leak: o.Leak, note: o.Note}
	var err error
	if s.Brokers, err = look.run(ctx, o.Duration); err != nil {
		return nil, err
	}
	s.LoadCPU = (o.OwnCPU() - own).Seconds()
	stop()
	x.pending.Wait()
	s.Did, s.Errors = x.tally.did, append(x.tally.errors(), x.after(ctx)...)
	slices.Sort(s.Errors)
	return s, nil
}

// prepare makes the lasting topics and waits for their mirrors.
func (x *run) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	src, _, err := x.c.Source.Session(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	if _, err := src.Admin.CreateTopic(ctx, 2, 1, nil, local); err != nil {
		return err
	}
	for _, t := range mirrored {
		if _, err := x.c.Add(ctx, t); err != nil {
			return err
		}
		if err := x.c.Await(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// load starts the actors.
func (x *run) load(ctx context.Context) {
	for i, w := range writers() {
		x.pending.Go(func() { x.write(ctx, w, uint64(i)) })
	}
	x.pending.Go(func() { x.follow(ctx, x.c.Source.Addr, orders, clicks, local) })
	x.pending.Go(func() { x.follow(ctx, x.c.Destination.Addr, orders, clicks) })
	do := func(what string, pause time.Duration, f func(b *testcluster.Broker, n int) error) {
		x.pending.Go(func() {
			every(ctx, pause, func(n int) {
				b := x.c.Source
				if n%2 == 1 {
					b = x.c.Destination
				}
				x.tally.end(ctx, what, f(b, n))
			})
		})
	}
	do("topics made and deleted", topicEvery, func(b *testcluster.Broker, n int) error { return x.shortLived(ctx, b, n) })
	do("triples of connections", connectEvery, func(b *testcluster.Broker, _ int) error { return x.connections(ctx, b.Addr) })
	do("rounds of questions", askEvery, func(b *testcluster.Broker, _ int) error { return x.ask(ctx, b) })
	do("fresh producers", freshEvery, func(*testcluster.Broker, int) error { return x.fresh(ctx, x.c.Source.Addr, orders) })
	do("readings from the beginning", rereadEvery, func(b *testcluster.Broker, _ int) error { return x.reread(ctx, b.Addr, orders) })
	kinds := []string{"coordinator", "coordinator", "promotion", "promotion", "release", "release"} // each at both
	do("swaps", swapEvery, func(b *testcluster.Broker, n int) error { return x.swap(ctx, b, kinds[n%len(kinds)]) })
}

// after holds the destination to what the source has, once nothing is written.
func (x *run) after(ctx context.Context) (wrong []string) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	for _, t := range mirrored {
		if err := x.c.Await(ctx, t); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	var last error
	for ctx.Err() == nil {
		if last = x.level(ctx); last == nil {
			return wrong
		}
		time.Sleep(100 * time.Millisecond)
	}
	return append(wrong, last.Error())
}

func (x *run) level(ctx context.Context) error {
	var ends [2]kadm.ListedOffsets
	for i, b := range []*testcluster.Broker{x.c.Source, x.c.Destination} {
		s, _, err := b.Session(ctx)
		if err != nil {
			return err
		}
		ends[i], err = s.Admin.ListEndOffsets(ctx, orders, clicks)
		s.Close()
		if err = errors.Join(err, ends[i].Error()); err != nil {
			return err
		}
	}
	var wrong error
	ends[0].Each(func(o kadm.ListedOffset) {
		if d, _ := ends[1].Lookup(o.Topic, o.Partition); d.Offset != o.Offset {
			wrong = fmt.Errorf("%s-%d ends at %d, at the destination at %d", o.Topic, o.Partition, o.Offset, d.Offset)
		}
	})
	return wrong
}
