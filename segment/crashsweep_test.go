package segment

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/wire"
)

// TestCrashSweep cuts every file of a log directory at every length and flips
// bits of it: recovery keeps all that was durable or says what is corrupt,
// cuts a torn tail only, never invents and never panics.
func TestCrashSweep(t *testing.T) {
	y := newTally(t, "sweep")
	defer y.print(t)
	unsigned := 0
	for s := y.Seed; y.Points < *crashSweep; s++ {
		for _, clean := range []bool{false, true} {
			w := sweepWorld(t, s, clean)
			w.points(max(1, *crashSweep/2), func(d damage) {
				if y.Points++; w.check(t, d) {
					unsigned++
				}
				for _, p := range w.parts {
					y.Checked += max(0, w.point[p.id.TopicPartition()]-p.start)
				}
			})
		}
	}
	y.Note = fmt.Sprintf("%d of them change a number in a text file without a checksum", unsigned)
}

// sweep is a log directory at rest, to be damaged.
type sweep struct {
	*crashWorld
	seed  uint64
	clean bool
	disk  *crashFS
	point map[TopicPartition]int64 // recovery points on disk
}

// damage is a file cut at a length, or with one bit flipped.
type damage struct {
	name string
	cut  int64 // -1 for a flip
	bit  int64
}

func (d damage) String() string {
	if d.cut >= 0 {
		return fmt.Sprintf("%s cut at %d", d.name, d.cut)
	}
	return fmt.Sprintf("%s with bit %d of byte %d flipped", d.name, d.bit%8, d.bit/8)
}

