package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"lockstep/internal/compress"
	"lockstep/internal/wire"
)

// keyed is a record of a compacted topic as the test remembers it.
type keyed struct {
	key, value string // value "" = tombstone
	ts         int64
}

// packed compresses a batch's records.
func packed(t *testing.T, b wire.Batch, codec int8) wire.Batch {
	t.Helper()
	if codec == wire.CodecNone {
		return b
	}
	body, err := compress.Compress(codec, b.Payload())
	if err != nil {
		t.Fatal(err)
	}
	b = append(bytes.Clone(b[:batchHeader]), body...)
	b[22] |= byte(codec)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-batchOverhead))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// keep appends a batch with its final offsets.
func keep(t *testing.T, l *Log, b wire.Batch) {
	t.Helper()
	if err := grow(l, len(b), b.MaxTimestamp()); err != nil {
		t.Fatal(err)
	}
	l.Queue(b, nothing{})
	if err := drain(l, &Write{}); err != nil {
		t.Fatal(err)
	}
}

// writeKeyed appends n batches of keyed records and notes them in all.
func writeKeyed(t *testing.T, l *Log, r *rand.Rand, n int, all map[int64]keyed) {
	t.Helper()
	for range n {
		p := wire.PlainParams(1000 + l.NextOffset())
		p.BaseOffset, p.PartitionLeaderEpoch = l.NextOffset(), max(l.LatestEpoch(), 0)+int32(r.IntN(20)/19)
		if r.IntN(2) == 0 {
			p.ProducerID, p.ProducerEpoch, p.BaseSequence = r.Int64N(3), 0, 0
			if e := l.producers.byID[p.ProducerID]; e != nil {
				p.BaseSequence = addSequence(e.batches[e.n-1].last, 1)
			}
		}
		var records []wire.Record
		for i := range 1 + r.IntN(4) {
			x := keyed{key: fmt.Sprintf("key-%d", r.IntN(12)), value: fmt.Sprintf("%0*d", 1+r.IntN(60), r.IntN(1000)), ts: p.BaseTimestamp + int64(i)}
			rec := wire.Record{Key: []byte(x.key), Value: []byte(x.value), TimestampDelta: int64(i)}
			if r.IntN(5) == 0 {
				x.value, rec.Value = "", nil
			}
			all[p.BaseOffset+int64(i)] = x
			records = append(records, rec)
		}
		keep(t, l, packed(t, wire.BuildBatch(nil, p, records...), int8(r.IntN(5))))
	}
}

