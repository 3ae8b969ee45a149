// Package load writes to a broker and measures how long acknowledgements take,
// and reads from one and measures how fast. It speaks Produce and Fetch over
// plain TCP with internal/wire, so a client library is neither measured nor in
// the way; RunKgo is the same load through one, for comparison. Bare is what TCP
// does with no broker in the way.
//
//	schedule ──► sender ──► Produce, several under way ──► broker
//	    │                                                    │
//	    └── intended time of each record ──► receiver ◄── answers, in order
//	                                            └──► histogram
//
// Laws:
//   - Open loop: record n is due at start + n/rate, whatever the broker does. Its
//     latency counts from when it was due, not from when it was sent, so a stall
//     is charged to every record it delays (no coordinated omission).
//   - With Batch set a request has so many records, however late it is, and all
//     of them are due when it is. Its bytes are made once: the load does not pay
//     for a checksum each time on the machine that it measures.
//   - Closed loop (OneInFlight, InFlight) has a set number of requests under way
//     and counts from their sending: OneInFlight is for idle latency, InFlight
//     for the most that a broker takes. Their percentiles hide stalls.
//   - A refused record is an error and no latency.
//
// Owner thread: Run and Consume have at most two goroutines per connection and waits for them; a
// Conn is for one goroutine.
package load
