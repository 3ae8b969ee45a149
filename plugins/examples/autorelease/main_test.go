package main

import (
	"testing"

	"lockstep/plugins/sdk"
	"lockstep/plugins/sdk/conformance"
)

func TestConformance(t *testing.T) {
	for seed := range uint64(3) {
		for _, v := range conformance.Check(sdk.Release, Autorelease{}, seed) {
			t.Error(v)
		}
	}
}

func TestReleasesTheSilentOnly(t *testing.T) {
	for _, c := range []struct {
		silent, after int64
		want          int
	}{{29_999, 30_000, 0}, {30_000, 30_000, 1}, {1 << 40, 0, 0}, {0, 0, 0}} {
		e := sdk.Event{Type: sdk.SilentLook, Subject: sdk.Subject{Mirror: "dr", Topic: "orders", Partition: -1},
			Facts: sdk.Facts{SilentMS: c.silent, AutoReleaseMS: c.after}}
		d, err := Autorelease{}.Handle(e)
		if err != nil || len(d.Wishes) != c.want || c.want == 1 && d.Wishes[0].Do != sdk.ReleaseSync {
			t.Errorf("silent for %d ms of %d: %+v %v", c.silent, c.after, d, err)
		}
	}
}
