package segment

import (
	"encoding/binary"

	"lockstep/internal/wire"
)

// Decompress inflates the records of a batch to at most limit bytes.
type Decompress func(codec int8, src []byte, limit int) ([]byte, error)

// controlType returns the type of a control batch's record, -1 if it has none.
func controlType(b wire.Batch) int16 {
	it := wire.Records(b.Payload())
	if !it.Next() || len(it.Record().Key) < 4 {
		return -1
	}
	return int16(binary.BigEndian.Uint16(it.Record().Key[2:]))
}
