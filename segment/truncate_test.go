package segment

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"lockstep/internal/wire"
)

func truncate(t *testing.T, l *Log, to int64) error {
	t.Helper()
	tr, err := l.TruncatePlan(to)
	if err != nil {
		t.Fatal(err)
	}
	if l.Room(100, 0) != RoomGrow && tr.End() < l.End() {
		t.Fatal("room during a truncation")
	}
	tr.Do()
	return l.Truncated(tr)
}

// below returns the batches wholly below an offset.
func below(bs []wire.Batch, to int64) []wire.Batch {
	n := 0
	for n < len(bs) && bs[n].NextOffset() <= to {
		n++
	}
	return bs[:n]
}

func TestTruncateKeepsSlicesAndFollowsUp(t *testing.T) {
	onBoth(t, func(t *testing.T, fs FS, path string) {
		r := seed(t)
		d := openDir(t, fs, path)
		l := openLog(t, d, smallConfig)
		var bs []wire.Batch
		for round := range 60 {
			bs = append(bs, fill(t, l, r, 1+r.IntN(20))...)
			if r.IntN(2) == 0 {
				flush(t, l)
			}
			old := join(bs)
			var pinned []Slice
			for at := int64(0); at < l.End(); {
				s, err := l.Read(at, 1<<20, l.End(), true)
				if err != nil {
					t.Fatal(err)
				}
				pinned = append(pinned, s)
				at = s.Next
			}
			to := max(0, l.End()-r.Int64N(60))
			if r.IntN(10) == 0 {
				to = r.Int64N(l.End() + 1)
			}
			bs = below(bs, to)
			end := int64(0)
			if len(bs) > 0 {
				end = bs[len(bs)-1].NextOffset()
			}
			if err := truncate(t, l, to); err != nil {
				t.Fatal(err)
			}
			if l.End() != end || l.NextOffset() != end || l.Durable() > end || !bytes.Equal(all(t, l), join(bs)) || l.Size() != int64(len(join(bs))) {
				t.Fatalf("round %d: truncated to %d: end %d, want %d", round, to, l.End(), end)
			}
			sameProducers(t, l.producers, replay(bs, end))
			if e := l.Epochs(); len(e) > 0 && e[len(e)-1].Start >= end {
				t.Fatalf("epochs %v above %d", e, end)
			}
			bs = append(bs, fill(t, l, r, r.IntN(6))...)
			compareReads(t, l, twinOf(l, bs), r, 50)
			for _, s := range pinned { // published bytes never change
				if !bytes.HasPrefix(old, s.Bytes) {
					t.Fatal("a pinned slice changed under a truncation")
				}
				old = old[len(s.Bytes):]
				s.Release()
			}
			if r.IntN(3) == 0 {
				flush(t, l)
				if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): l.Durable()}); err != nil {
					t.Fatal(err)
				}
				l.Close()
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				d = openDir(t, fs, path)
				l = openLog(t, d, smallConfig)
				if !bytes.Equal(all(t, l), join(bs)) {
					t.Fatalf("round %d: reopened with other bytes", round)
				}
				sameProducers(t, l.producers, replay(bs, l.End()))
			}
		}
	})
}

var errInjected = errors.New("injected")

// Every operation of a truncation fails once, as at a crash: what is there
// after a restart is the log before, or a prefix of it that holds at least
// what the truncation was to keep.
func TestCrashInsideTruncation(t *testing.T) {
	r := seed(t)
	for round := range 30 {
		m, d, l := memLog(t, smallConfig)
		bs := fill(t, l, r, 40)
		if round%2 == 0 { // a stale tail before the end that a crash must not bring back
			if err := truncate(t, l, l.End()-5); err != nil {
				t.Fatal(err)
			}
			bs = append(below(bs, l.End()), fill(t, l, r, 3)...)
		}
		flush(t, l)
		if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): l.Durable()}); err != nil {
			t.Fatal(err)
		}
		to := r.Int64N(l.End())
		kept := join(below(bs, to))
		for n := 0; ; n++ {
			c := m.image()
			d := openDir(t, c, "/data")
			l, _, err := d.OpenLog(testID, smallConfig, 0)
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			c.SetFault(func(op, name string) error {
				if count++; count > n {
					return errInjected
				}
				return nil
			})
			err = truncate(t, l, to)
			c.SetFault(nil)
			after, _, err2 := openDir(t, c.image(), "/data").OpenLog(testID, smallConfig, 0)
			if err2 != nil {
				t.Fatalf("operation %d of a truncation to %d of %d: %v", n, to, l.End(), err2)
			}
			if e := after.Epochs(); len(e) > 0 && e[len(e)-1].Start >= after.End() {
				t.Fatalf("operation %d: epochs %v of a log that ends at %d", n, e, after.End())
			}
			got := all(t, after)
			if !bytes.HasPrefix(join(bs), got) || !bytes.HasPrefix(got, kept) {
				t.Fatalf("operation %d: %d bytes, %d were to stay of %d", n, len(got), len(kept), len(join(bs)))
			}
			if err == nil {
				if !bytes.Equal(got, kept) {
					t.Fatal("truncated log came back")
				}
				break
			}
			if !errors.Is(l.err(), ErrDirFailed) {
				t.Fatal("a half done truncation did not fail the directory")
			}
		}
	}
}

