package segment

import (
	"bytes"
	"errors"
	"testing"
)

func TestRestClosesAndWakes(t *testing.T) {
	onBoth(t, func(t *testing.T, fs FS, path string) {
		r := seed(t)
		d := openDir(t, fs, path)
		l := openLog(t, d, smallConfig)
		bs := fill(t, l, r, 60)
		s, err := l.Read(0, 1000, l.End(), true)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := l.restPlan(); ok {
			r.Do()
			t.Fatal("files in use were closed")
		}
		rest(t, l)
		if n := d.OpenFiles(); n != 1 { // the pinned one
			t.Fatalf("%d files open at rest", n)
		}
		if !bytes.HasPrefix(join(bs), s.Bytes) {
			t.Fatal("a pinned slice changed")
		}
		s.Release()
		if n := d.OpenFiles(); n != 0 {
			t.Fatalf("%d files open at rest and unpinned", n)
		}
		alloc := l.active().alloc
		if l.Room(10, 0) != RoomGrow {
			t.Fatal("room in a closed file")
		}
		g, ok := l.GrowPlan(0)
		if !ok {
			t.Fatal("no step to wake up")
		}
		g.Do()
		if err := l.Grown(g); err != nil || d.OpenFiles() != 1 || l.active().alloc != alloc {
			t.Fatalf("%v, %d open", err, d.OpenFiles())
		}
		bs = append(bs, fill(t, l, r, 1)...)
		rest(t, l)
		compareReads(t, l, twinOf(l, bs), r, 200)
		rest(t, l)
		if err := l.SealClean(); err != nil {
			t.Fatal(err)
		}
		l.Close()
		if n := d.OpenFiles(); n != 0 {
			t.Fatalf("%d files open after Close", n)
		}
	})
}

// Were a file closed while the kernel has bytes of it to write, an error of
// that write would be told to nobody: the next flush would call them durable.
func TestBytesNotDurableKeepTheirFileOpen(t *testing.T) {
	_, d, l := memLog(t, smallConfig)
	for range 60 {
		put(t, l, plain(l.NextOffset(), 2, 100))
	}
	for range 3 {
		if r, ok := l.restPlan(); ok {
			r.Do()
		}
	}
	dirty := 0
	for _, s := range l.list() {
		if s.end.Load() <= l.Durable() {
			continue
		}
		if dirty++; s.m.Load() == nil {
			t.Errorf("the file of %d..%d was closed with %d durable", s.base, s.end.Load(), l.Durable())
		}
	}
	if dirty == 0 {
		t.Fatalf("everything is durable: %d of %d", l.Durable(), l.End())
	}
	rest(t, l)
	if n := d.OpenFiles(); n != 0 {
		t.Fatalf("%d files open at rest", n)
	}
}

// Too many open files is an error of that call, not the end of a directory.
func TestTooManyFilesIsRetriable(t *testing.T) {
	m, d, l := memLog(t, smallConfig)
	bs := fill(t, l, seed(t), 30)
	rest(t, l)
	m.SetFault(func(op, _ string) error {
		if op == "open" || op == "create" {
			return ErrTooManyFiles
		}
		return nil
	})
	if _, err := l.Read(0, 100, l.End(), true); !errors.Is(err, ErrTooManyFiles) {
		t.Fatal(err)
	}
	if err := grow(l, 10, 0); !errors.Is(err, ErrTooManyFiles) {
		t.Fatal(err)
	}
	if _, err := l.TruncatePlan(l.End() - 1); !errors.Is(err, ErrTooManyFiles) {
		t.Fatal(err)
	}
	m.SetFault(nil)
	if d.Failed() != nil || !bytes.Equal(all(t, l), join(bs)) {
		t.Fatal(d.Failed())
	}
}

func TestManyLogsStayWithinTheBudget(t *testing.T) {
	m := NewMemFS()
	for range 2 { // the second time they are recovered
		d, err := OpenDir(m, "/data", DirOptions{ClusterID: "c1", NodeID: 7, MaxOpenFiles: 10})
		if err != nil {
			t.Fatal(err)
		}
		var logs []*Log
		for i := range 50 {
			l, _, err := d.OpenLog(LogID{Topic: "many", Partition: int32(i)}, smallConfig, 0)
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, l)
			put(t, l, plain(l.End(), 1, 10))
			if !d.Crowded(false) {
				continue
			}
			var flushes []*Flush
			for _, l := range logs {
				if f, ok := l.FlushPlan(); ok {
					flushes = append(flushes, &f)
				}
			}
			d.FlushLogs(flushes)
			for _, f := range flushes {
				if err := f.Log().Flushed(*f); err != nil {
					t.Fatal(err)
				}
			}
			for _, l := range append(logs, logs...) { // the clock's hand goes round twice
				if r, ok := l.RestPlan(); ok {
					r.Do()
				}
			}
			if n := d.OpenFiles(); n > 12 {
				t.Fatalf("%d files open of at most 10 and two in use", n)
			}
		}
		for _, l := range logs {
			if got := all(t, l); len(got) == 0 {
				t.Fatal("nothing to read")
			}
			l.Close()
		}
		if err := d.Close(); err != nil || d.OpenFiles() != 0 {
			t.Fatal(err, d.OpenFiles())
		}
	}
}
