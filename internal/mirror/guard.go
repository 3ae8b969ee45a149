package mirror

// Evidence is what the broker has measured itself. A plugin's wish is allowed
// by evidence only: a wrong plugin can stop changes, it cannot end RPO 0.
type Evidence struct {
	Phase           Phase
	Partitions      int   // of the topic
	InStep          int   // min-ISR LEO ≥ the HW of an answer this fetcher received
	Failing         int   // failing now
	FailingMS       int64 // for how long all of them have been
	DemoteTimeoutMS int64
	Rejected        bool // the source has answered a Register with a release
	OperatorAsked   bool
	SilentMS        int64 // for how long no report of a registration has counted
	AutoReleaseMS   int64 // an operator's standing word: silent for so long, a policy may release; 0 = never
	BackOffOver     bool
	MirroredHere    bool // the topic has a mirror in this cluster
}

// AllowRegister returns why a Register must not be sent, "" if it may.
func AllowRegister(e Evidence) string {
	switch {
	case e.Phase != Pending && e.Phase != Recovery:
		return "phase is " + e.Phase.String()
	case !e.BackOffOver:
		return "back-off not over"
	case e.Partitions == 0 || e.InStep < e.Partitions:
		return "not every partition is in step"
	}
	return ""
}

// AllowDemote returns why SYNC must not end, "" if it may.
func AllowDemote(e Evidence) string {
	switch {
	case e.OperatorAsked || e.Rejected:
		return ""
	case e.Partitions == 0 || e.Failing < e.Partitions:
		return "not every partition is failing"
	case e.FailingMS < e.DemoteTimeoutMS:
		return "failing for less than the demote timeout"
	}
	return ""
}

// AllowRelease returns why a registration must not be released, "" if it may.
func AllowRelease(e Evidence) string {
	switch {
	case e.OperatorAsked:
		return ""
	case e.AutoReleaseMS <= 0:
		return "no operator asked for a release"
	case e.SilentMS < e.AutoReleaseMS:
		return "silent for less than the operator's time"
	}
	return ""
}

// AllowStop returns why a mirror must not be stopped, "" if it may.
func AllowStop(e Evidence) string {
	switch {
	case !e.OperatorAsked:
		return "no operator asked for a stop"
	case !e.MirroredHere:
		return "topic is not mirrored"
	}
	return ""
}

// StepEvidence is what the broker has measured of one partition.
type StepEvidence struct {
	Desired     PartitionState // MIRRORING, PAUSED or STOPPED
	EpochBehind bool           // the source's leader epoch is above ours
	Aligned     bool           // the log is a prefix of the source's, or empty
	Failed      bool           // something has failed that only a retry can mend
	RetryDue    bool
}

// AllowStep returns why a partition must not go through an event that a
// coordinator wishes, "" if it may: the event must be true.
func AllowStep(event PartitionEvent, e StepEvidence) string {
	switch event {
	case WantMirroring, WantPaused, WantStopped:
		want := map[PartitionEvent]PartitionState{WantMirroring: Mirroring, WantPaused: Paused, WantStopped: Stopped}[event]
		if e.Desired != want {
			return want.String() + " is not desired"
		}
	case EpochBehind:
		if !e.EpochBehind {
			return "our leader epoch is not behind"
		}
	case EpochRaised:
		if e.EpochBehind {
			return "our leader epoch is still behind"
		}
	case Aligned:
		if !e.Aligned {
			return "the log is not aligned"
		}
	case Fail:
		if !e.Failed {
			return "nothing has failed"
		}
	case FailForGood: // would outlive whoever wishes it: the next policy could not undo it
		return "no failure is known that a retry cannot mend"
	case Retry:
		if !e.RetryDue {
			return "the retry is not due"
		}
	default:
		return "not a coordinator's event"
	}
	return ""
}
