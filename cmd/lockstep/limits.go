package main

import "time"

// Bounds of the commands.
const (
	// maxInflated bounds the records of one batch after decompression, in bytes.
	maxInflated = 256 << 20
	// stopWait is how long a stop waits for STOPPED unless told otherwise.
	stopWait = 2 * time.Minute
	// completeWait bounds what a completion asks of a cluster.
	completeWait = time.Second
	// watchMin is the shortest interval of a watch.
	watchMin = 100 * time.Millisecond
	// watchPatience bounds one look of a watch: then nobody answers.
	watchPatience = 3 * time.Second
	// progressStep is how many bytes pass between two looks at a progress bar.
	progressStep = 1 << 20
	// lockWait is how long a start waits for a directory that is in use.
	lockWait = 3 * time.Second

	// maxLogFiles is how many log files the directories of a broker keep open
	// at most: each is a map too, of which a process has 65,530 by default.
	maxLogFiles = 16_000
	// keptDescriptors are left to what is neither a log file nor a client.
	keptDescriptors = 1000
	// minDescriptors is taken for RLIMIT_NOFILE when it cannot be read.
	minDescriptors = 1024

	// gcPercent is how much the heap grows between two collections unless GOGC
	// says otherwise. What is hot is not in the heap or is not allocated, so
	// collections are few; a node of 100,000 idle partitions is mostly heap.
	gcPercent = 50

	// demoLimit bounds a whole demo.
	demoLimit = 115 * time.Second
	// demoWindow is how many records are under way at most.
	demoWindow = 1000
	// demoSwapTime is how long the first half of the records takes while a
	// plugin is swapped.
	demoSwapTime = 8 * time.Second
	// demoMaxRecords bounds --records.
	demoMaxRecords = 10_000_000
	// demoMaxRTT bounds --rtt.
	demoMaxRTT = time.Second
)
