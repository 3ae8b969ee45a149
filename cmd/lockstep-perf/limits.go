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
	setupTimeout, ledPoll = 30 * time.Second, 10 * time.Millisecond
	// fillTimeout bounds the filling of a topic.
	fillTimeout = 10 * time.Minute
	// scrapeTimeout bounds a look at a broker's metrics.
	scrapeTimeout = 10 * time.Second
	// peersConnections and peersPartitions are of the loads of P1 and P2,
	// peersSmallInFlight the requests of one record under way on a connection.
	peersConnections, peersPartitions, peersSmallInFlight = 4, 4, 32
	// peersReaders are the connections and partitions of P5, peersAnswer the bytes
	// of an answer.
	peersReaders, peersAnswer = 2, 1 << 20
	// settle lies between two turns.
	settle = 1200 * time.Millisecond
	// rewarm is added to the warm-up of a Kafka that was stopped.
	rewarm = 5 * time.Second
	// cacheLeft: a page cache is full when this part of the memory is free.
	cacheLeft = 64
	// sweepEnough is the p99 in milliseconds at which a side no longer keeps up.
	sweepEnough = 250
	// idleFor is how long a broker rests before its memory is read; in the second
	// half its processor time is.
	idleFor = 6 * time.Second
	// startTimeout bounds a start, startPoll is the pause between two tries.
	startTimeout, startPoll = time.Minute, 500 * time.Microsecond
)
