package wanlink

import (
	"math/rand/v2"
	"sync"
	"time"
)

// line is what one direction of a link does to the bytes of all its
// connections: it sends them one after the other at its bandwidth, and each
// chunk is under way for half a round trip and as much more as the jitter adds.
type line struct {
	mu   sync.Mutex
	free time.Time // the last byte is sent by then
	rnd  *rand.Rand
}

// due is when a chunk of n bytes that comes in now is at the other end. A
// bandwidth (bytes per second) of 0 has no limit.
func (l *line) due(now time.Time, n int, half, jitter time.Duration, bandwidth int64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := now
	if bandwidth > 0 {
		if l.free.After(now) {
			sent = l.free
		}
		sent = sent.Add(time.Duration(int64(n) * int64(time.Second) / bandwidth))
		l.free = sent
	}
	if jitter > 0 {
		half += time.Duration(l.rnd.Int64N(int64(jitter) + 1))
	}
	return sent.Add(half)
}

// readMost is how much may be read at once: on a slow line no more than it sends
// in a millisecond, so that connections share it in small turns.
func readMost(bandwidth int64, room int) int {
	if bandwidth <= 0 {
		return room
	}
	return min(room, max(minRead, int(bandwidth/1000)))
}
