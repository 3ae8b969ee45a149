package peer

import "time"

const (
	// portMin and portMax bound the ports of brokers: below the range that the
	// kernel takes for outgoing connections.
	portMin, portMax = 10_000, 32_000
	// portTries bounds the search for one.
	portTries = 200
	// readyTimeout bounds the start of a broker; a JVM on a busy machine is slow.
	readyTimeout = 90 * time.Second
	// readyPoll is the pause between two looks at a starting broker.
	readyPoll = 50 * time.Millisecond
	// stopTimeout bounds a clean shutdown; then the broker is killed.
	stopTimeout = 20 * time.Second
	// logTail is how many bytes of its log a failed start shows.
	logTail = 4 << 10
)
