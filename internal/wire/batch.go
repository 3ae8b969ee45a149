package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Batch is one whole record batch of format 2, header and records. Getters read
// the header, so a Batch holds at least BatchHeaderSize bytes: it comes from
// NextBatch, from BuildBatch, or was checked by ValidateProduce.
//
//	 0 baseOffset 8 │ 8 batchLength 4 │ 12 partitionLeaderEpoch 4 │ 16 magic 1 │ 17 crc 4
//	─────────────────────── outside the checksum ───────────────────────────────────────
//	21 attributes 2 │ 23 lastOffsetDelta 4 │ 27 baseTimestamp 8 │ 35 maxTimestamp 8
//	43 producerId 8 │ 51 producerEpoch 2 │ 53 baseSequence 4 │ 57 recordCount 4 │ 61 records
type Batch []byte

// Codecs, the low three bits of the attributes.
const (
	CodecNone   = 0
	CodecGzip   = 1
	CodecSnappy = 2
	CodecLz4    = 3
	CodecZstd   = 4
)

// Attribute bits above the codec.
const (
	AttrLogAppendTime = 1 << 3
	AttrTransactional = 1 << 4
	AttrControl       = 1 << 5
	AttrDeleteHorizon = 1 << 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NextBatch cuts the first whole batch off b. It looks at bounds only: false
// means that b does not begin with a whole batch, and then rest is b.
func NextBatch(b []byte) (batch Batch, rest []byte, ok bool) {
	if len(b) < BatchHeaderSize {
		return nil, b, false
	}
	n := Batch(b).Size()
	if n < BatchHeaderSize || n > len(b) {
		return nil, b, false
	}
	return b[:n:n], b[n:], true
}

// BaseOffset is the offset of the first record.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b)) }

// Size is the number of bytes of the whole batch, as the header has it.
func (b Batch) Size() int { return 12 + int(int32(binary.BigEndian.Uint32(b[8:]))) }

// PartitionLeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) PartitionLeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[12:])) }

// Magic is the format number, 2.
func (b Batch) Magic() int8 { return int8(b[16]) }

// CRC is the stored CRC-32C of everything from the attributes on.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[17:]) }

// Attributes are codec and flags.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[21:])) }

// Codec is the compression of the records, one of the Codec constants or 5-7.
func (b Batch) Codec() int8 { return int8(b[22] & 7) }

// LogAppendTime tells whether MaxTimestamp is the broker's time of append.
func (b Batch) LogAppendTime() bool { return b[22]&AttrLogAppendTime != 0 }

// Transactional tells whether the batch is part of a transaction.
func (b Batch) Transactional() bool { return b[22]&AttrTransactional != 0 }

// Control tells whether the records are control records.
func (b Batch) Control() bool { return b[22]&AttrControl != 0 }

// LastOffsetDelta is the offset of the last record minus BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[23:])) }

// BaseTimestamp is what the timestamp deltas are counted from, in milliseconds.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[27:])) }

// MaxTimestamp is the largest timestamp, in milliseconds since 1970.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[35:])) }

// ProducerID is the id of an idempotent producer, -1 = none.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[43:])) }

// ProducerEpoch is the epoch of the producer, -1 = none.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[51:])) }

// BaseSequence is the sequence number of the first record, -1 = none.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[53:])) }

// RecordCount is the number of records.
func (b Batch) RecordCount() int32 { return int32(binary.BigEndian.Uint32(b[57:])) }

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// Payload is the records, compressed as Codec says.
func (b Batch) Payload() []byte { return b[BatchHeaderSize:] }

// SetBaseOffset assigns the offset; the checksum does not cover it.
func (b Batch) SetBaseOffset(o int64) { binary.BigEndian.PutUint64(b, uint64(o)) }

// SetPartitionLeaderEpoch assigns the epoch; the checksum does not cover it.
func (b Batch) SetPartitionLeaderEpoch(e int32) { binary.BigEndian.PutUint32(b[12:], uint32(e)) }

// CheckCRC tells whether the checksum fits the bytes.
func (b Batch) CheckCRC() bool { return crc32.Checksum(b[21:], castagnoli) == b.CRC() }

// ValidateProduce checks the records of one partition of a Produce request of
// the given version, by their header alone: exactly one batch of format 2,
// undamaged, of at most maxBytes, with what a client may set. What it does not
// look at: the records themselves, and the producer's sequence.
func ValidateProduce(b Batch, version int16, maxBytes int) ErrorCode {
	switch {
	case len(b) == 0:
		return ErrInvalidRecord
	case len(b) < BatchHeaderSize:
		return ErrCorruptMessage
	case b.Magic() == 0 || b.Magic() == 1:
		return ErrInvalidRecord
	case b.Magic() != 2 || b.Size() < BatchHeaderSize || b.Size() > len(b):
		return ErrCorruptMessage
	case b.Size() < len(b): // a second batch
		return ErrInvalidRecord
	case len(b) > maxBytes:
		return ErrMessageTooLarge
	case !b.CheckCRC():
		return ErrCorruptMessage
	case b.Codec() > CodecZstd || (b.Codec() == CodecZstd && version < 7):
		return ErrUnsupportedCompressionType
	case b.BaseOffset() != 0 || b.RecordCount() <= 0 || int64(b.LastOffsetDelta())+1 != int64(b.RecordCount()) || b.Control():
		return ErrInvalidRecord
	case b.ProducerID() >= 0 && b.BaseSequence() < 0:
		return ErrInvalidRecord
	case b.LogAppendTime():
		return ErrInvalidTimestamp
	}
	return ErrNone
}
