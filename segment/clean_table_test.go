package segment

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"lockstep/internal/wire"
)

// table is what a reader of the whole log makes of it: the value of each key
// that was not deleted.
func table(log map[int64]keyed) map[string]string {
	out := map[string]string{}
	for _, off := range slices.Sorted(maps.Keys(log)) {
		if x := log[off]; x.value == "" {
			delete(out, x.key)
		} else {
			out[x.key] = x.value
		}
	}
	return out
}

// cleanWorld is a log of a few keys, many tombstones and some batches of
// transactions, cleaned, truncated, killed and opened again.
type cleanWorld struct {
	t    *testing.T
	r    *rand.Rand
	m    *MemFS
	d    *Dir
	l    *Log
	now  int64
	keys int
	most int64 // keys that a pass tells apart
	all0 map[int64]keyed
}

func (w *cleanWorld) write() {
	for range 1 + w.r.IntN(12) {
		p := wire.PlainParams(1000 + w.l.NextOffset())
		p.BaseOffset = w.l.NextOffset()
		if w.r.IntN(12) == 0 {
			p.Attributes = wire.AttrTransactional
		}
		var records []wire.Record
		for i := range 1 + w.r.IntN(5) {
			x := keyed{key: fmt.Sprint(w.r.IntN(w.keys)), value: fmt.Sprint(w.r.IntN(1000)), ts: p.BaseTimestamp}
			rec := wire.Record{Key: []byte(x.key), Value: []byte(x.value)}
			if w.r.IntN(3) == 0 {
				x.value, rec.Value = "", nil
			}
			w.all0[p.BaseOffset+int64(i)] = x
			records = append(records, rec)
		}
		keep(w.t, w.l, packed(w.t, wire.BuildBatch(nil, p, records...), int8(w.r.IntN(5))))
	}
}

func (w *cleanWorld) clean() {
	flush(w.t, w.l)
	o := cleanNow
	o.Limit, o.Now = w.l.End()-w.r.Int64N(10), w.now
	c, ok := w.l.CleanPlan(o)
	if !ok {
		return
	}
	c.most = w.most
	c.Do()
	if err := w.l.Cleaned(c); err != nil {
		w.t.Fatal(err)
	}
}

func (w *cleanWorld) checkpoint() {
	at := func(offset int64) map[TopicPartition]int64 {
		return map[TopicPartition]int64{testID.TopicPartition(): offset}
	}
	for name, offset := range map[string]int64{RecoveryPointCheckpoint: w.l.Durable(), CleanerCheckpoint: w.l.CleanedTo()} {
		if err := w.d.WriteCheckpoint(name, at(offset)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// truncate takes away what other records were removed for, too, as only an
// unclean election does: what is left is the truth from here on.
func (w *cleanWorld) truncate() {
	if err := truncate(w.t, w.l, w.l.End()-w.r.Int64N(min(w.l.End(), 40)+1)); err != nil {
		w.t.Fatal(err)
	}
	w.all0 = readKeyed(w.t, all(w.t, w.l))
}

func (w *cleanWorld) restart() {
	w.m = w.m.Died(nil)
	w.d = openDir(w.t, w.m, "/data")
	w.l = openLog(w.t, w.d, narrowConfig)
}

// Whoever reads a cleaned log from its start has the same table as one who has
// read every record: no value is missing, and no key that was deleted is back.
func TestCleaningKeepsTheTable(t *testing.T) {
	r := seed(t)
	for world := range 300 {
		w := cleanWorld{t: t, r: rand.New(rand.NewPCG(r.Uint64(), 1)), now: 5000, keys: 8 << (r.IntN(4)), most: []int64{2, 5, cleanerKeys}[world%3], all0: map[int64]keyed{}}
		w.m, w.d, w.l = memLog(t, narrowConfig)
		for step := range 40 {
			switch w.r.IntN(10) {
			case 0, 1, 2, 3:
				w.write()
			case 4, 5, 6:
				w.clean()
			case 7:
				w.checkpoint()
			case 8:
				w.truncate()
			case 9:
				w.restart()
			}
			w.now += w.r.Int64N(1000)
			if got, want := table(readKeyed(t, all(t, w.l))), table(w.all0); !maps.Equal(got, want) {
				t.Fatalf("world %d, step %d: a reader has %v, not %v (%d..%d, %v)", world, step, got, want, w.l.Start(), w.l.End(), w.l.Segments())
			}
		}
	}
}

// A segment that would grow beyond what one may be is left as it is, and so is
// the log: what is superseded must not stay when what it is superseded by goes.
func TestCleaningThatMakesLarger(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	all0 := map[int64]keyed{}
	writeKeyed(t, l, seed(t), 100, all0)
	flush(t, l)
	o := cleanNow
	o.Limit = l.End()
	o.Compress = func(_ int8, src []byte) ([]byte, error) { return bytes.Repeat([]byte{1}, 16<<10), nil }
	c, ok := l.CleanPlan(o)
	if !ok {
		t.Fatal("nothing to clean")
	}
	c.Do()
	if err := l.Cleaned(c); err == nil || d.Failed() != nil || l.CleanedTo() != 0 {
		t.Fatal(err, d.Failed(), l.CleanedTo())
	}
	if !maps.Equal(readKeyed(t, all(t, l)), all0) {
		t.Fatal("something has changed")
	}
	if _, err := clean(l, l.End(), 5000); err != nil || l.CleanedTo() == 0 {
		t.Fatal(err)
	}
}

// Tombstones begin to wait with the first pass that meets them, also where it
// finds nothing else to do, and the next one after their time removes them.
func TestTombstonesGo(t *testing.T) {
	_, _, l := memLog(t, narrowConfig)
	n := 0
	write := func() {
		for range 30 {
			p := wire.PlainParams(1000)
			p.BaseOffset = l.NextOffset()
			keep(t, l, wire.BuildBatch(nil, p, wire.Record{Key: fmt.Append(nil, n)}))
			n++
		}
	}
	for _, x := range []struct {
		now  int64
		stay bool
	}{{5000, true}, {5999, true}, {6001, false}} {
		write()
		if _, err := clean(l, l.End(), x.now); err != nil {
			t.Fatal(err)
		}
		left := 0
		for off := range readKeyed(t, all(t, l)) {
			if off < 20 {
				left++
			}
		}
		if x.stay && left != 20 || !x.stay && left != 0 {
			t.Fatalf("at %d ms %d of the first 20 tombstones are left", x.now, left)
		}
	}
}

// What is written where a truncation took something away is not clean, whatever
// was there before; not even to who is killed before the next checkpoint.
func TestTruncationLowersWhatIsClean(t *testing.T) {
	w := cleanWorld{t: t, r: rand.New(rand.NewPCG(1, 1)), now: 5000, keys: 8, most: cleanerKeys, all0: map[int64]keyed{}}
	w.m, w.d, w.l = memLog(t, narrowConfig)
	for w.l.CleanedTo() < 40 {
		w.write()
		w.clean()
	}
	w.checkpoint()
	was := w.l.CleanedTo()
	if err := truncate(t, w.l, was/2); err != nil {
		t.Fatal(err)
	}
	to := w.l.End()
	for w.l.End() < was+40 {
		w.write()
	}
	if w.l.CleanedTo() > to {
		t.Fatalf("cut at %d and clean to %d", to, w.l.CleanedTo())
	}
	if w.restart(); w.l.CleanedTo() > to {
		t.Fatalf("cut at %d, and clean to %d after a restart", to, w.l.CleanedTo())
	}
}
