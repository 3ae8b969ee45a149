package segment

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/wire"
)

// image is a memory disk after some appends; copies are damaged one by one.
func (m *MemFS) image() *MemFS { return m.Crash(func(_ string, n int64) int64 { return n }) }

func (m *MemFS) find(suffix string) *memFile {
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if strings.HasSuffix(name, suffix) {
			return m.files[name]
		}
	}
	return nil
}

// last returns the newest log file.
func (m *MemFS) last(suffix string) *memFile {
	var f *memFile
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if strings.HasSuffix(name, suffix) {
			f = m.files[name]
		}
	}
	return f
}

func (f *memFile) cut(n int64) { f.size, f.synced, f.data = n, n, f.data[:n:n] }

// wholeBelow returns how many leading batches lie wholly below position n.
func wholeBelow(bs []wire.Batch, n int) int {
	size := 0
	for i, b := range bs {
		if size += len(b); size > n {
			return i
		}
	}
	return len(bs)
}

func TestEveryLengthOfATornFile(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	bs := put(t, l, plain(0, 3, 20), plain(3, 1, 70), plain(4, 2, 5))
	size := len(join(bs))
	for point := range int64(7) { // the recovery point, also inside batches
		for n := 0; n <= size; n++ {
			c := m.image()
			c.last(logSuffix).cut(int64(n))
			d := openDir(t, c, "/data")
			d.points[testID.TopicPartition()] = point
			keep := wholeBelow(bs, n)
			end := int64(0)
			if keep > 0 {
				end = bs[keep-1].NextOffset()
			}
			l, stats, err := d.OpenLog(testID, smallConfig, 0)
			var corrupt *CorruptError
			if end < point {
				if !errors.As(err, &corrupt) || corrupt.Offset != end {
					t.Fatalf("length %d, recovery point %d: %v", n, point, err)
				}
				if c.last(logSuffix).size != int64(n) {
					t.Fatal("a corrupt log was cut")
				}
				continue
			}
			if err != nil {
				t.Fatalf("length %d: %v", n, err)
			}
			want := join(bs[:keep])
			if size := c.last(logSuffix).size; size != int64(len(want)) {
				t.Fatalf("length %d: the file has %d bytes after recovery, want %d", n, size, len(want))
			}
			if l.End() != end || !bytes.Equal(all(t, l), want) || stats.TornBytes != int64(n-len(want)) {
				t.Fatalf("length %d: end %d, want %d, %+v", n, l.End(), end, stats)
			}
			after := put(t, l, plain(end, 1, 3)) // and it goes on from there
			if !bytes.Equal(all(t, l), append(want, join(after)...)) {
				t.Fatalf("length %d: append after recovery", n)
			}
		}
	}
}

func TestEveryBitOfTheLastTwoBatches(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	bs := put(t, l, plain(0, 3, 20), plain(3, 1, 30), plain(4, 2, 5))
	from := len(bs[0])
	for bit := from * 8; bit < len(join(bs))*8; bit++ {
		at := bit / 8
		broken := wholeBelow(bs, at) // the batch that is hit
		inBatch := at - len(join(bs[:broken]))
		if inBatch >= 12 && inBatch < 16 {
			continue // the leader epoch is outside the checksum
		}
		for _, point := range []int64{bs[broken].BaseOffset(), bs[broken].BaseOffset() + 1} {
			c := m.image()
			c.last(logSuffix).data[at] ^= 1 << (bit % 8)
			d := openDir(t, c, "/data")
			d.points[testID.TopicPartition()] = point
			l, _, err := d.OpenLog(testID, smallConfig, 0)
			if point > bs[broken].BaseOffset() {
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) {
					t.Fatalf("bit %d below the recovery point: %v", bit, err)
				}
				continue
			}
			if err != nil || !bytes.Equal(all(t, l), join(bs[:broken])) {
				t.Fatalf("bit %d above the recovery point: %v", bit, err)
			}
		}
	}
}

func TestDamageInAnEarlierSegment(t *testing.T) {
	r := seed(t)
	m, _, l := memLog(t, smallConfig)
	fill(t, l, r, 60)
	segs := l.Segments()
	if len(segs) < 3 {
		t.Fatal("too few segments")
	}
	for _, point := range []int64{0, l.End()} {
		c := m.image()
		f := c.find(fmt.Sprintf("%020d.log", segs[1].Base))
		f.data[f.size-1] ^= 1
		if point > 0 { // above the recovery point it is walked in any case
			c.find(fmt.Sprintf("%020d.index", segs[1].Base)).cut(5)
		}
		d := openDir(t, c, "/data")
		d.points[testID.TopicPartition()] = point
		l, stats, err := d.OpenLog(testID, smallConfig, 0)
		if point > 0 {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("got %v", err)
			}
			continue
		}
		if err != nil || l.End() >= segs[1].End || l.End() < segs[1].Base || stats.SegmentsRemoved != len(segs)-2 {
			t.Fatalf("end %d %+v %v", l.End(), stats, err)
		}
		fill(t, l, r, 10)
	}
}

