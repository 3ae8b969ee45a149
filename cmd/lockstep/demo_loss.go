package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
	"lockstep/internal/wire"
	"lockstep/perf/load"
)

// numbers lists 0 to n-1.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// begin opens the producer and sends the first records one at a time.
func (d *demo) begin(ctx context.Context) (*kgo.Client, []int, error) {
	cl, err := demoProducer(d.c.Source.Addr)
	if err != nil {
		return nil, nil, err
	}
	all := numbers(d.o.records)
	if err := d.led.one(ctx, cl, all[:demoSingles]); err != nil {
		cl.Close()
		return nil, nil, err
	}
	d.step("one record in flight: acknowledged in %.2f ms (p50)", ms(d.led.singleP50()))
	if d.o.async { // else the control could show a mirror that had not begun
		if err := d.caughtUp(ctx); err != nil {
			cl.Close()
			return nil, nil, err
		}
		d.step("the destination has these %d records", demoSingles)
	}
	return cl, all[demoSingles:], nil
}

// loseSource is the main job: the source dies and the line is cut at half.
func (d *demo) loseSource(ctx context.Context) error {
	cl, list, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	stop := make(chan struct{})
	killed := make(chan string, 1)
	swapped := make(chan error, 1)
	go func() { swapped <- d.swap(ctx) }()
	// Answers come in bursts a round trip apart; anywhere between two of them
	// is a moment to die in. ASYNC answers do not wait for the line.
	wait := time.Duration(0)
	if !d.o.async {
		wait = time.Duration(rand.New(rand.NewPCG(d.o.seed, 0)).Int64N(int64(d.o.rtt) + 1))
	}
	go func() {
		bad := <-swapped
		if bad == nil {
			select {
			case <-d.led.half:
				time.Sleep(wait)
			case <-ctx.Done():
			}
		}
		d.c.Source.Signal(syscall.SIGKILL)
		for _, s := range d.c.Sites() {
			s.Link.Cut()
		}
		swapped <- bad
		killed <- fmt.Sprintf("source killed and line cut: %d acknowledged, %d in flight", d.led.ackedCount(), d.led.inFlight())
		close(stop)
	}()
	err = d.led.produce(ctx, cl, list, stop, d.out)
	text := <-killed
	d.c.Source.Kill() // waits for its end
	d.step("%s", text)
	if !errors.Is(err, errCut) || ctx.Err() != nil {
		return errors.Join(errors.New("the kill did not fall into the run"), err, ctx.Err())
	}
	if err := <-swapped; err != nil {
		return fmt.Errorf("swapping the promotion plugin: %w", err)
	}
	_ = d.led.failure() // what was in flight has failed, as it should
	n, err := d.furthest(ctx)
	if err != nil {
		return err
	}
	to := d.c.Sites()[n]
	if err := d.failOver(ctx, to, testcluster.MirrorName(demoMirror, n)); err != nil {
		return err
	}
	return d.finish(ctx, to.Broker)
}

// furthest is the destination that is furthest ahead, by the last epoch of the
// source that its log follows, then by the end of its log.
func (d *demo) furthest(ctx context.Context) (best int, err error) {
	sites := d.c.Sites()
	if len(sites) == 1 {
		return 0, nil
	}
	var most [2]int64
	for n, s := range sites {
		dst, m, err := s.Session(ctx)
		if err != nil {
			return 0, err
		}
		got, err := m.S.Mirrors.DescribeMirrors(ctx, testcluster.MirrorName(demoMirror, n))
		dst.Close()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		var has [2]int64
		for _, x := range got.Mirrors {
			for _, t := range x.Topics {
				for _, p := range t.Partitions {
					has[0], has[1] = has[0]+int64(p.LastSourceEpoch), has[1]+p.DestinationOffset
				}
			}
		}
		d.step("%s holds %d records of %s", s.Name, has[1], demoTopic)
		if n == 0 || slices.Compare(has[:], most[:]) > 0 {
			best, most = n, has
		}
	}
	d.step("%s is furthest ahead: it takes over", sites[best].Name)
	return best, nil
}

// failOver stops the mirror at a site and waits for STOPPED.
func (d *demo) failOver(ctx context.Context, to testcluster.Site, mirror string) error {
	dst, m, err := to.Session(ctx)
	if err != nil {
		return err
	}
	defer dst.Close()
	all, err := cli.ParsePatterns(demoTopic)
	if err != nil {
		return err
	}
	if err := m.Stop(ctx, mirror, all, stopWait); err != nil {
		return err
	}
	d.step("failed over: all %d partitions are STOPPED and writable at %s", demoPartitions, to.Name)
	return nil
}

