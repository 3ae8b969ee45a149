package segment

import (
	"encoding/binary"
	"errors"

	"lockstep/internal/wire"
)

// Decompress inflates the records of a batch to at most limit bytes.
type Decompress func(codec int8, src []byte, limit int) ([]byte, error)

var errRecords = errors.New("records of a batch are malformed")

// records calls fn for each record of an inflated payload until it returns
// false. Of a record it knows what this package needs.
func records(payload []byte, fn func(tsDelta, offDelta int64, key []byte) bool) error {
	for len(payload) > 0 {
		size, n := binary.Varint(payload)
		if n <= 0 || size < 1 || size > int64(len(payload)-n) {
			return errRecords
		}
		r := payload[n+1 : n+int(size)] // after the attributes
		payload = payload[n+int(size):]
		var v [3]int64
		for i := range v {
			if v[i], n = binary.Varint(r); n <= 0 {
				return errRecords
			}
			r = r[n:]
		}
		var key []byte
		if v[2] >= 0 {
			if v[2] > int64(len(r)) {
				return errRecords
			}
			key = r[:v[2]]
		}
		if !fn(v[0], v[1], key) {
			return nil
		}
	}
	return nil
}

// controlType returns the type of a control batch's record, -1 if it has none.
func controlType(b wire.Batch) int16 {
	t := int16(-1)
	_ = records(b.Payload(), func(_, _ int64, key []byte) bool {
		if len(key) >= 4 {
			t = int16(binary.BigEndian.Uint16(key[2:]))
		}
		return false
	})
	return t
}
