package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// MaxEmptySpan is how many offsets one empty batch can stand for.
const MaxEmptySpan = math.MaxInt32

// EmptyBatch appends a batch without records that stands for the offsets from
// base to below next, at most MaxEmptySpan of them: what compaction leaves of
// records that are superseded, and what fills a gap in a log that is mirrored.
// Kafka's clients step over it.
func EmptyBatch(dst []byte, base, next int64, epoch int32) []byte {
	start := len(dst)
	p := PlainParams(-1)
	p.BaseOffset, p.PartitionLeaderEpoch = base, epoch
	dst = BuildBatch(dst, p)
	b := Batch(dst[start:])
	binary.BigEndian.PutUint32(b[23:], uint32(next-base-1))
	b.seal()
	return dst
}

// IsEmpty tells a batch that EmptyBatch has made, or one like it: no records,
// and nothing about a producer.
func (b Batch) IsEmpty() bool {
	return b.RecordCount() == 0 && b.ProducerID() < 0 && !b.Control()
}

// DeleteHorizon is the time, ms, from which on the tombstones of the batch may
// go (KIP-534); false when no cleaner has set one.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	return b.BaseTimestamp(), b.Attributes()&AttrDeleteHorizon != 0
}

// seal writes length and checksum.
func (b Batch) seal() {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
}

// Filter says what Rewrite keeps.
type Filter struct {
	Keep func(r *Record) bool
	// Horizon is set as the batch's delete horizon, ms; below 0 it stays as it is.
	Horizon  int64
	Compress func(codec int8, src []byte) ([]byte, error)
}

// Rewrite appends b with the records that f keeps, at their offsets; plain is
// its records uncompressed. It returns how many were kept. With none, the
// header alone is appended: it says what its producer has sent.
func (b Batch) Rewrite(dst, plain []byte, f Filter) (out []byte, kept int, err error) {
	start := len(dst)
	dst = append(dst, b[:BatchHeaderSize]...)
	baseTs := b.BaseTimestamp()
	if f.Horizon >= 0 {
		baseTs = f.Horizon
	}
	shift := b.BaseTimestamp() - baseTs
	last := int64(-1)
	body := len(dst)
	it := Records(plain)
	for it.Next() {
		r := *it.Record()
		if !f.Keep(&r) {
			continue
		}
		kept++
		last = max(last, b.BaseTimestamp()+r.TimestampDelta)
		r.TimestampDelta += shift
		dst = appendRecord(dst, &r, r.OffsetDelta)
	}
	if err := it.Err(); err != nil {
		return dst[:start], 0, err
	}
	if b.Codec() != CodecNone && kept > 0 {
		packed, err := f.Compress(b.Codec(), dst[body:])
		if err != nil {
			return dst[:start], 0, err
		}
		dst = append(dst[:body], packed...)
	}
	n := Batch(dst[start:])
	binary.BigEndian.PutUint32(n[57:], uint32(kept))
	if kept == 0 {
		n[22] &^= 7 // nothing is packed
	}
	if f.Horizon >= 0 {
		binary.BigEndian.PutUint64(n[27:], uint64(baseTs))
		n[22] |= AttrDeleteHorizon
	}
	if !b.LogAppendTime() && kept > 0 {
		binary.BigEndian.PutUint64(n[35:], uint64(last))
	}
	n.seal()
	return dst, kept, nil
}
