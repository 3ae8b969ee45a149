package compress

import (
	"bytes"
	"testing"
)

// FuzzInflate: any bytes of any codec expand to at most the limit or not at
// all, in the room given, and the same without it.
func FuzzInflate(f *testing.F) {
	const limit = 256 << 10
	for _, codec := range all {
		for _, plain := range [][]byte{nil, []byte("record"), make([]byte, limit), make([]byte, limit+1)} {
			packed, err := Compress(codec, plain)
			if err != nil {
				f.Fatal(err)
			}
			if len(packed) < 4<<10 {
				f.Add(uint8(codec), packed)
			}
		}
	}
	room := make([]byte, limit+Slack)
	f.Fuzz(func(t *testing.T, codec uint8, src []byte) {
		c := int8(codec % 6)
		var got []byte
		var err error
		used := allocated(func() { got, err = Inflate(room, c, src, limit) })
		if len(got) > limit || err != nil && got != nil {
			t.Fatalf("%d bytes with a limit of %d, %v", len(got), limit, err)
		}
		if used > limit+10<<20 { // the largest block of lz4, and tables
			t.Fatalf("%d bytes beside the room for %d", used, len(src))
		}
		again, err2 := Decompress(c, src, limit)
		if (err == nil) != (err2 == nil) || (err == ErrTooLarge) != (err2 == ErrTooLarge) || !bytes.Equal(got, again) {
			t.Fatalf("in a room: %d bytes, %v; without: %d bytes, %v", len(got), err, len(again), err2)
		}
	})
}

// FuzzCompress: what was packed comes back, and not with a byte less of limit.
func FuzzCompress(f *testing.F) {
	f.Add(uint8(1), uint8(3), []byte("some records"))
	f.Add(uint8(2), uint8(200), bytes.Repeat([]byte{7}, 1000))
	f.Fuzz(func(t *testing.T, codec, times uint8, part []byte) {
		c := int8(codec % 5)
		plain := bytes.Repeat(part, int(times))
		packed, err := Compress(c, plain)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decompress(c, packed, len(plain))
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%d bytes became %d: %v", len(plain), len(got), err)
		}
		if len(plain) > 0 {
			if _, err := Decompress(c, packed, len(plain)-1); err != ErrTooLarge {
				t.Fatalf("over the limit: %v", err)
			}
		}
	})
}
