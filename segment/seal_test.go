package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manyLogs opens n logs with a few batches each.
func manyLogs(t *testing.T, d *Dir, r *rand.Rand, n int) ([]*Log, [][]byte) {
	t.Helper()
	var logs []*Log
	var want [][]byte
	for i := range n {
		l, _, err := d.OpenLog(LogID{Topic: "many", Partition: int32(i), TopicID: [16]byte{9}}, smallConfig, 0)
		if err != nil {
			t.Fatal(err)
		}
		bs := fill(t, l, r, 1+r.IntN(3))
		logs, want = append(logs, l), append(want, join(bs))
	}
	return logs, want
}

func flushPlans(logs []*Log) (flushes []*Flush) {
	for _, l := range logs {
		if f, ok := l.FlushPlan(); ok {
			flushes = append(flushes, &f)
		}
	}
	return flushes
}

// counted counts operations of a disk, and fails some.
func counted(m *MemFS, fail func(op, name string) error) map[string]int {
	n := map[string]int{}
	m.SetFault(func(op, name string) error {
		n[op]++
		return fail(op, name)
	})
	return n
}

func noFault(string, string) error { return nil }

func TestManyFlushesAreOne(t *testing.T) {
	m := NewMemFS()
	d := openDir(t, m, "/data")
	logs, want := manyLogs(t, d, seed(t), bulkFlushes*2)
	flushes := flushPlans(logs)
	if len(flushes) < bulkFlushes {
		t.Fatalf("only %d logs have something to flush", len(flushes))
	}
	n := counted(m, noFault)
	d.FlushLogs(flushes)
	if n["syncall"] != 1 || n["datasync"]+n["syncdir"] != 0 {
		t.Fatalf("operations %v", n)
	}
	for _, f := range flushes {
		if err := f.Log().Flushed(*f); err != nil || f.Log().Durable() != f.Log().End() {
			t.Fatal(err, f.Log().Durable(), f.Log().End())
		}
	}
	m.SetFault(nil)
	after := m.Crash(func(string, int64) int64 { return 0 })
	e := openDir(t, after, "/data")
	for i, l := range logs {
		got, _, err := e.OpenLog(l.ID(), smallConfig, 0)
		if err != nil || !bytes.Equal(all(t, got), want[i]) {
			t.Fatalf("log %d after a power cut: %v", i, err)
		}
	}
}

// A failed flush of the file system may be another program's: each file is
// asked, and only one of ours that failed ends the directory.
func TestFailedBulkFlushAsksEachFile(t *testing.T) {
	for _, ours := range []bool{false, true} {
		m := NewMemFS()
		d := openDir(t, m, "/data")
		logs, _ := manyLogs(t, d, seed(t), bulkFlushes*2)
		flushes := flushPlans(logs)
		bad := filepath.Join(flushes[3].Log().path, "")
		n := counted(m, func(op, name string) error {
			if op == "syncall" || ours && op == "datasync" && strings.HasPrefix(name, bad+"/") {
				return errInjected
			}
			return nil
		})
		d.FlushLogs(flushes)
		var failed error
		for _, f := range flushes {
			failed = errors.Join(failed, f.Log().Flushed(*f))
		}
		if n["datasync"] < len(flushes) || (d.Failed() != nil) != ours || (failed != nil) != ours {
			t.Fatalf("ours %v: %v, directory %v, operations %v", ours, failed, d.Failed(), n)
		}
	}
}

// Descriptors run out: nothing was flushed, so nothing has failed.
func TestFlushWithoutDescriptorsIsTriedAgain(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	fill(t, l, rand.New(rand.NewPCG(1, 1)), 1)
	f, ok := l.FlushPlan()
	if !ok {
		t.Fatal("nothing to flush")
	}
	m.SetFault(func(op, _ string) error {
		if op == "syncdir" {
			return ErrTooManyFiles
		}
		return nil
	})
	f.Do()
	if err := l.Flushed(f); !errors.Is(err, ErrTooManyFiles) || d.Failed() != nil || l.Durable() == l.End() {
		t.Fatal(err, d.Failed(), l.Durable())
	}
	m.SetFault(nil)
	if f, ok = l.FlushPlan(); !ok || !f.names {
		t.Fatal("the names are not flushed again")
	}
	f.Do()
	if err := l.Flushed(f); err != nil || l.Durable() != l.End() {
		t.Fatal(err)
	}
}

