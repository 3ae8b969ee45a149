// Package soak keeps a pair of clusters under a modest mixed load for long and
// looks at what each broker takes: a figure that rises for half an hour is a leak.
//
//	testcluster ── source ── line ── destination
//	                  ▲                  ▲
//	   writers, readers, topics, connections, swaps, questions
//	                  │                  │
//	              /proc, /metrics ──► samples ──► report.Trend
//
// Laws:
//   - What an event could leave behind (a topic, a connection, a swap) happens
//     so often that one thing left per event is far over the bound of its figure.
//   - Readers at the tail check that offsets are dense: a run that loses records
//     fails, however level its figures are.
//   - Bounds are in limits.go and are not fitted to a run.
//
// Owner thread: Run has a goroutine per actor and waits for all of them.
package soak
