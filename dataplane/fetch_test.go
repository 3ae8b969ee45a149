package dataplane

import (
	"testing"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// TestLongPoll: a parked fetch wakes when the watermark has enough, and not
// before; at its deadline it takes what there is.
func TestLongPoll(t *testing.T) {
	r := newRig(t, 3, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, k, many, m := r.dial(0), r.dial(1), r.dial(2), r.dial(1)
	size := int64(len(records(1, 100)))
	r.fetch(k, 13, consume(10_000, 1), nil, target("t", 0, 0))
	r.fetch(many, 13, consume(10_000, int32(2*size)), nil, target("t", 0, 0))
	r.produce(x, 14, 1, 1000, "t", part{0, records(1, 100)}, part{1, records(1, 100)})
	want(t, "acks=1 does not wait for mirrors", r.produced(x, 14)[0].code, wire.ErrNone)
	r.none(k, "the log end moved, not the mark")
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)})
	_, got := r.fetched(k, 13)
	want(t, "woken", got[0].next, 1)
	r.none(many, "min.bytes")
	r.produce(x, 14, 1, 1000, "t", part{0, records(1, 100)})
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 2, 2)})
	_, got = r.fetched(many, 13)
	want(t, "enough", got[0].next, 2)
	r.fetch(k, 13, consume(10_000, 1<<20), nil, target("t", 0, 0))
	r.none(k, "min.bytes")
	r.pass(11e9)
	_, got = r.fetched(k, 13)
	want(t, "late", got[0].next, 2)
	want(t, "mark", got[0].high, 2)
}

// TestFetchAnswersAtOnce: what no waiting can mend.
func TestFetchAnswersAtOnce(t *testing.T) {
	r := newRig(t, 1, "t")
	k := r.dial(0)
	next := target("t", 0, 5)
	newer := target("t", 0, 0)
	newer.CurrentLeaderEpoch = 9
	for name, c := range map[string]struct {
		t    wire.FetchTarget
		v    int16
		code wire.ErrorCode
	}{
		"no such topic":     {target("x", 0, 0), 12, wire.ErrUnknownTopicOrPartition},
		"no such id":        {target("x", 0, 0), 13, wire.ErrUnknownTopicId},
		"no such partition": {target("t", 7, 0), 13, wire.ErrUnknownTopicOrPartition},
		"out of range":      {next, 13, wire.ErrOffsetOutOfRange},
		"unknown epoch":     {newer, 13, wire.ErrUnknownLeaderEpoch},
	} {
		r.fetch(k, c.v, consume(60_000, 1), nil, c.t)
		res, got := r.fetched(k, c.v)
		want(t, name, got[0].code, c.code)
		want(t, name+": session", res.SessionID, 0)
	}
	// Nothing asked for, nothing to wait for.
	r.fetch(k, 13, consume(60_000, 1), nil)
	res, _ := r.fetched(k, 13)
	want(t, "empty", res.NumPartitions, 0)
}

// TestFullFetchHasNoSession: epoch 0 asks for a session; 0 says there is none.
func TestFullFetchHasNoSession(t *testing.T) {
	r := newRig(t, 1, "t")
	k := r.dial(0)
	p := consume(0, 0)
	p.SessionEpoch = 0
	r.fetch(k, 13, p, nil, target("t", 0, 0))
	res, _ := r.fetched(k, 13)
	want(t, "session", res.SessionID, 0)
	// A session of another broker, or of another life: the client must begin anew.
	p.SessionID, p.SessionEpoch = 99, 3
	r.fetch(k, 13, p, nil)
	res, _ = r.fetched(k, 13)
	want(t, "error", res.Err, wire.ErrFetchSessionIdNotFound)
}

// TestFollowerFetch is refused, and takes nobody else's answers along.
func TestFollowerFetch(t *testing.T) {
	r := newRig(t, 1, "t")
	f, x := r.dial(0), r.dial(0)
	p := consume(1000, 1)
	p.ReplicaID, p.ReplicaEpoch = 2, 1
	r.fetch(f, 13, p, nil, target("t", 0, 0))
	if !f.closed {
		t.Error("the connection is open")
	}
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 1)})
	want(t, "others", r.produced(x, 9)[0].code, wire.ErrNone)
	want(t, "answers held", r.core(0).AnswerBytes(), 0)
}

// TestLeadershipEnds: who waits hears of it at once.
func TestLeadershipEnds(t *testing.T) {
	r := newRig(t, 3, "t")
	r.facts.register(t, "m", "t")
	r.publish()
	x, k := r.dial(1), r.dial(2)
	r.produce(x, 14, -1, 60_000, "t", part{0, records(1, 10)})
	r.fetch(k, 13, consume(60_000, 1), nil, target("t", 0, 0))
	b := r.facts.View().Broker(1)
	r.facts.apply(t, &msg.FenceBrokerCommand{BrokerId: 1, BrokerEpoch: b.Epoch})
	r.publish()
	want(t, "produce", r.produced(x, 14)[0].code, wire.ErrNotLeaderOrFollower)
	_, got := r.fetched(k, 13)
	want(t, "fetch", got[0].code, wire.ErrNotLeaderOrFollower)
}

// TestTopicGoes: who waits on a deleted topic hears of it at once.
func TestTopicGoes(t *testing.T) {
	r := newRig(t, 3, "t")
	r.facts.register(t, "m", "t")
	r.publish()
	x, k := r.dial(1), r.dial(2)
	r.produce(x, 9, -1, 60_000, "t", part{0, records(1, 10)})
	r.fetch(k, 12, consume(60_000, 1), nil, target("t", 0, 0))
	r.facts.apply(t, &msg.DeleteTopicsCommand{Topics: []msg.DeleteTopicsCommandTopic{{Name: "t"}}})
	r.publish()
	if got := r.produced(x, 9)[0].code; got == wire.ErrNone {
		t.Error("acknowledged into nothing")
	}
	_, got := r.fetched(k, 12)
	want(t, "fetch", got[0].code, wire.ErrUnknownTopicOrPartition)
	want(t, "applied by all", r.e.Applied(), r.facts.View().Index())
}

// TestUnregisteredMirrorReadsToTheMark, and to the end once it is registered
// and reports.
func TestUnregisteredMirrorReadsToTheMark(t *testing.T) {
	r := newRig(t, 1, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, m := r.dial(0), r.dial(0)
	r.produce(x, 14, 1, 1000, "t", part{0, records(4, 10)})
	r.produced(x, 14)
	read := func(p wire.FetchParams, reports ...wire.Report) int64 {
		r.fetch(m, 20, p, reports, target("t", 0, 0))
		_, got := r.fetched(m, 20)
		return got[0].next
	}
	good := report("t", 0, epoch, 1, 0)
	other, foreign := mirrorParams(), mirrorParams()
	other.MirrorName, foreign.ClusterID = "n", "nobody"
	want(t, "another mirror", read(other, good), -1)
	want(t, "another cluster", read(foreign, good), -1)
	want(t, "no report", read(mirrorParams()), -1)
	want(t, "a consumer", read(consume(0, 0)), -1)
	want(t, "registered", read(mirrorParams(), good), 4)
}
