package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lockstep/internal/wanlink"
	"lockstep/internal/wire"
)

// Options of a run.
type Options struct {
	Addr        string
	Targets     []Target // connections are dealt out over them
	Connections int
	Version     int16         // of Produce, from 3 to 14; 0 = Version
	RecordSize  int           // bytes of a value
	Rate        float64       // bytes of values per second, over all connections
	Batch       int           // records of a request, all due at one moment; 0 = what is due, every Linger
	InFlight    int           // closed loop with so many requests under way per connection; Rate is not used
	Bytes       int64         // with InFlight: the run ends when so many bytes of values were sent; 0 = no bound
	OneInFlight bool          // closed loop on one connection; Rate is not used
	Linger      time.Duration // least time between two requests of a connection
	WarmUp      time.Duration // not counted
	Duration    time.Duration // counted
	Acks        int16
	Timeout     time.Duration // of a request, at the broker
	Seed        uint64        // of the values' bytes
	Mark        func()        // called when the count begins and again when it ends; may be nil
}

// Result of a run.
type Result struct {
	Latency    *hdrhistogram.Histogram // microseconds, of acknowledged records
	Records    int64                   // acknowledged and counted
	Requests   int64                   // likewise
	Errors     int64                   // records that were refused or got no answer
	FirstError error
	Elapsed    time.Duration // of what is counted
}

// Ms is a percentile of the latency in milliseconds.
func (r *Result) Ms(percentile float64) float64 {
	return float64(r.Latency.ValueAtPercentile(percentile)) / 1000
}

// Run writes until the time is over or ctx ends, and waits for all answers.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	workers := make([]*worker, o.Connections)
	for i := range workers {
		w, err := newWorker(o, i)
		if err != nil {
			for _, w := range workers[:i] {
				w.close()
			}
			return nil, err
		}
		workers[i] = w
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer w.close()
			w.run(ctx, start)
		}()
	}
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		mark(ctx, start, o)
	}()
	wg.Wait()
	<-marked
	return total(o, workers, start), nil
}

// check fills in what is left open.
func (o *Options) check() error {
	if o.Version == 0 {
		o.Version = Version
	}
	if o.OneInFlight {
		o.Connections = 1
	}
	switch {
	case len(o.Targets) == 0 || o.RecordSize <= 0 || o.Duration <= 0 || o.Batch < 0:
		return errors.New("load: nothing to do")
	case o.InFlight < 0 || o.InFlight > maxInFlight:
		return fmt.Errorf("load: from 1 to %d requests under way", maxInFlight)
	case !o.OneInFlight && (o.Rate <= 0 && o.InFlight == 0 || o.Connections <= 0):
		return errors.New("load: no rate or no connections")
	}
	if o.InFlight > 0 {
		o.Batch = max(o.Batch, 1)
	}
	return nil
}

