package soak

import "time"

const (
	// The rarest event is a swap. One descriptor, goroutine, map or file left by
	// each would be perHour of it, ten times the bound of counts and twice what
	// a run must be able to see.
	swapEvery = time.Minute
	perHour   = float64(time.Hour / swapEvery)
	// countBound and countSeen are per hour, of counted figures.
	countBound, countSeen = perHour / 10, perHour / 2
	// memoryBound and memorySeen are shares of the mean per hour, of memory.
	memoryBound, memorySeen = 0.02, 0.06

	topicEvery   = 5 * time.Second  // made, written, read and deleted
	connectEvery = time.Second      // a sound, a broken-off and a half-open connection
	halfOpenFor  = 5 * time.Second  //
	askEvery     = 3 * time.Second  // describe and list, on connections of their own
	freshEvery   = 10 * time.Second // a producer that has never been
	rereadEvery  = 20 * time.Second // a reader from the beginning
	// A broker's reactor lends the kernel 32 to 128 buffers of 64 KiB, which become
	// resident as large pieces happen to meet each. fillings large requests on each of
	// fillers connections go round them several times, so that a run does not take
	// their filling for a leak.
	fillers, fillings, fillingSize = 8, 250, 200 << 10
	fillTimeout                    = 3 * time.Minute
	// Pools of buffers grow by slabs of one size, kept for ever: rounds of frames of
	// each size come half at a time on so many connections (halves), with a pause in
	// which a broker takes a half in. Answers of the load are under 8 KiB.
	smallestFrame, largestFrame, largestAnswer = 512, 256 << 10, 8 << 10
	rounds, halves, halfPause                  = 4, 4, 10 * time.Millisecond
	// readWait bounds a reader from the beginning and a topic's life.
	readWait = 30 * time.Second
	// setupTimeout bounds making topics and mirrors, and the last look.
	setupTimeout = time.Minute
	// kindsOfErrors bounds what is kept of failures.
	kindsOfErrors = 32
)

// settings of both brokers: logs roll and are deleted within the warm-up, and
// producers are forgotten.
var settings = []string{"log.segment.bytes=1048576", "log.retention.bytes=4194304", "log.retention.check.interval.ms=2000", "log.segment.delete.delay.ms=1000",
	"producer.id.expiration.ms=60000", "auto.create.topics.enable=false"}
