package segment

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestPwritev: pieces in their order, as many as go in one call, and no memory
// from the heap however many there are.
func TestPwritev(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	m, err := DiskFS{}.Open(name, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.File.Close()
	var bufs [][]byte
	var want []byte
	for i := range 2*iovMax + 10 {
		piece := bytes.Repeat([]byte{byte(i)}, i%7) // some are empty
		bufs, want = append(bufs, piece), append(want, piece...)
	}
	const at = 5
	for off, left := int64(at), bufs; len(left) > 0; {
		n, err := m.File.Pwritev(left, off)
		if err != nil {
			t.Fatal(err)
		}
		off += int64(n)
		for len(left) > 0 && n >= len(left[0]) {
			n, left = n-len(left[0]), left[1:]
		}
		if n != 0 {
			t.Fatalf("a write ended %d bytes into a piece", n)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got[at:], want) {
		t.Errorf("%d bytes, err %v; want %d", len(got), err, at+len(want))
	}
	for _, pieces := range []int{0, 1, 9, fewPieces, fewPieces + 1, iovMax} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := m.File.Pwritev(bufs[:pieces], 0); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations for %d pieces", n, pieces)
		}
	}
	if _, err := m.File.Pwritev(bufs, -1); err == nil {
		t.Error("written before the beginning")
	}
}
