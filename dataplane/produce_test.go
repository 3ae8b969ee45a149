package dataplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/segment"
)

// TestTimeoutBesideARefusedPartition: the answer is given by the last partition
// that waited, though others of the request are listed after it.
func TestTimeoutBesideARefusedPartition(t *testing.T) {
	r := newRig(t, 1, "t")
	r.facts.register(t, "m", "t")
	r.publish()
	x := r.dial(0)
	r.produce(x, 14, -1, 100, "t", part{0, records(1, 10)}, part{9, records(1, 10)})
	r.none(x, "before the deadline")
	r.pass(200e6)
	out := r.produced(x, 14)
	want(t, "answers", len(out), 2)
	want(t, "waited", out[0].code, wire.ErrMirrorSyncReplicationTimeout)
	want(t, "unknown partition", out[1].code, wire.ErrUnknownTopicOrPartition)
	if !strings.Contains(out[0].message, "mirror m ") {
		t.Errorf("the slowest mirror is not named: %q", out[0].message)
	}
}

// TestManyUnanswered: more acks=0 requests in one piece than a connection may
// owe answers for.
func TestManyUnanswered(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.produce(x, 7, 1, 1000, "t", part{0, records(1, 1)}) // there is a segment now
	r.produced(x, 7)
	var all []byte
	for range 3 * maxAnswers {
		all = append(all, x.request(wire.KeyProduce, 7, produceBody(7, 0, 1000, "t", part{0, records(1, 1)}))...)
	}
	r.give(x, all)
	r.produce(x, 7, 1, 1000, "t", part{0, records(1, 1)})
	want(t, "base", r.produced(x, 7)[0].base, 3*maxAnswers+1)
}

// TestUnanswerableErrorCloses: acks=0 has no other way to hear of it.
func TestUnanswerableErrorCloses(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	b := x.request(wire.KeyApiVersions, 0, func(b []byte) []byte { return b })
	b = append(b, x.request(wire.KeyProduce, 7, produceBody(7, 0, 1000, "nowhere", part{0, records(1, 1)}))...)
	r.give(x, b)
	if corr, _ := r.answer(x, wire.KeyApiVersions, 0); corr != 1 {
		t.Error("what came before must be answered first")
	}
	if !x.closed {
		t.Error("the connection is open")
	}
}

// TestVersionsOfErrors: READ_ONLY and the two new codes exist from Produce 14.
func TestVersionsOfErrors(t *testing.T) {
	r := newRig(t, 1, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, m := r.dial(0), r.dial(0)
	for _, c := range []struct {
		v    int16
		late wire.ErrorCode
		weak wire.ErrorCode
	}{
		{14, wire.ErrMirrorSyncReplicationTimeout, wire.ErrNotEnoughRemoteReplicasAfterAppend},
		{13, wire.ErrNotEnoughReplicasAfterAppend, wire.ErrNotEnoughReplicasAfterAppend},
	} {
		r.produce(x, c.v, -1, 50, "t", part{0, records(1, 10)})
		r.pass(100e6)
		want(t, "late", r.produced(x, c.v)[0].code, c.late)
		weak := report("t", 0, epoch, int64(200-c.v*10), 0)
		weak.MinISR = 2
		r.produce(x, c.v, -1, 5000, "t", part{0, records(1, 10)})
		r.none(x, "the mirror has not said that it is weak")
		r.fetch(m, 20, mirrorParams(), []wire.Report{weak})
		got := r.produced(x, c.v)[0]
		want(t, "weak, at once", got.code, c.weak)
		// What is appended while it is frozen hears the same at once.
		r.produce(x, c.v, -1, 5000, "t", part{0, records(1, 10)})
		want(t, "frozen", r.produced(x, c.v)[0].code, c.weak)
		strong := report("t", 0, epoch, int64(200-c.v*10)+1, 0)
		r.fetch(m, 20, mirrorParams(), []wire.Report{strong})
		m.sent = nil
	}
	want(t, "counted", r.e.Metrics().RemoteTimeouts, 2)
}

// TestReadOnly: a mirrored topic takes no client's records.
func TestReadOnly(t *testing.T) {
	r := newRig(t, 1)
	r.facts.apply(t, &msg.CreateMirrorCommand{Mirror: "up", Configs: []msg.CreateMirrorCommandConfig{
		{Name: "bootstrap.servers", Value: "x:1"}, {Name: "mirror.source.cluster.id", Value: "far"}}})
	r.facts.apply(t, &msg.AddTopicsToMirrorCommand{Mirror: "up", Topics: []msg.AddTopicsToMirrorCommandTopic{
		{TopicId: topicID("t"), Name: "t", NumPartitions: 1, ReplicationFactor: 1}}})
	r.publish()
	x := r.dial(0)
	for v, code := range map[int16]wire.ErrorCode{14: wire.ErrReadOnlyTopic, 13: wire.ErrPolicyViolation} {
		r.produce(x, v, -1, 1000, "t", part{0, records(1, 10)})
		got := r.produced(x, v)[0]
		want(t, "code", got.code, code)
		if !strings.Contains(got.message, "mirrored by up") {
			t.Errorf("the mirror is not named: %q", got.message)
		}
	}
}

// TestReportAnswersProducers: the report lane moves the mark, and parked
// produces and consumers hear of it in the same turn.
func TestReportAnswersProducers(t *testing.T) {
	r := newRig(t, 3, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, y, m, k := r.dial(1), r.dial(2), r.dial(0), r.dial(2)
	r.produce(x, 14, -1, 5000, "t", part{0, records(1, 10)})
	r.produce(y, 14, -1, 5000, "t", part{0, records(2, 10)})
	r.fetch(k, 13, consume(5000, 1), nil, target("t", 0, 0))
	r.none(x, "no report")
	r.none(k, "the mark is 0")
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)})
	want(t, "first", r.produced(x, 14)[0], produced{code: wire.ErrNone, base: 0})
	r.none(y, "the mirror lacks it")
	_, got := r.fetched(k, 13)
	want(t, "consumer reads to the mark", got[0].next, 1)
	res, _ := r.fetched(m, 20)
	for it := res.Answers(); it.Next(); {
		want(t, "answer to the report", it.ReportAnswer, wire.ReportAnswer{TopicID: topicID("t"), Sequence: 1, HighWatermark: 1, PartitionCount: -1})
	}
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 2, 3)})
	want(t, "second", r.produced(y, 14)[0].base, 1)
	// Release frees whoever waits.
	r.produce(x, 14, -1, 5000, "t", part{0, records(1, 10)})
	r.none(x, "gated again")
	r.facts.apply(t, &msg.ReleaseSyncCommand{Mirror: "m", Fence: -1, RegistrationEpoch: -1})
	r.publish()
	want(t, "released", r.produced(x, 14)[0].base, 3)
}

