package ioring

import (
	"net/netip"
	"time"
)

// Kind names what an Op asks for and what an Event answers.
type Kind uint8

const (
	// Accept waits for one connection on FD. The event carries its FD.
	Accept Kind = iota + 1
	// Connect opens a TCP connection to Addr. The event carries its FD.
	Connect
	// Recv takes what has arrived, at most ProvidedSize bytes, into a provided
	// buffer. The event carries it in Buf; Res is the count, 0 at end of stream.
	Recv
	// RecvInto fills Bytes whole; Res is less only at end of stream.
	RecvInto
	// Send sends Pieces in order. Res may be short.
	Send
	// Populate brings the pages of Bytes (a read-only map) into memory.
	Populate
	// Close closes FD. Its other operations end with -ECANCELED or an error
	// first or later; each still gives its event.
	Close
)

var kindNames = [...]string{"?", "accept", "connect", "recv", "recv-into", "send", "populate", "close"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "?"
}

// Op is one operation. Token comes back in its Event; it is an index and a
// generation of the caller's, never a pointer.
type Op struct {
	Kind   Kind
	FD     int32
	Token  uint64
	Bytes  []byte         // RecvInto, Populate
	Pieces [][]byte       // Send: at most MaxPieces, not empty; must stay as they are until the event
	Addr   netip.AddrPort // Connect
}

// Event is what came of an Op.
type Event struct {
	Kind  Kind
	Token uint64
	Res   int32   // a count or a descriptor, or a negative errno
	Buf   *Buffer // Recv with Res > 0: the caller owns it and gives it back with Pool.Free
}

// Engine carries out operations. All methods but Wake belong to one thread.
type Engine interface {
	// Name is RingName or "portable", as in output and metrics.
	Name() string
	// Queue takes a copy of the op; it runs at the next Turn at the latest.
	Queue(op Op)
	// Turn runs what is queued and appends what has completed to events. With
	// nothing completed it waits for at most wait (negative: for ever, zero:
	// not at all), or until Wake. EINTR, EAGAIN and a full queue are its own
	// affair; an error means the engine is broken for good.
	Turn(events []Event, wait time.Duration) ([]Event, error)
	// Wake ends a wait of the owner now or, if it is not waiting, the next one.
	Wake()
	// Close ends the engine. The owner calls it last.
	Close() error
}
