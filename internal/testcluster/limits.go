package testcluster

import "time"

const (
	// readyTimeout bounds the start of a broker.
	readyTimeout = 30 * time.Second
	// readyPoll is the pause between two looks at a starting broker.
	readyPoll = 10 * time.Millisecond
	// stopTimeout bounds a clean shutdown; then the broker is killed.
	stopTimeout = 15 * time.Second
	// logTail is how many bytes of its log a failed start shows.
	logTail = 4 << 10
	// requestTimeout bounds one request to a broker.
	requestTimeout = 30 * time.Second
	// echoTimeout bounds one echo through the line.
	echoTimeout = 10 * time.Second
)
