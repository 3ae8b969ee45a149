package dataplane

import (
	"time"

	"lockstep/ioring"
)

// Every bound of the package. Sizes are bytes, times are nanoseconds unless the
// name says otherwise.
const (
	maxReactors      = 64  // a Mark's interest mask has one bit each
	maxAnswers       = 128 // requests of one connection that wait for their answer, in order
	maxSendBytes     = 1 << 20
	maxOwed          = 100_000 // ... and of all connections of a shard; over it none of them is parsed further
	sendPieces       = ioring.MaxPieces
	copyBelow        = 4 << 10 // record bytes up to this are copied behind their header: one piece less
	maxResponse      = 56 << 20
	coldWorkers      = 32        // goroutines that serve cold requests
	coldQueue        = 1024      // cold requests that wait for one
	backgroundJobs   = 4096      // segment steps and flushes that wait for their goroutine
	preparers        = 2         // goroutines that grow, truncate and drop segments
	inflateRatio     = 64        // a batch may inflate to at most this many times max.message.bytes ...
	inflateMax       = 64 << 20  // and to at most this, or twice max.message.bytes
	inflateSmall     = 1 << 20   // up to here each shard has room of its own; above it one of all shards inflates at a time
	inflateSlack     = 128 << 10 // what an inflater wants behind its limit
	maxConnections   = 50_000
	refusedEvery     = int64(10e9) // between two lines about connections above the limit
	idleLooks        = 16          // a connection is looked at so often in connections.max.idle.ms ...
	idleBatch        = 4096        // ... so many in one turn ...
	idlePause        = int64(1e6)  // ... and the rest after this
	flushers         = 16          // goroutines that flush: flushes of several files share the file system's commits
	restInline       = 128         // partitions looked at by a thread that opens a file far above the budget
	mirrorWindow     = 64          // fetches of one pipelined session that may be under way
	unsentAnswers    = 2           // answers of one that may wait for the socket before the next is made
	reportsInFlight  = 256         // report requests a lane has sent and not heard of
	reportRepeat     = int64(500e6)
	laneBackoff      = int64(100e6) // before a lane connects again, doubling to laneBackoffMax
	laneBackoffMax   = int64(5e9)
	laneTimeout      = int64(30e9) // a source that answers nothing for so long is disconnected
	sessionBackoff   = int64(100e6)
	mirrorFetchBytes = 8 << 20   // response bound of one mirror fetch
	maxLaneFrame     = 100 << 20 // but one batch comes whole, however large the source allows it
	mirrorPipeBytes  = 1 << 20   // and where many are under way
	mirrorPartBytes  = 1 << 20   // and of one partition of it
	mirrorWaitMS     = 500       // a parked mirror fetch comes back after this at the latest ...
	mirrorWaitSoonMS = 100       // ... or after this while a partition of it is ASYNC: it may be promoted meanwhile, and only the next fetch reads ahead
	bindTries        = 100       // with bindPause between: how long a port may stay in use after a kill
	bindPause        = 20 * time.Millisecond
	purgeAbove       = 64 // stale waiters of a partition before they are looked for
)