// mark calls Mark at both ends of what is counted.
func mark(ctx context.Context, start time.Time, o Options) {
	if o.Mark == nil {
		return
	}
	for _, at := range []time.Duration{o.WarmUp, o.WarmUp + o.Duration} {
		t := time.NewTimer(time.Until(start.Add(at)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		o.Mark()
	}
}

func total(o Options, workers []*worker, start time.Time) *Result {
	r := &Result{Latency: hdrhistogram.New(1, highest, digits)}
	last := start
	for _, w := range workers {
		r.Latency.Merge(w.hist)
		r.Records += w.records
		r.Requests += w.requests
		r.Errors += w.errors
		if r.FirstError == nil {
			r.FirstError = w.first
		}
		if w.last.After(last) {
			last = w.last
		}
	}
	r.Elapsed = max(last.Sub(start.Add(o.WarmUp)), time.Nanosecond)
	if o.InFlight > 0 {
		r.Elapsed = o.Duration // what was answered in it is what is counted
	}
	return r
}

// pending is a request under way.
type pending struct {
	due   time.Time // of its first record
	count int
}

// worker is one connection.
type worker struct {
	o      Options
	conn   *Conn
	target Target
	alarm  *wanlink.Alarm
	every  time.Duration // between two records of this connection
	offset time.Duration // of its first record
	values []byte        // random bytes that values are cut from
	batch  []byte
	recs   []wire.Record
	queue  chan pending

	hist     *hdrhistogram.Histogram
	records  int64
	requests int64
	errors   int64
	first    error
	last     time.Time
}

func newWorker(o Options, i int) (*worker, error) {
	conn, err := DialVersion(o.Addr, o.Version)
	if err != nil {
		return nil, err
	}
	alarm, err := wanlink.NewAlarm()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w := &worker{o: o, conn: conn, alarm: alarm, target: o.Targets[i%len(o.Targets)], queue: make(chan pending, maxPending),
		hist: hdrhistogram.New(1, highest, digits), values: make([]byte, 64<<10+o.RecordSize)}
	if !o.OneInFlight && o.InFlight == 0 {
		gap := time.Duration(float64(o.RecordSize) / o.Rate * float64(time.Second))
		w.every, w.offset = gap*time.Duration(o.Connections), gap*time.Duration(i*max(1, o.Batch))
	}
	r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
	for k := range w.values {
		w.values[k] = byte(r.Uint32())
	}
	return w, nil
}

func (w *worker) close() {
	w.conn.Close()
	w.alarm.Close()
}

func (w *worker) run(ctx context.Context, start time.Time) {
	stop := context.AfterFunc(ctx, func() { w.conn.Close() })
	defer stop()
	if err := w.conn.Deadline(start.Add(w.o.WarmUp + w.o.Duration + drain)); err != nil {
		w.fail(err, 1)
		return
	}
	switch {
	case w.o.OneInFlight:
		w.closed(ctx, start)
		return
	case w.o.InFlight > 0:
		w.saturate(ctx, start)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.receive(start)
	}()
	send := w.send
	if w.o.Batch > 0 {
		send = w.sendBatches
	}
	if err := send(ctx, start); err != nil {
		w.conn.Close() // the receiver counts what is under way
	}
	close(w.queue)
	<-done
}

// build makes a batch of n records.
func (w *worker) build(n int, now time.Time) []byte {
	w.recs = w.recs[:0]
	for i := range n {
		at := (i * 61) % (64 << 10)
		w.recs = append(w.recs, wire.Record{Value: w.values[at : at+w.o.RecordSize]})
	}
	w.batch = wire.BuildBatch(w.batch[:0], wire.PlainParams(now.UnixMilli()), w.recs...)
	return w.batch
}

// send keeps to the schedule.
func (w *worker) send(ctx context.Context, start time.Time) error {
	most := max(1, maxBatchBytes/w.o.RecordSize)
	end := start.Add(w.o.WarmUp + w.o.Duration)
	next := start.Add(w.offset)
	earliest := start
	for next.Before(end) && ctx.Err() == nil {
		wake := next
		if earliest.After(wake) {
			wake = earliest
		}
		if !w.alarm.Until(wake) {
			return errors.New("the alarm is closed")
		}
		now := time.Now()
		left := int((end.Sub(next)-1)/w.every) + 1 // due before the end, however late we are
		n := min(int(now.Sub(next)/w.every)+1, left, most)
		select {
		case w.queue <- pending{next, n}:
		default:
			return errors.New("the broker does not answer")
		}
		if err := w.conn.Send(w.target, w.o.Acks, w.o.Timeout, w.build(n, now)); err != nil {
			return err
		}
		next = next.Add(time.Duration(n) * w.every)
		earliest = now.Add(w.o.Linger)
	}
	return nil
}

// receive takes answers in the order of the requests.
func (w *worker) receive(start time.Time) {
	counted := start.Add(w.o.WarmUp)
	for p := range w.queue {
		a, err := w.conn.Receive()
		now := time.Now()
		if err == nil && a.Err != wire.ErrNone {
			err = refusal(a)
			w.fail(err, p.count)
			continue
		}
		if err != nil {
			w.fail(err, p.count)
			for p := range w.queue {
				w.fail(err, p.count)
			}
			return
		}
		every := w.every
		if w.o.Batch > 0 {
			every = 0
		}
		if !p.due.Before(counted) {
			w.requests++
		}
		for i := range p.count {
			if due := p.due.Add(time.Duration(i) * every); !due.Before(counted) {
				w.record(now.Sub(due), now)
			}
		}
	}
}

func refusal(a Answer) error {
	if a.Message != "" {
		return fmt.Errorf("%s: %s", a.Err.Name(), a.Message)
	}
	return errors.New(a.Err.Name())
}

func (w *worker) fail(err error, n int) {
	w.errors += int64(n)
	if w.first == nil {
		w.first = err
	}
}

func (w *worker) record(d time.Duration, now time.Time) {
	// Out of range cannot be: requests time out long before.
	_ = w.hist.RecordValue(min(max(d.Microseconds(), 1), highest))
	w.records++
	w.last = now
}

// closed has one record under way.
func (w *worker) closed(ctx context.Context, start time.Time) {
	counted := start.Add(w.o.WarmUp)
	end := counted.Add(w.o.Duration)
	for ctx.Err() == nil {
		begin := time.Now()
		if !begin.Before(end) {
			return
		}
		a, err := w.conn.Produce(w.target, w.o.Acks, w.o.Timeout, w.build(1, begin))
		now := time.Now()
		switch {
		case err != nil:
			w.fail(err, 1)
			return
		case a.Err != wire.ErrNone:
			w.fail(refusal(a), 1)
		case !begin.Before(counted):
			w.requests++
			w.record(now.Sub(begin), now)
		}
	}
}
