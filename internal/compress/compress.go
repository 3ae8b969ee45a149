package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"lockstep/internal/invariant"
)

// Codecs, as in the attributes of a record batch.
const (
	None   = 0
	Gzip   = 1
	Snappy = 2
	Lz4    = 3
	Zstd   = 4
)

var (
	// ErrTooLarge means that the output would exceed the limit.
	ErrTooLarge = errors.New("compress: output exceeds the limit")
	// ErrUnknownCodec means that the codec is none of the five.
	ErrUnknownCodec = errors.New("compress: unknown codec")
	// ErrCorrupt is wrapped by the errors of damaged input.
	ErrCorrupt = errors.New("compress: input is damaged")
)

// Decompress expands src to at most limit bytes. The result is new memory,
// except that of None, which is src.
func Decompress(codec int8, src []byte, limit int) ([]byte, error) {
	return Inflate(nil, codec, src, limit)
}

// Inflate is Decompress into the memory of dst, whose bytes are lost, as far as
// it goes: with a capacity of limit+Slack nothing is allocated for the output.
func Inflate(dst []byte, codec int8, src []byte, limit int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case None:
		if len(src) > limit {
			return nil, ErrTooLarge
		}
		return src, nil
	case Gzip:
		out, err = gunzip(dst, src, limit)
	case Snappy:
		out, err = unsnappy(dst, src, limit)
	case Lz4:
		out, err = unlz4(dst, src, limit)
	case Zstd:
		out, err = unzstd(dst, src, limit)
	default:
		return nil, ErrUnknownCodec
	}
	switch {
	case err == nil || err == ErrTooLarge:
		return out, err
	case errors.Is(err, ErrCorrupt):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// Compress packs src. The result is new memory, except that of None, which is src.
func Compress(codec int8, src []byte) ([]byte, error) {
	switch codec {
	case None:
		return src, nil
	case Gzip:
		return compressStream(&gzipWriters, src)
	case Snappy:
		return appendXerial(src), nil
	case Lz4:
		return compressStream(&lz4Writers, src)
	case Zstd:
		e := zstdEncoders.Get().(*zstd.Encoder)
		defer zstdEncoders.Put(e)
		return e.EncodeAll(src, make([]byte, 0, len(src)/firstRatio+64)), nil
	}
	return nil, ErrUnknownCodec
}

// resetWriter is what gzip and lz4 writers have in common.
type resetWriter interface {
	io.WriteCloser
	Reset(io.Writer)
}

var (
	gzipReaders  = sync.Pool{New: func() any { return new(gzip.Reader) }}
	gzipWriters  = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Readers   = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	lz4Writers   = sync.Pool{New: newLz4Writer}
	zstdEncoders = sync.Pool{New: newZstdEncoder}
	zstdDecoders = sync.Pool{New: newZstdDecoder}
)

// newLz4Writer writes what Kafka's Java reader takes: independent blocks.
func newLz4Writer() any {
	w := lz4.NewWriter(nil)
	err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
	invariant.Check(err == nil, "LimitsHold", "lz4 options", err)
	return w
}

func newZstdEncoder() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	invariant.Check(err == nil, "LimitsHold", "zstd options", err)
	return e
}

func newZstdDecoder() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	invariant.Check(err == nil, "LimitsHold", "zstd options", err)
	return d
}

func compressStream(pool *sync.Pool, src []byte) ([]byte, error) {
	w := pool.Get().(resetWriter)
	defer pool.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	return readBounded(r, room(dst, len(src), limit), limit)
}

func unlz4(dst, src []byte, limit int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4.Reader)
	defer lz4Readers.Put(r)
	r.Reset(bytes.NewReader(src))
	return readBounded(r, room(dst, len(src), limit), limit)
}

// firstCap is the capacity the output of n packed bytes starts with.
func firstCap(n, limit int) int { return min(limit, max(firstOutput, firstRatio*n)) }

// room is what the output of n packed bytes starts with: dst, if there is one.
func room(dst []byte, n, limit int) []byte {
	if cap(dst) > 0 {
		return dst[:0]
	}
	return make([]byte, 0, firstCap(n, limit))
}

