package cli

import "time"

const (
	// DefaultTimeout bounds one request, and with it the wait for a dead cluster.
	DefaultTimeout = 30 * time.Second
	// dialTimeout bounds one connection.
	dialTimeout = 10 * time.Second
	// probeTimeout bounds the look at a source before SYNC is asked for.
	probeTimeout = 5 * time.Second
	// pollEvery is the pause between two looks while waiting for a state.
	pollEvery = 100 * time.Millisecond
	// maxPatterns is the largest number of patterns in one list.
	maxPatterns = 1000
	// errorColumn is the width at which errors are cut in tables.
	errorColumn = 80
	// maxConfigFile is the largest properties file that is read, in bytes.
	maxConfigFile = 1 << 20
)
