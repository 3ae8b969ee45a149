package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"lockstep/internal/mirror"
	"lockstep/plugins/coordinator"
	"lockstep/plugins/promotion"
	"lockstep/plugins/release"
	"lockstep/plugins/sdk"
)

// Moods are the policies of a world: the default one, and what a plugin may do
// instead. A mood is the path of a "program" that a slot is swapped to.
const (
	good    = "default" // in time
	slow    = "slow"    // the default's answers, some after the deadline
	silent  = "silent"  // never answers
	failing = "failing" // answers with an error, or panics
	wrong   = "wrong"   // wishes anything, of anything
	greedy  = "greedy"  // wishes everything of its kind, of what it was asked about
	idle    = "idle"    // wishes nothing
	mortal  = "mortal"  // the default, and its process ends soon
	unborn  = "unborn"  // does not start
)

var moods = []string{good, good, slow, slow, silent, failing, wrong, wrong, greedy, greedy, idle, mortal, unborn}

var errPlugin = errors.New("cannot decide")

// newPolicy makes a policy of a kind, behind the border.
func newPolicy(kind sdk.Kind, mood string, rnd *rand.Rand) sdk.Plugin {
	var p sdk.Plugin
	switch kind {
	case sdk.Coordinator:
		p = coordinator.Policy{}
	case sdk.Promotion:
		p = promotion.Policy{}
	case sdk.Release:
		p = release.Policy{}
	}
	switch mood {
	case failing, wrong, greedy, idle:
		p = moody{kind, mood, rnd}
	}
	return sdk.Loopback(p, sdk.OldestProtocol+rnd.IntN(sdk.NewestProtocol-sdk.OldestProtocol+1))
}

// moody is a policy that breaks the rules of conformance.
type moody struct {
	kind sdk.Kind
	mood string
	rnd  *rand.Rand
}

func (m moody) Describe() sdk.Description {
	return sdk.Description{Kind: m.kind, Name: m.mood, Version: "1"}
}

var actions = map[sdk.Kind][]sdk.Action{sdk.Coordinator: {sdk.StepPartition}, sdk.Promotion: {sdk.Register, sdk.Demote},
	sdk.Release: {sdk.Hold, sdk.ReleaseSync, sdk.Admit}}

func (m moody) Handle(e sdk.Event) (d sdk.Decision, err error) {
	switch m.mood {
	case failing:
		if m.rnd.IntN(2) == 0 {
			panic(fmt.Sprintf("event %d", e.Seq))
		}
		return d, errPlugin
	case greedy:
		for _, do := range actions[m.kind] {
			for step := range 12 {
				d.Wishes = append(d.Wishes, sdk.Wish{Do: do, Subject: e.Subject, Step: uint8(step), Reason: "greed"})
				if do != sdk.StepPartition {
					break
				}
			}
		}
		m.rnd.Shuffle(len(d.Wishes), func(i, j int) { d.Wishes[i], d.Wishes[j] = d.Wishes[j], d.Wishes[i] })
	case wrong:
		for range m.rnd.IntN(6) {
			all := []sdk.Action{sdk.StepPartition, sdk.Register, sdk.Demote, sdk.Admit, sdk.Hold, sdk.ReleaseSync, "format-the-disk", ""}
			w := sdk.Wish{Do: all[m.rnd.IntN(len(all))], Subject: e.Subject, Step: uint8(m.rnd.IntN(256)), Reason: "error"}
			if m.rnd.IntN(2) == 0 {
				w.Step = uint8(mirror.WantMirroring) + uint8(m.rnd.IntN(12))
			}
			switch m.rnd.IntN(6) {
			case 0:
				w.Topic, w.TopicID = "another", [16]byte{1}
			case 1:
				w.Partition += int32(m.rnd.IntN(3)) - 1
			case 2:
				w.Mirror = ""
			}
			d.Wishes = append(d.Wishes, w)
		}
	}
	return d, nil
}
