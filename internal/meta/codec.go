package meta

import (
	"encoding/binary"
	"errors"

	"lockstep/internal/msg"
)

// Message is a command or a result, generated from internal/msg/schema/meta_*.
type Message = msg.Message

// Result is what Apply answers: an error of the whole command, or one item for
// each item of the command in its order.
type Result = msg.CommandResult

// ResultItem is the answer to one item of a command.
type ResultItem = msg.CommandResultItem

var errNotCommand = errors.New("meta: not a command")

// Encode frames a command or a result: api key and version as varints, then
// the body.
func Encode(m Message) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 64), uint64(m.APIKey()))
	b = binary.AppendUvarint(b, uint64(m.GetVersion()))
	return m.AppendTo(b)
}

// Decode reads what Encode has written. Byte fields alias b.
func Decode(b []byte) (Message, error) {
	key, n := binary.Uvarint(b)
	if n <= 0 || key > 1<<14 {
		return nil, errNotCommand
	}
	version, k := binary.Uvarint(b[n:])
	m := msg.NewMetadataRecord(int16(key))
	if k <= 0 || m == nil || version > uint64(m.MaxVersion()) || int16(version) < m.MinVersion() {
		return nil, errNotCommand
	}
	m.SetVersion(int16(version))
	if err := m.ReadFrom(b[n+k:]); err != nil {
		return nil, err
	}
	return m, nil
}
