package wire

import (
	"encoding/binary"
	"math"
)

// AppendInt8 appends one byte.
func AppendInt8(b []byte, v int8) []byte { return append(b, byte(v)) }

// AppendBool appends 1 or 0.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendInt16 appends two bytes, big endian, as all fixed integers here.
func AppendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }

// AppendUint16 appends two bytes.
func AppendUint16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }

// AppendInt32 appends four bytes.
func AppendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendUint32 appends four bytes.
func AppendUint32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }

// AppendInt64 appends eight bytes.
func AppendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendFloat64 appends eight bytes, IEEE 754.
func AppendFloat64(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(b, math.Float64bits(v))
}

// AppendUUID appends sixteen bytes.
func AppendUUID(b []byte, v [16]byte) []byte { return append(b, v[:]...) }

// AppendUvarint appends an unsigned varint.
func AppendUvarint(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendVarint appends a zigzag varint.
func AppendVarint(b []byte, v int32) []byte {
	return AppendUvarint(b, uint32(v)<<1^uint32(v>>31))
}

// AppendVarlong appends a zigzag varint of up to 64 bits.
func AppendVarlong(b []byte, v int64) []byte {
	return binary.AppendUvarint(b, uint64(v)<<1^uint64(v>>63))
}

// AppendString appends a string. Lengths above 32767 do not fit the
// non-flexible form; callers bound their strings.
func AppendString(b []byte, s string, flex bool) []byte {
	b = appendLength(b, len(s), flex, false)
	return append(b, s...)
}

// AppendNullableString appends a string, nil as null.
func AppendNullableString(b []byte, s *string, flex bool) []byte {
	if s == nil {
		return appendLength(b, -1, flex, false)
	}
	return AppendString(b, *s, flex)
}

// AppendStringBytes appends a string given as bytes, nil as null.
func AppendStringBytes(b, s []byte, flex bool) []byte {
	if s == nil {
		return appendLength(b, -1, flex, false)
	}
	b = appendLength(b, len(s), flex, false)
	return append(b, s...)
}

// AppendBytes appends a byte string, nil as null.
func AppendBytes(b, s []byte, flex bool) []byte {
	if s == nil {
		return appendLength(b, -1, flex, true)
	}
	b = appendLength(b, len(s), flex, true)
	return append(b, s...)
}

// AppendArrayLen appends a number of elements; -1 = null.
func AppendArrayLen(b []byte, n int, flex bool) []byte { return appendLength(b, n, flex, true) }

// appendTagCount appends the number of tagged fields that follow, in flexible
// versions only.
func appendTagCount(b []byte, n int, flex bool) []byte {
	if flex {
		b = append(b, byte(n))
	}
	return b
}

func appendLength(b []byte, n int, flex, wide bool) []byte {
	switch {
	case flex:
		return AppendUvarint(b, uint32(n+1))
	case wide:
		return AppendInt32(b, int32(n))
	}
	return AppendInt16(b, int16(n))
}
