// Package sim runs the real data plane in a box: kernel, disk, clock, clients
// and operators are fakes, and everything that happens follows from one seed.
//
//	          ┌────────────── World: seed, clock, order of everything ─────────────┐
//	clients ──┤ streams ── kernel ──events──► Core.Step ──ops──► kernel ── streams │── mirrors
//	          │               segment over MemFS       View by meta.Apply          │
//	          └────────────── laws, checked after every event ─────────────────────┘
//
// Whole turns of the shards are interleaved at random; so are background jobs,
// cold requests, Views on their way, faults of disk and network, and crashes.
//
// # Laws
//
// MonotonicWatermark, NoReadAboveWatermark, AckedSurvives,
// AckedIsOnEveryRegisteredISR, PrefixEqualBelowWatermark, ReleasedNeverGates,
// FailedDirIsDead, LimitsHold, AnswersInOrder, OnceInTheLog,
// EveryRequestIsAnswered, NothingLeaks, DescriptorsAreOurs,
// MirrorIsPrefixOfSource. What each means is told in laws.go.
//
// # Owner
//
// One goroutine, the test's. There is no real time, thread, socket or file.
//
// A run fails with the seed, the law and the last events; the same seed gives
// the same run.
package sim
