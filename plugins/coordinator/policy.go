package coordinator

import (
	"lockstep/internal/mirror"
	"lockstep/plugins/sdk"
)

// Policy is the default coordinator.
type Policy struct{}

// Describe says what it is.
func (Policy) Describe() sdk.Description {
	return sdk.Description{Kind: sdk.Coordinator, Name: "default", Version: "1"}
}

// Handle picks the next event for a partition, or none.
func (Policy) Handle(e sdk.Event) (sdk.Decision, error) {
	step, reason, ok := next(e)
	if e.Type != sdk.PartitionLook || !ok {
		return sdk.Decision{}, nil
	}
	return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.StepPartition, Subject: e.Subject, Step: uint8(step), Reason: reason}}}, nil
}

func next(e sdk.Event) (mirror.PartitionEvent, string, bool) {
	f := &e.Facts
	state, desired := mirror.PartitionState(f.State), mirror.PartitionState(f.Desired)
	switch {
	case desired == mirror.Stopped && state != mirror.Stopped && state != mirror.Stopping:
		return mirror.WantStopped, "stop is desired", true
	case desired == mirror.Paused && state != mirror.Paused && state != mirror.Pausing && state != mirror.Stopping && state != mirror.Stopped:
		return mirror.WantPaused, "pause is desired", true
	case desired != mirror.Mirroring:
		return 0, "", false
	case f.Failed != "" && (state == mirror.Mirroring || state == mirror.LogTruncation || state == mirror.EpochFencing):
		return mirror.Fail, f.Failed, true
	}
	switch state {
	case mirror.Unknown, mirror.Stopped, mirror.Paused:
		return mirror.WantMirroring, "mirroring is desired", true
	case mirror.LogTruncation, mirror.Mirroring:
		if f.EpochBehind {
			return mirror.EpochBehind, "the source's leader epoch is above ours", true
		}
		if state == mirror.LogTruncation && f.Aligned && f.LeaderKnown {
			return mirror.Aligned, "log is aligned with the source's", true
		}
	case mirror.EpochFencing:
		if !f.EpochBehind {
			return mirror.EpochRaised, "our leader epoch is above the source's", true
		}
	case mirror.Failed:
		if e.NowMS >= f.RetryDueMS {
			return mirror.Retry, "retry is due", true
		}
	}
	return 0, "", false
}
