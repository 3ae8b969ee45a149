// Autorelease is a release policy that lets a silent mirror go, so that
// producers of the source are blocked for a known time and no longer.
//
// It is never the default, and KIP-1360 leaves it out on purpose: what the
// mirror has not got when it is released is lost with the source, and a link
// that flaps becomes a release on each flap. It does nothing until an operator
// of the source allows it, twice: by starting it, and by setting the time after
// which a mirror may be released.
//
//	lockstep.plugin.release.path=/opt/lockstep/autorelease
//	lockstep.plugin.release.sha256=…
//	lockstep.mirror.auto.release.ms=60000
//
// A mirror that comes back registers by a recovery, and gates again.
package main

import (
	"fmt"
	"time"

	"lockstep/plugins/sdk"
)

// Autorelease is the policy. It has no state: all it needs is in the event.
type Autorelease struct{}

// Describe says what it is.
func (Autorelease) Describe() sdk.Description {
	return sdk.Description{Kind: sdk.Release, Name: "autorelease", Version: "1"}
}

// Handle admits every Register and releases what has been silent for as long as
// the operator allows.
func (Autorelease) Handle(e sdk.Event) (sdk.Decision, error) {
	f := &e.Facts
	switch e.Type {
	case sdk.RegisterAsked:
		return wish(sdk.Admit, e.Subject, "no hold"), nil
	case sdk.SilentLook:
		if f.AutoReleaseMS > 0 && f.SilentMS >= f.AutoReleaseMS {
			return wish(sdk.ReleaseSync, e.Subject, fmt.Sprintf("no report for %v", time.Duration(f.SilentMS)*time.Millisecond)), nil
		}
	}
	return sdk.Decision{}, nil
}

func wish(do sdk.Action, about sdk.Subject, why string) sdk.Decision {
	return sdk.Decision{Wishes: []sdk.Wish{{Do: do, Subject: about, Reason: why}}}
}

func main() { sdk.Serve(Autorelease{}) }