// readKeyed reads a log back, batch by batch, and checks that it is dense.
func readKeyed(t *testing.T, data []byte) map[int64]keyed {
	t.Helper()
	out, at := map[int64]keyed{}, int64(-1)
	_, err := Walk(data, func(_ int64, b wire.Batch) error {
		if at >= 0 && b.BaseOffset() != at || !b.CheckCRC() {
			t.Fatalf("batch of %d..%d follows %d", b.BaseOffset(), b.LastOffset(), at)
		}
		at = b.NextOffset()
		plain, err := b.Payload(), error(nil)
		if b.Codec() != wire.CodecNone && b.RecordCount() > 0 {
			plain, err = compress.Decompress(b.Codec(), b.Payload(), 1<<20)
		}
		n := int32(0)
		for it := wire.Records(plain); err == nil && it.Next(); n++ {
			r := it.Record()
			out[b.BaseOffset()+int64(r.OffsetDelta)] = keyed{string(r.Key), string(r.Value), b.BaseTimestamp() + r.TimestampDelta}
		}
		if n != b.RecordCount() {
			t.Fatalf("batch of %d..%d has %d records, says %d", b.BaseOffset(), b.LastOffset(), n, b.RecordCount())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compacted is what must be left, found the dumb way: below to the last record
// of each key of those below to, and everything above.
func compacted(all map[int64]keyed, to int64, tombstones bool) map[int64]keyed {
	last := map[string]int64{}
	for off, x := range all {
		if off < to {
			last[x.key] = max(last[x.key], off)
		}
	}
	out := map[int64]keyed{}
	for off, x := range all {
		if off >= to || last[x.key] == off && (tombstones || x.value != "") {
			out[off] = x
		}
	}
	return out
}

var cleanNow = CleanOptions{Now: 5000, MaxLagMs: math.MaxInt64, DeleteRetentionMs: 1000, Inflate: compress.Decompress, Compress: compress.Compress}

// clean makes one pass.
func clean(l *Log, limit, now int64) (Cleaning, error) {
	if f, ok := l.FlushPlan(); ok { // only what is durable is cleaned
		f.Do()
		if err := l.Flushed(f); err != nil {
			return Cleaning{}, err
		}
	}
	o := cleanNow
	o.Limit, o.Now = limit, now
	c, ok := l.CleanPlan(o)
	if !ok {
		return c, nil
	}
	c.Do()
	return c, l.Cleaned(c)
}

func TestCleaningKeepsTheLastOfEachKey(t *testing.T) {
	onBoth(t, func(t *testing.T, fs FS, path string) {
		r := seed(t)
		d := openDir(t, fs, path)
		l := openLog(t, d, smallConfig)
		all0 := map[int64]keyed{}
		for round := range 6 {
			writeKeyed(t, l, r, 60, all0)
			limit := l.End() - r.Int64N(40)
			before := readKeyed(t, all(t, l))
			c, err := clean(l, limit, 5000)
			if err != nil {
				t.Fatal(err)
			}
			got, want := readKeyed(t, all(t, l)), compacted(all0, l.CleanedTo(), true)
			if !maps.Equal(got, want) {
				t.Fatalf("round %d: %d records left of %d, want %d, clean to %d of %d", round, len(got), len(before), len(want), l.CleanedTo(), limit)
			}
			if l.CleanedTo() > limit || c.to > 0 && l.CleanedTo() == 0 {
				t.Fatalf("clean to %d, limit %d", l.CleanedTo(), limit)
			}
			if r.IntN(2) == 0 { // a reader that begins anywhere gets what is there
				compareFrom(t, l, got, r)
			}
			if r.IntN(2) == 0 {
				rest(t, l)
			}
			if r.IntN(2) == 0 { // crash or clean stop, and the same again
				state, to := string(l.producers.encode(0)), l.CleanedTo()
				if err := d.WriteCheckpoint(CleanerCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): to}); err != nil {
					t.Fatal(err)
				}
				if r.IntN(2) == 0 {
					closeAll(t, d, []*Log{l})
				} else {
					l.Close()
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
				}
				d = openDir(t, fs, path)
				l = openLog(t, d, smallConfig)
				if l.CleanedTo() != to {
					t.Fatalf("clean to %d after a restart, not to %d", l.CleanedTo(), to)
				}
				if !maps.Equal(readKeyed(t, all(t, l)), want) {
					t.Fatal("another log after a restart")
				}
				for pid, e := range l.producers.byID {
					was, _, _ := decodeProducers([]byte(state))
					w := was.byID[pid]
					if w == nil || w.n != e.n {
						t.Fatalf("producer %d has another window after a restart", pid)
					}
					for i, x := range e.batches[:e.n] {
						if x.timestamp = w.batches[i].timestamp; x != w.batches[i] { // of the records that are left
							t.Fatalf("producer %d goes on elsewhere after a restart", pid)
						}
					}
				}
			}
		}
		// Tombstones go a while after the pass that first met them.
		writeKeyed(t, l, r, 40, all0)
		if _, err := clean(l, l.End(), 5000); err != nil {
			t.Fatal(err)
		}
		writeKeyed(t, l, r, 40, all0)
		if _, err := clean(l, l.End(), 7001); err != nil {
			t.Fatal(err)
		}
		for off, x := range readKeyed(t, all(t, l)) {
			if _, kept := compacted(all0, l.CleanedTo(), false)[off]; !kept && x.value != "" {
				t.Fatalf("record %d (%s) is superseded and still there", off, x.key)
			}
		}
	})
}

// compareFrom reads from random offsets.
func compareFrom(t *testing.T, l *Log, want map[int64]keyed, r *rand.Rand) {
	t.Helper()
	for range 20 {
		from := r.Int64N(l.End())
		seen := map[int64]keyed{}
		for at := from; at < l.End(); {
			s, err := l.Read(at, 1+r.IntN(3000), l.End(), true)
			if err != nil || s.Next <= at {
				t.Fatalf("read at %d: %v, next %d", at, err, s.Next)
			}
			maps.Copy(seen, readKeyed(t, bytes.Clone(s.Bytes)))
			at = s.Next
			s.Release()
		}
		for off, x := range want {
			if off >= from && seen[off] != x {
				t.Fatalf("read from %d misses %d", from, off)
			}
		}
	}
}

// A record at or above the limit is neither removed nor a reason to remove one.
func TestCleaningStopsAtTheLimit(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	r, all0 := seed(t), map[int64]keyed{}
	writeKeyed(t, l, r, 100, all0)
	segs := l.Segments()
	o := cleanNow
	if o.Limit = l.End(); l.Durable() == 0 {
		if _, ok := l.CleanPlan(o); ok {
			t.Fatal("a plan for a log of which nothing is durable: what goes, and what it goes for, may both be lost")
		}
	} else {
		t.Fatal("something is durable, and nothing was flushed")
	}
	limit := segs[len(segs)/2].End - 1 // inside a segment: that one is out of bounds too
	if _, err := clean(l, limit, 5000); err != nil {
		t.Fatal(err)
	}
	edge := segs[len(segs)/2].Base
	if l.CleanedTo() != edge {
		t.Fatalf("clean to %d, not to %d", l.CleanedTo(), edge)
	}
	if got := readKeyed(t, all(t, l)); !maps.Equal(got, compacted(all0, edge, true)) {
		t.Fatal("something above the limit had a part in it")
	}
	if _, ok := l.CleanPlan(cleanNow); ok { // limit 0
		t.Fatal("a plan for a log of which nothing is acknowledged")
	}
}

// Wherever a pass fails, and whatever of its writes a power cut leaves, no last
// record of a key is lost, none comes back changed, and no deleted one comes back.
func TestCleaningFailsAnywhere(t *testing.T) {
	t.Run("first pass", func(t *testing.T) { failCleaning(t, false) })
	t.Run("tombstones go", func(t *testing.T) { failCleaning(t, true) })
}

func failCleaning(t *testing.T, second bool) {
	r, now := seed(t), int64(5000)
	if second {
		now = 7001
	}
	setUp := func() (*MemFS, *Dir, *Log, map[int64]keyed) {
		r := rand.New(rand.NewPCG(7, 7))
		m, d, l := memLog(t, smallConfig)
		all0 := map[int64]keyed{}
		writeKeyed(t, l, r, 80, all0)
		if second {
			if c, err := clean(l, l.End(), 5000); err != nil || c.to == 0 {
				t.Fatal(err)
			}
			writeKeyed(t, l, r, 40, all0)
		}
		flush(t, l)
		if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): l.Durable()}); err != nil {
			t.Fatal(err)
		}
		return m, d, l, all0
	}
	points := 0
	for n := 1; ; n++ {
		for _, cause := range []error{errInjected, ErrNoSpace, ErrTooManyFiles} {
			m, d, l, all0 := setUp()
			count, done := 0, false
			m.SetFault(func(op, _ string) error {
				if count++; count == n {
					return cause
				}
				return nil
			})
			_, err := clean(l, l.End(), now)
			m.SetFault(nil)
			if done = count < n; done && err != nil {
				t.Fatal(err)
			}
			if err != nil && temporary(cause) && d.Failed() == nil {
				if c, err := clean(l, l.End(), now); err != nil || c.to == 0 {
					t.Fatalf("operation %d failed with %v, and the next pass: %v", n, cause, err)
				}
			}
			points++
			after := m.Crash(func(_ string, n int64) int64 { return r.Int64N(n + 1) })
			again, _, err := openDir(t, after, "/data").OpenLog(testID, smallConfig, 0)
			if err != nil {
				t.Fatalf("operation %d failed with %v: %v", n, cause, err)
			}
			got := readKeyed(t, all(t, again))
			for off, x := range compacted(all0, again.End(), !second) {
				if got[off] != x {
					t.Fatalf("operation %d failed with %v: record %d is lost", n, cause, off)
				}
			}
			for off, x := range got {
				if all0[off] != x {
					t.Fatalf("operation %d failed with %v: record %d is another", n, cause, off)
				}
			}
			if got, want := table(got), table(all0); !maps.Equal(got, want) {
				t.Fatalf("operation %d failed with %v: a reader has %v, not %v", n, cause, got, want)
			}
			if done && cause == ErrTooManyFiles {
				t.Logf("%d points", points)
				return
			}
		}
	}
}

