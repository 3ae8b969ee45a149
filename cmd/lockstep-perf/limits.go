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
	// maxBatch bounds --batch, in bytes.
	maxBatch = 1 << 20
	// maxFetch bounds --max-bytes.
	maxFetch = 16 << 20
	// setupTimeout bounds making or deleting a topic, ledPoll is the pause between
	// two looks at its leaders.
	setupTimeout, ledPoll = 30 * time.Second, 5 * time.Millisecond
	// fillTimeout bounds the filling of a topic.
	fillTimeout = 10 * time.Minute
	// scrapeTimeout bounds a look at a broker's metrics.
	scrapeTimeout = 10 * time.Second
)
