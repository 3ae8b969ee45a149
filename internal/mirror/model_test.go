package mirror

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/internal/invariant"
)

// The composition of Promotion (destination) and the ledger (source) under a
// network that delays, reorders and (unless lossless) loses messages, an
// operator who releases, demotes and promotes, and a coordinator that crashes
// between any commit and its send. All interleavings, breadth first.

type pairRules struct {
	byEpoch    bool // R22: an Unregister removes only the epoch it names
	byNumber   bool // R22: a recovery Register must name the latest release
	renumber   bool // a Register of what is registered gets a new epoch
	keepMarker bool // a destination's Unregister never clears Released
	okFirst    bool // R10: SYNC is committed after OK, not before
	lossless   bool
	sends      int8
	operations int8
}

// pairMessage is one message under way; knew is what the sender of a Register
// knew of releases.
type pairMessage struct {
	kind     byte // 'R' 'U' to the source; 'o' OK, 'r' rejected, 'u' unregistered back
	recovery bool
	number   int8
	asked    int8
	knew     int8
}

const wireCap = 4

type pairState struct {
	dst             Promotion
	entry           Registration
	exists          bool
	index           int8 // the source's commit index, of Registers and releases
	lastRelease     int8
	knew            int8
	wire            [wireCap]pairMessage
	wired           int8
	sends, releases int8
	wishes          int8
	broken          string
}

