package main

import "time"

// Bounds of a run.
const (
	// echoPause lies between two echoes during a run.
	echoPause = 20 * time.Millisecond
	// rttSlack is how far the measured round trip may be from the asked one.
	rttSlack = time.Millisecond
	// maxRTT bounds --rtt.
	maxRTT = time.Second
	// maxRecord bounds --record-size, in bytes.
	maxRecord = 512 << 10
	// maxConnections bounds --connections.
	maxConnections = 1000
	// ackTimeout is how long the broker may take for one request.
	ackTimeout = 30 * time.Second
)
