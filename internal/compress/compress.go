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
	var out []byte
	var err error
	switch codec {
	case None:
		if len(src) > limit {
			return nil, ErrTooLarge
		}
		return src, nil
	case Gzip:
		out, err = gunzip(src, limit)
	case Snappy:
		out, err = unsnappy(src, limit)
	case Lz4:
		out, err = unlz4(src, limit)
	case Zstd:
		out, err = unzstd(src, limit)
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

func gunzip(src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	return readBounded(r, len(src), limit)
}

func unlz4(src []byte, limit int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4.Reader)
	defer lz4Readers.Put(r)
	r.Reset(bytes.NewReader(src))
	return readBounded(r, len(src), limit)
}

// firstCap is the capacity the output of n packed bytes starts with.
func firstCap(n, limit int) int { return min(limit, max(firstOutput, firstRatio*n)) }

// readBounded reads r to its end, growing with what comes.
func readBounded(r io.Reader, packed, limit int) ([]byte, error) {
	out := make([]byte, 0, firstCap(packed, limit))
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
		n, err := r.Read(out[len(out):cap(out)])
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
func unzstd(src []byte, limit int) ([]byte, error) {
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	possible := maxZstdRatio * len(src)
	top := min(limit, possible) + zstdBlock
	for n := min(top, firstCap(len(src), limit)); ; n = min(top, max(firstOutput, 2*n)) {
		out, err := d.DecodeAll(src, make([]byte, 0, n))
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

func unsnappy(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialHeader[:xerialMagic]) {
		return appendSnappyBlock(nil, src, limit)
	}
	out := make([]byte, 0, firstCap(len(src), limit))
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
