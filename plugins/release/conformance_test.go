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
	for _, p := range []sdk.Plugin{Policy{}, sdk.Loopback(Policy{}, sdk.OldestProtocol), sdk.Loopback(Policy{}, sdk.NewestProtocol)} {
		for _, v := range conformance.Check(sdk.Release, p, seed) {
			t.Error(v)
		}
	}
}
