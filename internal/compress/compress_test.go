package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random contents; 0 = by the clock")

func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (go test -args -seed=%d)", seed, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

var all = []int8{None, Gzip, Snappy, Lz4, Zstd}

func contents(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(2)*r.IntN(200_000)+r.IntN(100))
	limit := 1 + r.IntN(256)
	for i := range b {
		b[i] = byte(r.IntN(limit))
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	r := newRand(t)
	for _, codec := range all {
		for range 60 {
			want := contents(r)
			packed, err := Compress(codec, want)
			if err != nil {
				t.Fatal(codec, err)
			}
			for _, limit := range []int{len(want), len(want) + 1, 1 << 30} {
				got, err := Decompress(codec, packed, limit)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("codec %d limit %d: %d of %d bytes, %v", codec, limit, len(got), len(want), err)
				}
			}
			if len(want) == 0 {
				continue
			}
			if _, err := Decompress(codec, packed, len(want)-1); err != ErrTooLarge {
				t.Fatalf("codec %d: one byte too many: %v", codec, err)
			}
		}
	}
	if _, err := Decompress(5, nil, 9); err != ErrUnknownCodec {
		t.Fatal(err)
	}
	if _, err := Compress(7, nil); err != ErrUnknownCodec {
		t.Fatal(err)
	}
}

// TestAgreesWithKgo reads what a client wrote and has it read what we wrote.
func TestAgreesWithKgo(t *testing.T) {
	r := newRand(t)
	dec := kgo.DefaultDecompressor()
	for codec, c := range map[int8]kgo.CompressionCodec{Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), Lz4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression()} {
		enc, err := kgo.DefaultCompressor(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			want := append(contents(r), 'x')
			packed, used := enc.Compress(new(bytes.Buffer), want)
			if int8(used) != codec {
				t.Fatalf("codec %d: client used %d", codec, used)
			}
			if got, err := Decompress(codec, packed, len(want)); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("codec %d: reading the client: %v", codec, err)
			}
			ours, err := Compress(codec, want)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := dec.Decompress(ours, kgo.CompressionCodecType(codec)); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("codec %d: the client reading us: %v", codec, err)
			}
		}
	}
}

func TestSnappyForms(t *testing.T) {
	want := bytes.Repeat([]byte("lockstep"), 9000)
	if got, err := Decompress(Snappy, snappy.Encode(nil, want), len(want)); err != nil || !bytes.Equal(got, want) {
		t.Fatal("raw block", err)
	}
	framed, _ := Compress(Snappy, want)
	if !bytes.HasPrefix(framed, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")) {
		t.Fatalf("header %x", framed[:16])
	}
	twice := append(bytes.Clone(framed), framed...)
	if got, err := Decompress(Snappy, twice, 2*len(want)); err != nil || len(got) != 2*len(want) {
		t.Fatal("two streams", err)
	}
	if _, err := Decompress(Snappy, twice, 2*len(want)-1); err != ErrTooLarge {
		t.Fatal("two streams over the limit", err)
	}
}

// TestBombs expands small inputs to far more than the limit and looks at both
// the error and the memory.
func TestBombs(t *testing.T) {
	const size, limit = 64 << 20, 1 << 20
	zeros := make([]byte, size)
	window := func() []byte { // a frame that asks for 128 MiB of window and holds one byte
		b := binary.LittleEndian.AppendUint32(nil, 0xfd2fb528)
		return append(b, 0, 17<<3, 9, 0, 0, 'x')
	}()
	for _, codec := range all[1:] {
		bomb, err := Compress(codec, zeros)
		if err != nil {
			t.Fatal(err)
		}
		used := allocated(func() {
			if _, err := Decompress(codec, bomb, limit); err != ErrTooLarge {
				t.Errorf("codec %d: %v", codec, err)
			}
		})
		if used > 16*limit {
			t.Errorf("codec %d: %d bytes for a limit of %d", codec, used, limit)
		}
	}
	for name, c := range map[string]struct {
		codec int8
		src   []byte
	}{
		"snappy claims 1 GiB": {Snappy, append(binary.AppendUvarint(nil, 1<<30), 0, 'x')},
		"xerial claims 1 GiB": {Snappy, append(bytes.Clone(xerialHeader), append([]byte{0, 0, 0, 7}, append(binary.AppendUvarint(nil, 1<<30), 0, 'x')...)...)},
		"zstd window":         {Zstd, window},
		"zstd claims 1 GiB":   {Zstd, append(append(binary.LittleEndian.AppendUint32(nil, 0xfd2fb528), 0xa0), 0, 0, 0, 0x40, 9, 0, 0, 'x')},
	} {
		used := allocated(func() { _, _ = Decompress(c.codec, c.src, 1<<30) })
		if used > 16<<20 {
			t.Errorf("%s: %d bytes allocated for %d", name, used, len(c.src))
		}
	}
	if got, err := Decompress(Zstd, window, 10); err != nil || string(got) != "x" {
		t.Errorf("a large window by itself is no fault: %q %v", got, err)
	}
}

