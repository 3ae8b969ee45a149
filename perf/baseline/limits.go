package baseline

import "time"

const (
	// rounds bounds the flushes, leastRounds is done however slow they are.
	rounds, leastRounds = 1000, 20
	// syncFor is the time for them.
	syncFor = 700 * time.Millisecond
	// fileBytes is reserved before the first one.
	fileBytes = 16 << 20
	// groupFor is the time of a group's flushes, groupBytes is reserved of each
	// file; a file that is full begins anew.
	groupFor, groupBytes = time.Second, 128 << 20
	// echoes over loopback.
	echoes = 2000
)