func (s *pairState) send(m pairMessage) bool {
	if s.wired == wireCap {
		return false
	}
	s.wire[s.wired] = m
	s.wired++
	slices.SortFunc(s.wire[:s.wired], func(a, b pairMessage) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return true
}

func (s *pairState) take(i int8) pairMessage {
	m := s.wire[i]
	copy(s.wire[i:], s.wire[i+1:])
	s.wired--
	s.wire[s.wired] = pairMessage{}
	return m
}

// event runs the destination's machine and carries out its effects.
func (s *pairState) event(e PromotionEvent) bool {
	var effects []PromotionEffect
	s.dst, effects = s.dst.Step(e)
	for _, f := range effects {
		switch f.Kind {
		case SendRegister:
			if s.sends == 0 {
				return false
			}
			s.sends--
			if !s.send(pairMessage{kind: 'R', recovery: f.Recovery, number: int8(f.Number), knew: s.knew}) {
				return false
			}
		case SendUnregister:
			if !s.send(pairMessage{kind: 'U', asked: int8(f.Number)}) {
				return false
			}
		}
	}
	s.dst.Attempts = 0 // counts back-off only
	return true
}

func (r pairRules) register(s *pairState, m pairMessage) bool {
	s.index++
	if r.renumber == false && s.exists && !s.entry.Released {
		return s.send(pairMessage{kind: 'o', number: int8(s.entry.Epoch)})
	}
	req := RegisterRequest{Mirror: "m", ClusterID: "c", Recovery: m.recovery, ReleaseNumber: int64(m.number)}
	if !r.byNumber && m.recovery {
		req.ReleaseNumber = s.entry.ReleaseNumber
	}
	d := Register(s.entry, s.exists, req, LedgerFacts{Index: int64(s.index), SyncOn: true})
	s.entry, s.exists = d.Entry, d.Exists
	if d.Code == NeedsRecovery {
		return s.send(pairMessage{kind: 'r', number: int8(d.Entry.ReleaseNumber)})
	}
	if m.knew < s.lastRelease {
		s.broken = "a Register sent before its destination knew of the latest release was admitted"
	}
	return s.send(pairMessage{kind: 'o', number: int8(d.Entry.Epoch)})
}

func (r pairRules) unregister(s *pairState, m pairMessage) bool {
	epoch := int64(m.asked)
	if !r.byEpoch && epoch != 0 {
		epoch = AnyEpoch
	}
	old := s.entry
	if !r.keepMarker && old.Released {
		old.Released, epoch = false, AnyEpoch
	}
	d := Unregister(old, s.exists, "c", epoch)
	if d.Changed || r.keepMarker {
		s.entry, s.exists = d.Entry, d.Exists
	}
	if !s.exists {
		s.entry = Registration{}
	}
	return s.send(pairMessage{kind: 'u', asked: m.asked, number: int8(d.Current())})
}

// deliver hands a message to its receiver.
func (r pairRules) deliver(s *pairState, m pairMessage) bool {
	switch m.kind {
	case 'R':
		return r.register(s, m)
	case 'U':
		return r.unregister(s, m)
	case 'o':
		return s.event(PromotionEvent{Kind: RegisterOK, Number: int64(m.number)})
	case 'r':
		s.knew = max(s.knew, m.number)
		return s.event(PromotionEvent{Kind: RegisterReleased, Number: int64(m.number)})
	}
	return s.event(PromotionEvent{Kind: UnregisterAnswered, Number: int64(m.number), Asked: int64(m.asked)})
}

func (r pairRules) moves(s pairState, emit func(pairState, string)) {
	for i := int8(0); i < s.wired; i++ {
		t := s
		m := t.take(i)
		if !r.lossless {
			emit(t, fmt.Sprintf("lost: %c%+v", m.kind, m))
		}
		if r.deliver(&t, m) {
			emit(t, fmt.Sprintf("delivered: %c%+v", m.kind, m))
		}
	}
	step := func(e PromotionEventKind, cost *int8) {
		t := s
		if cost != nil {
			if *cost == 0 {
				return
			}
			t.wishes--
		}
		if t.event(PromotionEvent{Kind: e}) && t != s {
			emit(t, e.String())
		}
	}
	step(DesiredSync, nil)
	step(InStep, nil)
	step(RegisterUnknown, nil)
	step(DesiredAsync, &s.wishes)
	step(Pause, &s.wishes)
	if !r.lossless {
		step(Resumed, nil)
		step(UnregisterDue, nil)
		step(RegisterUnreachable, &s.wishes)
		step(AllFailing, &s.wishes)
	}
	if !r.okFirst && s.dst.Phase == Registering {
		t := s
		t.dst = Promotion{Phase: InSync, RegistrationEpoch: s.entry.Epoch}
		emit(t, "commits SYNC before the answer")
	}
	if s.releases > 0 && s.exists {
		t := s
		t.releases--
		t.index++
		d := Release(t.entry, true, AnyEpoch, int64(t.index))
		t.entry, t.lastRelease = d.Entry, t.index
		emit(t, "operator releases")
	}
}

// violated names the law a state breaks.
func (r pairRules) violated(s *pairState) string {
	gates := s.exists && s.entry.Gates()
	switch {
	case s.broken != "":
		return s.broken
	case s.exists && s.entry.Released && gates:
		return "a released mirror gates"
	case s.dst.EffectiveType() == Sync && !gates && (!s.exists || s.entry.ReleaseNumber <= s.dst.RegistrationEpoch):
		return "SYNC at the destination, and the source acknowledges without it"
	case r.lossless && s.wired == 0 && s.dst.Phase == PlainAsync && s.dst.OwedUnregister == 0 && gates:
		return "ASYNC with nothing owed or under way, and the source gates"
	case r.lossless && s.wired == 0 && s.dst.Phase == Registering:
		return "REGISTERING with nothing under way"
	case r.lossless && s.wired == 0 && s.dst.Phase == InSync && gates && s.entry.Epoch != s.dst.RegistrationEpoch:
		return "SYNC with nothing under way, and the reports name an old registration"
	}
	return ""
}

func (r pairRules) explore(limit int) (states int, trace []string, law string) {
	type node struct {
		parent int
		move   string
	}
	s0 := pairState{sends: r.sends, releases: r.operations, wishes: r.operations}
	seen, queue, nodes := map[pairState]bool{s0: true}, []pairState{s0}, []node{{-1, ""}}
	for at := 0; at < len(queue) && law == "" && len(nodes) < limit; at++ {
		r.moves(queue[at], func(t pairState, move string) {
			if law != "" || seen[t] {
				return
			}
			seen[t] = true
			queue, nodes = append(queue, t), append(nodes, node{at, move})
			if law = r.violated(&t); law != "" {
				for n := len(nodes) - 1; n > 0; n = nodes[n].parent {
					trace = append([]string{nodes[n].move}, trace...)
				}
			}
		})
		queue[at] = pairState{}
	}
	return len(nodes), trace, law
}

var pairAll = pairRules{byEpoch: true, byNumber: true, renumber: true, keepMarker: true, okFirst: true, sends: 3, operations: 2}

// pairLimit bounds the search in the larger spaces; every trace to a broken law
// is found far below it.
const pairLimit = 150_000

func (r pairRules) without(off func(*pairRules)) pairRules {
	off(&r)
	return r
}

// TestPairHolds walks a small space to its end and the first states of larger
// ones. LOCKSTEP_MODEL_STATES sets another limit.
func TestPairHolds(t *testing.T) {
	limit := pairLimit
	if invariant.Enabled {
		limit /= 5 // the race detector is slow, and this is one goroutine
	}
	if env := os.Getenv("LOCKSTEP_MODEL_STATES"); env != "" {
		var err error
		if limit, err = strconv.Atoi(env); err != nil {
			t.Fatal(err)
		}
	}
	small := pairAll.without(func(r *pairRules) { r.sends, r.operations = 2, 1 })
	for _, r := range []pairRules{
		small,
		small.without(func(r *pairRules) { r.lossless = true }),
		pairAll,
		pairAll.without(func(r *pairRules) { r.lossless = true }),
	} {
		states, trace, law := r.explore(limit)
		t.Logf("lossless %v, %d Registers, %d wishes: %d states", r.lossless, r.sends, r.operations, states)
		if law != "" {
			t.Fatalf("%s\n  %s", law, strings.Join(trace, "\n  "))
		}
		if r.sends == small.sends && states >= limit {
			t.Fatal("the small space is larger than the limit: it is not walked to its end")
		}
	}
}

func TestPairGoesRed(t *testing.T) {
	for name, r := range map[string]pairRules{
		"Unregister by epoch":        pairAll.without(func(r *pairRules) { r.byEpoch = false }),
		"release by number":          pairAll.without(func(r *pairRules) { r.byNumber = false }),
		"every Register renumbers":   pairAll.without(func(r *pairRules) { r.renumber, r.lossless = false, true }),
		"Unregister keeps a release": pairAll.without(func(r *pairRules) { r.keepMarker = false }),
		"SYNC after OK":              pairAll.without(func(r *pairRules) { r.okFirst = false }),
	} {
		t.Run(name, func(t *testing.T) {
			states, trace, law := r.explore(pairLimit)
			if law == "" {
				t.Fatalf("%d states without the rule, and no law is broken: the model is blind", states)
			}
			t.Logf("%d states, %d steps: %s\n  %s", states, len(trace), law, strings.Join(trace, "\n  "))
		})
	}
}
