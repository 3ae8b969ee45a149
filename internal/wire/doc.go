// Package wire has the bytes of the hot path: a cursor, append-style encoders,
// frames, the version table, error codes, and views of Produce, Fetch,
// ListOffsets and the record batch that walk received bytes in place.
//
// It does no I/O, keeps no global state that changes, and allocates nothing on
// a hot path; every bound is in limits.go. Cold messages are generated
// (internal/msg) or come from kmsg, outside this package.
//
//	socket ──► frame buffer ──► ParseHeader ──► view.Parse ──► Iter: slices of the frame
//	                                                             │ alias, never a copy
//	gather list ◄── header arena ◄── AppendFetch… ◄── answer ◄───┘
//
// Owner thread: none; a value belongs to whoever holds it. Laws:
//
//   - A slice handed out by a Reader or a view aliases the frame. It is good for
//     as long as the frame is, and no longer; whoever keeps it copies it.
//   - A Reader's error is sticky: after the first fault every read returns zero
//     and Ok is false, so one check at the end is enough.
//   - Parse checks the whole structure of a message once; an iterator made after
//     a good Parse cannot fail.
//   - No count read from a peer reserves memory before its elements were seen to
//     fit into what was received.
//   - Append functions only append: bytes before len(b) are never changed,
//     except a size placeholder written by the matching Begin.
package wire
