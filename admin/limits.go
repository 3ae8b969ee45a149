package admin

import "time"

const (
	// defaultTimeout bounds a call that has no deadline of its own.
	defaultTimeout = 30 * time.Second
	// maxRetries bounds how often kgo sends a request again.
	maxRetries = 5
)
