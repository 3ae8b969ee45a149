// Package peer runs single brokers as processes of their own, to be put under
// the same load one after another: ours, and Apache Kafka, fetched by its Maven
// coordinates into the user's cache directory.
//
//	Jars ──► Kafka ──┐
//	                 ├──► Broker: Start, Ready, CPU, RSS, Stop
//	     Lockstep ───┘
//
// Laws:
//   - A broker is the leader of a process group; it dies with the process that
//     started it, and every Stop and Kill waits for it.
//   - What cannot be had here (no JVM, no Maven, no jars) is ErrMissing, with what
//     is missing, and no failure of the measurement.
//   - A broker states its settings: all that were changed, and the JVM's flags.
//
// Owner thread: methods of a Broker are for one goroutine at a time.
package peer
