package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lockstep/plugins/sdk"
)

// bad is a promotion policy with one thing wrong.
type bad struct {
	about  sdk.Description
	handle func(sdk.Event) (sdk.Decision, error)
}

func (b bad) Describe() sdk.Description                { return b.about }
func (b bad) Handle(e sdk.Event) (sdk.Decision, error) { return b.handle(e) }
func (b bad) with(name string) bad                     { b.about.Name = name; return b }
func good(e sdk.Event) (sdk.Decision, error)           { return decide(e, "because") }
func wish(e sdk.Event, do sdk.Action, why string) sdk.Decision {
	return sdk.Decision{Wishes: []sdk.Wish{{Do: do, Subject: e.Subject, Reason: why}}}
}

func decide(e sdk.Event, why string) (sdk.Decision, error) {
	for _, do := range []sdk.Action{sdk.Register, sdk.Demote} {
		if e.Type == sdk.PromotionLook && forbidden(e, sdk.Wish{Do: do}) == "" {
			return wish(e, do, why), nil
		}
	}
	return sdk.Decision{}, nil
}

func about() sdk.Description { return sdk.Description{Kind: sdk.Promotion, Name: "mine", Version: "1"} }

// TestEachRuleBites: a good policy breaks none; with one thing wrong, that rule.
func TestEachRuleBites(t *testing.T) {
	if v := Check(sdk.Promotion, bad{about(), good}, 7); len(v) != 0 {
		t.Fatal(v)
	}
	seen := map[int64]int{}
	for _, c := range []struct {
		rule string
		p    bad
	}{
		{"Described", bad{sdk.Description{Kind: sdk.Release, Name: "mine", Version: "1"}, good}},
		{"Described", bad{about(), good}.with("")},
		{"Pure", bad{about(), func(e sdk.Event) (sdk.Decision, error) {
			if seen[int64(e.TopicID[0])<<8|int64(e.TopicID[1])]++; seen[int64(e.TopicID[0])<<8|int64(e.TopicID[1])] > 1 {
				return sdk.Decision{}, nil
			}
			return good(e)
		}}},
		{"OfItsKind", bad{about(), func(e sdk.Event) (sdk.Decision, error) { return wish(e, sdk.Admit, "x"), nil }}},
		{"OfItsKind", bad{about(), func(e sdk.Event) (sdk.Decision, error) { e.Topic = "other"; return decide(e, "x") }}},
		{"OfItsKind", bad{about(), func(e sdk.Event) (sdk.Decision, error) { return decide(e, "") }}},
		{"Unknown", bad{about(), func(e sdk.Event) (sdk.Decision, error) { e.Type = sdk.PromotionLook; return good(e) }}},
		{"Total", bad{about(), func(e sdk.Event) (sdk.Decision, error) {
			if e.Facts.Partitions == 0 {
				panic("division by zero")
			}
			return good(e)
		}}},
		{"Total", bad{about(), func(e sdk.Event) (sdk.Decision, error) { return sdk.Decision{}, errors.New("cannot") }}},
		{"InTime", bad{about(), func(e sdk.Event) (sdk.Decision, error) {
			if e.Seq == 9 {
				time.Sleep(deadline + 10*time.Millisecond)
			}
			return good(e)
		}}},
		{"Evidence", bad{about(), func(e sdk.Event) (sdk.Decision, error) {
			if e.Facts.Phase == phaseInSync {
				return wish(e, sdk.Demote, "I do not like it"), nil
			}
			return good(e)
		}}},
		{"Progress", bad{about(), func(e sdk.Event) (sdk.Decision, error) {
			if e.Facts.Phase == phaseInSync {
				return sdk.Decision{}, nil
			}
			return good(e)
		}}},
	} {
		found := false
		for _, v := range Check(sdk.Promotion, c.p, 7) {
			found = found || strings.HasPrefix(v.String(), c.rule+": ")
		}
		if !found {
			t.Errorf("%s was broken and is not named: %v", c.rule, Check(sdk.Promotion, c.p, 7))
		}
	}
}