// sweepWorld plays a directory of two partitions of several segments, codecs,
// epochs and producers, with checkpoints behind and ahead of their ends.
func sweepWorld(t *testing.T, seed uint64, clean bool) *sweep {
	w := newCrashWorld(rand.New(rand.NewPCG(seed, 11)), false)
	must := func(err error) {
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	must(w.open())
	for round := range 14 {
		for i := range w.parts {
			must(w.append(i, 1+w.r.IntN(4)))
			if round == 9 {
				must(w.flush(i))
			}
		}
		if round == 4 {
			must(w.deleteRecords(0))
		}
		if round == 9 {
			must(w.checkpoint())
		}
	}
	must(w.shut(clean))
	s := &sweep{crashWorld: w, seed: seed, clean: clean, disk: w.fs.clone(), point: map[TopicPartition]int64{}}
	d := openDir(t, s.disk.clone(), "/data")
	maps.Copy(s.point, d.points)
	return s
}

// points calls f for every length of every file and for as many flips, spread
// evenly and at most n in all.
func (s *sweep) points(n int, f func(damage)) {
	var all []damage
	for _, name := range slices.Sorted(maps.Keys(s.disk.names)) {
		x := s.disk.names[name]
		if x.dir {
			continue
		}
		for l := range x.size {
			all = append(all, damage{name: name, cut: l}, damage{name: name, cut: -1, bit: l*8 + s.r.Int64N(8)})
		}
	}
	step := max(1, float64(len(all))/float64(n))
	for at := s.r.Float64() * step; int(at) < len(all); at += step {
		f(all[int(at)])
	}
}

// unsigned tells a text file in Kafka's format: it has no checksum, and one
// digit more or less is a number like any other.
func unsigned(name string) bool {
	switch filepath.Base(name) {
	case RecoveryPointCheckpoint, LogStartCheckpoint, epochFile, propsFile, metadataFile:
		return true
	}
	return false
}

// check damages a copy of the disk and opens it. It returns whether the law
// cannot hold for want of a checksum.
func (s *sweep) check(t *testing.T, d damage) bool {
	disk := s.disk.clone()
	x := disk.names[d.name]
	if d.cut >= 0 {
		x.size = d.cut
	} else {
		x.data[d.bit/8] ^= 1 << (d.bit % 8)
	}
	x.first = slices.Clone(x.data[:x.size])
	why := func() (why string) {
		defer func() {
			if p := recover(); p != nil {
				why = fmt.Sprintf("panic: %v", p)
			}
		}()
		return s.judge(disk, d)
	}()
	if why != "" && unsigned(d.name) && !strings.HasPrefix(why, "panic") {
		return true
	}
	if why != "" {
		t.Fatalf("seed %d clean=%v %v: %s", s.seed, s.clean, d, why)
	}
	return false
}

func (s *sweep) judge(disk *crashFS, d damage) string {
	root := filepath.Dir(d.name) == "/data"
	dir, err := OpenDir(disk, "/data", DirOptions{ClusterID: "c1", NodeID: 7})
	if err != nil {
		if root {
			return "" // the directory is offline and says why
		}
		return err.Error()
	}
	defer dir.Close()
	for _, p := range s.parts {
		mine := root || filepath.Dir(d.name) == filepath.Join("/data", p.id.TopicPartition().String())
		before := filesOf(disk)
		l, _, err := dir.OpenLog(p.id, crashConfig, 0)
		if err != nil {
			var corrupt *CorruptError
			if !mine {
				return "another partition's damage: " + err.Error()
			}
			if errors.As(err, &corrupt) && !maps.Equal(before, filesOf(disk)) {
				return "a corrupt log was changed: " + err.Error()
			}
			continue
		}
		if why := s.judgeLog(l, p, d, mine); why != "" {
			return why
		}
		l.Close()
	}
	return ""
}

func filesOf(disk *crashFS) map[string]string {
	out := map[string]string{}
	for name, x := range disk.names {
		out[name] = string(x.data[:x.size])
	}
	return out
}

func (s *sweep) judgeLog(l *Log, p *crashPart, d damage, mine bool) string {
	point := s.point[p.id.TopicPartition()]
	if !mine {
		return p.holds(l, true)
	}
	if l.End() < point {
		return fmt.Sprintf("%s ends at %d, below its recovery point %d", l.path, l.End(), point)
	}
	if l.Start() > p.start {
		return fmt.Sprintf("%s starts at %d, nothing at or above %d was deleted", l.path, l.Start(), p.start)
	}
	got, why := contentOf(l)
	if why != "" {
		return "" // a read says what is corrupt
	}
	intact, why := s.sound(wire.Batch(got), l, p, point)
	if why != "" {
		return why
	}
	if !intact {
		return ""
	}
	if !strings.HasSuffix(d.name, logSuffix) && l.End() < endOf(p.bs, 0) {
		return fmt.Sprintf("%s ends at %d for damage to a hint, was %d", l.path, l.End(), endOf(p.bs, 0))
	}
	q := p.promise
	q.durable = point
	if why := q.holds(l, false); why != "" {
		return why
	}
	if why := randomReads(l, between(p.bs, l.Start(), l.End()), s.r); why != "" {
		return why
	}
	return goesOn(l, &q)
}

// sound walks what a reader gets and tells whether it is all that was
// written. A broken batch is where a reader stops: below the recovery point a
// trusted segment is not walked at the start, so its readers see the checksum,
// which covers neither the base offset nor the leader epoch: `log verify` sees
// the one.
func (s *sweep) sound(got wire.Batch, l *Log, p *crashPart, point int64) (intact bool, why string) {
	written := map[int64]wire.Batch{}
	for _, b := range p.bs {
		written[b.BaseOffset()] = b
	}
	list := between(p.bs, l.Start(), l.End())
	for len(got) > 0 {
		x, rest, ok := wire.NextBatch(got)
		b := written[got.BaseOffset()]
		if ok && b != nil && bytes.Equal(x, b) {
			if len(list) > 0 && b.BaseOffset() == list[0].BaseOffset() {
				list = list[1:]
			}
			got = rest
			continue
		}
		if ok && x.Magic() == 2 && x.CheckCRC() {
			same := func(b wire.Batch) bool { return bytes.Equal(x[16:], b[16:]) }
			if !slices.ContainsFunc(p.bs, same) {
				return false, fmt.Sprintf("%s: a batch at %d nobody wrote", l.path, got.BaseOffset())
			}
		} else if got.BaseOffset() >= point && !s.clean {
			return false, fmt.Sprintf("%s: a broken batch at %d above the recovery point is taken", l.path, got.BaseOffset())
		}
		return false, ""
	}
	if len(list) > 0 {
		return false, fmt.Sprintf("%s: the batch at %d is passed over", l.path, list[0].BaseOffset())
	}
	return true, ""
}

// randomReads compares some reads with a scan of the batches.
func randomReads(l *Log, bs []wire.Batch, r *rand.Rand) string {
	w := twinOf(l, bs)
	for range 6 {
		from := l.Start() + r.Int64N(l.End()-l.Start()+1)
		limit, n := l.End(), r.IntN(1500)
		x, err := l.Read(from, n, limit, true)
		if err != nil {
			return err.Error()
		}
		want, _, next := w.read(from, n, limit, true)
		if !bytes.Equal(x.Bytes, want) || x.Next != next {
			return fmt.Sprintf("%s: read at %d of %d bytes to %d, want %d to %d", l.path, from, len(x.Bytes), x.Next, len(want), next)
		}
		x.Release()
	}
	return ""
}
