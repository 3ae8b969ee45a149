package segment

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// onBoth runs a test on the real disk and on the memory disk.
func onBoth(t *testing.T, f func(t *testing.T, fs FS, path string)) {
	t.Run("disk", func(t *testing.T) { f(t, DiskFS{}, filepath.Join(t.TempDir(), "data")) })
	t.Run("memory", func(t *testing.T) { f(t, NewMemFS(), "/data") })
}

func TestAppendReadRollReopen(t *testing.T) {
	onBoth(t, func(t *testing.T, fs FS, path string) {
		r := seed(t)
		d := openDir(t, fs, path)
		l := openLog(t, d, smallConfig)
		if names, _ := fs.Meta().ReadDir(path); len(names) > 2 { // lock and properties
			t.Fatalf("files before the first append: %v", names)
		}
		bs := fill(t, l, r, 80)
		if len(l.Segments()) < 3 {
			t.Fatalf("only %d segments", len(l.Segments()))
		}
		if got := all(t, l); !bytes.Equal(got, join(bs)) {
			t.Fatal("read back other bytes")
		}
		for round, sealed := range []bool{false, true, false, true} { // as after kill -9, and clean
			epochs := l.Epochs()
			if sealed {
				if err := l.SealClean(); err != nil {
					t.Fatal(err)
				}
			}
			l.Close()
			if sealed {
				if err := d.CloseClean(); err != nil {
					t.Fatal(err)
				}
			} else if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = openDir(t, fs, path)
			if d.Clean() != sealed {
				t.Fatalf("round %d: clean is %v", round, d.Clean())
			}
			var stats RecoveryStats
			var err error
			if l, stats, err = d.OpenLog(testID, smallConfig, 0); err != nil {
				t.Fatal(err)
			}
			if sealed == (stats.Batches > 0) || stats.TornBytes != 0 {
				t.Fatalf("round %d: clean %v, %+v", round, sealed, stats)
			}
			if got := all(t, l); !bytes.Equal(got, join(bs)) || l.Size() != int64(len(got)) {
				t.Fatal("read back other bytes")
			}
			if got := l.Epochs(); len(got) != len(epochs) || got[len(got)-1] != epochs[len(got)-1] {
				t.Fatalf("epochs %v, were %v", got, epochs)
			}
			bs = append(bs, fill(t, l, r, 20)...)
		}
		l.Close()
	})
}

func TestLogFileIsKafkasBytesAndNoLonger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := openDir(t, DiskFS{}, path)
	l := openLog(t, d, smallConfig)
	bs := put(t, l, plain(0, 2, 50), plain(2, 1, 10))
	name := filepath.Join(path, "orders-eu-3", "00000000000000000000.log")
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, join(bs)) {
		t.Fatalf("file holds %d bytes, want %d (%v)", len(got), len(join(bs)), err)
	}
	ids, err := d.Scan()
	if err != nil || len(ids) != 1 || ids[0] != testID {
		t.Fatalf("scan: %v %v", ids, err)
	}
	if err := d.Delete(l); err != nil {
		t.Fatal(err)
	}
	if ids, _ := d.Scan(); len(ids) != 0 {
		t.Fatalf("scan after delete: %v", ids)
	}
	if _, err := l.Read(0, 1, 1, true); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestBlocksAreReservedAndGivenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	l := openLog(t, openDir(t, DiskFS{}, path), Config{SegmentBytes: 1 << 20, IndexIntervalBytes: 4096, MaxMessageBytes: 1000})
	blocks := func(base int64) int64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(segmentName(l.path, base, logSuffix), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	put(t, l, plain(0, 1, 10))
	if n := blocks(0); n < firstStep {
		t.Skipf("%d bytes reserved: this file system has no reservations", n)
	}
	l.sealing = true
	put(t, l, plain(1, 1, 10))
	if n := blocks(0); n >= firstStep {
		t.Fatalf("%d bytes still reserved by a sealed segment", n)
	}
	if err := l.SealClean(); err != nil {
		t.Fatal(err)
	}
	if n := blocks(1); n >= firstStep {
		t.Fatalf("%d bytes still reserved by a closed log", n)
	}
	l.Close()
}
