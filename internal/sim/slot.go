package sim

import (
	"errors"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// noFence is the fence of what a broker does by itself.
const noFence = -1

// Why an event has no decision: plugins/host says the same.
var (
	errSilent = errors.New("no answer in time")
	errNobody = errors.New("no plugin serves, or it has no fence yet")
)

// slot is where the plugin of a kind stands at a broker: plugins/host without its
// threads. Its life is host.Machine's, its policy is behind the border's messages,
// one call is under way at a time, an answer after host.Deadline is dropped and
// nothing more is asked until it came. The facts of a call are those of when it
// was asked, its fence that of whom was asked: the world goes on meanwhile.
type slot struct {
	w      *World
	n      *node
	kind   sdk.Kind
	number meta.FenceKind
	of     int // the broker's life
	life   host.Machine
	serves *instance // nil: none is up
	next   *instance
	starts []starting
	call   *call
	seq    int64
	raised int64 // the newest fence, as this slot's controller had it
}

// instance is a plugin's process.
type instance struct {
	sdk.Plugin
	mood  string
	fence int64 // 0: nothing it wishes could count
	ends  int64 // when its process ends by itself, 0 never
	asked int64 // the call it has not answered was made then, 0 none
	free  int64 // when it will have answered
}

// starting is a program being started.
type starting struct {
	at      int64
	ok, bad host.EventKind
	spec    host.Spec
}

// call is an event under way.
type call struct {
	by    *instance
	fence int64
	ready int64 // it answers
	late  int64 // the broker goes on without
	d     sdk.Decision
	err   error
	then  func(fence int64, d sdk.Decision, err error)
}

func (w *World) newSlot(n *node, kind sdk.Kind, number meta.FenceKind) *slot {
	s := &slot{w: w, n: n, kind: kind, number: number, life: host.Machine{Spec: host.Spec{Path: good}}}
	w.slots = append(w.slots, s)
	return s
}

// ask puts an event to whoever serves; then is told once, with the fence under
// which the wishes count. It returns false while another call is under way.
func (s *slot) ask(e sdk.Event, then func(fence int64, d sdk.Decision, err error)) bool {
	w, i := s.w, s.serves
	if s.call != nil {
		return false
	}
	s.seq++
	e.Seq, e.NowMS = s.seq, w.wall()
	switch {
	case i == nil || i.fence == 0:
		then(noFence, sdk.Decision{}, errNobody)
	case i.asked != 0:
		then(noFence, sdk.Decision{}, errSilent)
	default:
		c := &call{by: i, fence: i.fence, ready: w.mono, late: w.mono + host.Deadline.Nanoseconds(), then: then}
		switch {
		case i.mood == silent:
			c.ready = 1 << 62
		case i.mood == slow:
			c.ready += w.rnd.Int64N(2 * host.Deadline.Nanoseconds())
		case !w.calm:
			c.ready += w.rnd.Int64N(int64(2e6))
		}
		c.d, c.err = i.Handle(e)
		i.asked, i.free = w.mono, c.ready
		s.call = c
		s.answer()
	}
	return true
}

// answer ends the call under way if it is time.
func (s *slot) answer() bool {
	c := s.call
	if c == nil || s.w.mono < min(c.ready, c.late) {
		return false
	}
	s.call = nil
	if c.ready > c.late {
		s.w.note("%s %s plugin (%s) is silent", s.n.name, s.kind, c.by.mood)
		c.then(noFence, sdk.Decision{}, errSilent)
		return true
	}
	c.by.asked = 0
	c.then(c.fence, c.d, c.err)
	return true
}

// tend lets the slot's broker do what is due: answers, ends, starts, fences.
func (s *slot) tend() {
	if s.of != s.n.life { // a killed broker leaves no plugin behind, and no swap
		*s = slot{w: s.w, n: s.n, kind: s.kind, number: s.number, of: s.n.life, life: host.Machine{Spec: s.life.Spec}, seq: s.seq, raised: s.raised}
	}
	s.answer()
	if i := s.serves; i != nil {
		if i.asked != 0 && i.free <= s.w.mono {
			i.asked = 0 // its late answer is dropped
		}
		if i.ends != 0 && i.ends <= s.w.mono || i.asked != 0 && s.w.mono-i.asked > hungAfter {
			s.w.note("%s %s plugin (%s) ends", s.n.name, s.kind, i.mood)
			s.serves = nil
			if c := s.call; c != nil && c.by == i {
				s.call = nil
				c.then(noFence, sdk.Decision{}, errNobody)
			}
			s.step(host.Ended, host.Spec{})
		}
	}
	for k := 0; k < len(s.starts); k++ {
		if x := s.starts[k]; x.at <= s.w.mono {
			s.starts = append(s.starts[:k], s.starts[k+1:]...)
			k--
			if x.spec.Path == unborn {
				s.step(x.bad, x.spec)
			} else {
				s.step(x.ok, x.spec)
			}
		}
	}
	s.step(host.Tick, host.Spec{})
	if i := s.serves; i != nil && (i.fence == 0 || i.fence != s.n.latest.Fence(s.number)) && (s.w.calm || s.w.rnd.IntN(4) == 0) {
		res := s.n.apply(&msg.RaiseFenceCommand{Kind: int8(s.number)})
		s.serves.fence, s.raised = res.Number, res.Number
	}
}

// step takes the life of the plugin through an event, and does what it says.
func (s *slot) step(e host.EventKind, spec host.Spec) {
	act, err := s.life.Step(e, spec, s.w.wall())
	if err != nil {
		return // a swap is under way
	}
	switch e {
	case host.Started:
		if act != host.Unwanted {
			s.serves = s.born(spec)
		}
	case host.NextStarted:
		s.next = s.born(spec)
	case host.NextEnded:
		s.next = nil
	}
	switch act {
	case host.Start, host.FellBack:
		s.start(s.life.Spec, host.Started, host.StartFailed)
	case host.StartNext:
		s.start(s.life.Next, host.NextStarted, host.NextEnded)
	case host.CutOver: // the call under way is the old one's: drained, not dropped
		s.w.note("%s %s plugin is %s now", s.n.name, s.kind, s.next.mood)
		s.serves, s.next = s.next, nil
	}
}

func (s *slot) start(spec host.Spec, ok, bad host.EventKind) {
	s.starts = append(s.starts, starting{s.w.mono + 1e6 + s.w.rnd.Int64N(100e6), ok, bad, spec})
}

func (s *slot) born(spec host.Spec) *instance {
	i := &instance{Plugin: newPolicy(s.kind, spec.Path, s.w.rnd), mood: spec.Path}
	if i.mood == mortal {
		i.ends = s.w.mono + 1 + s.w.rnd.Int64N(4e9)
	}
	return i
}

// swap is an operator's.
func (s *slot) swap(mood string) {
	s.w.note("%s %s plugin is to be %s", s.n.name, s.kind, mood)
	s.step(host.SwapAsked, host.Spec{Path: mood})
}

// apply commits what a plugin has wished. OneCoordinatorWrites: once a newer
// instance has its fence, no wish of an older one changes anything.
func (s *slot) apply(topic meta.UUID, fence int64, m meta.Message) meta.Result {
	before := s.n.latest.TopicByID(topic)
	res := s.n.apply(m)
	if fence != noFence && fence != s.raised {
		s.w.check(s.n.latest.TopicByID(topic) == before, "OneCoordinatorWrites", s.n.name, " ", s.kind, ": a wish under fence ", fence,
			" was made durable, the newest is ", s.raised)
	}
	return res
}

// tendPlugins is a broker's own work, done whenever anything happens.
func (w *World) tendPlugins() {
	for _, s := range w.slots {
		if w.failed && s.n == w.src {
			continue
		}
		if w.calm && !w.failed && s.life.Spec.Path != good && s.life.Swap == host.NoSwap {
			s.swap(good)
		}
		s.tend()
	}
}
