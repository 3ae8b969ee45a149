// Package sim runs the real data plane in a box: kernel, disk, clock, clients
// and operators are fakes, and everything that happens follows from one seed.
//
//	          ┌────────────── World: seed, clock, order of everything ─────────────┐
//	clients ──┤ streams ── kernel ──events──► Core.Step ──ops──► kernel ── streams │── mirrors
//	          │               segment over MemFS       View by meta.Apply          │
//	          └────────────── laws, checked after every event ─────────────────────┘
//
// Whole turns of the shards are interleaved at random; so are background jobs,
// cold requests, Views on their way, faults of disk and network, crashes, and what
// operators do: topics deleted and made again, configs, DeleteRecords, retention,
// registrations and releases, a topic that is compacted, clean
// shutdowns, plugins swapped for bad ones, and at the end of some
// runs the loss of a site.
//
// # Policies
//
// What a broker's plugins decide is decided here by the same policies, behind the
// border's messages, in slots that keep plugins/host's promises: see slot. The guards
// are internal/mirror's, the fences Apply's. Some plugins are late, silent, wrong,
// greedy, or end.
//
// # The disk
//
// A process that is killed leaves the page cache. A loss of power takes the tail of
// what no flush covered, any 512-byte sectors of it, and names no SyncDir covered.
// A flush that fails gives its pages up: they are read as they were until they are
// evicted, the next flush succeeds without them, and no crash brings them back. See
// segment.MemFS.
//
// # The ring
//
// The kernel here carries out a ring's operations: out of order, short, and now and
// then with an error of a machine that is short of memory or descriptors. What lies
// below, submission and completion queues and provided buffers, has a fake
// kernel in ioring (TestRingFaults).
//
// # Laws
//
// MonotonicWatermark, NoReadAboveWatermark, AckedSurvives, NoHoles,
// AckedIsOnEveryRegisteredISR, PrefixEqualBelowWatermark, ReleasedNeverGates,
// FailedDirIsDead, LimitsHold, AnswersInOrder, OnceInTheLog,
// EveryRequestIsAnswered, NothingLeaks, DescriptorsAreOurs,
// MirrorIsPrefixOfSource, LogStartIsAllowed, DeletedIsGone, OneCoordinatorWrites,
// PromoteOnlyAtLagZero, SyncEndsByEvidence, PluginDeathIsInvisible,
// NothingCleanedAboveTheMark, LatestOfEveryKeySurvives, CleanStopIsClean,
// FailoverLosesNothing. What each means is told where it is checked; which planted
// bug turns it red in docs/planted-bugs.md.
//
// # Owner
//
// One goroutine, the test's. There is no real time, thread, socket or file.
//
// A run fails with the seed, the law and the last events; the same seed gives
// the same run.
package sim
