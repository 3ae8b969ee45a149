// Package api answers the requests that are not on the hot path: metadata,
// topics, configs, producer ids, log directories and the mirror keys.
//
//	frame ──dataplane──► Request ──Serve──► handlers[key] ──► View          reads
//	                                             │        ├──► Control       commands
//	                                             │        ├──► Data          offsets of this broker
//	                                             │        └──► Mirrors       other clusters, barriers
//	response frame ◄──────────────────────────── body
//
// Owner: none; Serve is called from many goroutines at once and starts none. It
// returns when the answer is there, which for a command is when it is durable.
//
// Laws:
//   - A version outside wire.Lookup's range, or a body that does not decode, is
//     never answered: the connection is closed.
//   - Nothing here decides. What a command needs is checked again by meta.Apply
//     at the commit index; the checks here give better words.
//   - Every text of a refusal says what to do next.
//   - Errors are Kafka's: code, not prose, is what a client acts upon.
package api
