package release

import "lockstep/plugins/sdk"

// Policy is the default release policy.
type Policy struct{}

// Describe says what it is.
func (Policy) Describe() sdk.Description {
	return sdk.Description{Kind: sdk.Release, Name: "default", Version: "1"}
}

// Handle admits everything to the ledger, and releases nothing: that is an
// operator's.
func (Policy) Handle(e sdk.Event) (sdk.Decision, error) {
	if e.Type != sdk.RegisterAsked {
		return sdk.Decision{}, nil
	}
	return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Admit, Subject: e.Subject, Reason: "no hold"}}}, nil
}
