// Package meta holds the cluster's facts: an immutable View and a pure Apply.
//
//	command ──Encode──► raft entry ──► Apply(View, index, bytes) ──► View', Result
//	                                       │                            │
//	                            one topic's copy, shared rest    Diff(View, View')
//
// Owner: the raft FSM's goroutine is the only caller of Apply; it publishes the
// View behind one atomic pointer. A View is read by anyone, kept by anyone, and
// never changed.
//
// Laws:
//   - Apply is a function of (View, index, bytes): no clock, no randomness. Two
//     replicas with the same commands give the same snapshot bytes.
//   - Index rises with every command, refused ones too, so that "applied" can be
//     compared with "committed".
//   - A command costs its own size: maps are persistent, a topic's copy shares
//     the partitions that did not change. Only commands about a whole broker,
//     and release of all topics of a mirror, walk everything.
//   - An item that is refused changes nothing and does not disturb the others.
//   - Whoever proposes from knowledge names it: broker epoch, leader epoch,
//     partition epoch, state epoch, phase, fence. What does not match is refused.
//   - Mirror states, promotion and the sync ledger move only by the machines of
//     internal/mirror.
//
// Topic.Index is the index of the last change to anything in the topic. The
// dynamic configs are all that Apply knows of configuration: a default that
// must count in an election is set as a dynamic config of broker "".
package meta
