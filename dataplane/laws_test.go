package dataplane

import (
	"testing"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func (r *rig) partition(name string) *Partition { return r.e.all.byName[name].parts[0] }

// TestRepeatedSequence: a batch that comes again is answered with the offset it
// has, and is in the log once.
func TestRepeatedSequence(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	p := wire.PlainParams(1_700_000_000_000)
	p.ProducerID, p.ProducerEpoch, p.BaseSequence = 7, 0, 0
	for range 3 {
		b := wire.BuildBatch(nil, p, wire.Record{Value: []byte("a")}, wire.Record{Value: []byte("b")})
		r.produce(x, 9, -1, 1000, "t", part{0, b})
		got := r.produced(x, 9)[0]
		want(t, "code", got.code, wire.ErrNone)
		want(t, "base", got.base, 0)
	}
	want(t, "log end", r.partition("t").log.End(), 2)
}

// TestRegistrationDoesNotLowerTheMark: what was visible stays visible when a
// mirror that has nothing yet is registered.
func TestRegistrationDoesNotLowerTheMark(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.produce(x, 14, -1, 1000, "t", part{0, records(3, 10)})
	want(t, "produced", r.produced(x, 14)[0].code, wire.ErrNone)
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	want(t, "mark", r.partition("t").high.Load(), 3)
	m := r.dial(0)
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)})
	r.fetched(m, 20)
	want(t, "mark after a report from below it", r.partition("t").high.Load(), 3)
	r.fetch(x, 13, consume(0, 0), nil, target("t", 0, 0))
	_, got := r.fetched(x, 13)
	want(t, "a reader gets", got[0].next, 3)
}

// TestOneMirrorOfTwoGates: each of them, whichever is listed first.
func TestOneMirrorOfTwoGates(t *testing.T) {
	for _, quick := range []string{"m", "n"} {
		r := newRig(t, 1, "t")
		epochs := map[string]int64{"m": r.facts.register(t, "m", "t"), "n": r.facts.register(t, "n", "t")}
		r.publish()
		x, m := r.dial(0), r.dial(0)
		r.produce(x, 14, -1, 5000, "t", part{0, records(1, 10)})
		for _, name := range []string{quick, map[string]string{"m": "n", "n": "m"}[quick]} {
			r.none(x, "a mirror lacks it")
			p := mirrorParams()
			p.MirrorName = name
			r.fetch(m, 20, p, []wire.Report{report("t", 0, epochs[name], 1, 1)})
			r.fetched(m, 20)
		}
		want(t, "both have it", r.produced(x, 14)[0].code, wire.ErrNone)
	}
}

// TestElectionForgetsReports: they were made to the leadership before.
func TestElectionForgetsReports(t *testing.T) {
	r := newRig(t, 1, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	m := r.dial(0)
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 0)})
	r.fetched(m, 20)
	p := r.partition("t")
	want(t, "counted", p.mirrors[0].Report.Valid, true)
	r.facts.apply(t, &msg.BumpLeaderEpochsCommand{Partitions: []msg.BumpLeaderEpochsCommandPartition{{TopicId: topicID("t"), MinLeaderEpoch: 8}}})
	r.publish()
	if p.role.Load().epoch <= 8 {
		t.Fatalf("epoch %d", p.role.Load().epoch)
	}
	want(t, "counted after the election", p.mirrors[0].Report.Valid, false)
}

// TestTruncationVoidsReports: of a log that was cut nothing is reported before
// it is aligned again, and then only what is there.
func TestTruncationVoidsReports(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.produce(x, 9, -1, 1000, "t", part{0, records(5, 10)})
	r.produced(x, 9)
	p, c := r.partition("t"), r.core(0)
	p.down = &downstream{sync: true, alignedEpoch: 3, leoAtElection: 4, reportedLEO: 5, tracked: 5}
	p.regate(p.role.Load())
	want(t, "a report", c.buildReport(p, p.role.Load()), true)
	want(t, "says", c.lanes.reports[0].Replicas[0].Offset, 5)
	p.clamp(2, false)
	want(t, "a report of the log before", c.buildReport(p, p.role.Load()), false)
	p.down.alignedEpoch = 4
	c.lanes.reports = c.lanes.reports[:0]
	want(t, "aligned again", c.buildReport(p, p.role.Load()), true)
	want(t, "says", c.lanes.reports[0].Replicas[0].Offset, 2)
	want(t, "against source epoch", c.lanes.reports[0].SourceLeaderEpoch, 4)
	want(t, "floor", max(p.down.leoAtElection, p.down.reportedLEO), 2)
}

// TestDurableCountsWhatIsFlushed: with flush.ack=durable neither the mark nor
// an answer passes what the disk has.
func TestDurableCountsWhatIsFlushed(t *testing.T) {
	r := newRig(t, 1)
	r.facts.topic(t, "t", 1, "flush.ack", "durable")
	r.publish()
	x := r.dial(0)
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 10)}) // there is a segment now
	r.produced(x, 9)
	r.hold = true
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 10)})
	r.none(x, "not flushed")
	want(t, "mark", r.partition("t").high.Load(), 1)
	r.hold = false
	r.settle()
	want(t, "flushed", r.produced(x, 9)[0].code, wire.ErrNone)
	want(t, "mark", r.partition("t").high.Load(), 2)
}

// TestAMirrorReadsWhatIsNotFlushed: with flush.ack=durable a mirror that waits gets
// a record when it is appended. The two disks flush side by side; the answer still
// takes both.
func TestAMirrorReadsWhatIsNotFlushed(t *testing.T) {
	r := newRig(t, 2)
	r.facts.topic(t, "t", 1, "flush.ack", "durable")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, m := r.dial(1), r.dial(0)
	r.produce(x, 9, -1, 5000, "t", part{0, records(1, 10)}) // there is a segment now
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)})
	r.fetched(m, 20)
	r.produced(x, 9)
	p := mirrorParams()
	p.MaxWaitMs, p.MinBytes = 5000, 1
	r.fetch(m, 20, p, []wire.Report{report("t", 0, epoch, 2, 1)}, target("t", 0, 1))
	r.none(m, "nothing is appended")
	r.hold = true
	r.produce(x, 9, -1, 5000, "t", part{0, records(1, 10)})
	_, got := r.fetched(m, 20)
	want(t, "read before the flush, up to", got[0].next, 2)
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 3, 2)})
	r.fetched(m, 20)
	r.none(x, "not flushed here")
	want(t, "mark", r.partition("t").high.Load(), 1)
	r.hold = false
	r.settle()
	want(t, "both have it", r.produced(x, 9)[0], produced{code: wire.ErrNone, base: 1})
}

// TestDeletedPartitionsAreLetGo: a deleted topic is one job, however many
// partitions it has, and leaves nothing behind.
func TestDeletedPartitionsAreLetGo(t *testing.T) {
	r := newRig(t, 1, "kept")
	r.facts.topic(t, "gone", 50)
	r.publish()
	want(t, "partitions", len(r.e.parts), 52)
	r.hold = true
	r.facts.apply(t, &msg.DeleteTopicsCommand{Topics: []msg.DeleteTopicsCommandTopic{{Name: "gone"}}})
	r.publish()
	want(t, "jobs", len(r.jobs), 1)
	r.hold = false
	r.settle()
	want(t, "partitions", len(r.e.parts), 2)
	want(t, "logs", len(r.e.logs), 2)
	for _, p := range r.e.parts {
		want(t, "topic", p.topic, "kept")
	}
}
