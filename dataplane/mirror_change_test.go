package dataplane

import (
	"fmt"
	"slices"
	"testing"

	"lockstep/internal/wire"
)

// manyMirrored is a data lane of n partitions that its source knows all of.
func manyMirrored(t *testing.T, n int) (*rig, *lane) {
	r := newRig(t, 1)
	r.facts.topic(t, "t", n)
	r.publish()
	c := r.core(0)
	l := &lane{toldAt: map[*Partition]int{}, version: 20, sessionID: 1, window: mirrorWindow, inFlight: mirrorWindow}
	for _, p := range r.e.all.byName["t"].parts {
		s := &session{p: p, lane: l, at: len(l.sessions), reportLane: &lane{users: 1}, epoch: 0}
		role := *p.role.Load()
		role.tracking = true
		p.role.Store(&role)
		p.down = &downstream{owner: s, run: true, sync: true, tracked: -1}
		c.lanes.sessions[p] = s
		l.sessions = append(l.sessions, s)
	}
	l.full = true
	c.lookAtAll(l)
	want(t, "told", len(l.told), n)
	want(t, "named", len(c.lanes.targets), n)
	want(t, "in SYNC", l.synced(), n)
	return r, l
}

// A change of one partition has that one looked at, whatever the size of its
// lane; and what is told of the others stays as it was.
func TestChangeLooksAtOne(t *testing.T) {
	const n = 2000
	r, l := manyMirrored(t, n)
	c, x := r.core(0), &r.core(0).lanes
	look := func(what string, targets, forgotten, told int) {
		t.Helper()
		for _, s := range l.sessions {
			s.realigned = true // a look takes it away
		}
		x.targets, l.forgotten = x.targets[:0], l.forgotten[:0]
		l.inFlight, l.scanAt = 0, c.now+1e9
		if !l.full && len(l.due) == 0 {
			t.Fatal(what, "is not noted")
		}
		if l.window == 0 || l.full {
			t.Fatal(what, "has all of them looked at")
		}
		c.lookAtDue(l, false)
		looks := 0
		for _, s := range l.sessions {
			if !s.realigned || s.state != sessionReady {
				looks++
			}
		}
		if looks > 1 {
			t.Errorf("%s: %d were looked at", what, looks)
		}
		want(t, what+": named", len(x.targets), targets)
		want(t, what+": forgotten", len(l.forgotten), forgotten)
		want(t, what+": told", len(l.told), told)
		want(t, what+": in SYNC", l.synced(), told)
		for i, k := range l.told {
			if l.toldAt[k.p] != i {
				t.Fatalf("%s: place %d of %d", what, l.toldAt[k.p], i)
			}
		}
	}
	s := l.sessions[n/2]
	s.state = sessionStalled
	c.changed(s)
	look("a stall", 0, 1, n-1)
	s.state, s.lost = sessionReady, true
	c.changed(s)
	look("room", 1, 0, n)
	s.until = c.now + sessionBackoff
	c.changed(s)
	look("a back-off", 0, 1, n-1)
	want(t, "waits", len(l.waiting), 1)
	r.now += sessionBackoff
	c.now = r.now
	c.noteDue(l, l.sessions[0].p)
	c.lookAtDue(l, false)
	want(t, "its end", len(l.told), n)
	c.detach(s.p)
	look("a detach", 0, 1, n-1)
	for i, s := range l.sessions {
		if s.at != i {
			t.Fatalf("session %d is at %d", i, s.at)
		}
	}
}

// sendChanges is what decides between one and all.
func TestChangeSendsOne(t *testing.T) {
	r, l := manyMirrored(t, 200)
	c := r.core(0)
	r.dial(0)
	l.cn, l.state, l.inFlight = c.conns[0], laneReady, 0
	l.scanAt = c.now + 1e9
	for _, s := range l.sessions {
		s.realigned = true
	}
	l.sessions[7].lost = true
	c.changed(l.sessions[7])
	c.sendChanges(l)
	left := 0
	for _, s := range l.sessions {
		if s.realigned {
			left++
		}
	}
	want(t, "not looked at", left, 199)
}

// The share of a lane that repeats its reports goes round.
func TestSharesGoRound(t *testing.T) {
	const n = 20_000 // three shares
	r, l := manyMirrored(t, n)
	c, x := r.core(0), &r.core(0).lanes
	seen := map[int32]int{}
	for range 3 {
		x.reports, x.offsets, x.isr = x.reports[:0], x.offsets[:0], x.isr[:0]
		c.lookAtDue(l, true)
		l.phase++
		for _, rep := range x.reports {
			seen[rep.Partition]++
		}
		if k := len(x.reports); k < n/3-1 || k > n/3+1 {
			t.Errorf("%d reports in a share of %d", k, n)
		}
	}
	want(t, "reported", len(seen), n)
}

