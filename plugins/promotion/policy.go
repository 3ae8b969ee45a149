package promotion

import (
	"lockstep/internal/mirror"
	"lockstep/plugins/sdk"
)

// Policy is the default promotion policy.
type Policy struct{}

// Describe says what it is.
func (Policy) Describe() sdk.Description {
	return sdk.Description{Kind: sdk.Promotion, Name: "default", Version: "1"}
}

// Handle decides about one topic.
func (Policy) Handle(e sdk.Event) (sdk.Decision, error) {
	f := &e.Facts
	if e.Type != sdk.PromotionLook || f.Partitions <= 0 {
		return sdk.Decision{}, nil
	}
	switch phase := mirror.Phase(f.Phase); {
	case (phase == mirror.Pending || phase == mirror.Recovery) && f.InStep == f.Partitions && e.NowMS >= f.NextTryMS:
		return wish(e, sdk.Register, "every partition is in step"), nil
	case phase == mirror.InSync && f.Failing == f.Partitions && f.FailingMS >= f.DemoteTimeoutMS:
		return wish(e, sdk.Demote, "ALL_PARTITIONS_FAILING"), nil
	}
	return sdk.Decision{}, nil
}

func wish(e sdk.Event, do sdk.Action, reason string) sdk.Decision {
	return sdk.Decision{Wishes: []sdk.Wish{{Do: do, Subject: e.Subject, Reason: reason}}}
}