// closeAll seals and closes everything.
func closeAll(t *testing.T, d *Dir, logs []*Log) {
	t.Helper()
	if err := d.SealClean(logs...); err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		l.Close()
	}
	if err := d.CloseClean(); err != nil {
		t.Fatal(err)
	}
}

// After a clean close small logs open without a look into their directories.
func TestCleanStartOpensNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, fs FS, path string) {
		r := seed(t)
		d := openDir(t, fs, path)
		logs, want := manyLogs(t, d, r, bulkFlushes+3)
		big, _, err := d.OpenLog(testID, smallConfig, 0)
		if err != nil {
			t.Fatal(err)
		}
		whole := join(fill(t, big, r, 400)) // more index entries than the manifest takes
		type state struct {
			epochs     string
			producers  string
			start, end int64
		}
		of := func(l *Log) state {
			return state{fmt.Sprint(l.Epochs()), string(l.producers.encode(l.End())), l.Start(), l.End()}
		}
		var was []state
		for _, l := range logs {
			was = append(was, of(l))
		}
		closeAll(t, d, append(logs, big))

		d = openDir(t, fs, path)
		ids, err := d.Scan()
		if err != nil || len(ids) != len(logs)+1 {
			t.Fatal(len(ids), err)
		}
		var again []*Log
		for i, l := range logs {
			n, stats, err := d.OpenLog(l.ID(), smallConfig, 0)
			if err != nil || stats != (RecoveryStats{}) || of(n) != was[i] || n.Durable() != n.End() {
				t.Fatalf("log %d: %v %+v, %+v was %+v", i, err, stats, of(n), was[i])
			}
			again = append(again, n)
		}
		if d.OpenFiles() != 0 {
			t.Fatalf("%d files open", d.OpenFiles())
		}
		if b, stats, err := d.OpenLog(testID, smallConfig, 0); err != nil || stats.Segments == 0 || !bytes.Equal(all(t, b), whole) {
			t.Fatal(err, stats)
		}
		for i, l := range again {
			more := join(fill(t, l, r, 2))
			if !bytes.Equal(all(t, l), append(want[i], more...)) {
				t.Fatalf("log %d does not go on where it was", i)
			}
			l.Close()
		}
		if err := d.Close(); err != nil { // as a crash would
			t.Fatal(err)
		}
		d = openDir(t, fs, path)
		if d.Clean() || len(d.closed) != 0 {
			t.Fatal("an old manifest counts after a crash")
		}
	})
}

// What the manifest says is found without it, whatever has become of the file.
func TestDamagedManifestIsNoManifest(t *testing.T) {
	r := seed(t)
	m := NewMemFS()
	d := openDir(t, m, "/data")
	logs, want := manyLogs(t, d, r, 3)
	closeAll(t, d, logs)
	good, err := m.ReadFile("/data/" + manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		t.Helper()
		c := m.Crash(func(_ string, n int64) int64 { return n })
		if data == nil {
			_ = c.Remove("/data/" + manifestFile)
		} else if err := c.WriteFile("/data/"+manifestFile, data); err != nil {
			t.Fatal(err)
		}
		d := openDir(t, c, "/data")
		for i, l := range logs {
			n, _, err := d.OpenLog(l.ID(), smallConfig, 0)
			if err != nil || !bytes.Equal(all(t, n), want[i]) {
				t.Fatalf("%s: log %d: %v", what, i, err)
			}
		}
	}
	try("as it was", good)
	try("gone", nil)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << r.IntN(8)
		try(fmt.Sprintf("bit of byte %d", i), bad)
		if i%7 == 0 {
			try(fmt.Sprintf("cut at %d", i), good[:i])
		}
	}
}

// A log file that is not as long as the manifest has it is looked into.
func TestManifestIsCheckedAgainstTheFiles(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, DiskFS{}, dir)
	logs, _ := manyLogs(t, d, seed(t), 2)
	closeAll(t, d, logs)
	name := logs[0].path + "/00000000000000000000.log"
	if err := os.Truncate(name, logs[0].Size()-1); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, DiskFS{}, dir)
	if err := d.WriteCheckpoint(RecoveryPointCheckpoint, nil); err != nil {
		t.Fatal(err)
	}
	l, _, err := d.OpenLog(logs[0].ID(), smallConfig, 0)
	var corrupt *CorruptError
	if err == nil && l.End() == logs[0].End() || err != nil && !errors.As(err, &corrupt) {
		t.Fatalf("a shorter file opens as if it were whole: %v", err)
	}
}

