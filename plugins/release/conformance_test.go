package release

import (
	"math/rand/v2"
	"testing"

	"lockstep/plugins/sdk"
	"lockstep/plugins/sdk/conformance"
)

func TestConforms(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, v := range conformance.Check(sdk.Release, Policy{}, seed) {
		t.Error(v)
	}
}
