// Package dataplane is the engine: it takes requests off sockets, appends to
// logs, answers reads, gates acknowledgements on mirrors, and mirrors
// partitions from other clusters.
//
// # Reactors
//
// A shard is a Core: a function from completions to operations. Its shell
// (reactor.go) is one locked thread that waits on its ring, calls Step and
// submits what Step returns. A connection stays on one shard; partitions are
// shared by all. Other shards and goroutines reach a shard only through its
// inbox, which wakes it only when it sleeps.
//
//	ring ──events──► Core.Step ──ops──► ring
//	                   │  ▲
//	        commit ────┘  └──── inbox ◄── other shards, cold pool, preparers, flusher, control
//	        (pwritev)
//
// # Ownership
//
// Connections, parked requests, timers, buffers: the shard's. A Partition: its
// mu, held for a few hundred nanoseconds and never across a system call. Readers
// need neither: the log, the role and the two marks are atomics, and published
// bytes never change. A frame's buffer may be read by another shard's write; it
// comes home through a stack of its own (frame.go).
//
// # Appends
//
// Under the lock a batch gets its offsets and is queued. At the end of its turn
// a shard that finds no writer takes all that is queued, writes it with the
// lock free, publishes, and repeats while there is more: one writer, always
// contiguous. Room in the file is made ahead of need by a goroutine; a produce
// that finds none is parked and its connection is not parsed further.
//
// # Marks
//
// A partition has two: end, the log end as this replica reports it (appended,
// or flushed for flush.ack=durable), and high, the gated high watermark. Raising
// one returns the shards to wake; a waiter registers and then looks again.
//
// # Views
//
// All facts about the cluster come from meta.View behind an atomic pointer.
// Shard 0 takes each difference (view.go), changes roles and gates under the
// partitions' locks and hands the rest on; every shard names the index it has
// finished. Nobody calls control.
//
// # Mirroring
//
// At the source a Fetch that names a mirror carries reports; they are counted
// before anything is parked (replicas.go) and raise the gate. At the destination
// each mirror has two connections to a source broker (mirror_conn.go): a data
// lane that fetches, and a report lane that says at once what our replicas hold.
package dataplane
