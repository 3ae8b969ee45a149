package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// Swap × fence: two controllers with a slot each, the metadata quorum as Apply
// has it, plugin instances that are swapped, controllers that take over and
// crash, raises whose answer is lost, and wishes that arrive at any later time
// (a plugin or a controller that stood still). All interleavings, breadth first,
// over the product's Slot and Apply; a state is played again from its trace.
//
// Laws: a wish is applied only if the instance that wished it is the last that
// was given the right to; every event has one line in the journal; from every
// state the plugin that serves can be heard again.

type fenceRules struct {
	compare   bool // Apply compares the fence of a wish
	swapRaise bool // a swap raises the fence before the next plugin is heard (DESIGN 6)
	termRaise bool // a new controller raises it first (R27)
	instances int  // in all
}

const (
	fenceFlights = 3      // wishes under way
	fenceDepth   = 16     // steps of a trace
	fenceLimit   = 100000 // states
)

// fenceWish is a wish under way.
type fenceWish struct {
	from  int // controller
	gen   int
	asked *host.Asked
}

type fenceWorld struct {
	rules   fenceRules
	view    *meta.View
	slots   [2]*host.Slot
	gen     [2]int // the instance in each slot, 0 none
	asks    [2]int64
	raised  [2]bool // in its term
	gens    int
	leader  int
	allowed int // the instance that may be heard; 0 = nobody knows a right number
	flight  []fenceWish
	applied int
	broken  string
}

// fenceBase is a cluster with one topic and no fence raised.
func fenceBase(t *testing.T) *meta.View {
	t.Helper()
	v := meta.Empty()
	for _, m := range []meta.Message{
		&msg.BootstrapCommand{ClusterId: "c"},
		&msg.SetFeatureCommand{Name: meta.FeatureMirrorSync, Level: 1},
		&msg.RegisterBrokerCommand{BrokerId: 1, IncarnationId: [16]byte{1}},
		&msg.UnfenceBrokerCommand{BrokerId: 1, BrokerEpoch: 3},
		&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: topicName, TopicId: topicID, NumPartitions: 1, ReplicationFactor: 1}}},
	} {
		next, res := meta.Apply(v, v.Index()+1, meta.Encode(m))
		if res.ErrorCode != 0 {
			t.Fatalf("%T: %d %s", m, res.ErrorCode, text(res.ErrorMessage))
		}
		v = next
	}
	if v.TopicByID(topicID) == nil {
		t.Fatal("no topic")
	}
	return v
}

func newFenceWorld(base *meta.View, r fenceRules) *fenceWorld {
	w := &fenceWorld{rules: r, view: base}
	w.slots = [2]*host.Slot{host.NewSlot(sdk.Release), host.NewSlot(sdk.Release)}
	w.serve(0)
	return w
}

func (w *fenceWorld) apply(m meta.Message) meta.Result {
	next, res := meta.Apply(w.view, w.view.Index()+1, meta.Encode(m))
	w.view = next
	return res
}

func (w *fenceWorld) serve(c int) {
	w.gens++
	w.gen[c] = w.gens
	w.slots[c].Serve(host.NewInstance(of(sdk.Release, func(e sdk.Event) (sdk.Decision, error) {
		return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Hold, Subject: e.Subject}}}, nil
	}), ""))
}

// give hands a number to who serves at c: from here on it is the one to hear.
func (w *fenceWorld) give(c int, n int64) {
	w.slots[c].SetFence(n)
	w.allowed, w.raised[c] = w.gen[c], true
}

// act takes one step; false = it cannot be taken here.
func (w *fenceWorld) act(a string) bool {
	c := w.leader
	kind, arg, _ := strings.Cut(a, " ")
	switch kind {
	case "swap": // the next instance stands in the slot
		if w.gens == w.rules.instances {
			return false
		}
		w.serve(c)
		if !w.rules.swapRaise && w.raised[c] {
			w.give(c, w.view.Fence(meta.FenceRelease))
		}
	case "raise", "raise-unanswered":
		if w.raised[c] && w.slots[c].Fenced(w.view.Fence(meta.FenceRelease)) {
			return false
		}
		res := w.apply(raiseFence(meta.FenceRelease))
		w.allowed = 0
		if kind == "raise" {
			w.give(c, res.Number)
		}
	case "ask": // either controller: one that has been deposed may not know it
		c = int(arg[0] - '0')
		if len(w.flight) == fenceFlights || w.slots[c].Fence() == 0 {
			return false
		}
		w.asks[c]++
		asked, err := w.slots[c].Handle(context.Background(), sdk.Event{Type: sdk.RegisterAsked})
		if err != nil {
			w.broken = err.Error()
			return true
		}
		w.flight = append(w.flight, fenceWish{c, w.gen[c], asked})
	case "deliver":
		i := int(arg[0] - '0')
		if i >= len(w.flight) {
			return false
		}
		w.deliver(i)
	case "depose": // the other takes over, with a plugin of its own
		if w.gens == w.rules.instances {
			return false
		}
		w.leader = 1 - c
		w.raised[w.leader] = false
		w.serve(w.leader)
		if !w.rules.termRaise && w.view.Fence(meta.FenceRelease) != 0 {
			w.give(w.leader, w.view.Fence(meta.FenceRelease))
		}
	case "crash": // the leader starts anew: what it had sent is still under way
		if w.gens == w.rules.instances {
			return false
		}
		w.slots[c], w.asks[c], w.raised[c] = host.NewSlot(sdk.Release), 0, false
		for i := range w.flight {
			if w.flight[i].from != c {
				continue
			}
			w.flight[i].asked = &host.Asked{Fence: w.flight[i].asked.Fence, Decision: w.flight[i].asked.Decision}
		}
		w.serve(c)
	}
	w.check()
	return true
}

