package wanlink

import "time"

const (
	// DefaultQueueBytes bounds one direction of one connection when Options does
	// not: 100 ms of a line of 5 Gbit/s.
	DefaultQueueBytes = 64 << 20
	// slabBytes is the size of the buffers that are read into.
	slabBytes = 64 << 10
	// minRead is the smallest rest of a slab worth reading into.
	minRead = 4 << 10
	// chunkCost is what a chunk adds to its bytes in the accounts of a queue.
	chunkCost = 64
	// spin is the shortest wait worth a timer.
	spin = 20 * time.Microsecond
	// dialTimeout bounds the connection to the target.
	dialTimeout = 10 * time.Second
)
