package api

import "time"

const (
	// maxBody bounds the body of a request, in bytes.
	maxBody = 4 << 20
	// maxWait bounds what a request may ask us to wait for a command.
	maxWait = 5 * time.Minute
	// maxAutoCreate bounds the topics one Metadata request creates; the client
	// asks for the rest again.
	maxAutoCreate = 100
	// silentAfterMS is when describe says that a source is silent: it answers a
	// report at least each 500 ms.
	silentAfterMS = 5000
)
