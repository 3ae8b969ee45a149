package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/wanlink"
)

// RunKgo does what Run does through a client library, which makes the batches
// itself: of Options it uses Addr, Targets (of one topic), RecordSize, Rate or
// InFlight (then as many records per partition are under way as fit in InFlight
// batches), Batch, Linger, WarmUp, Duration, Acks, Timeout, Seed and Mark.
func RunKgo(ctx context.Context, o Options) (*Result, error) {
	if o.Connections = 1; o.OneInFlight {
		return nil, errors.New("load: one record in flight is for our own codec")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	acks := kgo.AllISRAcks()
	if o.Acks == 1 {
		acks = kgo.LeaderAck()
	}
	batch := max(o.Batch, 1)
	opts := []kgo.Opt{kgo.SeedBrokers(o.Addr), kgo.ClientID(clientID), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(o.Linger),
		kgo.ProducerBatchMaxBytes(int32(max(1<<20, 2*o.RecordSize))), kgo.ProduceRequestTimeout(o.Timeout), kgo.DefaultProduceTopic(o.Targets[0].Topic)}
	if o.InFlight > 0 {
		opts = append(opts, kgo.MaxBufferedRecords(o.InFlight*batch*len(o.Targets)))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	k := &kgoRun{o: o, cl: cl, res: &Result{Latency: hdrhistogram.New(1, highest, digits)}, start: time.Now()}
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		mark(ctx, k.start, o)
	}()
	if err := k.send(ctx); err != nil {
		return nil, err
	}
	flush, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	err = cl.Flush(flush)
	<-marked
	k.res.Elapsed = o.Duration
	return k.res, err
}

type kgoRun struct {
	o     Options
	cl    *kgo.Client
	start time.Time

	mu  sync.Mutex
	res *Result
}

func (k *kgoRun) send(ctx context.Context) error {
	alarm, err := wanlink.NewAlarm()
	if err != nil {
		return err
	}
	defer alarm.Close()
	value := make([]byte, k.o.RecordSize)
	r := rand.New(rand.NewPCG(k.o.Seed, 0))
	for i := range value {
		value[i] = byte(r.Uint32())
	}
	end := k.start.Add(k.o.WarmUp + k.o.Duration)
	for n := 0; ctx.Err() == nil; n++ {
		due := time.Now()
		if k.o.InFlight == 0 {
			due = k.start.Add(time.Duration(float64(n) * float64(k.o.RecordSize) / k.o.Rate * float64(time.Second)))
			if !due.Before(end) || !alarm.Until(due) {
				return nil
			}
		} else if !due.Before(end) {
			return nil
		}
		t := k.o.Targets[n%len(k.o.Targets)]
		k.cl.Produce(ctx, &kgo.Record{Value: value, Partition: t.Partition}, func(_ *kgo.Record, err error) { k.answered(due, err) })
	}
	return nil
}

// answered counts by when a record was due in an open loop, by when its answer
// came in a closed one.
func (k *kgoRun) answered(due time.Time, err error) {
	now := time.Now()
	counted := k.start.Add(k.o.WarmUp)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil:
		k.res.Errors++
		if k.res.FirstError == nil {
			k.res.FirstError = err
		}
	case k.o.InFlight == 0 && !due.Before(counted), k.o.InFlight > 0 && !now.Before(counted) && now.Before(counted.Add(k.o.Duration)):
		_ = k.res.Latency.RecordValue(min(max(now.Sub(due).Microseconds(), 1), highest))
		k.res.Records++
	}
}
