package load

import (
	"context"
	"errors"
	"math"
	"time"

	"lockstep/internal/wire"
)

// request is the one request of a fixed size that a worker sends again and
// again: building a batch and its checksum each time would be paid by the same
// machine that runs the broker.
func (w *worker) request(now time.Time) []byte {
	batch := w.build(w.o.Batch, now)
	return produceRequest(nil, w.o.Version, w.target, w.o.Acks, w.o.Timeout, batch)
}

// sendBatches keeps to the schedule with requests of a fixed size, however late
// it is.
func (w *worker) sendBatches(ctx context.Context, start time.Time) error {
	request := w.request(start)
	every := w.every * time.Duration(w.o.Batch)
	end := start.Add(w.o.WarmUp + w.o.Duration)
	for next := start.Add(w.offset); next.Before(end) && ctx.Err() == nil; next = next.Add(every) {
		if !w.alarm.Until(next) {
			return errors.New("the alarm is closed")
		}
		select {
		case w.queue <- pending{next, w.o.Batch}:
		default:
			return errors.New("the broker does not answer")
		}
		if err := w.conn.write(request); err != nil {
			return err
		}
	}
	return nil
}

// saturate keeps InFlight requests under way. What is answered between the end
// of the warm-up and the end of the run counts.
func (w *worker) saturate(ctx context.Context, start time.Time) {
	request := w.request(start)
	sent := make([]time.Time, w.o.InFlight) // a ring: answers come in order
	out := make([]byte, 0, w.o.InFlight*len(request))
	counted := start.Add(w.o.WarmUp)
	end := counted.Add(w.o.Duration)
	next, under := 0, 0
	left := int64(math.MaxInt64) // requests
	if w.o.Bytes > 0 {
		one := int64(w.o.Batch*w.o.RecordSize) * int64(w.o.Connections)
		left = (w.o.Bytes + one - 1) / one
	}
	for now := time.Now(); ; now = time.Now() {
		out = out[:0]
		for ; under < w.o.InFlight && left > 0 && now.Before(end) && ctx.Err() == nil; under++ {
			left--
			at := len(out)
			out = append(out, request...)
			w.conn.number(out[at:])
			sent[(next+under)%w.o.InFlight] = now
		}
		if under == 0 {
			return
		}
		if len(out) > 0 {
			if _, err := w.conn.c.Write(out); err != nil {
				w.fail(err, under*w.o.Batch)
				return
			}
		}
		for first := true; under > 0 && (first || w.conn.arrived()); first = false {
			a, err := w.conn.Receive()
			if err != nil {
				w.fail(err, under*w.o.Batch)
				return
			}
			w.answered(a, sent[next], counted, end)
			next, under = (next+1)%w.o.InFlight, under-1
		}
	}
}

// answered counts the answer to a request of a fixed size.
func (w *worker) answered(a Answer, sent, counted, end time.Time) {
	now := time.Now()
	switch {
	case a.Err != wire.ErrNone:
		w.fail(refusal(a), w.o.Batch)
	case !now.Before(counted) && now.Before(end):
		_ = w.hist.RecordValues(min(max(now.Sub(sent).Microseconds(), 1), highest), int64(w.o.Batch))
		w.records += int64(w.o.Batch)
		w.requests++
		w.last = now
	}
}

// BatchFor is how many records of a size fit in a batch of so many bytes, at
// least one.
func BatchFor(recordSize, batchBytes int) int {
	one := len(wire.BuildBatch(nil, wire.PlainParams(0), wire.Record{Value: make([]byte, recordSize)})) - wire.BatchHeaderSize
	return max(1, (batchBytes-wire.BatchHeaderSize)/(one+1)) // a later record's delta may take a byte more
}

// OneRecord is a batch of one record of a size.
func OneRecord(size int) []byte {
	return wire.BuildBatch(nil, wire.PlainParams(time.Now().UnixMilli()), wire.Record{Value: make([]byte, size)})
}
