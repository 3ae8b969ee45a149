// Patient is a promotion policy in a program of its own.
package main

import "lockstep/plugins/sdk"

// Patient is the default policy in other words; be more patient.
type Patient struct{}

func (Patient) Describe() sdk.Description {
	return sdk.Description{Kind: sdk.Promotion, Name: "patient", Version: "1"}
}

func (Patient) Handle(e sdk.Event) (sdk.Decision, error) {
	f := &e.Facts
	const inSync, pending, recovery = 3, 1, 4
	wish := func(do sdk.Action, why string) (sdk.Decision, error) {
		return sdk.Decision{Wishes: []sdk.Wish{{Do: do, Subject: e.Subject, Reason: why}}}, nil
	}
	switch {
	case e.Type != sdk.PromotionLook || f.Partitions <= 0:
	case f.Phase == inSync && f.Failing == f.Partitions && f.FailingMS >= f.DemoteTimeoutMS:
		return wish(sdk.Demote, "all partitions are failing")
	case (f.Phase == pending || f.Phase == recovery) && f.InStep == f.Partitions && e.NowMS >= f.NextTryMS:
		return wish(sdk.Register, "in step")
	}
	return sdk.Decision{}, nil
}

func main() { sdk.Serve(Patient{}) }