// A step that a full disk has ended leaves no file that a loss of power after a
// clean stop could bring back: nobody would look for it, and the next step of that
// name would end the directory.
func TestFailedStepLeavesNoName(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	full := false
	m.SetFault(func(op, _ string) error {
		if full && op == "allocate" {
			return fmt.Errorf("fault: %w", ErrNoSpace)
		}
		return nil
	})
	for err := error(nil); err == nil; {
		full = len(l.Segments()) == 1 && l.Segments()[0].Bytes > 3000
		if full {
			flush(t, l) // the names are durable, and no later flush looks at them
		}
		b := build(plain(l.NextOffset(), 1, 300))
		if err = grow(l, len(b), 0); err == nil {
			l.Queue(b, nothing{})
			err = drain(l, &Write{})
		}
		if err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
	}
	full = false
	closeAll(t, d, []*Log{l})
	for kept := range 12 { // names of each directory that the disk has
		disk := m.PowerCut(Loss{Tail: losing.Tail, Sector: losing.Sector, Names: func(_ string, n int) int { return min(kept, n) }})
		d := openDir(t, disk, "/data")
		l := openLog(t, d, smallConfig)
		if !d.Clean() {
			t.Fatal("not a clean start")
		}
		put(t, l, plain(l.End(), 1, 1500))
		put(t, l, plain(l.End(), 1, 1500))
		put(t, l, plain(l.End(), 1, 1500))
		if len(l.Segments()) < 2 {
			t.Fatal("nothing was rolled")
		}
	}
}

// What retention dropped stays gone over a clean stop and a loss of power: a file
// that is back is in no manifest, and once retention has dropped those after it the
// log has a hole.
func TestDroppedFilesStayGone(t *testing.T) {
	cfg := smallConfig
	cfg.RetentionBytes = 6000
	retain := func(l *Log) {
		if err := drop(l, l.RetentionPlan(0, l.End())); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(l *Log) {
		for range 30 {
			put(t, l, plain(l.NextOffset(), 1, 300))
		}
	}
	m, d, l := memLog(t, cfg)
	fill(l)
	if err := l.AdvanceStart(l.Segments()[1].Base); err != nil { // so that the drop changes no file beside
		t.Fatal(err)
	}
	flush(t, l) // the names are durable, and no later flush looks at them
	retain(l)
	first := l.Segments()[0].Base
	if first == 0 {
		t.Fatal("nothing was dropped")
	}
	closeAll(t, d, []*Log{l})
	for kept := range 40 { // names of each directory that the disk has
		disk := m.PowerCut(Loss{Tail: losing.Tail, Sector: losing.Sector, Names: func(_ string, n int) int { return min(kept, n) }})
		l := openLog(t, openDir(t, disk, "/data"), cfg)
		fill(l)
		flush(t, l)
		retain(l)
		if l.Segments()[0].Base == first {
			t.Fatal("nothing was dropped after the restart")
		}
		end := l.End()
		again, _, err := openDir(t, disk.Died(nil), "/data").OpenLog(testID, cfg, 0)
		if err != nil || again.End() != end {
			t.Fatalf("with %d names kept: %v, the log ends at %d, it was %d", kept, err, again.End(), end)
		}
		again.Close()
	}
}

// A file that could not be removed is seen by the next start, also a clean one.
func TestFileThatStaysIsSeen(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	for range 40 {
		put(t, l, plain(l.NextOffset(), 1, 300))
	}
	m.SetFault(func(op, name string) error {
		if op == "remove" && strings.HasSuffix(name, logSuffix) {
			return fmt.Errorf("fault: %w", ErrNoSpace)
		}
		return nil
	})
	if drop(l, 1) == nil {
		t.Fatal("removed")
	}
	m.SetFault(nil)
	closeAll(t, d, []*Log{l})
	l = openLog(t, openDir(t, m, "/data"), smallConfig)
	if l.Segments()[0].Base != 0 {
		t.Fatalf("the log begins with %d, and a file of offset 0 is there", l.Segments()[0].Base)
	}
}
