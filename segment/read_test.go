package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"lockstep/internal/wire"
)

// twin is the dumb twin of a log: the batches, and which begin a segment.
type twin struct {
	start   int64
	batches []wire.Batch
	bases   map[int64]bool
}

// read scans linearly for what Read must return.
func (w *twin) read(from int64, maxBytes int, limit int64, atLeastOne bool) (out []byte, first, next int64) {
	first, next = from, from
	if from >= limit {
		return nil, from, from
	}
	for _, b := range w.batches {
		if b.NextOffset() <= from {
			continue
		}
		full := len(out)+len(b) > maxBytes && !(atLeastOne && len(out) == 0)
		if full || b.NextOffset() > limit || (len(out) > 0 && w.bases[b.BaseOffset()]) {
			break
		}
		if len(out) == 0 {
			first = b.BaseOffset()
		}
		out = append(out, b...)
		next = b.NextOffset()
	}
	return out, first, next
}

func twinOf(l *Log, bs []wire.Batch) *twin {
	w := &twin{start: l.Start(), batches: bs, bases: map[int64]bool{}}
	for _, s := range l.Segments() {
		w.bases[s.Base] = true
	}
	return w
}

// compareReads asks both the same random questions.
func compareReads(t *testing.T, l *Log, w *twin, r *rand.Rand, n int) {
	t.Helper()
	end := l.End()
	for range n {
		from := r.Int64N(end + 1)
		limit := end
		if r.IntN(2) == 0 {
			limit = r.Int64N(end + 3)
		}
		maxBytes := r.IntN(5000)
		atLeastOne := r.IntN(2) == 0
		s, err := l.Read(from, maxBytes, limit, atLeastOne)
		if from < w.start {
			if !errors.Is(err, ErrOffsetOutOfRange) {
				t.Fatalf("read below start: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want, first, next := w.read(from, maxBytes, limit, atLeastOne)
		if !bytes.Equal(s.Bytes, want) || s.First != first || s.Next != next {
			t.Fatalf("Read(%d, %d, %d, %v) = %d bytes %d..%d, want %d bytes %d..%d",
				from, maxBytes, limit, atLeastOne, len(s.Bytes), s.First, s.Next, len(want), first, next)
		}
		s.Release()
	}
}

func TestReadAgainstLinearScan(t *testing.T) {
	r := seed(t)
	for _, interval := range []int32{1, 300, 100000} {
		cfg := smallConfig
		cfg.SegmentBytes, cfg.IndexIntervalBytes = 16384, interval
		_, d, l := memLog(t, cfg)
		bs := fill(t, l, r, 250)
		compareReads(t, l, twinOf(l, bs), r, 2000)
		l.Close()
		l = openLog(t, d, cfg)
		compareReads(t, l, twinOf(l, bs), r, 2000)
	}
}

func TestReadBounds(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	if s, err := l.Read(0, 100, 100, true); err != nil || len(s.Bytes) != 0 || s.Next != 0 {
		t.Fatalf("empty log: %+v %v", s, err)
	}
	put(t, l, plain(0, 3, 10))
	for _, from := range []int64{-1, 4} {
		if _, err := l.Read(from, 100, 100, true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("offset %d: %v", from, err)
		}
	}
	// The mark lies inside the only batch: nothing may be seen of it.
	if s, err := l.Read(0, 1000, 2, true); err != nil || len(s.Bytes) != 0 {
		t.Fatalf("%+v %v", s, err)
	}
}

func TestSliceColdAfterReopen(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 10))
	if s, _ := l.Read(0, 1000, 1, true); s.Cold {
		t.Fatal("just written and cold")
	}
	l.Close()
	l = openLog(t, d, smallConfig)
	put(t, l, plain(1, 1, 10))
	if s, _ := l.Read(0, 1000, 2, true); !s.Cold {
		t.Fatal("written by an earlier process and not cold")
	}
	if s, _ := l.Read(1, 1000, 2, true); s.Cold {
		t.Fatal("just written and cold")
	}
}

func TestReadOfBrokenBytesIsAnError(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 10), plain(1, 1, 10))
	for _, f := range m.files {
		if bytes.HasSuffix([]byte(f.name), []byte(logSuffix)) {
			f.data[8] = 0xff // the length of the first batch
		}
	}
	var c *CorruptError
	if _, err := l.Read(0, 1000, 2, true); !errors.As(err, &c) {
		t.Fatalf("got %v", err)
	}
}

func TestTimestampsAgainstLinearScan(t *testing.T) {
	r := seed(t)
	_, _, l := memLog(t, smallConfig)
	type rec struct{ ts, off int64 }
	var recs []rec
	var ends []int64
	for range 120 {
		s := plain(l.NextOffset(), 1+r.IntN(4), r.IntN(100))
		s.ts = 1000 + r.Int64N(300)
		for i := range s.count {
			s.tsDelta = append(s.tsDelta, r.Int64N(50))
			recs = append(recs, rec{s.ts + s.tsDelta[i], s.base + int64(i)})
		}
		put(t, l, s)
		ends = append(ends, l.End())
	}
	for i := range 2000 {
		start := int64(i / 20)
		if err := l.AdvanceStart(start); err != nil {
			t.Fatal(err)
		}
		ts, limit := 990+r.Int64N(400), ends[r.IntN(len(ends))]
		want, top := rec{off: -1}, rec{ts: -1, off: -1}
		for _, x := range recs {
			if x.off < start || x.off >= limit {
				continue
			}
			if x.ts >= ts && want.off < 0 {
				want = x
			}
			if x.ts > top.ts {
				top = x
			}
		}
		got, ok, err := l.OffsetForTimestamp(ts, limit, nil)
		if err != nil || ok != (want.off >= 0) || ok && (got.Offset != want.off || got.Timestamp != want.ts) {
			t.Fatalf("OffsetForTimestamp(%d, %d) = %+v %v %v, want %+v", ts, limit, got, ok, err, want)
		}
		got, ok, err = l.MaxTimestamp(limit, nil)
		if err != nil || ok != (top.off >= 0) || ok && (got.Offset != top.off || got.Timestamp != top.ts) {
			t.Fatalf("MaxTimestamp(%d) = %+v %v %v, want %+v", limit, got, ok, err, top)
		}
	}
}
