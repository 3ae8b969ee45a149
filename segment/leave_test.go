package segment

import (
	"errors"
	"strings"
	"testing"
)

// A log whose topic is gone is deleted when no step of it is under way, and none
// begins meanwhile.
func TestLeaveWaitsForSteps(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 5))
	for l.Room(2000, 0) != RoomGrow {
		put(t, l, plain(l.NextOffset(), 1, 1500))
	}
	g, ok := l.GrowPlan(0)
	if !ok {
		t.Fatal("no step")
	}
	if l.Leave() {
		t.Fatal("a step is under way")
	}
	g.Do()
	if err := l.Grown(g); err != nil || d.Failed() != nil {
		t.Fatal(err, d.Failed())
	}
	if _, ok := l.FlushPlan(); ok || l.Room(1, 0) != RoomFailed || !l.Leave() {
		t.Fatal("a step begins, or the log is not let go")
	}
	if err := d.Delete(l); err != nil {
		t.Fatal(err)
	}
}

// The directory of a log that never had room for a file is the log's as well.
func TestDeleteTakesADirectoryWithoutFiles(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	m.SetFault(func(op, _ string) error {
		if op == "allocate" {
			return ErrNoSpace
		}
		return nil
	})
	if err := grow(l, 100, 0); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	if !l.Leave() {
		t.Fatal("busy")
	}
	if err := d.Delete(l); err != nil {
		t.Fatal(err)
	}
	if names, err := m.ReadDir("/data"); err != nil || strings.Contains(strings.Join(names, " "), "orders") {
		t.Fatal(names, err)
	}
}

// No checkpoint speaks of a deleted log: the next of its name would begin above
// its own records.
func TestDeleteForgetsCheckpoints(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	other, _, err := d.OpenLog(LogID{Topic: "other"}, smallConfig, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Log{l, other} {
		put(t, l, plain(0, 9, 5))
		flush(t, l)
		if err := l.AdvanceStart(7); err != nil {
			t.Fatal(err)
		}
		l.cleaned.Store(7)
	}
	names := []string{RecoveryPointCheckpoint, LogStartCheckpoint, HighWatermarkCheckpoint, CleanerCheckpoint}
	for _, name := range names {
		if err := d.WriteCheckpoint(name, map[TopicPartition]int64{testID.TopicPartition(): 7, {Topic: "other"}: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if !l.Leave() {
		t.Fatal("busy")
	}
	if err := d.Delete(l); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if c, err := d.ReadCheckpoint(name); err != nil || len(c) != 1 {
			t.Errorf("%s: %v %v", name, c, err)
		}
	}
	again := testID
	again.TopicID[0]++
	l, _, err = openDir(t, m.Died(nil), "/data").OpenLog(again, smallConfig, 0)
	if err != nil || l.Start() != 0 {
		t.Fatal(err)
	}
}

// Where a log starts anew is on disk before a flush says that it is durable, also
// when the log had no file.
func TestRestartOfAnEmptyLogIsKept(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	p, err := l.RestartPlan(18)
	if err != nil {
		t.Fatal(err)
	}
	p.Do()
	if err := l.Truncated(p); err != nil {
		t.Fatal(err)
	}
	flush(t, l)
	l = openLog(t, openDir(t, m.PowerCut(losing), "/data"), smallConfig)
	if l.Start() != 18 || l.End() != 18 {
		t.Fatalf("%d..%d", l.Start(), l.End())
	}
}

// Below the log start one epoch is as good as another: a follower that is at the
// start is not told that it differs.
func TestEpochsBeginAtTheLogStart(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	for i, e := range []int32{2, 5} {
		s := plain(int64(i), 1, 1)
		s.epoch = e
		put(t, l, s)
	}
	l.AssignEpoch(7, 2)
	if err := l.AdvanceStart(2); err != nil {
		t.Fatal(err)
	}
	if e, end := l.EndOffsetForEpoch(6); e != 6 || end != 2 {
		t.Fatalf("epoch 6 ends as (%d, %d)", e, end)
	}
}

// Producers whose batches retention has taken are known after a restart, although
// no recovery point covers them.
func TestProducersOutliveTheirBatches(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	s := plain(0, 1, 1500)
	s.pid, s.pepoch, s.seq = 9, 0, 0
	put(t, l, s)
	for len(l.list()) < 2 {
		put(t, l, plain(l.NextOffset(), 1, 1500))
	}
	if err := drop(l, 1); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openDir(t, m.Died(nil), "/data"), smallConfig)
	if v := l.Producers().Check(9, 0, 0, 1); !v.Duplicate {
		t.Fatalf("a repeated batch: %+v", v)
	}
}

// Who was told to wait for a step because the log was at rest is not forgotten
// when a read opens it first.
func TestAReadOpensWhatAProducerWaitsFor(t *testing.T) {
	_, _, l := memLog(t, smallConfig)
	put(t, l, plain(0, 1, 5))
	flush(t, l)
	rest(t, l)
	if l.Room(70, 0) != RoomGrow {
		t.Fatal("not at rest")
	}
	all(t, l)
	g, ok := l.GrowPlan(0)
	if !ok {
		t.Fatal("no step: nobody goes on with what waits for one")
	}
	g.Do()
	if err := l.Grown(g); err != nil || l.Room(70, 0) == RoomGrow {
		t.Fatal(err)
	}
	if _, ok := l.GrowPlan(0); ok {
		t.Fatal("a step for nobody")
	}
}
