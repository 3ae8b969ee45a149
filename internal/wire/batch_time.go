package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// SetLogAppendTime gives the batch the broker's time (message.timestamp.type
// LogAppendTime) and computes the CRC anew: both fields lie under it.
func (b Batch) SetLogAppendTime(ms int64) {
	b[22] |= AttrLogAppendTime
	binary.BigEndian.PutUint64(b[35:], uint64(ms))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
}

// KeysPresent tells whether every record of an uncompressed payload has a key,
// as a compacted topic demands. The payload has passed CheckRecords.
func KeysPresent(payload []byte) bool {
	for it := Records(payload); it.Next(); {
		if it.Record().Key == nil {
			return false
		}
	}
	return true
}
