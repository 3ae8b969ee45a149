package control

import "time"

// Bounds and periods.
const (
	proposeTimeout    = 10 * time.Second // of one command, queueing included
	snapshotThreshold = 8192             // commands between snapshots
	trailingLogs      = 4096             // commands kept after one
	maxCommandBytes   = 1 << 20
	tick              = 50 * time.Millisecond // between two looks at the mirrors
	settledPerTick    = 1000                  // partitions of settled topics looked at in one tick
	sourceRefresh     = 60 * time.Second      // mirror.metadata.refresh.interval.ms by default
	sourceRefreshSoon = 300 * time.Millisecond
	sourceTimeout     = 5 * time.Second // of one request to a source, and of the one Unregister of a stop
	retryInitial      = time.Second     // mirror.failed.retry.initial.backoff.ms
	retryMax          = 300 * time.Second
	registerRetry     = 200 * time.Millisecond // between resends of a Register whose outcome is unknown
	registerResends   = 25
	unregisterRetry   = time.Second
	silenceEvery      = time.Second // between two looks at silent registrations
	epochHeadroom     = 10          // a leader epoch is raised this far above the source's
	epochMargin       = 3           // and before the source's comes nearer than this
	appendTimeout     = 30 * time.Second
)

// noFence is the fence of what the broker does by itself, without a plugin.
const noFence = -1