// Whoever must truncate does not wait for the end of a pass.
func TestCleaningGivesWay(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	writeKeyed(t, l, seed(t), 100, map[int64]keyed{})
	flush(t, l)
	o := cleanNow
	o.Limit = l.End()
	c, ok := l.CleanPlan(o)
	if !ok {
		t.Fatal("nothing to clean")
	}
	if _, err := l.TruncatePlan(3); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	if n := l.RetentionPlan(math.MaxInt64, l.End()); n != 0 {
		t.Fatal("retention in the middle of a pass")
	}
	c.Do()
	if err := l.Cleaned(c); !Stopped(err) || d.Failed() != nil || l.CleanedTo() != 0 {
		t.Fatal(err, d.Failed(), l.CleanedTo())
	}
	if err := truncate(t, l, 3); err != nil {
		t.Fatal(err)
	}
}

func TestKeyTable(t *testing.T) {
	k := newKeyTable(1000)
	r, want := seed(t), map[string]int64{}
	for i := range int64(1000) {
		key := fmt.Sprint(r.IntN(700))
		k.put([]byte(key), i)
		want[key] = i
	}
	for key, off := range want {
		if got, ok := k.get([]byte(key)); !ok || got != off {
			t.Fatalf("%s: %d %v, want %d", key, got, ok, off)
		}
	}
	if _, ok := k.get([]byte("nobody")); ok || k.used != len(want) {
		t.Fatal("a key that was never put, or a wrong count")
	}
}
