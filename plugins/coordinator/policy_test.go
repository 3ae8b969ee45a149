package coordinator

import (
	"testing"

	"lockstep/internal/mirror"
	"lockstep/plugins/sdk"
)

// From every state each desire is reached by the policy's own steps, whatever
// is measured, and then the policy is still.
func TestPolicyReachesWhatIsDesired(t *testing.T) {
	for _, from := range mirror.PartitionStates {
		for _, desired := range []mirror.PartitionState{mirror.Mirroring, mirror.Paused, mirror.Stopped} {
			p := mirror.Partition{State: from, Previous: mirror.Mirroring}
			behind := from != mirror.EpochFencing
			for n := 0; ; n++ {
				d, err := Policy{}.Handle(sdk.Event{NowMS: 10, Type: sdk.PartitionLook, Facts: sdk.Facts{State: int8(p.State), Desired: int8(desired),
					Aligned: true, LeaderKnown: true, EpochBehind: behind && desired == mirror.Mirroring, RetryDueMS: 10}})
				if err != nil || len(d.Wishes) > 1 || n > 10 {
					t.Fatalf("%v to %v: %+v %v in %v", from, desired, d, err, p.State)
				}
				if len(d.Wishes) == 0 {
					break
				}
				e := mirror.PartitionEvent(d.Wishes[0].Step)
				next, _ := p.Step(e)
				if next.State == p.State {
					t.Fatalf("%v to %v: %v changes nothing in %v", from, desired, e, p.State)
				}
				p = next
				behind = behind && p.State != mirror.EpochFencing
			}
			want := map[mirror.PartitionState]mirror.PartitionState{mirror.Mirroring: mirror.Mirroring, mirror.Paused: mirror.Pausing, mirror.Stopped: mirror.Stopping}[desired]
			// A stop or a pause under way is the broker's work; what is there stays.
			rest := from == mirror.Stopping || from == desired || from == mirror.Pausing && desired == mirror.Mirroring || from == mirror.Stopped && desired == mirror.Paused
			if p.State != want && !(rest && p.State == from) {
				t.Errorf("%v to %v ends in %v", from, desired, p.State)
			}
		}
	}
}

func TestPolicy(t *testing.T) {
	const mi, lt, ef, fa = int8(mirror.Mirroring), int8(mirror.LogTruncation), int8(mirror.EpochFencing), int8(mirror.Failed)
	for name, c := range map[string]struct {
		f    sdk.Facts
		want mirror.PartitionEvent
		none bool
	}{
		"a failure":              {f: sdk.Facts{State: mi, Desired: mi, Failed: "disk"}, want: mirror.Fail},
		"stop before a failure":  {f: sdk.Facts{State: mi, Desired: int8(mirror.Stopped), Failed: "disk"}, want: mirror.WantStopped},
		"behind":                 {f: sdk.Facts{State: mi, Desired: mi, EpochBehind: true}, want: mirror.EpochBehind},
		"behind first":           {f: sdk.Facts{State: lt, Desired: mi, EpochBehind: true, Aligned: true, LeaderKnown: true}, want: mirror.EpochBehind},
		"no leader":              {f: sdk.Facts{State: lt, Desired: mi, Aligned: true}, none: true},
		"not aligned":            {f: sdk.Facts{State: lt, Desired: mi, LeaderKnown: true}, none: true},
		"raised":                 {f: sdk.Facts{State: ef, Desired: mi}, want: mirror.EpochRaised},
		"not raised":             {f: sdk.Facts{State: ef, Desired: mi, EpochBehind: true}, none: true},
		"retry":                  {f: sdk.Facts{State: fa, Desired: mi, RetryDueMS: 100}, want: mirror.Retry},
		"retry is not due":       {f: sdk.Facts{State: fa, Desired: mi, RetryDueMS: 101}, none: true},
		"all is well":            {f: sdk.Facts{State: mi, Desired: mi}, none: true},
		"stop from failed":       {f: sdk.Facts{State: fa, Desired: int8(mirror.Stopped), RetryDueMS: 900}, want: mirror.WantStopped},
		"stopping is left alone": {f: sdk.Facts{State: int8(mirror.Stopping), Desired: int8(mirror.Stopped)}, none: true},
	} {
		e := sdk.Event{NowMS: 100, Type: sdk.PartitionLook, Subject: sdk.Subject{Topic: "t", Partition: 2}, Facts: c.f}
		d, err := Policy{}.Handle(e)
		switch {
		case err != nil || c.none != (len(d.Wishes) == 0):
			t.Errorf("%s: %+v %v", name, d, err)
		case !c.none && (mirror.PartitionEvent(d.Wishes[0].Step) != c.want || d.Wishes[0].Do != sdk.StepPartition || d.Wishes[0].Subject != e.Subject || d.Wishes[0].Reason == ""):
			t.Errorf("%s: %+v, want %v", name, d.Wishes[0], c.want)
		}
	}
}
