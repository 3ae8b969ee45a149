package mirror

import "time"

// A destination repeats the reports of idle partitions: the answer is how it
// hears that the source counts them, and their coming is how the source knows
// that the destination is there. Up to idleReports partitions that is all of
// them twice a second. Beyond, each look takes its share of every topic, and
// with many partitions there are fewer looks.
const (
	idleReports  = 8000
	lookEvery    = 500 * time.Millisecond
	lookPerEntry = 20 * time.Microsecond
)

// LookEvery is how often all of n idle partitions are looked at.
func LookEvery(n int) time.Duration { return max(lookEvery, time.Duration(n)*lookPerEntry) }

// ReportPhases is how many looks repeat the reports of n idle partitions once.
func ReportPhases(n int) int { return max(1, (n+idleReports-1)/idleReports) }

// ReportCycle is how long that takes at most.
func ReportCycle(n int) time.Duration { return time.Duration(ReportPhases(n)) * LookEvery(n) }
