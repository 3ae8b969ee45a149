// Package admin lets programs manage the cluster mirrors of Lockstep: the verbs
// on mirrors and their topics, the three requests of synchronous mirroring, and
// a look at what a cluster can do.
//
//	program ──► Client ──kgo──► any broker        verbs
//	                       └──► every broker      DescribeMirrors, Probe: merged
//
// Owner: a Client is safe for use by many goroutines. Laws:
//
//   - An error of a broker is an *Error: Kafka's name of it and the broker's
//     words. All other errors are of the way there.
//   - A verb on topics has one result for each topic, in the order asked; its
//     error is about the request as a whole.
//   - Nothing here prints, reads flags or files, or asks back.
//
// What stock Kafka has too (topics, configs, groups) is done with Kadm.
package admin