func (w *fenceWorld) deliver(i int) {
	f := w.flight[i]
	w.flight = slices.Delete(w.flight, i, i+1)
	cmd := &msg.RegisterSyncCommand{Fence: f.asked.Fence, Mirror: "far", ClusterId: "dest", Topics: []msg.RegisterSyncCommandTopic{{TopicId: topicID, Held: true}}}
	if !w.rules.compare {
		cmd.Fence = noFence
	}
	res := w.apply(cmd)
	v := host.Verdict{Wish: f.asked.Wishes[0], Accepted: res.ErrorCode == 0, Why: text(res.ErrorMessage)}
	if v.Accepted {
		w.applied++
		if f.gen != w.allowed {
			w.broken = fmt.Sprintf("a wish of instance %d was applied, and %d is the one to hear", f.gen, w.allowed)
		}
	}
	if f.asked.Seq != 0 { // its controller has not crashed since
		f.asked.Settle(v)
	}
}

// check holds the journal against what was asked.
func (w *fenceWorld) check() {
	for c, s := range w.slots {
		lines := map[int64]int{}
		for _, e := range s.Journal() {
			lines[e.Seq]++
		}
		for seq, n := range lines {
			if n != 1 || seq < 1 || seq > w.asks[c] {
				w.broken = fmt.Sprintf("event %d of controller %d has %d lines", seq, c, n)
			}
		}
		under := int64(0)
		for _, f := range w.flight {
			if f.from == c && f.asked.Seq != 0 && lines[f.asked.Seq] == 0 {
				under++
			}
		}
		if int64(len(lines)) > w.asks[c] || int64(len(lines))+under < w.asks[c] {
			w.broken = fmt.Sprintf("controller %d: %d asked, %d lines, %d under way", c, w.asks[c], len(lines), under)
		}
	}
}

// key is the state without what laws do not depend on: fences by rank, not by
// number.
func (w *fenceWorld) key() string {
	fences := []int64{w.view.Fence(meta.FenceRelease), w.slots[0].Fence(), w.slots[1].Fence()}
	for _, f := range w.flight {
		fences = append(fences, f.asked.Fence)
	}
	order := slices.Clone(fences)
	slices.Sort(order)
	order = slices.Compact(order)
	for i, f := range fences {
		fences[i] = int64(slices.Index(order, f))
		if f == 0 {
			fences[i] = -1
		}
	}
	key := fmt.Sprint(fences, w.gen, w.raised, w.gens, w.leader, w.allowed)
	for _, f := range w.flight {
		key += fmt.Sprint(" ", f.from, f.gen, f.asked.Seq != 0)
	}
	return key
}

var fenceActions = []string{"swap", "raise", "raise-unanswered", "ask 0", "ask 1", "deliver 0", "deliver 1", "deliver 2", "depose", "crash"}

// explore returns the shortest trace that breaks a law.
func (r fenceRules) explore(base *meta.View) (states int, trace []string, law string) {
	play := func(trace []string) *fenceWorld {
		w := newFenceWorld(base, r)
		for _, a := range trace {
			w.act(a)
		}
		return w
	}
	seen := map[string]bool{newFenceWorld(base, r).key(): true}
	queue := [][]string{nil}
	for len(queue) > 0 && len(seen) < fenceLimit {
		trace, queue = queue[0], queue[1:]
		if why := heardAgain(play(trace)); why != "" {
			return len(seen), trace, why
		}
		if len(trace) == fenceDepth {
			continue
		}
		for _, a := range fenceActions {
			w := play(trace)
			if !w.act(a) {
				continue
			}
			next := append(slices.Clone(trace), a)
			if w.broken != "" {
				return len(seen), next, w.broken
			}
			if k := w.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, next)
			}
		}
	}
	return len(seen), nil, ""
}

// heardAgain: whatever has happened, the leader's plugin is heard after a raise.
func heardAgain(w *fenceWorld) string {
	if w.broken != "" {
		return ""
	}
	w.flight = nil
	w.act("raise")
	w.broken = "" // what was under way is gone, and so are its lines
	before := w.applied
	if !w.act(fmt.Sprint("ask ", w.leader)) || len(w.flight) != 1 {
		return "the plugin that serves is not asked"
	}
	w.deliver(0)
	if w.applied != before+1 {
		return "the plugin that serves is not heard"
	}
	return ""
}

func TestSwapAndFence(t *testing.T) {
	base, instances := fenceBase(t), 5
	if testing.Short() {
		instances = 4
	}
	states, trace, law := fenceRules{compare: true, swapRaise: true, termRaise: true, instances: instances}.explore(base)
	t.Logf("%d states", states)
	if law != "" {
		t.Fatalf("%s\n  %s", law, strings.Join(trace, "\n  "))
	}
	if states < 1000 || states >= fenceLimit {
		t.Errorf("%d states: the space is not the one described", states)
	}
	for name, r := range map[string]fenceRules{
		"Apply does not compare":    {swapRaise: true, termRaise: true},
		"a swap raises nothing":     {compare: true, termRaise: true},
		"a new term raises nothing": {compare: true, swapRaise: true},
	} {
		r.instances = instances
		states, trace, law := r.explore(base)
		if !strings.Contains(law, "was applied") {
			t.Errorf("%s: %d states, and no law is broken (%q): the model is blind", name, states, law)
			continue
		}
		t.Logf("%s: %d states, %d steps: %s\n  %s", name, states, len(trace), law, strings.Join(trace, "\n  "))
	}
}
