package sim

import "math"

// Every bound of the package. Times are nanoseconds unless the name says
// otherwise.
const (
	socketBytes   = 64 << 10 // a socket takes so much before its reader must read
	traceLines    = 50
	segmentBytes  = 48 << 10
	messageBytes  = 24 << 10
	frameMemory   = 128 << 10 // scarce at times
	largestFrame  = 128 << 10 // a single frame may be larger than all of the memory
	requestBytes  = 64 << 10
	jobsPending   = 10_000
	settleTurns   = 200_000
	patience      = int64(45e9) // every request is answered within it once faults are over: what misses its wake sleeps longer
	produceWaitMS = 3000
	demoteMS      = 1000          // all partitions fail for so long: a demotion is due
	hungAfter     = int64(30e9)   // a plugin silent for so long is ended, as plugins/host does
	drainMost     = int64(50e6)   // of a clean shutdown
	listener      = math.MaxInt32 // a descriptor, of no connection
	keys          = 7             // of a compacted partition
	topics        = 2
	partitions    = 2 // of each topic
)
