package config

import "math"

const (
	// maxText is the largest properties text read, in bytes.
	maxText = 1 << 20
	// maxNameLen is the longest name of a setting that is looked for.
	maxNameLen = 256

	maxInt32 = math.MaxInt32
	// maxRequest is the largest frame the engine has a buffer for, in bytes
	// (ioring.MaxBuffer): one that is larger would wait for ever.
	maxRequest = 128 << 20
	maxInt64   = math.MaxInt64
	maxPort    = 65535
)
