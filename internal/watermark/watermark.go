package watermark

import "sync/atomic"

// Mark is a high watermark: an offset that only rises, and the shards that
// asked to be woken when it does. The zero Mark stands at offset 0.
type Mark struct {
	value    atomic.Int64
	interest atomic.Uint64 // bit = shard number
}

// Load returns the mark.
func (m *Mark) Load() int64 { return m.value.Load() }

// Raise lifts the mark to v and returns the shards to wake (bit = shard). A v
// at or below the mark changes nothing and wakes nobody.
func (m *Mark) Raise(v int64) (raised bool, wake uint64) {
	if !m.lift(v) {
		return false, 0
	}
	return true, m.Interest()
}

// Wait records that shard (0..63) wants to hear of a rise and reports whether
// the mark has reached offset already. On true the bit may stay set: the shard
// is then woken once for nothing.
func (m *Mark) Wait(shard uint, offset int64) bool {
	m.announce(shard)
	return m.value.Load() >= offset
}

// Interest takes the shards to wake without a rise: an error, a freeze or a
// change of role must reach the waiters too.
func (m *Mark) Interest() uint64 {
	// A mask that reads 0 needs no write: whoever sets a bit after this load
	// reads the value after it too, and so sees the rise.
	if m.interest.Load() == 0 {
		return 0
	}
	return m.interest.Swap(0)
}

// Reset sets the mark to v, up or down. Only a truncation or a new role may
// lower a mark, and only under the partition's lock; the caller wakes the
// waiters with Interest.
func (m *Mark) Reset(v int64) { m.value.Store(v) }

// lift is the raiser's first step.
func (m *Mark) lift(v int64) bool {
	for {
		old := m.value.Load()
		if v <= old {
			return false
		}
		if m.value.CompareAndSwap(old, v) {
			return true
		}
	}
}

// announce is the waiter's first step.
func (m *Mark) announce(shard uint) { m.interest.Or(1 << (shard % MaxShards)) }