// TestReportsThatDoNotCount name why.
func TestReportsThatDoNotCount(t *testing.T) {
	r := newRig(t, 1, "t", "u")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, m := r.dial(0), r.dial(0)
	r.produce(x, 14, -1, 60_000, "t", part{0, records(1, 10)})
	good := report("t", 0, epoch, 1, 1)
	type change func(*wire.Report, *wire.FetchParams)
	for name, c := range map[string]struct {
		change change
		code   wire.ErrorCode
	}{
		"cluster":         {func(_ *wire.Report, p *wire.FetchParams) { p.ClusterID = "nobody" }, wire.ErrInvalidSyncRegistration},
		"registration":    {func(w *wire.Report, _ *wire.FetchParams) { w.RegistrationEpoch++ }, wire.ErrInvalidSyncRegistration},
		"mirror":          {func(_ *wire.Report, p *wire.FetchParams) { p.MirrorName = "n" }, wire.ErrInvalidSyncRegistration},
		"topic":           {func(w *wire.Report, _ *wire.FetchParams) { w.Topic, w.TopicID = "u", topicID("u") }, wire.ErrInvalidSyncRegistration},
		"no such topic":   {func(w *wire.Report, _ *wire.FetchParams) { w.Topic, w.TopicID = "v", topicID("v") }, wire.ErrUnknownTopicId},
		"source epoch":    {func(w *wire.Report, _ *wire.FetchParams) { w.SourceLeaderEpoch++ }, wire.ErrFencedLeaderEpoch},
		"empty ISR":       {func(w *wire.Report, _ *wire.FetchParams) { w.ISR = nil }, wire.ErrInvalidRequest},
		"unfenced, alone": {func(w *wire.Report, _ *wire.FetchParams) { w.Fenced = false }, wire.ErrInvalidRequest},
	} {
		bad, p := good, mirrorParams()
		c.change(&bad, &p)
		r.fetch(m, 20, p, []wire.Report{bad})
		res, _ := r.fetched(m, 20)
		it := res.Answers()
		if !it.Next() {
			t.Fatalf("%s: no answer to the report", name)
		}
		want(t, name, it.Err, c.code)
		r.none(x, name)
	}
	// On its way is not the same as not there.
	r.facts.committed = 1000
	p := mirrorParams()
	p.MirrorName = "n"
	r.fetch(m, 20, p, []wire.Report{good})
	res, _ := r.fetched(m, 20)
	it := res.Answers()
	it.Next()
	want(t, "propagating", it.Err, wire.ErrMirrorRegistrationPropagating)
	r.fetch(m, 20, mirrorParams(), []wire.Report{good})
	want(t, "the good one", r.produced(x, 14)[0].code, wire.ErrNone)
}

