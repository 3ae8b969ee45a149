package watermark

// Rule names who drives a destination's mark.
type Rule uint8

const (
	// Tracking: MIRRORING, the source's mark bounds ours.
	Tracking Rule = iota
	// LocalISR: from STOPPING on, the ordinary rule of one cluster. Records the
	// source may have acknowledged just before it died lie above the tracked
	// mark; they become visible as the local ISR holds them.
	LocalISR
)

// Destination computes a mirror leader's next mark. tracked is the source's
// mark of the newest answer, localISRMark the mark by Source without mirrors.
// It never lowers mark; a truncation does, through Truncated.
func Destination(mark, tracked, localISRMark int64, rule Rule) int64 {
	next := localISRMark
	if rule == Tracking {
		next = min(tracked, localISRMark)
	}
	return max(mark, next)
}

// JoinFloor is the LEO a follower needs to enter the ISR of a mirror leader in
// MIRRORING, by a fetch accepted without divergence. leoAtElection is the
// leader's own LEO when it was elected, highestReported the highest min-ISR LEO
// it has put in a report: below either there may be records that the source has
// acknowledged on the word of this ISR. It never needs the source.
func JoinFloor(tracked, leoAtElection, highestReported int64) int64 {
	return max(tracked, leoAtElection, highestReported)
}

// Following is what a mirror leader knows about offsets of its partition.
type Following struct {
	Mark          int64 // our high watermark
	Tracked       int64 // the source's mark
	LEOAtElection int64
	Reported      int64     // the highest min-ISR LEO put in a report
	Followers     []Replica // noted LEOs, owned by the caller
}

// Truncated clamps all of it to offset to, in one step with the truncation of
// the log: what was noted of the old tail says nothing of the new one. The
// followers are clamped in place. The caller also voids the reports it has
// sent, by beginning a new sequence against the source epoch now aligned with.
// lost is the number of records below our mark that the source has dropped.
func Truncated(s Following, to int64) (next Following, lost int64) {
	lost = max(0, s.Mark-to)
	s.Mark = min(s.Mark, to)
	s.Tracked = min(s.Tracked, to)
	s.LEOAtElection = min(s.LEOAtElection, to)
	s.Reported = min(s.Reported, to)
	for i := range s.Followers {
		s.Followers[i].LEO = min(s.Followers[i].LEO, to)
	}
	return s, lost
}

// ReportedISR picks the ISR a mirror leader puts in its report: the maximal
// one, whose slowest member bounds the source, except while the committed ISR
// is under minISR. Then it reports that one and so freezes the source: a
// proposed member must not lift the count over the minimum (see Local.InSync).
func ReportedISR(committed, maximal []int32, minISR int32) []int32 {
	if int32(len(committed)) < minISR {
		return committed
	}
	return maximal
}
