package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lockstep/internal/wire"
)

// FetchVersion is the version of Fetch that is spoken unless told otherwise:
// one that names topics by id, and is in every broker that does.
const FetchVersion = 13

// Span is a part of a partition: offsets from Begin to before End.
type Span struct {
	Target
	Begin, End int64
}

// ConsumeOptions of a run that reads.
type ConsumeOptions struct {
	Addr        string
	Spans       []Span // dealt out over the connections; one connection has one fetch under way
	Connections int
	Version     int16 // of Fetch, from 4 to 20; 0 = FetchVersion
	MaxBytes    int   // of an answer
	Follow      bool  // goes on after End until ctx ends, and waits for more

	// Again reads everything again and again, WarmUp and so long; what is counted
	// is the requests after the warm-up. 0 = once.
	Again, WarmUp time.Duration
	Mark          func() // with Again: called when the count begins and when it ends; may be nil
}

// Consumed is the result.
type Consumed struct {
	Latency    *hdrhistogram.Histogram // microseconds from a fetch to its answer
	Records    int64
	Bytes      int64 // of batches, headers included
	Requests   int64
	FirstError error
	Elapsed    time.Duration
}

// MBPerS is 10^6 bytes of batches per second.
func (c *Consumed) MBPerS() float64 { return float64(c.Bytes) / 1e6 / c.Elapsed.Seconds() }

// Consume reads all spans, each to its end.
func Consume(ctx context.Context, o ConsumeOptions) (*Consumed, error) {
	if o.Version == 0 {
		o.Version = FetchVersion
	}
	if len(o.Spans) == 0 || o.Connections <= 0 || o.MaxBytes <= 0 {
		return nil, errors.New("load: nothing to read")
	}
	readers := make([]*reader, min(o.Connections, len(o.Spans)))
	for i := range readers {
		conn, err := Dial(o.Addr)
		if err != nil {
			for _, r := range readers[:i] {
				r.conn.Close()
			}
			return nil, err
		}
		readers[i] = &reader{o: o, conn: conn, hist: hdrhistogram.New(1, highest, digits)}
	}
	for i, s := range o.Spans {
		r := readers[i%len(readers)]
		r.spans, r.begins = append(r.spans, s), append(r.begins, s.Begin)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, r := range readers {
		r.counted, r.end = start.Add(o.WarmUp), start.Add(o.WarmUp+o.Again)
		wg.Go(func() {
			defer r.conn.Close()
			stop := context.AfterFunc(ctx, func() { r.conn.Close() })
			defer stop()
			if r.err = r.run(); ctx.Err() != nil && o.Follow {
				r.err = nil // the end that was asked for
			}
		})
	}
	if o.Again > 0 {
		mark(ctx, start, Options{WarmUp: o.WarmUp, Duration: o.Again, Mark: o.Mark})
	}
	wg.Wait()
	return consumed(readers, time.Since(start)-o.WarmUp), nil
}

func consumed(readers []*reader, elapsed time.Duration) *Consumed {
	out := &Consumed{Latency: hdrhistogram.New(1, highest, digits), Elapsed: elapsed}
	for _, r := range readers {
		out.Latency.Merge(r.hist)
		out.Records += r.records
		out.Bytes += r.bytes
		out.Requests += r.requests
		if out.FirstError == nil {
			out.FirstError = r.err
		}
	}
	return out
}

// reader is one connection.
type reader struct {
	o                        ConsumeOptions
	conn                     *Conn
	spans                    []Span
	targets                  []wire.FetchTarget
	begins                   []int64 // of spans
	hist                     *hdrhistogram.Histogram
	counted, end             time.Time
	records, bytes, requests int64
	err                      error
}

// run fetches until every span is at its end. No session is used: each request
// names all that is still open.
func (r *reader) run() error {
	for {
		r.targets = r.targets[:0]
		for _, s := range r.spans {
			if s.Begin < s.End || r.o.Follow {
				r.targets = append(r.targets, wire.FetchTarget{Topic: s.Topic, TopicID: s.ID, Partition: s.Partition, CurrentLeaderEpoch: -1,
					FetchOffset: s.Begin, LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: int32(r.o.MaxBytes), HighWatermark: -1})
			}
		}
		begin := time.Now()
		switch again := begin.Before(r.end); {
		case len(r.targets) == 0 && again:
			for i := range r.spans {
				r.spans[i].Begin = r.begins[i]
			}
			continue
		case len(r.targets) == 0, r.o.Again > 0 && !again:
			return nil
		}
		if err := r.conn.Deadline(begin.Add(drain)); err != nil {
			return err
		}
		body, err := r.conn.Fetch(r.o.Version, r.o.MaxBytes, r.targets)
		if err != nil {
			return err
		}
		took := time.Since(begin)
		if err := r.take(body); err != nil {
			return err
		}
		if begin.Before(r.counted) {
			r.records, r.bytes = 0, 0
			continue
		}
		_ = r.hist.RecordValue(min(max(took.Microseconds(), 1), highest))
		r.requests++
	}
}

// Fetch asks for targets and returns the answer's body, valid until the next
// request.
func (c *Conn) Fetch(version int16, maxBytes int, targets []wire.FetchTarget) ([]byte, error) {
	p := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: fetchWait, MinBytes: 1, MaxBytes: int32(maxBytes), SessionEpoch: -1}
	c.out = wire.BeginRequest(c.out[:0], wire.KeyFetch, version, 0, clientID)
	c.out = wire.AppendFetchRequest(c.out, version, &p, targets, nil)
	wire.EndRequest(c.out, 0)
	if err := c.write(c.out); err != nil {
		return nil, err
	}
	return c.body(wire.KeyFetch, version)
}

// take moves the spans on by what has come.
func (r *reader) take(body []byte) error {
	var resp wire.FetchResponse
	if err := resp.Parse(r.o.Version, body); err != nil {
		return err
	}
	if resp.Err != wire.ErrNone {
		return errors.New(resp.Err.Name())
	}
	for it := resp.Partitions(); it.Next(); {
		if it.Err != wire.ErrNone {
			return fmt.Errorf("partition %d: %s", it.Partition, it.Err.Name())
		}
		for i := range r.spans {
			if s := &r.spans[i]; s.Partition == it.Partition && s.ID == it.TopicID() {
				r.batches(s, it.Records)
			}
		}
	}
	return nil
}

// batches counts whole batches; a fetch may end within one.
func (r *reader) batches(s *Span, b []byte) {
	for len(b) >= wire.BatchHeaderSize {
		batch := wire.Batch(b)
		n := batch.Size()
		if n < wire.BatchHeaderSize || n > len(b) {
			return
		}
		if next := batch.NextOffset(); next > s.Begin {
			r.records += min(next-s.Begin, int64(batch.RecordCount()))
			r.bytes += int64(n)
			s.Begin = next
		}
		b = b[n:]
	}
}
