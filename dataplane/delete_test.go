package dataplane

import (
	"runtime"
	"slices"
	"testing"
	"weak"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// TestDeleteWaitsForSteps: a topic is deleted while a step of its log is under
// way, and made again. The step must not go on by name in the directory of the
// next topic, nor fail the log directory, nor keep a producer waiting.
func TestDeleteWaitsForSteps(t *testing.T) {
	r := newRig(t, 1, "t", "u")
	x := r.dial(0)
	r.hold = true
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 10)})
	r.settle()
	want(t, "steps", len(r.jobs), 1)
	r.facts.apply(t, &msg.DeleteTopicsCommand{Topics: []msg.DeleteTopicsCommandTopic{{Name: "t"}}})
	r.publish()
	want(t, "the producer hears", r.produced(x, 9)[0].code, wire.ErrUnknownTopicOrPartition)
	n := msg.CreateTopicsCommandNewTopic{Name: "t", TopicId: [16]byte{9}}
	for range 2 {
		n.Assignments = append(n.Assignments, msg.CreateTopicsCommandAssignment{Replicas: []int32{1}})
	}
	r.facts.apply(t, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{n}})
	r.publish()
	slices.Reverse(r.jobs) // should the files go already, then before the step
	r.hold = false
	r.settle()
	r.pass(5e6)
	want(t, "the directory", r.e.o.Dirs[0].Failed(), nil)
	for _, topic := range []string{"t", "u"} {
		r.produce(x, 9, -1, 1000, topic, part{0, records(1, 10)})
		got := r.produced(x, 9)[0]
		want(t, "error of "+topic, got.code, wire.ErrNone)
		want(t, "offset in "+topic, got.base, 0)
	}
}

// TestDeletedTopicsLeaveNothing: topics that come and go, written, read and waited
// for, are held by nothing any more: all that was parked on them goes with them.
func TestDeletedTopicsLeaveNothing(t *testing.T) {
	const shards, rounds, parts = 2, 40, 2
	r := newRig(t, shards, "t")
	var gone []weak.Pointer[Partition]
	for round := range rounds {
		n := msg.CreateTopicsCommandNewTopic{Name: "u", TopicId: [16]byte{9, byte(round)}}
		for range parts {
			n.Assignments = append(n.Assignments, msg.CreateTopicsCommandAssignment{Replicas: []int32{1}})
		}
		r.facts.apply(t, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{n}})
		r.publish()
		for i := range int32(parts) {
			gone = append(gone, weak.Make(r.e.all.byName["u"].parts[i]))
		}
		for shard := range shards {
			x, waits := r.dial(shard), r.dial(shard)
			for _, topic := range []string{"t", "u"} {
				r.produce(x, 9, -1, 1000, topic, part{0, records(1, 10)})
				want(t, "error", r.produced(x, 9)[0].code, wire.ErrNone)
			}
			r.fetch(waits, 11, consume(60_000, 1), nil, wire.FetchTarget{Topic: "u", Partition: 1, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: 1000, HighWatermark: -1})
			r.none(waits, "there is nothing to read")
		}
		r.facts.apply(t, &msg.DeleteTopicsCommand{Topics: []msg.DeleteTopicsCommandTopic{{Name: "u"}}})
		r.publish()
		r.pass(5e6)
		for _, x := range r.ends {
			if !x.closed {
				r.eof(x)
			}
		}
	}
	runtime.GC()
	held := 0
	for _, p := range gone {
		if p.Value() != nil {
			held++
		}
	}
	if held > 2*parts { // what lists that are empty still point at, until they are used again
		t.Errorf("%d of %d deleted partitions are still held", held, len(gone))
	}
	runtime.KeepAlive(r)
}
