package main

import (
	"testing"

	"lockstep/plugins/sdk"
	"lockstep/plugins/sdk/conformance"
)

func TestConformance(t *testing.T) {
	for seed := range uint64(3) {
		for _, v := range conformance.Check(sdk.Promotion, Patient{}, seed) {
			t.Error(v)
		}
	}
}
