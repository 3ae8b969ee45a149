package segment

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lockstep/internal/wire"
)

// What the crash tests found, each once more by itself.

func crashLog(t *testing.T, disk *crashFS) (*Dir, *Log) {
	d := openDir(t, disk, "/data")
	return d, openLog(t, d, smallConfig)
}

// A partition that is offline because it is damaged keeps its recovery point
// when the others are checkpointed: without it the next start would cut it.
func TestOfflinePartitionKeepsItsRecoveryPoint(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 3, 20), plain(3, 3, 20))
	flush(t, l)
	if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): 6}); err != nil {
		t.Fatal(err)
	}
	c := m.image()
	c.last(logSuffix).data[90] ^= 1
	for range 2 {
		d = openDir(t, c, "/data")
		_, _, err := d.OpenLog(testID, smallConfig, 0)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("damage below the recovery point: %v", err)
		}
		if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{}); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A batch of an older epoch behind one of a newer is what a file system
// brought back from before an earlier loss of power.
func TestFallingEpochIsATornTail(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	bs := put(t, l, spec{base: 0, count: 1, epoch: 4, pid: -1, pepoch: -1, seq: -1}, spec{base: 1, count: 1, epoch: 3, pid: -1, pepoch: -1, seq: -1})
	l.Close()
	if l = openLog(t, d, smallConfig); l.End() != 1 || !bytes.Equal(all(t, l), bs[0]) {
		t.Fatalf("end %d, the batch of epoch 3 after epoch 4 is taken", l.End())
	}
	if size := m.last(logSuffix).size; size != int64(len(bs[0])) {
		t.Fatalf("the file has %d bytes", size)
	}
}

// A producer snapshot above the recovery point does not outlive a recovery.
func TestSnapshotAboveTheRecoveryPointGoes(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	put(t, l, plain(0, 3, 20), plain(3, 3, 20))
	stale := newProducers()
	stale.Add(wire.Batch(build(spec{base: 0, count: 3, pid: 7, ts: 1})), 0)
	name := segmentName(l.path, 3, snapshotSuffix)
	if err := m.WriteFile(name, stale.encode(3)); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = openLog(t, d, smallConfig)
	if _, err := m.ReadFile(name); err == nil {
		t.Fatal("it is still there")
	}
	if len(l.producers.byID) != 0 {
		t.Fatal("it is believed")
	}
}

// What a failed flush has left in the cache the next process writes again before
// it counts as durable: the kernel takes it for written.
func TestFailedFlushIsWrittenAgain(t *testing.T) {
	disk := newCrashFS()
	d, l := crashLog(t, disk)
	bs := put(t, l, plain(0, 3, 20))
	flush(t, l)
	bs = append(bs, put(t, l, plain(3, 3, 20))...)
	disk.hook = func(op, _ string, n int) (int, error) {
		if op == "datasync" {
			return 0, fault(op, syscall.EIO)
		}
		return n, nil
	}
	f, _ := l.FlushPlan()
	f.Do()
	if err := l.Flushed(f); err == nil || d.Failed() == nil {
		t.Fatal("a failed flush is no error")
	}
	disk.hook, disk.locks = nil, map[string]bool{}
	l.Close()
	_, l = crashLog(t, disk)
	if !bytes.Equal(all(t, l), join(bs)) || l.Durable() > 3 {
		t.Fatalf("end %d, durable %d", l.End(), l.Durable())
	}
	flush(t, l)
	if l.Durable() != 6 {
		t.Fatalf("durable %d after a flush", l.Durable())
	}
	_, l = crashLog(t, disk.image(len(disk.ops), loseAll, seed(t)))
	if !bytes.Equal(all(t, l), join(bs)) {
		t.Fatalf("end %d after a loss of power, 6 was durable", l.End())
	}
}

// A full disk refuses the restart of a log before anything is gone.
func TestRestartOnAFullDiskIsRefused(t *testing.T) {
	disk := newCrashFS()
	d, l := crashLog(t, disk)
	bs := put(t, l, plain(0, 3, 20))
	flush(t, l)
	disk.hook = func(op, _ string, n int) (int, error) {
		if op == "create" {
			return 0, fault(op, syscall.ENOSPC)
		}
		return n, nil
	}
	restart := func() error {
		p, err := l.RestartPlan(100)
		if err != nil {
			t.Fatal(err)
		}
		p.Do()
		return l.Truncated(p)
	}
	if err := restart(); !errors.Is(err, ErrNoSpace) || d.Failed() != nil || l.Start() != 0 || !bytes.Equal(all(t, l), join(bs)) {
		t.Fatalf("%v, directory %v, log %d..%d", err, d.Failed(), l.Start(), l.End())
	}
	disk.hook = nil
	if err := restart(); err != nil || l.Start() != 100 || l.End() != 100 || l.Durable() != 100 {
		t.Fatalf("%v, log %d..%d", err, l.Start(), l.End())
	}
}

