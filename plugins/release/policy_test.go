package release

import (
	"testing"

	"lockstep/plugins/sdk"
)

func TestPolicyHoldsNothing(t *testing.T) {
	for _, f := range []sdk.Facts{{}, {Released: true}, {Released: true, Recovery: true}} {
		e := sdk.Event{Type: sdk.RegisterAsked, Subject: sdk.Subject{Topic: "t", Partition: -1}, Facts: f}
		d, err := Policy{}.Handle(e)
		if err != nil || len(d.Wishes) != 1 || d.Wishes[0].Do != sdk.Admit || d.Wishes[0].Subject != e.Subject {
			t.Errorf("%+v: %+v %v", f, d, err)
		}
	}
	e := sdk.Event{Type: sdk.SilentLook, Facts: sdk.Facts{SilentMS: 1 << 40, AutoReleaseMS: 1}}
	if d, err := (Policy{}).Handle(e); err != nil || len(d.Wishes) != 0 {
		t.Errorf("released without an operator: %+v %v", d, err)
	}
	if d := (Policy{}).Describe(); d.Kind != sdk.Release || d.Name == "" {
		t.Error(d)
	}
}
