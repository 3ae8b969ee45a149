package segment

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/wire"
)

func TestDirIsLockedAndKnowsItsCluster(t *testing.T) {
	onBoth(t, func(t *testing.T, fs FS, path string) {
		d, err := OpenDir(fs, path, DirOptions{NodeID: 7})
		if err != nil || d.ClusterID() != "" || d.Clean() {
			t.Fatal(err)
		}
		_, err = OpenDir(fs, path, DirOptions{NodeID: 7})
		if !errors.Is(err, ErrInUse) || err.Error() != "log directory "+path+" is in use by another process" {
			t.Fatal(err)
		}
		if err := errors.Join(d.SetClusterID("c1"), d.SetClusterID("c1"), d.CloseClean()); err != nil {
			t.Fatal(err)
		}
		for _, o := range []DirOptions{{ClusterID: "c2", NodeID: 7}, {ClusterID: "c1", NodeID: 8}, {NodeID: 8}} {
			if d, err := OpenDir(fs, path, o); err == nil {
				t.Fatalf("%+v opened the directory of cluster %s", o, d.ClusterID())
			}
		}
		d = openDir(t, fs, path)
		if !d.Clean() {
			t.Fatal("refused openings used up the marker of the clean close")
		}
		if err := d.SetClusterID("c2"); err == nil {
			t.Fatal("changed the cluster")
		}
		data, err := fs.Meta().ReadFile(filepath.Join(path, propsFile))
		if err != nil || string(data) != "version=1\nnode.id=7\nlockstep.format=1\ncluster.id=c1\n" {
			t.Fatalf("%q %v", data, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if openDir(t, fs, path).Clean() { // the marker went before loading
			t.Fatal("clean after a crash")
		}
	})
}

func TestCheckpointFiles(t *testing.T) {
	_, d, _ := memLog(t, smallConfig)
	if m, err := d.ReadCheckpoint(HighWatermarkCheckpoint); err != nil || len(m) != 0 {
		t.Fatal(m, err)
	}
	want := map[TopicPartition]int64{{"b", 1}: 5, {"a-b.c_d", 12}: 1 << 40, {"a", 0}: 0}
	if err := d.WriteCheckpoint(HighWatermarkCheckpoint, want); err != nil {
		t.Fatal(err)
	}
	data, _ := d.fs.Meta().ReadFile("/data/replication-offset-checkpoint")
	if string(data) != "0\n3\na 0 0\na-b.c_d 12 1099511627776\nb 1 5\n" {
		t.Fatalf("%q", data)
	}
	if got, err := d.ReadCheckpoint(HighWatermarkCheckpoint); err != nil || !maps.Equal(got, want) {
		t.Fatal(got, err)
	}
	for _, bad := range []string{"", "0\n", "0\n2\na 0 0\n", "1\n0\n", "0\n1\na 0\n", "0\n1\na x 0\n"} {
		if _, ok := decodeCheckpoint([]byte(bad)); ok {
			t.Errorf("decoded %q", bad)
		}
	}
}

func TestNamesOfPartitions(t *testing.T) {
	for name, want := range map[string]TopicPartition{"a-0": {"a", 0}, "a-b-12": {"a-b", 12}, "-1": {}, "a": {}, "a-": {}, "a-01": {}, "a-x": {}, "a-0.00ff-delete": {}} {
		if got, ok := parsePartition(name); got != want || ok != (want != TopicPartition{}) {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
	for name, want := range map[string]int64{"00000000000000000042.log": 42, "42.log": -1, "0000000000000000004x.log": -1, "-0000000000000000042.log": -1, "99999999999999999999.log": -1} {
		if got, ok := parseName(name, logSuffix); ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d %v", name, got, ok)
		}
	}
}

func TestDeleteSurvivesACrashAndARecreatedTopic(t *testing.T) {
	r := seed(t)
	m, d, l := memLog(t, smallConfig)
	fill(t, l, r, 60)
	flush(t, l)
	p := testID.TopicPartition()
	if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{p: l.End()}); err != nil {
		t.Fatal(err)
	}
	removes := 0
	m.SetFault(func(op, _ string) error {
		if op == "remove" {
			if removes++; removes > 2 {
				return errInjected
			}
		}
		return nil
	})
	if err := d.Delete(l); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	m.SetFault(nil)
	c := m.image()
	d = openDir(t, c, "/data")
	for name := range c.files {
		if strings.Contains(name, "orders") {
			t.Fatalf("%s was left", name)
		}
	}
	id := testID
	id.TopicID[5] = 9
	l, _, err := d.OpenLog(id, smallConfig, 0)
	if err != nil || l.End() != 0 {
		t.Fatal(err)
	}
	put(t, l, plain(0, 1, 1))
	d = openDir(t, c.image(), "/data") // a crash: the old recovery point must not be held against the new log
	if l, _, err = d.OpenLog(id, smallConfig, 0); err != nil || l.End() != 1 {
		t.Fatal(err)
	}
	if err := d.Delete(l); err != nil {
		t.Fatal(err)
	}
}

// The disk is waited for as often for many deleted logs as for one.
func TestDeleteOfManyWaitsOnce(t *testing.T) {
	seed(t)
	syncs := func(n int) (count int) {
		m := NewMemFS()
		d := openDir(t, m, "/data")
		points := map[TopicPartition]int64{}
		var logs []*Log
		for i := range n {
			id := LogID{Topic: "orders", Partition: int32(i), TopicID: testID.TopicID}
			l, _, err := d.OpenLog(id, smallConfig, 0)
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, plain(0, 1, 1))
			points[id.TopicPartition()] = 0
			logs = append(logs, l)
		}
		if err := d.WriteCheckpoint(RecoveryPointCheckpoint, points); err != nil || d.Logs() != n {
			t.Fatal(err, d.Logs())
		}
		m.SetFault(func(op, _ string) error {
			if op == "syncdir" || op == "writefile" {
				count++
			}
			return nil
		})
		if err := d.Delete(logs...); err != nil {
			t.Fatal(err)
		}
		if left, err := d.ReadCheckpoint(RecoveryPointCheckpoint); err != nil || len(left) != 0 || d.Logs() != 0 {
			t.Fatalf("left: %v, %d logs, %v", left, d.Logs(), err)
		}
		if ids, err := d.Scan(); err != nil || len(ids) != 0 {
			t.Fatalf("left: %v %v", ids, err)
		}
		return count
	}
	if one, many := syncs(1), syncs(50); one == 0 || one != many {
		t.Errorf("%d waits for one log, %d for fifty", one, many)
	}
}

// Every operation of a life fails once with an I/O error. Whatever happens:
// no panic, nothing flushed is lost, and a restart finds a prefix.
func TestEveryOperationFailsOnce(t *testing.T) {
	r := seed(t)
	for n := 0; ; n++ {
		m := NewMemFS()
		count := 0
		m.SetFault(func(op, name string) error {
			if count++; count == n+1 {
				return fmt.Errorf("%s %s: %w", op, name, errInjected)
			}
			return nil
		})
		bs, durable, err := life(m, r.Int64N(3) == 0)
		m.SetFault(nil)
		c := m.Crash(func(_ string, n int64) int64 { return r.Int64N(n + 1) })
		d, err2 := OpenDir(c, "/data", DirOptions{ClusterID: "c1", NodeID: 7})
		if err2 != nil {
			t.Fatalf("operation %d: %v", n, err2)
		}
		l, _, err2 := d.OpenLog(testID, smallConfig, 0)
		if err2 != nil {
			t.Fatalf("operation %d: %v", n, err2)
		}
		if got := all(t, l); l.End() < durable || !strings.HasPrefix(string(join(bs)), string(got)) {
			t.Fatalf("operation %d (%v): end %d, durable %d", n, err, l.End(), durable)
		}
		if count <= n {
			if err != nil {
				t.Fatal(err)
			}
			if n < 40 {
				t.Fatalf("only %d operations in a life", n)
			}
			return
		}
	}
}

// life opens, appends, flushes, rolls and closes until something fails.
func life(m *MemFS, checkpoints bool) (bs []wire.Batch, durable int64, err error) {
	d, err := OpenDir(m, "/data", DirOptions{ClusterID: "c1", NodeID: 7})
	if err != nil {
		return nil, 0, err
	}
	l, _, err := d.OpenLog(testID, smallConfig, 0)
	if err != nil {
		return nil, 0, err
	}
	var w Write
	for i := range 14 {
		b := build(plain(l.NextOffset(), 1, 900))
		if err := grow(l, len(b), 0); err != nil {
			return bs, l.Durable(), err
		}
		l.Queue(b, nothing{})
		bs = append(bs, b)
		if err := drain(l, &w); err != nil {
			return bs, l.Durable(), err
		}
		if i%3 != 0 {
			continue
		}
		if f, ok := l.FlushPlan(); ok {
			f.Do()
			if err := l.Flushed(f); err != nil {
				return bs, l.Durable(), err
			}
		}
		if checkpoints {
			if err := d.WriteCheckpoint(RecoveryPointCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): l.End()}); err != nil {
				return bs, l.Durable(), err
			}
		}
	}
	if err := l.SealClean(); err != nil {
		return bs, l.Durable(), err
	}
	durable = l.Durable()
	l.Close()
	return bs, durable, d.CloseClean()
}

func TestWalk(t *testing.T) {
	data := append(join([]wire.Batch{build(plain(0, 2, 5)), build(plain(2, 1, 5))}), 1, 2, 3)
	var seen []int64
	n, err := Walk(data, func(pos int64, b wire.Batch) error { seen = append(seen, pos, b.BaseOffset()); return nil })
	if err != nil || n != int64(len(data)-3) || !slices.Equal(seen, []int64{0, 0, int64(len(build(plain(0, 2, 5)))), 2}) {
		t.Fatal(n, err, seen)
	}
	if n, err = Walk(data, func(int64, wire.Batch) error { return errInjected }); n != 0 || !errors.Is(err, errInjected) {
		t.Fatal(n, err)
	}
}
