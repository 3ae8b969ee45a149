package promotion

import (
	"testing"

	"lockstep/internal/mirror"
	"lockstep/plugins/sdk"
)

func TestPolicy(t *testing.T) {
	const timeout = 30_000
	for name, c := range map[string]struct {
		f    sdk.Facts
		want sdk.Action
	}{
		"in step":                   {sdk.Facts{Phase: uint8(mirror.Pending), Partitions: 3, InStep: 3}, sdk.Register},
		"recovery in step":          {sdk.Facts{Phase: uint8(mirror.Recovery), Partitions: 3, InStep: 3, NextTryMS: 1000}, sdk.Register},
		"one lags":                  {sdk.Facts{Phase: uint8(mirror.Pending), Partitions: 3, InStep: 2}, ""},
		"back-off":                  {sdk.Facts{Phase: uint8(mirror.Pending), Partitions: 3, InStep: 3, NextTryMS: 1001}, ""},
		"no partitions":             {sdk.Facts{Phase: uint8(mirror.Pending)}, ""},
		"already registering":       {sdk.Facts{Phase: uint8(mirror.Registering), Partitions: 1, InStep: 1}, ""},
		"async":                     {sdk.Facts{Phase: uint8(mirror.PlainAsync), Partitions: 1, InStep: 1}, ""},
		"all failing":               {sdk.Facts{Phase: uint8(mirror.InSync), Partitions: 2, Failing: 2, FailingMS: timeout, DemoteTimeoutMS: timeout}, sdk.Demote},
		"all failing for a while":   {sdk.Facts{Phase: uint8(mirror.InSync), Partitions: 2, Failing: 2, FailingMS: timeout - 1, DemoteTimeoutMS: timeout}, ""},
		"one failing for an hour":   {sdk.Facts{Phase: uint8(mirror.InSync), Partitions: 2, Failing: 1, FailingMS: 3_600_000, DemoteTimeoutMS: timeout}, ""},
		"in sync, lag means little": {sdk.Facts{Phase: uint8(mirror.InSync), Partitions: 2, InStep: 0, DemoteTimeoutMS: timeout}, ""},
	} {
		e := sdk.Event{NowMS: 1000, Type: sdk.PromotionLook, Subject: sdk.Subject{Topic: "t", Partition: -1}, Facts: c.f}
		d, err := Policy{}.Handle(e)
		switch {
		case err != nil, len(d.Wishes) > 1, len(d.Wishes) == 0 && c.want != "":
			t.Errorf("%s: %+v %v", name, d, err)
		case len(d.Wishes) == 1 && (d.Wishes[0].Do != c.want || d.Wishes[0].Subject != e.Subject || d.Wishes[0].Reason == ""):
			t.Errorf("%s: %+v", name, d)
		}
		e.Type = sdk.PartitionLook
		if d, err := (Policy{}).Handle(e); err != nil || len(d.Wishes) != 0 {
			t.Errorf("%s: another kind of event: %+v %v", name, d, err)
		}
	}
	if d := (Policy{}).Describe(); d.Kind != sdk.Promotion || d.Name == "" {
		t.Error(d)
	}
}
