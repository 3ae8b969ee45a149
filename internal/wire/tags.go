package wire

// Tag is one tagged field whose meaning is not known here.
type Tag struct {
	Key   uint32
	Value []byte // aliases the message it was read from
}

// Tags are the tagged fields a message carried and its schema does not name.
// They are kept in order and written back after the known ones.
type Tags []Tag

// TagCount reads the number of tagged fields; more than MaxTags is a fault.
func (r *Reader) TagCount() int {
	n := r.Uvarint()
	if n > MaxTags {
		r.Fail()
		return 0
	}
	return int(n)
}

// Tag reads the next tagged field: its number and, in place, its value.
func (r *Reader) Tag() (key uint32, value []byte) {
	key = r.Uvarint()
	return key, r.Span(int(r.Uvarint()))
}

// SkipTags reads over a whole tag section.
func (r *Reader) SkipTags() {
	if len(r.src) > 0 && r.src[0] == 0 { // nearly always
		r.src = r.src[1:]
		return
	}
	for n := r.TagCount(); n > 0 && r.Ok(); n-- {
		r.Tag()
	}
}

// AppendTag appends one tagged field.
func AppendTag(b []byte, key uint32, value []byte) []byte {
	b = AppendUvarint(b, key)
	b = AppendUvarint(b, uint32(len(value)))
	return append(b, value...)
}

// AppendEach appends all fields, without their count.
func (t Tags) AppendEach(b []byte) []byte {
	for i := range t {
		b = AppendTag(b, t[i].Key, t[i].Value)
	}
	return b
}

// BeginTag appends a field's number and one byte of room for its size. The
// value follows; EndTag is then given len(b) as it was after BeginTag.
func BeginTag(b []byte, key uint32) []byte { return append(AppendUvarint(b, key), 0) }

// EndTag writes the size of the value that starts at start, moving the value
// when the size needs more than the one byte kept for it.
func EndTag(b []byte, start int) []byte {
	n := uint32(len(b) - start)
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	var tmp [5]byte
	size := AppendUvarint(tmp[:0], n)
	b = append(b, size[1:]...)
	copy(b[start-1+len(size):], b[start:start+int(n)])
	copy(b[start-1:], size)
	return b
}
