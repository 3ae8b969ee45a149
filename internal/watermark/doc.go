// Package watermark decides how far a partition may be read and acknowledged.
//
// It has two halves. Mark is the number itself: an int64 that only rises, read
// by everyone without a lock, and the set of shards that want to hear of the
// next rise. source.go and destination.go are the rules that compute the next
// value; they are pure functions of values owned by the caller.
//
// Owner: the rules, and Reset, run under the partition's lock. Load, Wait,
// Raise and Interest may run on any thread.
//
// The two-word argument. A raiser stores the value and then takes the interest
// mask; a waiter sets its bit and then reads the value. Go's atomics have one
// total order, so of the two second steps at least one sees the other side's
// first step:
//
//	raiser:  value.max(v) ──► interest.swap(0) ─► shards to wake
//	                   ╲    ╱
//	                     ╳          never both blind
//	                   ╱    ╲
//	waiter:  interest.or(bit) ──► value.load ≥ offset ?
//
// A woken shard calls Wait again before it sleeps, so a wake that comes too
// early costs one turn and nothing else.
//
// Laws: MonotonicWatermark (only Reset lowers), AckedIsOnEveryRegisteredISR
// (the mark passes a record only when every replica of the maximal local ISR
// and of every registered mirror's reported ISR holds it), NoJoinBelowFloor (a
// mirror leader admits nobody who could lack such a record).
//
// The sync invariant: an offset below the source's mark lies below the LEO of
// every ISR member of every registered destination. The model check in
// model_test.go takes one rule out at a time and shows the record that is lost.
package watermark
