// Package cli is what the commands of lockstep and kafka-cluster-mirrors share:
// flags of a connection, patterns of topics, tables, errors that say what to
// do, and the verbs on mirrors with their checks and waits.
//
//	flags ──► Options ──Connect──► Session ──► verbs ──► Printer ──► table, lines or JSON
//	                                              └────► error ──► Report ──► stderr, exit code
//
// Laws:
//   - What a person asked for goes to Out; remarks, progress and errors go to
//     Err. With JSON, Out holds one document and nothing else.
//   - Every error says what failed, why, and what to do.
//   - Nothing is sent for a request that is known to be refused.
//
// Owner thread: the command's own; nothing here starts a goroutine.
package cli
