package segment

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"lockstep/internal/wire"
)

func TestShortWrites(t *testing.T) {
	r := seed(t)
	m, _, l := memLog(t, smallConfig)
	m.SetShort(func(n int) int { return 1 + r.IntN(n) })
	bs := fill(t, l, r, 60)
	var w Write
	var c counter
	for range 20 { // several batches in one Write
		for range 1 + r.IntN(5) {
			b := build(plain(l.NextOffset(), 1, r.IntN(60)))
			if l.Room(len(b), 0) == RoomGrow {
				break
			}
			l.Queue(b, &c)
			bs = append(bs, b)
		}
		if err := drain(l, &w); err != nil {
			t.Fatal(err)
		}
		if err := grow(l, 100, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := all(t, l); !bytes.Equal(got, join(bs)) || c.n != len(bs)-60 {
		t.Fatalf("%d bytes, want %d; %d released of %d", len(got), len(join(bs)), c.n, len(bs)-60)
	}
}

func TestTakeIsOneWriterAndAtMostIovMax(t *testing.T) {
	cfg := smallConfig
	cfg.SegmentBytes = 1 << 20
	_, _, l := memLog(t, cfg)
	var c counter
	for range iovMax + 3 {
		b := build(plain(l.NextOffset(), 1, 1))
		if err := grow(l, len(b), 0); err != nil {
			t.Fatal(err)
		}
		l.Queue(b, &c)
	}
	var w, v Write
	if !l.Take(&w) || len(w.Bufs) != iovMax || l.Take(&v) {
		t.Fatalf("%d buffers", len(w.Bufs))
	}
	if l.End() != 0 || l.NextOffset() != iovMax+3 {
		t.Fatal("published before written")
	}
	n, err := w.File.Pwritev(w.Bufs, w.Off)
	if !l.Wrote(&w, n, err) || c.n != iovMax || l.End() != iovMax {
		t.Fatal(c.n, l.End())
	}
	if !l.Take(&v) || len(v.Bufs) != 3 {
		t.Fatal("the rest was not taken")
	}
}

func TestNoSpaceLosesNothing(t *testing.T) {
	r := seed(t)
	for _, op := range []string{"allocate", "create", "mkdir", "writefile"} {
		m, d, l := memLog(t, smallConfig)
		failing, refused := false, 0
		m.SetFault(func(o, _ string) error {
			if o == op && failing {
				return fmt.Errorf("fault: %w", ErrNoSpace)
			}
			return nil
		})
		var bs []wire.Batch
		for i := range 150 {
			failing = i == 0 || r.IntN(2) == 0
			b := build(plain(l.NextOffset(), 1, r.IntN(300)))
			if err := grow(l, len(b), 0); err != nil {
				if !errors.Is(err, ErrNoSpace) {
					t.Fatal(err)
				}
				refused++
				continue
			}
			l.Queue(b, nothing{})
			var w Write
			if err := drain(l, &w); err != nil {
				t.Fatal(err)
			}
			bs = append(bs, b)
		}
		m.SetFault(nil)
		if refused == 0 || d.Failed() != nil || !bytes.Equal(all(t, l), join(bs)) {
			t.Fatalf("%s: refused %d times, %v", op, refused, d.Failed())
		}
		l.Close()
		if l = openLog(t, d, smallConfig); !bytes.Equal(all(t, l), join(bs)) {
			t.Fatalf("%s: reopened with other bytes", op)
		}
	}
}

func TestFailedWriteEndsTheDirectory(t *testing.T) {
	for _, short := range []bool{false, true} {
		m, d, l := memLog(t, smallConfig)
		other, _, err := d.OpenLog(LogID{Topic: "other"}, smallConfig, 0)
		if err != nil {
			t.Fatal(err)
		}
		put(t, other, plain(0, 1, 1))
		put(t, l, plain(0, 1, 1))
		var w Write
		var c counter
		for range 3 {
			b := build(plain(l.NextOffset(), 1, 1))
			if err := grow(l, len(b), 0); err != nil {
				t.Fatal(err)
			}
			l.Queue(b, &c)
		}
		m.SetFault(func(op, _ string) error {
			if op == "pwritev" {
				return errInjected
			}
			return nil
		})
		l.Take(&w)
		b := build(plain(l.NextOffset(), 1, 1))
		l.Queue(b, &c) // behind the Write that fails
		if short {
			m.SetFault(nil)
			m.SetShort(func(int) int { return 5 })
			n, _ := w.File.Pwritev(w.Bufs, w.Off)
			if l.Wrote(&w, n, nil) {
				t.Fatal("done after five bytes")
			}
		}
		if !l.Wrote(&w, 0, errInjected) {
			t.Fatal("not done after an error")
		}
		if l.End() != 1 || l.NextOffset() != 1 || c.n != 4 {
			t.Fatalf("end %d, next %d, released %d", l.End(), l.NextOffset(), c.n)
		}
		if err := d.Failed(); !errors.Is(err, ErrDirFailed) || !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		for _, l := range []*Log{l, other} {
			refusesAll(t, d, l)
		}
	}
}

// refusesAll holds the law FailedDirIsDead.
func refusesAll(t *testing.T, d *Dir, l *Log) {
	t.Helper()
	if _, err := l.Read(0, 100, 1, true); !errors.Is(err, ErrDirFailed) {
		t.Errorf("read: %v", err)
	}
	if l.Room(10, 0) != RoomFailed {
		t.Error("room")
	}
	if _, ok := l.GrowPlan(0); ok {
		t.Error("grow")
	}
	if _, ok := l.FlushPlan(); ok {
		t.Error("flush")
	}
	if _, err := l.TruncatePlan(0); !errors.Is(err, ErrDirFailed) {
		t.Errorf("truncate: %v", err)
	}
	if err := l.SealClean(); !errors.Is(err, ErrDirFailed) {
		t.Errorf("seal: %v", err)
	}
	if _, _, err := l.OffsetForTimestamp(0, 1, nil); !errors.Is(err, ErrDirFailed) {
		t.Errorf("timestamp: %v", err)
	}
	if err := d.WriteCheckpoint(HighWatermarkCheckpoint, nil); !errors.Is(err, ErrDirFailed) {
		t.Errorf("checkpoint: %v", err)
	}
	if _, _, err := d.OpenLog(LogID{Topic: "third"}, smallConfig, 0); !errors.Is(err, ErrDirFailed) {
		t.Errorf("open: %v", err)
	}
}

func TestFailedFlushEndsTheDirectory(t *testing.T) {
	for _, op := range []string{"datasync", "syncdir", "writefile"} {
		m, d, l := memLog(t, smallConfig)
		put(t, l, plain(0, 1, 1))
		syncs := 0
		m.SetFault(func(o, _ string) error {
			if o == "datasync" {
				syncs++
			}
			if o == op {
				return errInjected
			}
			return nil
		})
		f, ok := l.FlushPlan()
		if !ok {
			t.Fatal("nothing to flush")
		}
		f.Do()
		if err := l.Flushed(f); !errors.Is(err, errInjected) || l.Durable() != 0 {
			t.Fatalf("%v, durable %d", err, l.Durable())
		}
		refusesAll(t, d, l)
		if err := d.CloseClean(); err == nil {
			t.Fatal("a failed directory was closed clean")
		}
		if syncs > 1 {
			t.Fatal("a failed flush was tried again")
		}
	}
}

func TestFlushRaisesDurable(t *testing.T) {
	r := seed(t)
	m, d, l := memLog(t, smallConfig)
	if _, ok := l.FlushPlan(); ok {
		t.Fatal("an empty log was to be flushed")
	}
	fill(t, l, r, 50) // several segments
	f, ok := l.FlushPlan()
	if !ok || f.End() != l.End() {
		t.Fatal("no flush")
	}
	if _, ok := l.FlushPlan(); ok {
		t.Fatal("two flushes at once")
	}
	fill(t, l, r, 1)
	f.Do()
	if err := l.Flushed(f); err != nil || l.Durable() != f.End() || l.Durable() == l.End() {
		t.Fatalf("durable %d of %d, %v", l.Durable(), l.End(), err)
	}
	for name, file := range m.files {
		if strings.HasSuffix(name, logSuffix) && file.synced < file.size && file != m.last(logSuffix) {
			t.Fatalf("%s: %d of %d bytes synced", name, file.synced, file.size)
		}
	}
	// A recovery point above what is durable is not believed.
	p := testID.TopicPartition()
	if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{p: l.End() + 10}); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadCheckpoint(RecoveryPointCheckpoint); err != nil || got[p] != l.Durable() {
		t.Fatalf("%v %v", got, err)
	}
}

func TestRollBySizeAndAge(t *testing.T) {
	cfg := smallConfig
	cfg.SegmentMs = 100
	_, _, l := memLog(t, cfg)
	s := plain(0, 1, 10)
	s.ts = 1000
	put(t, l, s)
	if l.Room(50, 1100) == RoomGrow {
		t.Fatal("rolled at the age allowed")
	}
	if l.Room(50, 1101) != RoomGrow {
		t.Fatal("not rolled by age")
	}
	if l.Room(50, 1000) != RoomGrow {
		t.Fatal("a batch may slip in before the roll")
	}
	if err := grow(l, 50, 1101); err != nil {
		t.Fatal(err)
	}
	put(t, l, plain(1, 1, 1900), plain(2, 1, 1900), plain(3, 1, 10000)) // the last is larger than a segment
	var bases []int64
	for _, s := range l.Segments() {
		bases = append(bases, s.Base)
	}
	if fmt.Sprint(bases) != "[0 1 3]" {
		t.Fatal(bases)
	}
}

func TestStepsGrowAndStayInTheSegment(t *testing.T) {
	cfg := smallConfig
	cfg.SegmentBytes, cfg.MaxMessageBytes = 1<<20, 1000
	_, _, l := memLog(t, cfg)
	if _, ok := l.GrowPlan(0); ok {
		t.Fatal("a file was planned before the first append")
	}
	var allocs []int64
	soon := 0
	for l.End() < 1000 {
		b := build(plain(l.NextOffset(), 1, 900))
		switch l.Room(len(b), 0) {
		case RoomSoon:
			soon++
			fallthrough
		case RoomGrow:
			if g, ok := l.GrowPlan(0); ok {
				g.Do()
				if err := l.Grown(g); err != nil {
					t.Fatal(err)
				}
				allocs = append(allocs, l.active().alloc)
			}
			if l.Room(len(b), 0) == RoomGrow {
				t.Fatal("no room after a step")
			}
		}
		l.Queue(b, nothing{})
		var w Write
		if err := drain(l, &w); err != nil {
			t.Fatal(err)
		}
	}
	want := []int64{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}
	if fmt.Sprint(allocs) != fmt.Sprint(want) || soon != 4 {
		t.Fatalf("%v, %d times in time", allocs, soon)
	}
}

func TestInvariantsOfQueue(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 1))
	for name, b := range map[string]wire.Batch{"gap": build(plain(5, 1, 1)), "cut": build(plain(1, 1, 1))[:65], "no room": build(plain(1, 1, 70000))} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: queued", name)
				}
			}()
			l.Queue(b, nothing{})
		}()
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	cfg := smallConfig
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<20, 4096
	_, _, l := memLog(t, cfg)
	put(t, l, plain(0, 1, 1))
	batches := make([]wire.Batch, 1200)
	for i := range batches {
		s := plain(int64(i+1), 1, 20)
		s.pid, s.pepoch, s.seq = 4, 0, int32(i)
		batches[i] = build(s)
	}
	var w Write
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		if l.Room(len(batches[i]), 5) == RoomSoon { // a handful of times
			g, _ := l.GrowPlan(5)
			g.Do()
			if err := l.Grown(g); err != nil {
				t.Fatal(err)
			}
		}
		l.Queue(batches[i], nothing{})
		if !l.Take(&w) {
			t.Fatal("nothing taken")
		}
		n, err := w.File.Pwritev(w.Bufs, w.Off)
		l.Wrote(&w, n, err)
		i++
	}); n != 0 {
		t.Errorf("append allocates %v times", n)
	}
	at := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		s, err := l.Read(at, 1000, l.End()-1, true)
		if err != nil || len(s.Bytes) == 0 {
			t.Fatal(err)
		}
		at = (at + 7) % (l.End() - 20)
		s.Release()
	}); n != 0 {
		t.Errorf("read allocates %v times", n)
	}
}
