package testcluster

import "time"

const (
	// portMin and portMax bound the ports of brokers: below the range that the
	// kernel takes for outgoing connections.
	portMin, portMax = 10_000, 32_000
	// portTries bounds the search for free ports.
	portTries = 200
	// startTries is how often a start begins anew because a port was taken.
	startTries = 3
	// readyTimeout bounds the start of a broker.
	readyTimeout = 60 * time.Second
	// readyPoll is the pause between two looks at a starting broker.
	readyPoll = 10 * time.Millisecond
	// stopTimeout bounds a clean shutdown; then the broker is killed.
	stopTimeout = 60 * time.Second
	// logTail is how many bytes of its log a failed start shows.
	logTail = 4 << 10
	// requestTimeout bounds one request to a broker.
	requestTimeout = 30 * time.Second
	// echoTimeout bounds one echo through the line.
	echoTimeout = 10 * time.Second
)