// Of the answers to reports the newest word stands, whichever lane it comes on.
func TestOvertakenAnswers(t *testing.T) {
	r := newRig(t, 1, "t")
	p, c := r.partition("t"), r.core(0)
	role := *p.role.Load()
	role.tracking = true
	p.role.Store(&role)
	d := &downstream{sync: true, alignedEpoch: 0, tracked: -1, sequence: 9}
	p.down = d
	hear := func(code wire.ErrorCode, sequence int64) bool {
		p.lock()
		defer p.unlock()
		c.takeAnswer(p, &wire.ReportAnswer{Err: code, Sequence: sequence, HighWatermark: -1})
		return d.failingSince != 0
	}
	const refused = wire.ErrInvalidSyncRegistration
	for _, x := range []struct {
		what     string
		code     wire.ErrorCode
		sequence int64
		failing  bool
	}{
		{"counted", wire.ErrNone, 5, false},
		{"an older refusal", refused, 4, false},
		{"a refusal", refused, 6, true},
		{"an older yes", wire.ErrNone, 5, true},
		{"a newer yes", wire.ErrNone, 7, false},
		{"a word unasked", refused, 0, true},
		{"the answer to what was sent before it", wire.ErrNone, 9, true},
		{"of another leadership", wire.ErrNone, 40, true},
	} {
		want(t, x.what, hear(x.code, x.sequence), x.failing)
	}
	d.sequence = 10
	want(t, "after it", hear(wire.ErrNone, 10), false)
	want(t, "acked", d.acked, 10)
}

// A request that brings reports waits behind others, their answers do not; nor
// do reports keep the oldest request from its end.
func TestAnswersOfReportsComeFirst(t *testing.T) {
	d := openPiped(t)
	for range 4 {
		d.ask(0, 0)
	}
	for sequence := range int64(3) {
		d.r.pass(3e9)
		d.r.fetch(d.x, 20, d.p, []wire.Report{report("t", 0, d.reg, 2+sequence, 0)})
		d.p.SessionEpoch++
	}
	d.r.none(d.x, "nothing is there")
	d.r.pass(2e9)
	res, _ := d.answer(t)
	var got []int64
	for it := res.Answers(); it.Next(); {
		got = append(got, it.Sequence)
	}
	if !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("answered %v", got)
	}
	d.r.none(d.x, "the others wait")
}

// A partition that leaves a session takes no other's place, and one that comes
// finds the place that is free.
func TestForgottenLeavesPlaces(t *testing.T) {
	r := newRig(t, 1)
	r.facts.topic(t, "t", 5)
	r.publish()
	x, prod := r.dial(0), r.dial(0)
	q := mirrorParams()
	q.SessionEpoch, q.MinBytes = 0, 1
	name := func(gen int32, indexes ...int32) (out []wire.FetchTarget) {
		for _, i := range indexes {
			at := target("t", i, 0)
			at.Generation = gen
			out = append(out, at)
		}
		return out
	}
	r.fetch(x, 20, q, nil, name(1, 0, 1, 2, 3)...)
	res, _ := r.fetched(x, 20)
	q.SessionID, q.SessionEpoch, q.MaxWaitMs = res.SessionID, 1, 10_000
	q.Forgotten = []wire.ForgottenPartition{{Topic: "t", TopicID: topicID("t"), Partition: 1}, {Topic: "t", TopicID: topicID("t"), Partition: 3}}
	r.fetch(x, 20, q, nil, name(2, 4)...)
	q.Forgotten, q.SessionEpoch = nil, 2
	r.fetch(x, 20, q, nil, name(3, 3)...)
	s := r.core(0).conns[0].session
	want(t, "places", len(s.parts), 4)
	want(t, "free", len(s.empty), 0)
	q.SessionEpoch = 3
	for range 8 {
		r.fetch(x, 20, q, nil)
		q.SessionEpoch++
	}
	got := ""
	hear := func() {
		for len(x.sent) > 0 {
			_, body := r.answer(x, wire.KeyFetch, 20)
			if err := res.Parse(20, body); err != nil {
				t.Fatal(err)
			}
			for it := res.Partitions(); it.Next(); {
				if len(it.Records) > 0 {
					got += fmt.Sprint(" ", it.Partition, ":", it.Generation)
				}
			}
		}
	}
	write := func(i int32) {
		r.produce(prod, 14, 1, 1000, "t", part{i, records(1, 10)})
		r.produced(prod, 14)
		hear()
	}
	for i := range int32(5) {
		write(i)
	}
	want(t, "read", got, " 0:1 2:1 3:3 4:2")
	got, q.Forgotten = "", []wire.ForgottenPartition{{Topic: "t", TopicID: topicID("t"), Partition: 0}}
	r.fetch(x, 20, q, nil)
	write(0)
	r.pass(11e9) // all of them are looked at
	hear()
	want(t, "read of what was forgotten", got, "")
}
