package conformance

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"lockstep/plugins/sdk"
)

// Bounds.
const (
	events    = 3000                   // made from the seed
	deadline  = 200 * time.Millisecond // the broker's
	reasonMax = 200                    // bytes
	shown     = 3                      // violations of a rule; the others are counted
	describe  = 100                    // bytes of a name or a version
)

// Violation is a rule that a plugin has broken.
type Violation struct {
	Rule  string
	What  string
	Event *sdk.Event // nil if it is not about one
	More  int        // violations of the rule beyond those shown
}

func (v Violation) String() string {
	s := v.Rule + ": " + v.What
	if v.Event != nil {
		s += fmt.Sprintf("; event %+v", *v.Event)
	}
	if v.More > 0 {
		s += fmt.Sprintf("; and %d more", v.More)
	}
	return s
}

type suite struct {
	kind  sdk.Kind
	p     sdk.Plugin
	r     *rand.Rand
	found []Violation
	of    map[string]int
}

// Check puts a plugin of a kind through the suite. Events come from the seed.
func Check(kind sdk.Kind, p sdk.Plugin, seed uint64) []Violation {
	s := &suite{kind: kind, p: p, r: rand.New(rand.NewPCG(seed, 1)), of: map[string]int{}}
	s.described()
	answers := map[int]sdk.Decision{}
	made := make([]sdk.Event, events)
	for i := range made {
		made[i] = s.event(int64(i + 1))
		answers[i] = s.ask(made[i])
	}
	for _, i := range s.r.Perm(events) { // another order, and numbers of another life
		again := made[i]
		again.Seq += events
		if d := s.ask(again); !reflect.DeepEqual(bare(d), bare(answers[i])) {
			s.fail("Pure", &again, "answered %+v first and %+v later", answers[i].Wishes, d.Wishes)
		}
	}
	for _, t := range types(kind) {
		s.progress(t)
	}
	for _, strange := range made[:100] { // whatever it would do about one it knows
		strange.Type = "of-a-later-protocol"
		if d := s.ask(strange); len(d.Wishes) > 0 {
			s.fail("Unknown", &strange, "wishes %+v", d.Wishes)
		}
	}
	for i := range s.found {
		if n := s.of[s.found[i].Rule]; n > shown {
			s.found[i].More, s.of[s.found[i].Rule] = n-shown, 0
		}
	}
	return s.found
}

// bare is what counts of a decision: words are free.
func bare(d sdk.Decision) []sdk.Wish {
	out := make([]sdk.Wish, 0, len(d.Wishes))
	for _, w := range d.Wishes {
		w.Reason = ""
		out = append(out, w)
	}
	return out
}

func (s *suite) fail(rule string, e *sdk.Event, format string, args ...any) {
	s.of[rule]++
	if s.of[rule] <= shown {
		s.found = append(s.found, Violation{Rule: rule, What: fmt.Sprintf(format, args...), Event: e})
	}
}

func (s *suite) described() {
	d := s.p.Describe()
	if d.Kind != s.kind {
		s.fail("Described", nil, "it is a %q plugin, not a %q one", d.Kind, s.kind)
	}
	for _, text := range []string{d.Name, d.Version} {
		if text == "" || len(text) > describe {
			s.fail("Described", nil, "name %q and version %q must have 1 to %d bytes", d.Name, d.Version, describe)
		}
	}
	if again := s.p.Describe(); again != d {
		s.fail("Described", nil, "%+v first, %+v later", d, again)
	}
}

// ask takes one answer through the rules that hold for every event.
func (s *suite) ask(e sdk.Event) (d sdk.Decision) {
	began := time.Now()
	d, err := s.handle(e)
	if took := time.Since(began); took > deadline {
		s.fail("InTime", &e, "%v, the broker waits %v", took, deadline)
	}
	if err != nil {
		s.fail("Total", &e, "%v", err)
		return sdk.Decision{}
	}
	for _, w := range d.Wishes {
		switch {
		case kinds[w.Do] != s.kind:
			s.fail("OfItsKind", &e, "%q is no wish of a %s plugin", w.Do, s.kind)
		case w.Subject != e.Subject:
			s.fail("OfItsKind", &e, "a wish about %+v", w.Subject)
		case w.Reason == "" || len(w.Reason) > reasonMax:
			s.fail("OfItsKind", &e, "a reason of %d bytes; want 1 to %d", len(w.Reason), reasonMax)
		}
		if why := forbidden(e, w); why != "" {
			s.fail("Evidence", &e, "wishes %q, and %s", w.Do, why)
		}
	}
	return d
}

func (s *suite) handle(e sdk.Event) (d sdk.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return s.p.Handle(e)
}

var kinds = map[sdk.Action]sdk.Kind{sdk.StepPartition: sdk.Coordinator, sdk.Register: sdk.Promotion, sdk.Demote: sdk.Promotion,
	sdk.Admit: sdk.Release, sdk.Hold: sdk.Release, sdk.ReleaseSync: sdk.Release}

func types(k sdk.Kind) []sdk.EventType {
	return map[sdk.Kind][]sdk.EventType{sdk.Coordinator: {sdk.PartitionLook}, sdk.Promotion: {sdk.PromotionLook},
		sdk.Release: {sdk.RegisterAsked, sdk.SilentLook}}[k]
}