func TestIndexDamageChangesNothing(t *testing.T) {
	r := seed(t)
	m, _, l := memLog(t, smallConfig)
	bs := fill(t, l, r, 120)
	flush(t, l)
	if err := l.SealClean(); err != nil {
		t.Fatal(err)
	}
	point := l.End()
	foreign := encodeIndex(&index{}, content{base: 5, size: 100, end: 9})
	damages := map[string]func(*memFile){
		"none":     func(*memFile) {},
		"torn":     func(f *memFile) { f.cut(r.Int64N(f.size)) },
		"bit flip": func(f *memFile) { f.data[r.Int64N(f.size)] ^= 1 << r.IntN(8) },
		"foreign":  func(f *memFile) { f.data, f.size = foreign, int64(len(foreign)) },
		"gone":     func(f *memFile) { delete(f.fs.files, f.name) },
	}
	for name, damage := range damages {
		for range 20 {
			c := m.image()
			for _, fn := range slices.Sorted(maps.Keys(c.files)) {
				if strings.HasSuffix(fn, indexSuffix) && r.IntN(2) == 0 {
					damage(c.files[fn])
				}
			}
			d := openDir(t, c, "/data")
			d.points[testID.TopicPartition()] = point
			l, _, err := d.OpenLog(testID, smallConfig, 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compareReads(t, l, twinOf(l, bs), r, 100)
		}
	}
}

// After a crash everything flushed is there, and what is there is a prefix.
func TestPowerCutKeepsADurablePrefix(t *testing.T) {
	r := seed(t)
	for range 150 {
		m, d, l := memLog(t, smallConfig)
		var bs []wire.Batch
		for range 1 + r.IntN(6) {
			bs = append(bs, fill(t, l, r, 1+r.IntN(25))...)
			if r.IntN(2) == 0 {
				flush(t, l)
			}
			if r.IntN(3) == 0 {
				p := map[TopicPartition]int64{testID.TopicPartition(): l.Durable()}
				if err := d.WriteCheckpoint(RecoveryPointCheckpoint, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		durable := l.Durable()
		c := m.Crash(func(name string, n int64) int64 { return r.Int64N(n + 1) })
		l2, _, err := openDir(t, c, "/data").OpenLog(testID, smallConfig, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l2.End() < durable || !bytes.HasPrefix(join(bs), all(t, l2)) {
			t.Fatalf("end %d after the crash, %d was durable", l2.End(), durable)
		}
		sameProducers(t, l2.producers, replay(bs, l2.End()))
		fill(t, l2, r, 5)
	}
}

// sameProducers compares all but when a producer was last seen.
func sameProducers(t *testing.T, got, want *Producers) {
	t.Helper()
	for _, p := range []*Producers{got, want} {
		for _, e := range p.byID {
			e.seen = 0
		}
	}
	if !bytes.Equal(got.encode(0), want.encode(0)) || got.ongoing != want.ongoing {
		t.Fatal("producers are not those of the batches")
	}
}

func replay(bs []wire.Batch, end int64) *Producers {
	p := newProducers()
	for _, b := range bs {
		if b.NextOffset() <= end {
			p.Add(b, 0)
		}
	}
	return p
}

func TestBatchThatReachesIntoTheNextSegment(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	bs := put(t, l, plain(0, 3, 5), plain(3, 3, 5))
	l.Close()
	f := *m.last(logSuffix)
	f.name = strings.Replace(f.name, "0.log", "5.log", 1)
	f.data = build(plain(5, 1, 5))
	f.size = int64(len(f.data))
	m.files[f.name] = &f
	l = openLog(t, d, smallConfig)
	if !bytes.Equal(all(t, l), bs[0]) || m.files[f.name] != nil {
		t.Fatalf("end %d", l.End())
	}
}

// A clean close counts for the first opening only.
func TestReopenedLogIsNotClean(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 3, 5))
	if err := l.SealClean(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := d.CloseClean(); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, m, "/data")
	if l = openLog(t, d, smallConfig); l.Durable() != 3 {
		t.Fatalf("durable %d after a clean close", l.Durable())
	}
	put(t, l, plain(3, 1, 5))
	l.Close()
	if l = openLog(t, d, smallConfig); l.End() != 4 || l.Durable() != 0 {
		t.Fatalf("durable %d of %d, nothing was flushed and no recovery point written", l.Durable(), l.End())
	}
}

func TestTopicIDClash(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 1))
	l.Close()
	other := testID
	other.TopicID[0]++
	if _, _, err := d.OpenLog(other, smallConfig, 0); err == nil {
		t.Fatal("opened the log of another topic id")
	}
}

func FuzzRecover(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte(build(plain(0, 2, 9))), int64(1))
	f.Add(append([]byte(build(plain(0, 1, 1))), build(plain(1, 1, 1))[:70]...), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, point int64) {
		m := NewMemFS()
		d := openDir(t, m, "/data")
		put(t, openLog(t, d, smallConfig), plain(0, 1, 1))
		file := m.last(logSuffix)
		file.data, file.size = data, int64(len(data))
		d = &Dir{fs: m, path: "/data", logs: map[TopicPartition]*Log{}, opened: map[TopicPartition]bool{},
			points: map[TopicPartition]int64{testID.TopicPartition(): point}}
		l, _, err := d.OpenLog(testID, smallConfig, 0)
		if err != nil {
			var c *CorruptError
			if !errors.As(err, &c) || !bytes.Equal(file.data[:file.size], data) {
				t.Fatalf("%v", err)
			}
			return
		}
		if !bytes.HasPrefix(data, all(t, l)) || l.End() < point {
			t.Fatal("recovered what was not there")
		}
	})
}

func FuzzIndex(f *testing.F) {
	x := &index{}
	x.add(entry{1, 70, 5})
	x.add(entry{2, 140, 6})
	f.Add(encodeIndex(x, content{base: 4, size: 300, end: 9, maxTs: 7, firstTs: 5}))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, c, ok := decodeIndex(data)
		if ok && !bytes.Equal(encodeIndex(x, c), data) {
			t.Fatal("decoded something else")
		}
		if p, off, ok := decodeProducers(data); ok && len(p.encode(off)) > len(data) {
			t.Fatal("decoded more producers than there are")
		}
	})
}