func TestRestartAt(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	fill(t, l, seed(t), 40)
	for _, at := range []int64{500, 20, 0, 0} {
		tr, err := l.RestartPlan(at)
		if err != nil {
			t.Fatal(err)
		}
		tr.Do()
		if err := l.Truncated(tr); err != nil {
			t.Fatal(err)
		}
		if l.Start() != at || l.End() != at || l.Size() != 0 || l.LatestEpoch() != -1 || l.producers.Len() != 0 {
			t.Fatalf("restarted at %d: %d..%d", at, l.Start(), l.End())
		}
		bs := put(t, l, plain(at, 3, 10))
		l.Close()
		l = openLog(t, d, smallConfig)
		if l.Start() != at || !bytes.Equal(all(t, l), join(bs)) {
			t.Fatalf("reopened at %d..%d", l.Start(), l.End())
		}
	}
}

func TestCutSegmentIsNotOpenedAgain(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 5), plain(1, 1, 5))
	old := l.active()
	if err := truncate(t, l, 1); err != nil {
		t.Fatal(err)
	}
	rest(t, l)
	if _, err := old.pin(); err != errRetired || d.OpenFiles() != 0 {
		t.Fatalf("%v, %d open", err, d.OpenFiles())
	}
}

// A snapshot of producers above the new end must not come back once the log
// has grown past it again.
func TestTruncationForgetsLaterSnapshots(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	for i := range 4 {
		s := plain(int64(i), 1, 5)
		s.pid, s.pepoch, s.seq = 1, 0, int32(i)
		put(t, l, s)
	}
	if err := l.SealClean(); err != nil { // leaves one at offset 4
		t.Fatal(err)
	}
	l.Close()
	l = openLog(t, d, smallConfig)
	if err := truncate(t, l, 2); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s := plain(int64(2+i), 1, 5)
		s.pid, s.pepoch, s.seq = 2, 0, int32(i)
		put(t, l, s)
	}
	flush(t, l)
	p := testID.TopicPartition()
	if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{p: l.Durable()}); err != nil {
		t.Fatal(err)
	}
	want := l.producers
	l = openLog(t, openDir(t, m.image(), "/data"), smallConfig)
	sameProducers(t, l.producers, want)
}

func TestTruncateBusy(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 1))
	b := build(plain(1, 1, 1))
	if err := grow(l, len(b), 0); err != nil {
		t.Fatal(err)
	}
	l.Queue(b, nothing{})
	if _, err := l.TruncatePlan(0); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
}

func TestEpochsAnswerAsKafka(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	if e, end := l.EndOffsetForEpoch(0); e != -1 || end != -1 {
		t.Fatal(e, end)
	}
	for i, e := range []int32{2, 2, 5, 5, 7} {
		s := plain(int64(i), 1, 1)
		s.epoch = e
		put(t, l, s)
	}
	l.AssignEpoch(9, 5)
	l.AssignEpoch(9, 5)
	for _, c := range []struct {
		ask, epoch int32
		end        int64
	}{{-1, -1, -1}, {1, 1, 0}, {2, 2, 2}, {3, 2, 2}, {5, 5, 4}, {6, 5, 4}, {7, 7, 5}, {8, 7, 5}, {9, 9, 5}, {10, -1, -1}} {
		if e, end := l.EndOffsetForEpoch(c.ask); e != c.epoch || end != c.end {
			t.Errorf("epoch %d: (%d, %d), want (%d, %d)", c.ask, e, end, c.epoch, c.end)
		}
	}
	if l.EpochAt(3) != 5 || l.EpochAt(-1) != -1 || l.EpochAt(100) != 9 {
		t.Error("EpochAt")
	}
	want := []EpochStart{{2, 0}, {5, 2}, {7, 4}, {9, 5}}
	if got, ok := decodeEpochs(encodeEpochs(l.Epochs())); !ok || !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if err := truncate(t, l, 3); err != nil {
		t.Fatal(err)
	}
	if got := l.Epochs(); !slices.Equal(got, want[:2]) {
		t.Errorf("after a truncation: %v", got)
	}
	if err := l.AdvanceStart(3); err != nil {
		t.Fatal(err)
	}
	if got := l.Epochs(); !slices.Equal(got, []EpochStart{{5, 3}}) {
		t.Errorf("after start rose: %v", got)
	}
	l.AssignEpoch(11, 3) // a new leader that begins where an older epoch did
	if got := l.Epochs(); !slices.Equal(got, []EpochStart{{11, 3}}) {
		t.Errorf("after an epoch at the same offset: %v", got)
	}
	for _, bad := range []string{"", "1\n0\n", "0\n2\n1 1\n", "0\n2\n2 1\n1 2\n", "0\n1\nx 1\n"} {
		if _, ok := decodeEpochs([]byte(bad)); ok {
			t.Errorf("decoded %q", bad)
		}
	}
}