// finish writes what is not acknowledged to b and compares it all.
func (d *demo) finish(ctx context.Context, b *testcluster.Broker) error {
	rest := d.led.missing()
	cl, err := demoProducer(b.Addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	before := d.led.ackedCount()
	if err := d.led.produce(ctx, cl, rest, nil, d.out); err != nil {
		return fmt.Errorf("writing the rest to %s: %w", b.Name, err)
	}
	d.step("the other %d records are written to %s; none of the %d acknowledged ones was sent again", len(rest), b.Name, before)
	return d.compare(ctx, b)
}

// compare reads a cluster to its end and judges it.
func (d *demo) compare(ctx context.Context, b *testcluster.Broker) error {
	f, err := d.readBack(ctx, b)
	if err != nil {
		return fmt.Errorf("reading the %s: %w", b.Name, err)
	}
	d.found = append(d.found, f)
	d.step("%s read to its end: %d records, %d duplicates of records that were in flight, lost %d, corrupted %d, out of order %d",
		b.Name, f.records, f.duplicates, f.lost, f.corrupted, f.outOfOrder)
	return nil
}

// loseNothing writes everything and compares both sides.
func (d *demo) loseNothing(ctx context.Context) error {
	cl, list, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := d.led.produce(ctx, cl, list, nil, d.out); err != nil {
		return err
	}
	d.step("all %d records are acknowledged", d.led.ackedCount())
	return d.compareBoth(ctx)
}

// compareBoth waits for the destination to have everything and compares.
func (d *demo) compareBoth(ctx context.Context) error {
	if err := d.caughtUp(ctx); err != nil {
		return err
	}
	if err := d.compare(ctx, d.c.Source); err != nil {
		return err
	}
	return d.compare(ctx, d.c.Destination)
}

// caughtUp waits until both clusters show the same ends to consumers.
func (d *demo) caughtUp(ctx context.Context) error {
	src, _, err := d.c.Source.Session(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, _, err := d.c.Destination.Session(ctx)
	if err != nil {
		return err
	}
	defer dst.Close()
	for {
		want, err := ends(ctx, src)
		if err != nil {
			return err
		}
		got, err := ends(ctx, dst)
		if err != nil {
			return err
		}
		if want == got {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the destination shows ends %v, the source %v: %w", got, want, ctx.Err())
		}
	}
}

// ends are the ends of the partitions that a consumer sees.
func ends(ctx context.Context, s *cli.Session) (out [demoPartitions]int64, err error) {
	list, err := s.Admin.ListEndOffsets(ctx, demoTopic)
	if err != nil {
		return out, err
	}
	for i := range out {
		o, ok := list.Lookup(demoTopic, int32(i))
		if !ok || o.Err != nil {
			return out, errors.Join(fmt.Errorf("no end offset of %s-%d", demoTopic, i), o.Err)
		}
		out[i] = o.Offset
	}
	return out, nil
}

// loseDestination kills the destination at half: acknowledgements must stop,
// and go on when it is back and in step.
func (d *demo) loseDestination(ctx context.Context) error {
	cl, list, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { result <- d.led.produce(ctx, cl, list, nil, d.out) }()
	select {
	case <-d.led.half:
	case err := <-result:
		return errors.Join(errors.New("the kill did not fall into the run"), err)
	}
	err = d.outage(ctx)
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-result); err != nil {
		return err
	}
	d.step("all %d records are acknowledged", d.led.ackedCount())
	return d.compareBoth(ctx)
}

func (d *demo) outage(ctx context.Context) error {
	d.c.Destination.Kill()
	time.Sleep(2 * d.o.rtt) // answers that were under way
	before := d.led.ackedCount()
	d.step("destination killed: %d acknowledged, %d in flight", before, d.led.inFlight())
	if err := d.mustFail(ctx); err != nil {
		return err
	}
	if n := d.led.ackedCount(); n != before {
		return fmt.Errorf("%d records were acknowledged without the destination", n-before)
	}
	if err := d.c.Destination.Start(ctx); err != nil {
		return err
	}
	if err := d.c.Await(ctx, testcluster.Topic{Name: demoTopic, Mirror: demoMirror, Sync: true}); err != nil {
		return err
	}
	d.step("destination is back, SYNC in effect")
	return nil
}

// mustFail sends one record that has to fail for want of the destination. It
// speaks Produce 14, where the reason has a code of its own.
func (d *demo) mustFail(ctx context.Context) error {
	conn, err := load.Dial(d.c.Source.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.Deadline(end); err != nil {
			return err
		}
	}
	batch := wire.BuildBatch(nil, wire.PlainParams(time.Now().UnixMilli()), wire.Record{Value: []byte("a record that is never acknowledged")})
	a, err := conn.Produce(load.Target{ID: d.id}, -1, time.Second, batch)
	switch {
	case err != nil:
		return err
	case a.Err == wire.ErrNone:
		return errors.New("a record was acknowledged without the destination")
	}
	d.step("a write now fails: %s: %s", a.Err.Name(), a.Message)
	return nil
}
