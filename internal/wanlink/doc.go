// Package wanlink is a long line between two places on one machine: a TCP proxy
// that delivers every byte in order, unchanged, half a round trip after it came
// in.
//
//	client ──► read, stamp ──► delay queue ──► write when due ──► target
//	client ◄── write when due ◄── delay queue ◄── read, stamp ◄── target
//
// Laws:
//   - Bytes are neither changed, nor reordered, nor held back to be joined with
//     later ones: a chunk is stamped when it is read and written when it is due.
//   - A queue is bounded. A full queue stops reading, so the sender meets the
//     closed window of the socket, as on a real line.
//   - After Cut has returned, nothing that was under way is delivered.
//
// What a connection costs: the link accepts at once and dials the target at
// once, so connect(2) itself returns without delay; the first answer of the
// target still comes one round trip after the first request, which is what a
// protocol that speaks after connecting can see. The one round trip of the TCP
// handshake of a real line is not added.
//
// Delays are kept by one timerfd per direction of a connection, because the
// timers of the Go runtime are rounded to whole milliseconds by its poller.
//
// Owner thread: none; all methods of Link may be called from any goroutine. Each
// connection has a goroutine for dialling and two per direction, and each
// listening end one for accepting. Close waits for all of them.
package wanlink
