// Package load writes to a broker and measures how long acknowledgements take.
// It speaks Produce 14 over plain TCP with internal/wire, so a client library
// is neither measured nor in the way.
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
//   - Closed loop (OneInFlight) has one record under way and counts from its
//     sending; it is for idle latency only.
//   - A refused record is an error and no latency.
//
// Owner thread: Run has two goroutines per connection and waits for them; a
// Conn is for one goroutine.
package load
