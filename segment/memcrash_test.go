package segment

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// losing is a loss of power that takes all it may.
var losing = Loss{
	Tail:   func(string, int64) int64 { return 0 },
	Sector: func(string, int64) bool { return true },
	Names:  func(string, int) int { return 0 },
}

// A kernel takes the pages of a failed fdatasync for clean, and the next one
// succeeds without them: also that of the next process, which has read them
// from the page cache. What recovery has read is written again.
func TestAFailedFlushIsNotTrustedByTheNextProcess(t *testing.T) {
	m, _, l := memLog(t, smallConfig)
	bs := put(t, l, plain(0, 1, 5))
	flush(t, l)
	bs = append(bs, put(t, l, plain(1, 3, 700), plain(4, 2, 5))...)
	m.SetFault(func(op, name string) error {
		if op == "datasync" {
			return errors.New("input/output error")
		}
		return nil
	})
	f, _ := l.FlushPlan()
	f.Do()
	if l.Flushed(f) == nil {
		t.Fatal("the flush did not fail")
	}
	m = m.Died(nil)
	l = openLog(t, openDir(t, m, "/data"), smallConfig)
	if !bytes.Equal(all(t, l), join(bs)) {
		t.Fatal("the page cache is not what was read")
	}
	flush(t, l)
	if l.Durable() != l.End() {
		t.Fatalf("durable to %d of %d", l.Durable(), l.End())
	}
	l = openLog(t, openDir(t, m.PowerCut(losing), "/data"), smallConfig)
	if !bytes.Equal(all(t, l), join(bs)) {
		t.Fatalf("the log ends at %d, everything below 6 was said to be durable", l.End())
	}
}

// The same over several segments, on the real disk too: what recovery writes
// comes from a map of the same file.
func TestRecoveryWritesAgainWhatItReads(t *testing.T) {
	onBoth(t, func(t *testing.T, disk FS, path string) {
		r := seed(t)
		l := openLog(t, openDir(t, disk, path), smallConfig)
		bs := fill(t, l, r, 100)
		l.Close()
		if err := l.dir.Close(); err != nil {
			t.Fatal(err)
		}
		m, memory := disk.(*MemFS)
		if memory {
			for _, f := range m.files {
				f.dirty = nil // as if a flush had failed
			}
		}
		l = openLog(t, openDir(t, disk, path), smallConfig)
		if !bytes.Equal(all(t, l), join(bs)) {
			t.Fatal("the bytes are not what they were")
		}
		if memory {
			for name, f := range m.files {
				if strings.HasSuffix(name, logSuffix) && (len(f.dirty) != 1 || f.dirty[0] != span{0, f.size}) {
					t.Errorf("%s of %d bytes: %v is dirty", name, f.size, f.dirty)
				}
			}
		}
	})
}

// Sectors of what no flush covered may be gone, names may be: what was flushed
// is there, and what is there is a prefix.
func TestTornWritesKeepADurablePrefix(t *testing.T) {
	r := seed(t)
	for range 150 {
		m, _, l := memLog(t, smallConfig)
		bs := fill(t, l, r, 1+r.IntN(40))
		if r.IntN(3) > 0 {
			flush(t, l)
		}
		durable := l.Durable()
		bs = append(bs, fill(t, l, r, r.IntN(40))...)
		c := m.PowerCut(Loss{
			Tail:   func(_ string, n int64) int64 { return r.Int64N(n + 1) },
			Sector: func(string, int64) bool { return r.IntN(4) == 0 },
			Names:  func(_ string, n int) int { return r.IntN(n + 1) },
		})
		l2, _, err := openDir(t, c, "/data").OpenLog(testID, smallConfig, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l2.End() < durable || !bytes.HasPrefix(join(bs), all(t, l2)) {
			t.Fatalf("end %d after the cut, %d was durable", l2.End(), durable)
		}
	}
}

// The name of the log directory itself is durable before anything in it is.
func TestTheDirectoryIsDurable(t *testing.T) {
	m := NewMemFS()
	openDir(t, m, "/data")
	if m = m.PowerCut(losing); !m.dirs["/data"] {
		t.Fatal("the directory is gone")
	}
}
