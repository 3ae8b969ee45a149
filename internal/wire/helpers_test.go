package wire

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

// damage cuts a good body at every byte, which parse must refuse, and
// overwrites parts of it with large counts, which must neither panic nor claim memory.
func damage(t *testing.T, body []byte, parse func([]byte) error) {
	t.Helper()
	if err := parse(body); err != nil {
		t.Fatalf("the whole body is refused: %v", err)
	}
	step := 1 + len(body)/2000
	for n := 0; n < len(body); n += step {
		if parse(body[:n:n]) == nil {
			t.Fatalf("%d of %d bytes are accepted: %x", n, len(body), body)
		}
	}
	if parse(nil) == nil {
		t.Fatal("nothing is accepted")
	}
	var before, after runtime.MemStats
	c := bytes.Clone(body)
	runtime.ReadMemStats(&before)
	n := uint64(0)
	for i := 0; i < len(body); i += step {
		for _, lie := range []string{"\xff\xff\xff\xff\x0f", "\x7f\xff\xff\xff", "\xff\xff\x03", "\x80", "\x41", "\xff\xff\xff\xff"} {
			copy(c[i:], lie)
			_ = parse(c)
			copy(c[i:], body[i:])
			n++
		}
	}
	runtime.ReadMemStats(&after)
	if n > 0 && (after.TotalAlloc-before.TotalAlloc)/n > 4096 {
		t.Fatalf("%d bytes allocated per parse", (after.TotalAlloc-before.TotalAlloc)/n)
	}
}

func randID(r *rand.Rand) (id [16]byte) {
	for i := range id {
		id[i] = byte(r.Uint32())
	}
	return id
}

func randInt64(r *rand.Rand) int64 { return int64(r.Uint64()) >> r.IntN(64) }

func randString(r *rand.Rand) string {
	return string(bytes.Repeat([]byte{'a' + byte(r.IntN(26))}, 1+r.IntN(4)+r.IntN(2)*r.IntN(200)))
}

func randBytes(r *rand.Rand) []byte {
	switch r.IntN(4) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return []byte(randString(r))
}

func sameNil(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
