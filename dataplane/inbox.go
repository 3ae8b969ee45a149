package dataplane

import "sync"

// note is a message to a shard, from another shard or from a goroutine.
type note struct {
	kind  noteKind
	fd    int32
	token uint64 // noteConn: the listener
	part  *Partition
	bytes []byte
	err   error
	ans   *answer
	delta *viewDelta
	fn    func(*Core)
}

type noteKind uint8

const (
	noteConn   noteKind = iota // adopt a connection
	noteMoved                  // marks of a partition moved, or its role did
	noteCold                   // the answer to a cold request
	noteGrown                  // a segment step is ready or has failed
	noteView                   // a new View's delta
	noteReport                 // a mirrored partition has something to report
	noteCall                   // run fn on the shard
)

// inbox takes notes from anywhere. Its lock is held for a copy of a few words,
// never across work; the owner swaps the slices, so neither side allocates once
// both have grown.
type inbox struct {
	mu   sync.Mutex
	in   []note
	out  []note
	wake func()
}

func (b *inbox) put(n note) {
	b.mu.Lock()
	b.in = append(b.in, n)
	b.mu.Unlock()
	b.wake()
}

// take returns what has come in; the slice is valid until the next take.
func (b *inbox) take() []note {
	clear(b.out)
	b.mu.Lock()
	b.in, b.out = b.out[:0], b.in
	b.mu.Unlock()
	return b.out
}
