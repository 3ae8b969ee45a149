package wire

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrMalformed is the one error of a Reader: the bytes end early, a count or a
// length does not fit into them, or a number is not one of its type.
var ErrMalformed = errors.New("wire: message is truncated or malformed")

// Reader is a cursor over one message. The zero value reads an empty message.
// After the first fault all reads return zero values; see Err.
type Reader struct {
	src []byte
	bad bool
}

// NewReader returns a cursor at the start of b. What it hands out aliases b.
func NewReader(b []byte) Reader { return Reader{src: b} }

// Ok tells whether everything read so far was there and well-formed.
func (r *Reader) Ok() bool { return !r.bad }

// Err is ErrMalformed after the first fault, nil before.
func (r *Reader) Err() error {
	if r.bad {
		return ErrMalformed
	}
	return nil
}

// Complete is Err, and ErrMalformed too when bytes are left over.
func (r *Reader) Complete() error {
	if r.bad || len(r.src) != 0 {
		return ErrMalformed
	}
	return nil
}

// Fail marks the message as malformed.
func (r *Reader) Fail() { r.bad, r.src = true, nil }

// Remaining is the number of bytes not read yet; 0 after a fault.
func (r *Reader) Remaining() int { return len(r.src) }

// Rest returns the bytes not read yet without reading them.
func (r *Reader) Rest() []byte { return r.src }

// Span reads n bytes and returns them in place.
func (r *Reader) Span(n int) []byte {
	if n < 0 || n > len(r.src) || r.bad {
		r.Fail()
		return nil
	}
	s := r.src[:n:n]
	r.src = r.src[n:]
	return s
}

// Int8 reads a signed byte.
func (r *Reader) Int8() int8 {
	if len(r.src) < 1 {
		r.Fail()
		return 0
	}
	v := int8(r.src[0])
	r.src = r.src[1:]
	return v
}

// Bool reads a byte; anything but 0 is true.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Uint16 reads two bytes, big endian, as all fixed integers here.
func (r *Reader) Uint16() uint16 {
	if len(r.src) < 2 {
		r.Fail()
		return 0
	}
	v := binary.BigEndian.Uint16(r.src)
	r.src = r.src[2:]
	return v
}

// Int16 reads two bytes.
func (r *Reader) Int16() int16 { return int16(r.Uint16()) }

// Uint32 reads four bytes.
func (r *Reader) Uint32() uint32 {
	if len(r.src) < 4 {
		r.Fail()
		return 0
	}
	v := binary.BigEndian.Uint32(r.src)
	r.src = r.src[4:]
	return v
}

// Int32 reads four bytes.
func (r *Reader) Int32() int32 { return int32(r.Uint32()) }

// Int64 reads eight bytes.
func (r *Reader) Int64() int64 {
	if len(r.src) < 8 {
		r.Fail()
		return 0
	}
	v := int64(binary.BigEndian.Uint64(r.src))
	r.src = r.src[8:]
	return v
}

// Float64 reads eight bytes, IEEE 754.
func (r *Reader) Float64() float64 { return math.Float64frombits(uint64(r.Int64())) }

// UUID reads sixteen bytes.
func (r *Reader) UUID() (u [16]byte) {
	copy(u[:], r.Span(16))
	return u
}

// Uvarint reads an unsigned varint of at most 32 bits.
func (r *Reader) Uvarint() uint32 {
	if len(r.src) > 0 && r.src[0] < 0x80 {
		v := r.src[0]
		r.src = r.src[1:]
		return uint32(v)
	}
	return r.longUvarint()
}

func (r *Reader) longUvarint() uint32 {
	v, n := uvarint(r.src, 5)
	if n <= 0 || v > math.MaxUint32 {
		r.Fail()
		return 0
	}
	r.src = r.src[n:]
	return uint32(v)
}

// Varint reads a zigzag varint of at most 32 bits.
func (r *Reader) Varint() int32 {
	u := r.Uvarint()
	return int32(u>>1) ^ -int32(u&1)
}

// Varlong reads a zigzag varint of at most 64 bits.
func (r *Reader) Varlong() int64 {
	u, n := uvarint(r.src, 10)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.src = r.src[n:]
	return int64(u>>1) ^ -int64(u&1)
}

// uvarint decodes a varint of at most maxLen bytes; its length is 0 when the
// bytes end early or the number does not fit into 64 bits.
func uvarint(b []byte, maxLen int) (uint64, int) {
	var x uint64
	for i := 0; i < maxLen && i < len(b); i++ {
		c := b[i]
		if i == 9 && c > 1 {
			return 0, 0
		}
		x |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return x, i + 1
		}
	}
	return 0, 0
}

// length reads the length of a string (wide = false) or of bytes and arrays:
// -1 = null. A flexible length travels plus one, as a varint.
func (r *Reader) length(flex, wide bool) int {
	var n int
	switch {
	case flex:
		n = int(r.Uvarint()) - 1
		if r.bad {
			return 0
		}
	case wide:
		n = int(r.Int32())
	default:
		n = int(r.Int16())
	}
	if n < -1 {
		r.Fail()
		return 0
	}
	return n
}

// StringBytes reads a string in place; null is a fault.
func (r *Reader) StringBytes(flex bool) []byte {
	n := r.length(flex, false)
	if n < 0 {
		r.Fail()
	}
	return r.Span(n)
}

// NullableStringBytes reads a string in place; nil = null.
func (r *Reader) NullableStringBytes(flex bool) []byte {
	n := r.length(flex, false)
	if n < 0 {
		return nil
	}
	return r.Span(n)
}

// String reads and copies a string; null is a fault.
func (r *Reader) String(flex bool) string {
	n := r.length(flex, false)
	if n < 0 {
		r.Fail()
	}
	return string(r.Span(n))
}

// NullableString reads and copies a string; nil = null.
func (r *Reader) NullableString(flex bool) *string {
	n := r.length(flex, false)
	if n < 0 {
		return nil
	}
	s := string(r.Span(n))
	if r.bad {
		return nil
	}
	return &s
}

// Bytes reads a byte string in place; nil = null.
func (r *Reader) Bytes(flex bool) []byte {
	n := r.length(flex, true)
	if n < 0 {
		return nil
	}
	return r.Span(n)
}

// ArrayLen reads the number of elements of an array; -1 = null. An array whose
// elements of at least minElem bytes each cannot fit is a fault, so the count is
// never larger than the bytes that are there.
func (r *Reader) ArrayLen(flex bool, minElem int) int {
	n := r.length(flex, true)
	if n > 0 && n > len(r.src)/max(1, minElem) {
		r.Fail()
		return 0
	}
	return n
}

// MakeSlice returns an empty slice to append n elements to while they are read
// (nil for n < 0). It reserves little, whatever n says: a small message must
// not claim much memory.
func MakeSlice[T any](n int) []T {
	if n < 0 {
		return nil
	}
	return make([]T, 0, min(n, firstSlice))
}