// readBounded reads r to its end into out, growing with what comes.
func readBounded(r io.Reader, out []byte, limit int) ([]byte, error) {
	for {
		if len(out) == limit {
			var one [1]byte
			n, err := io.ReadFull(r, one[:])
			if n > 0 {
				return nil, ErrTooLarge
			}
			if err == io.EOF {
				return out, nil
			}
			return nil, err
		}
		if len(out) == cap(out) {
			out = append(make([]byte, 0, min(limit, 2*cap(out))), out...)
		}
		n, err := r.Read(out[len(out):min(cap(out), limit)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// unzstd decodes into a capacity that the decoder never goes past, and doubles
// it while a block may have lacked room. The decoder needs no window of its own
// then. Its last try has room for one block more than may come out.
func unzstd(dst, src []byte, limit int) ([]byte, error) {
	if zstdAtLeast(src) > limit {
		return nil, ErrTooLarge
	}
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	possible := maxZstdRatio * len(src)
	top := min(limit, possible) + zstdBlock
	out := room(dst, len(src), limit)
	for n := min(top, cap(out)); ; n = min(top, max(firstOutput, 2*n)) {
		if cap(out) < n {
			out = make([]byte, 0, n)
		}
		out, err := d.DecodeAll(src, out[:0:n])
		switch {
		case err == nil && len(out) <= limit:
			return out, nil
		case err != nil && n-len(out) >= zstdBlock && !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, err
		case err == nil || (n == top && possible >= limit):
			return nil, ErrTooLarge
		case n == top:
			return nil, err
		}
	}
}

// zstdAtLeast walks the block headers of all frames and adds up what needs no
// decoding to be known: stored and repeated blocks. The decoder would lay such a
// block behind its output before it looks at the limit, into memory of its own.
func zstdAtLeast(src []byte) (n int) {
	for {
		var h zstd.Header
		if err := h.Decode(src); err != nil {
			return n
		}
		size := h.HeaderSize
		if h.Skippable {
			size += int(h.SkippableSize)
		}
		if size <= 0 || size > len(src) {
			return n
		}
		src = src[size:]
		for last := h.Skippable; !last; {
			if len(src) < 3 {
				return n
			}
			b := int(src[0]) | int(src[1])<<8 | int(src[2])<<16
			kind, length := b>>1&3, b>>3
			last = b&1 == 1
			switch kind {
			case 0:
				n += length
			case 1:
				n, length = n+length, 1
			}
			if src = src[3:]; length > len(src) {
				return n
			}
			src = src[length:]
		}
		if h.HasCheckSum && len(src) >= 4 {
			src = src[4:]
		}
	}
}

// xerialHeader begins the framing of snappy-java: a magic, then two int32, the
// version and the oldest version that can read it.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const xerialMagic = 8

func appendXerial(src []byte) []byte {
	out := make([]byte, 0, len(xerialHeader)+len(src)/2+64)
	out = append(out, xerialHeader...)
	block := make([]byte, snappy.MaxEncodedLen(min(len(src), snappyBlock)))
	for len(src) > 0 {
		n := min(len(src), snappyBlock)
		packed := snappy.Encode(block, src[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
		src = src[n:]
	}
	return out
}

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialHeader[:xerialMagic]) {
		return appendSnappyBlock(dst[:0], src, limit)
	}
	out := room(dst, len(src), limit)
	for len(src) > 0 {
		if bytes.HasPrefix(src, xerialHeader[:xerialMagic]) { // streams may be concatenated
			if len(src) < len(xerialHeader) {
				return nil, ErrCorrupt
			}
			src = src[len(xerialHeader):]
			continue
		}
		if len(src) < 4 {
			return nil, ErrCorrupt
		}
		n := int(binary.BigEndian.Uint32(src))
		if src = src[4:]; n > len(src) {
			return nil, ErrCorrupt
		}
		var err error
		if out, err = appendSnappyBlock(out, src[:n], limit); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return out, nil
}

// appendSnappyBlock decodes one block behind dst. The size the block claims is
// believed only as far as its bytes can go.
func appendSnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	switch {
	case err != nil:
		return nil, err
	case n > limit-len(dst):
		return nil, ErrTooLarge
	case n > maxSnappyRatio*len(src):
		return nil, ErrCorrupt
	}
	start := len(dst)
	if cap(dst)-start < n {
		dst = append(make([]byte, 0, min(limit, max(2*cap(dst), start+n))), dst...)
	}
	got, err := snappy.Decode(dst[start:start+n], src)
	if err != nil {
		return nil, err
	}
	invariant.Check(len(got) == n, "LimitsHold", "snappy block", len(got), n)
	return dst[:start+n], nil
}
