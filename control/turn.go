package control

import (
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
)

// turn spreads the looks at topics that have settled over several ticks when
// there are many: a look at each of 100,000 partitions twenty times a second
// would be all a processor does. Topics on their way somewhere have every turn.
type turn struct {
	index  uint64 // of the View of the last tick
	now    uint64 // of this one's
	next   int    // which settled topic, in the View's order, has a turn first
	at     int    // settled topics met in this tick
	budget int    // partitions of settled topics left for this tick
	taken  int
	known  map[[16]byte]uint64 // settled topics, by the index of their last change
}

// begin starts a tick.
func (u *turn) begin(v *meta.View) {
	u.next += u.taken
	if u.next >= u.at {
		u.next = 0
	}
	u.index, u.now = u.now, v.Index()
	if len(u.known) > 2*u.at+settledPerTick { // most of them are topics that were
		u.known = nil
	}
	u.at, u.taken, u.budget = 0, 0, settledPerTick
}

// has tells whether a topic is looked at in this tick.
func (u *turn) has(t *meta.Topic) bool {
	if t.Index > u.index || !u.settled(t) {
		return true
	}
	u.at++
	if u.at <= u.next || u.budget <= 0 {
		return false
	}
	u.taken++
	u.budget -= len(t.Partitions)
	return true
}

func (u *turn) settled(t *meta.Topic) bool {
	if at, ok := u.known[t.ID]; ok && at == t.Index {
		return true
	}
	if !settled(t) {
		return false
	}
	if u.known == nil {
		u.known = map[[16]byte]uint64{}
	}
	u.known[t.ID] = t.Index
	return true
}

// settled tells that nothing of a topic is under way: only the data plane can
// have news of it.
func settled(t *meta.Topic) bool {
	switch p := t.Mirror.Promotion; {
	case t.Mirror.Desired != mirror.Mirroring, p.OwedUnregister != 0:
		return false
	case p.Phase != mirror.InSync && p.Phase != mirror.PlainAsync:
		return false
	}
	for _, p := range t.Partitions {
		if p.State != mirror.Mirroring {
			return false
		}
	}
	return true
}
