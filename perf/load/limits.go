package load

import "time"

const (
	// clientID is what brokers are told.
	clientID = "lockstep-perf"
	// maxPending bounds the requests under way on a connection; beyond it the
	// run is broken off, because the broker no longer answers.
	maxPending = 1 << 16
	// maxBatchBytes bounds the values of one request.
	maxBatchBytes = 512 << 10
	// maxInFlight bounds the requests under way that Options ask for.
	maxInFlight = 1000
	// maxFrame is the largest answer that is read, in bytes.
	maxFrame = 64 << 20
	// highest is the largest latency the histograms hold, in microseconds.
	highest = 120_000_000
	// digits is how many significant digits they hold.
	digits = 4
	// dialTimeout bounds a connection.
	dialTimeout = 10 * time.Second
	// fetchWait is how long a broker may hold a fetch, in milliseconds.
	fetchWait = 500
	// sinkPiece is what a sink receives at once, sinkStep the blocks it has its
	// file given at once, in bytes.
	sinkPiece, sinkStep = 128 << 10, 64 << 20
	// drain is how long answers are waited for after the last record.
	drain = 35 * time.Second
)
