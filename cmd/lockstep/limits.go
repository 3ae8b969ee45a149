package main

import "time"

// Bounds of the commands.
const (
	// maxInflated bounds the records of one batch after decompression, in bytes.
	maxInflated = 256 << 20
	// stopWait is how long a stop waits for STOPPED unless told otherwise.
	stopWait = 2 * time.Minute
	// lockWait is how long a start waits for a directory that is in use.
	lockWait = 3 * time.Second

	// demoLimit bounds a whole demo.
	demoLimit = 115 * time.Second
	// demoWindow is how many records are under way at most.
	demoWindow = 1000
	// demoMaxRecords bounds --records.
	demoMaxRecords = 10_000_000
	// demoMaxRTT bounds --rtt.
	demoMaxRTT = time.Second
)
