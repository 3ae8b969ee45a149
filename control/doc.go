// Package control is the slow half: the metadata quorum, the broker's own
// membership, and what is done about mirrors.
//
//	command ──Propose──► raft ──► FSM = meta.Apply ──► View (one atomic pointer) ──► data plane
//
// Replicated: commands, and nothing else; the View is what Apply makes of them,
// mirror states, registrations and releases included, so no crash can come
// between a release and its marker. Derived: addresses of source leaders, retry
// times, what the data plane measures.
//
// Mirrors are driven by comparing what should be with what is (coordinate.go):
// each tick the facts of a partition or a topic go to a policy, its wishes are
// checked against the broker's own evidence, become commands under the policy's
// fencing number, and only what is durable is acted upon. Emergency operations
// never wait for a policy.
package control
