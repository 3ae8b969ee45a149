// Package segment is the log on disk: partition logs made of segment files,
// their indexes, leader-epoch history and producer state, and the log
// directory that holds them.
//
// # Owner
//
// The package has no goroutine, clock or source of randomness. Time comes in
// by argument, the disk through FS. Methods marked [L] need the lock of the
// partition, which the caller owns; all others may be called by any thread at
// any time. No method marked [L] makes a system call, so the lock is short.
// What is slow has three steps:
//
//	plan [L]          do (no lock)       apply [L]
//	Log.Take          pwritev            Log.Wrote
//	Log.GrowPlan      Grow.Do            Log.Grown
//	Log.FlushPlan     Flush.Do           Log.Flushed
//	Log.TruncatePlan  Truncation.Do      Log.Truncated
//	Log.Drop          Dropped.Do         Log.Unlinked
//	Log.RestPlan      Rest.Do            -
//
// One exception: TruncatePlan opens the file of a segment that was at rest.
//
// # A segment
//
//	<topic>-<partition>/00000000000000000042.log     Kafka's record batches v2, byte for byte
//	                    00000000000000000042.index   a hint, see index.go
//	                    00000000000000000042.snapshot producers of all batches below 42
//	                    leader-epoch-checkpoint, partition.metadata
//
//	map    |####### published #######|~~ queued, being written ~~|.. allocated ..|   reserved   |
//	       0                    size                                         alloc          limit
//	        readers see only this                                 file blocks end   map ends here
//
// An append is queued under the lock, written by whoever holds the one write
// token, and published by raising first the length and then the end offset.
// A read is a slice of the read-only map below the published length. A log
// that is not used is put to rest when too many files are open, see rest.go.
//
// # Laws
//
//   - PublishedBytesNeverChange: truncation seals a file shorter and opens a
//     new one; a reader may hold a slice for as long as it likes.
//   - NeverTruncateAMap: a mapped file is never cut below its published
//     length, and nothing is stored through a mapping.
//   - ContentEndsAtNextBase: what a file holds at or above the base offset of
//     the next segment is not part of the log.
//   - DenseOffsets: a batch begins where the one before it ended.
//   - FailedDirIsDead: the first failed write or flush ends the directory for
//     the life of the process. There is no retry: a second fsync lies.
//   - TornTailOnly: broken bytes above the recovery point are a torn tail and
//     are cut; below it they are corruption, nothing is cut, and OpenLog
//     returns a CorruptError.
//   - IndexesAreHints: absent, stale, torn or foreign index files are rebuilt
//     and reads are the same.
package segment