// TestFullDisk: ENOSPC is KAFKA_STORAGE_ERROR, and over when there is room.
func TestFullDisk(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	full := true
	r.disk.SetFault(func(op, _ string) error {
		if op == "allocate" && full {
			return segment.ErrNoSpace
		}
		return nil
	})
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 10)})
	got := r.produced(x, 9)[0]
	want(t, "code", got.code, wire.ErrKafkaStorageError)
	if !strings.Contains(got.message, "no space") {
		t.Errorf("message %q", got.message)
	}
	full = false
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 10)})
	want(t, "with room", r.produced(x, 9)[0], produced{code: wire.ErrNone, base: 0})
}

// TestDeadDirectory: EIO ends the directory; everybody hears it, also who waits
// already, and duplicates too.
func TestDeadDirectory(t *testing.T) {
	for _, what := range []string{"pwritev", "datasync"} {
		r := newRig(t, 1, "t")
		epoch := r.facts.register(t, "m", "t")
		r.facts.topic(t, "d", 1, "flush.ack", "durable")
		r.publish()
		x, one, k, m := r.dial(0), r.dial(0), r.dial(0), r.dial(0)
		r.produce(x, 14, -1, 60_000, "t", part{0, records(1, 10)}) // waits for the mirror
		r.hold = what == "datasync"
		r.produce(one, 14, 1, 60_000, "d", part{0, records(1, 10)})
		r.fetch(k, 13, consume(60_000, 1), nil, target("t", 0, 0))
		r.disk.SetFault(func(op, name string) error {
			if op == what && strings.HasSuffix(name, ".log") {
				return errors.New("input/output error")
			}
			return nil
		})
		r.hold = false
		r.settle()
		y := r.dial(0)
		r.produce(y, 14, 1, 1000, "d", part{0, records(1, 10)})
		want(t, what+": new", r.produced(y, 14)[0].code, wire.ErrKafkaStorageError)
		want(t, what+": waiting for a mirror", r.produced(x, 14)[0].code, wire.ErrKafkaStorageError)
		if what == "datasync" {
			want(t, "waiting for a flush", r.produced(one, 14)[0].code, wire.ErrKafkaStorageError)
		}
		_, got := r.fetched(k, 13)
		want(t, what+": waiting consumer", got[0].code, wire.ErrKafkaStorageError)
		r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)}, target("t", 0, 0))
		_, got = r.fetched(m, 20)
		want(t, what+": mirror", got[0].code, wire.ErrKafkaStorageError)
	}
}

// TestRecreatedTopic: a topic deleted and created again under one View has its
// partitions, though the old files go a little later.
func TestRecreatedTopic(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.produce(x, 9, -1, 1000, "t", part{0, records(3, 10)})
	r.produced(x, 9)
	r.facts.apply(t, &msg.DeleteTopicsCommand{Topics: []msg.DeleteTopicsCommandTopic{{Name: "t"}}})
	n := msg.CreateTopicsCommandNewTopic{Name: "t", TopicId: [16]byte{77}, Assignments: []msg.CreateTopicsCommandAssignment{{Replicas: []int32{1}}}}
	r.facts.apply(t, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{n}})
	r.publish()
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 10)})
	want(t, "in the new log", r.produced(x, 9)[0], produced{code: wire.ErrNone, base: 0})
}

// TestLockHeld: one partition's lock stops nobody who does not need it.
func TestLockHeld(t *testing.T) {
	r := newRig(t, 1, "t")
	x, k := r.dial(0), r.dial(0)
	r.produce(x, 9, -1, 1000, "t", part{0, records(5, 10)}, part{1, records(1, 10)})
	r.produced(x, 9)
	p, _ := r.core(0).topics.named([]byte("t"), 0)
	p.lock()
	defer p.unlock()
	done := make(chan bool)
	go func() {
		r.produce(x, 9, -1, 1000, "t", part{1, records(1, 10)})
		r.fetch(k, 13, consume(1000, 1), nil, target("t", 0, 0))
		close(done)
	}()
	<-done // a lock too many is a test that times out
	want(t, "another partition", r.produced(x, 9)[0].base, 1)
	_, got := r.fetched(k, 13)
	want(t, "below the mark", got[0].next, 5)
}

// TestOnePartitionPerLog: a View far ahead brings topics and defaults together,
// and makes each partition once; two objects over one log would gate and flush
// apart.
func TestOnePartitionPerLog(t *testing.T) {
	var names []string
	for i := range 100 { // more commands than a difference looks back
		names = append(names, fmt.Sprint("t", i))
	}
	r := newRig(t, 1, names...)
	want(t, "partitions", len(r.e.parts), 200)
}