// A topic that met a full disk at its first append and was deleted leaves
// nothing that keeps its name from coming back.
func TestDeleteAfterAFullDiskAtTheFirstAppend(t *testing.T) {
	disk := newCrashFS()
	d, l := crashLog(t, disk)
	disk.hook = func(op, _ string, n int) (int, error) {
		if op == "allocate" {
			return 0, fault(op, syscall.ENOSPC)
		}
		return n, nil
	}
	if err := grow(l, 100, 1); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	disk.hook = nil
	if err := d.Delete(l); err != nil {
		t.Fatal(err)
	}
	again := testID
	again.TopicID[0]++
	if _, _, err := d.OpenLog(again, smallConfig, 0); err != nil {
		t.Fatal(err)
	}
}

// A cut of a torn tail is flushed before anything is written in its place.
func TestCutOfATornTailIsDurable(t *testing.T) {
	disk := newCrashFS()
	_, l := crashLog(t, disk)
	put(t, l, plain(0, 3, 20), plain(3, 3, 20))
	flush(t, l)
	torn := disk.clone()
	x := torn.names[segmentName("/data/orders-eu-3", 0, logSuffix)]
	x.size -= 5
	x.first = x.data[:x.size]
	_, l = crashLog(t, torn)
	cut := slices.IndexFunc(torn.ops, func(op diskOp) bool { return op.kind == opTruncate && op.n == x })
	if l.End() != 3 || cut < 0 || !slices.ContainsFunc(torn.ops[cut:], func(op diskOp) bool { return op.kind == opSync && op.n == x }) {
		t.Fatalf("end %d, cut at operation %d, no flush after it", l.End(), cut)
	}
}

// An index of batches that were lost may end where those do that came in their
// place: a recovery that walks the segment replaces it.
func TestWalkedSegmentGetsANewIndex(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	bs := fill(t, l, seed(t), 60)
	s := l.list()[0]
	right := encodeIndex(s.index, s.content())
	stale := s.content()
	stale.size -= 100
	name := segmentName(l.path, s.base, indexSuffix)
	if err := m.WriteFile(name, encodeIndex(s.index.cut(300), stale)); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = openLog(t, d, smallConfig)
	if data, err := m.ReadFile(name); err != nil || !bytes.Equal(data, right) {
		t.Fatalf("the index is %d bytes, want %d: %v", len(data), len(right), err)
	}
	if !bytes.Equal(all(t, l), join(bs)) {
		t.Fatal("reads")
	}
}

// A segment that is not flushed was dropped and could not be unlinked; what came
// behind it was flushed. After a loss of power its torn end was a hole, and
// recovery cut what had been acknowledged behind it.
func TestUnlinkFailsBeforeTheFlush(t *testing.T) {
	const seed, remove = 723656455037999, 149 // found by make crash, -crash.seed=723656455037987
	runScript(t, seed, remove, ioError, 22, false).checked(t, &tally{})
}

// A file that could not be unlinked once and later ones that could were a hole:
// the next start cut the log, or called it corrupt.
func TestUnlinkFailsThenOthersDoNot(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	for range 8 {
		put(t, l, plain(l.NextOffset(), 1, 1500))
	}
	flush(t, l)
	m.SetFault(func(op, name string) error {
		if op == "remove" && strings.HasSuffix(name, logSuffix) {
			return syscall.EIO
		}
		return nil
	})
	first := l.Segments()[1].Base
	if err := drop(l, 1); !errors.Is(err, syscall.EIO) || l.Start() != first {
		t.Fatalf("%v, the log starts at %d", err, l.Start())
	}
	m.SetFault(nil)
	if err := drop(l, 1); err != nil {
		t.Fatal(err)
	}
	end, want := l.End(), all(t, l)
	l = openLog(t, openDir(t, m.Died(nil), "/data"), smallConfig)
	if l.End() != end || !bytes.Equal(all(t, l), want) {
		t.Fatalf("after a restart the log is %d to %d, it was to %d", l.Start(), l.End(), end)
	}
}

// While files are unlinked a truncation waits: it might give one of their names to
// a file of its own. What could not be unlinked goes when everything goes.
func TestTruncationAndFilesThatStay(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	for range 8 {
		put(t, l, plain(l.NextOffset(), 1, 1500))
	}
	flush(t, l)
	d, ok := l.Drop(2)
	if !ok {
		t.Fatal("nothing to drop")
	}
	if _, err := l.TruncatePlan(0); !errors.Is(err, ErrBusy) {
		t.Fatalf("a truncation beside a drop: %v", err)
	}
	m.SetFault(func(op, name string) error {
		if op == "remove" {
			return syscall.EIO
		}
		return nil
	})
	if d.Do() == nil {
		t.Fatal("removed")
	}
	l.Unlinked(d)
	m.SetFault(nil)
	cut, err := l.RestartPlan(50)
	if err != nil {
		t.Fatal(err)
	}
	cut.Do()
	if err := l.Truncated(cut); err != nil {
		t.Fatal(err)
	}
	put(t, l, plain(50, 1, 10))
	flush(t, l)
	if err := drop(l, 0); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openDir(t, m.Died(nil), "/data"), smallConfig)
	if l.Start() != 50 || l.End() != 51 {
		t.Fatalf("after a restart at 50 the log is %d to %d", l.Start(), l.End())
	}
}