// TestInflateStaysInItsRoom: with room for the limit nothing is allocated for
// the output, whatever the input says, and what comes out is the same.
func TestInflateStaysInItsRoom(t *testing.T) {
	const limit = 8 << 20
	room := make([]byte, limit+Slack)
	repeat := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x38} // 1 GiB of repeated blocks
	for range 8192 {
		repeat = append(repeat, 0x02, 0, 0x10, 0)
	}
	stored := append(bytes.Clone(repeat[:6]), bytes.Repeat(append([]byte{0, 0, 0x10}, make([]byte, 128<<10)...), 65)...)
	for name, src := range map[string][]byte{"repeated": repeat, "stored": stored} {
		if used := allocated(func() {
			if _, err := Inflate(room, Zstd, src, limit); err != ErrTooLarge {
				t.Errorf("%s blocks: %v", name, err)
			}
		}); used > 1<<20 {
			t.Errorf("%s blocks: %d bytes beside the room", name, used)
		}
	}
	for _, codec := range all[1:] {
		for _, size := range []int{0, 1, limit - 1, limit, limit + 1, 3 * limit} {
			want := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			packed, err := Compress(codec, want)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			used := allocated(func() { got, err = Inflate(room, codec, packed, limit) })
			if size > limit {
				want, got = nil, nil
			}
			if (err == ErrTooLarge) != (size > limit) || (err != nil) != (size > limit) || !bytes.Equal(got, want) {
				t.Errorf("codec %d, %d bytes: %d and %v", codec, size, len(got), err)
			}
			if used > 5<<20 { // lz4's blocks and tables
				t.Errorf("codec %d, %d bytes: %d allocated beside the room", codec, size, used)
			}
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDamage(t *testing.T) {
	r := newRand(t)
	want := bytes.Repeat([]byte("abcdefgh"), 500)
	for _, codec := range all[1:] {
		packed, err := Compress(codec, want)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(packed) {
			got, err := Decompress(codec, packed[:n], 1<<20)
			if err == nil && bytes.Equal(got, want) && codec != Lz4 { // the end mark of lz4 may be absent
				t.Errorf("codec %d: %d of %d bytes are enough", codec, n, len(packed))
			}
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("codec %d: error %v", codec, err)
			}
		}
		for range 500 {
			b := bytes.Clone(packed)
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			if got, err := Decompress(codec, b, 10_000); err == nil && len(got) > 10_000 {
				t.Fatal("limit")
			}
		}
		if got, err := Decompress(codec, packed, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("codec %d: a pooled coder remembers damage: %v", codec, err)
		}
	}
}

func TestTogether(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		want := bytes.Repeat([]byte{byte(i), 1, 2}, 10_000)
		wg.Go(func() {
			for j := range 40 {
				codec := all[j%len(all)]
				packed, err := Compress(codec, want)
				if err != nil {
					t.Error(err)
				}
				if got, err := Decompress(codec, packed, len(want)); err != nil || !bytes.Equal(got, want) {
					t.Error(codec, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestOtherWriters reads frames with the options other clients use.
func TestOtherWriters(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 30_000)
	for _, opts := range [][]lz4.Option{
		{lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true)}, {lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(want)))},
	} {
		var b bytes.Buffer
		w := lz4.NewWriter(&b)
		if err := errors.Join(w.Apply(opts...), second(w.Write(want)), w.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := Decompress(Lz4, b.Bytes(), len(want)); err != nil || !bytes.Equal(got, want) {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(32<<20))
	if err := errors.Join(err, second(w.Write(want)), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := Decompress(Zstd, b.Bytes(), len(want)); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
}

func second(_ int, err error) error { return err }
