package wire

import (
	"encoding/binary"
	"errors"
)

// ErrUnknownKey is returned by ParseHeader for an API key the table does not
// have: whether tags follow the client id cannot be known then.
var ErrUnknownKey = errors.New("wire: unknown API key")

// Header is a request header. ClientID aliases the frame; nil = null.
type Header struct {
	Key, Version int16
	Correlation  int32
	ClientID     []byte
}

// ParseHeader splits a request frame (without its four size bytes) into header
// and body. The client id has the old form even in flexible versions. On
// ErrUnknownKey the header is filled and the body starts after the client id.
func ParseHeader(frame []byte) (Header, []byte, error) {
	r := NewReader(frame)
	h := Header{Key: r.Int16(), Version: r.Int16(), Correlation: r.Int32(), ClientID: r.NullableStringBytes(false)}
	api := Lookup(h.Key)
	if api == nil && r.Ok() {
		return h, r.Rest(), ErrUnknownKey
	}
	if r.Ok() && api.Flexible(h.Version) {
		r.SkipTags()
	}
	return h, r.Rest(), r.Err()
}

// BeginResponse appends room for the size, the correlation id and, in flexible
// versions of everything but ApiVersions, an empty tag section.
func BeginResponse(b []byte, key, version int16, correlation int32) []byte {
	b = append(b, 0, 0, 0, 0)
	b = AppendInt32(b, correlation)
	if api := Lookup(key); key != KeyApiVersions && api != nil && api.Flexible(version) {
		b = append(b, 0)
	}
	return b
}

// EndResponse writes the size of the frame that began at start. extra is the
// number of bytes that belong to the frame but travel from elsewhere.
func EndResponse(b []byte, start, extra int) {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4+extra))
}

// BeginRequest appends room for the size and the request header.
func BeginRequest(b []byte, key, version int16, correlation int32, clientID string) []byte {
	b = append(b, 0, 0, 0, 0)
	b = AppendInt16(b, key)
	b = AppendInt16(b, version)
	b = AppendInt32(b, correlation)
	b = AppendString(b, clientID, false)
	if api := Lookup(key); api != nil && api.Flexible(version) {
		b = append(b, 0)
	}
	return b
}

// EndRequest writes the size of the request that began at start.
func EndRequest(b []byte, start int) { EndResponse(b, start, 0) }

// ParseResponseHeader splits a response frame (without its size) into
// correlation id and body, as the sender of key and version must read it.
func ParseResponseHeader(frame []byte, key, version int16) (int32, []byte, error) {
	r := NewReader(frame)
	correlation := r.Int32()
	if api := Lookup(key); key != KeyApiVersions && api != nil && api.Flexible(version) {
		r.SkipTags()
	}
	return correlation, r.Rest(), r.Err()
}
