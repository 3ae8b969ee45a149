package dataplane

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"testing"

	"lockstep/internal/compress"
	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/ioring"
	"lockstep/segment"
)

// facts is Views over meta.Apply.
type facts struct {
	mu        sync.Mutex
	view      *meta.View
	committed uint64 // ahead of the view when a test says so
}

func (f *facts) View() *meta.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

func (f *facts) Committed() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.committed, f.view.Index())
}

func (f *facts) apply(t testing.TB, m meta.Message) meta.Result {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	next, res := meta.Apply(f.view, f.view.Index()+1, meta.Encode(m))
	if res.ErrorCode != 0 {
		t.Fatalf("%T: %d %s", m, res.ErrorCode, *res.ErrorMessage)
	}
	for _, item := range res.Items {
		if item.ErrorCode != 0 {
			t.Fatalf("%T: %s: %d %s", m, item.Name, item.ErrorCode, *item.ErrorMessage)
		}
	}
	f.view = next
	return res
}

// topicID is the id of the test topic of a name.
func topicID(name string) (id [16]byte) {
	copy(id[:], "id of "+name)
	return id
}

func newFacts(t testing.TB) *facts {
	f := &facts{view: meta.Empty()}
	f.apply(t, &msg.BootstrapCommand{ClusterId: "here", Features: []msg.BootstrapCommandFeatureLevel{{Name: meta.FeatureMirrorSync, Level: 1}}})
	res := f.apply(t, &msg.RegisterBrokerCommand{BrokerId: 1, IncarnationId: [16]byte{1}, Host: "localhost", Port: 1})
	f.apply(t, &msg.UnfenceBrokerCommand{BrokerId: 1, BrokerEpoch: res.Number})
	return f
}

func (f *facts) topic(t testing.TB, name string, partitions int, configs ...string) {
	t.Helper()
	n := msg.CreateTopicsCommandNewTopic{Name: name, TopicId: topicID(name)}
	for range partitions {
		n.Assignments = append(n.Assignments, msg.CreateTopicsCommandAssignment{Replicas: []int32{1}})
	}
	for i := 0; i+1 < len(configs); i += 2 {
		n.Configs = append(n.Configs, msg.CreateTopicsCommandConfig{Name: configs[i], Value: configs[i+1]})
	}
	f.apply(t, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{n}})
}

// register puts a mirror's registration in the ledger and returns its epoch.
func (f *facts) register(t testing.TB, mirror, topic string) int64 {
	t.Helper()
	res := f.apply(t, &msg.RegisterSyncCommand{Fence: -1, Mirror: mirror, ClusterId: "there",
		Topics: []msg.RegisterSyncCommandTopic{{TopicId: topicID(topic), ReleaseNumber: -1}}})
	return res.Items[0].Number
}

func testSettings(configs, _ map[string]string) TopicSettings {
	minISR, _ := strconv.Atoi(configs["min.insync.replicas"])
	durable := configs["flush.ack"] == "durable"
	segmentBytes, retentionBytes := int64(4<<20), int64(-1)
	if n, err := strconv.ParseInt(configs["segment.bytes"], 10, 64); err == nil {
		segmentBytes = n
	}
	if n, err := strconv.ParseInt(configs["retention.bytes"], 10, 64); err == nil {
		retentionBytes = n
	}
	return TopicSettings{
		Segment: segment.Config{SegmentBytes: segmentBytes, IndexIntervalBytes: 4096, RetentionMs: -1, RetentionBytes: retentionBytes, MaxMessageBytes: int32(min(segmentBytes, 1<<20)), Durable: durable},
		Compact: configs["cleanup.policy"] == "compact", Retention: configs["cleanup.policy"] == "delete",
		Cleaner: Cleaner{MaxLagMS: math.MaxInt64},
		MinISR:  int32(max(1, minISR)), MaxMessageBytes: 1 << 20, Durable: durable,
		TimestampBefore: math.MaxInt64, TimestampAfter: math.MaxInt64, ProducerExpiryMS: math.MaxInt64 / 2}
}

// heapMemory is memory for pools; a test may look in when more is mapped.
type heapMemory struct{ onMap func() }

func (m *heapMemory) Map(n int) ([]byte, error) {
	if m.onMap != nil {
		m.onMap()
	}
	return make([]byte, n), nil
}
func (m *heapMemory) Unmap([]byte) error { return nil }

// rig drives shards by hand: a kernel that does at once what it is asked.
type rig struct {
	t     testing.TB
	e     *Engine
	facts *facts
	disk  *segment.MemFS
	now   int64
	jobs  []func()
	hold  bool // background jobs wait
	wakes []bool
	ends  map[int32]*remote // by descriptor
	next  [][]ioring.Event  // by shard
	cold  func(*ColdRequest) []byte
	mem   heapMemory
}

// remote is the other side of a connection.
type remote struct {
	fd     int32
	shard  int
	armed  []ioring.Op // the receive in flight
	sent   []byte
	closed bool
	stuck  bool // sends do not end
	held   []ioring.Op
	sends  int
	corr   int32
}

func (r *rig) Mono() int64                    { return r.now }
func (r *rig) Wall() int64                    { return 1_700_000_000_000 + r.now/1e6 }
func (r *rig) Serve(q *ColdRequest) []byte    { return r.cold(q) }
func (r *rig) core(i int) *Core               { return r.e.cores[i] }
func (r *rig) background(_ JobKind, f func()) { r.jobs = append(r.jobs, f) }

func newRig(t testing.TB, reactors int, topics ...string) *rig {
	t.Helper()
	r := &rig{t: t, disk: segment.NewMemFS(), facts: newFacts(t), now: 1e9, ends: map[int32]*remote{}}
	for _, name := range topics {
		r.facts.topic(t, name, 2)
	}
	dir, err := segment.OpenDir(r.disk, "/d", segment.DirOptions{ClusterID: "here", NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.cold = func(q *ColdRequest) []byte {
		b := wire.BeginResponse(nil, q.Key, q.Version, q.Correlation)
		wire.EndResponse(b, 0, 0)
		return b
	}
	r.e, err = New(Options{NodeID: 1, Reactors: reactors, MaxRequestBytes: 1 << 20, FrameMemory: 4 << 20, FetchMaxBytes: 8 << 20, Unstable: true,
		Dirs: []*segment.Dir{dir}, Settings: testSettings, Inflate: compress.Inflate, Compress: compress.Compress, Views: r.facts, Cold: r, Clock: r, Memory: &r.mem,
		Log: slog.New(slog.DiscardHandler), Background: r.background})
	if err != nil {
		t.Fatal(err)
	}
	r.wakes, r.next = make([]bool, reactors), make([][]ioring.Event, reactors)
	for i, c := range r.e.cores {
		c.SetWake(func() { r.wakes[i] = true })
	}
	if err := r.e.Open(testSettings(nil, nil).Segment, func(int, int, segment.RecoveryStats) {}); err != nil {
		t.Fatal(err)
	}
	r.publish()
	return r
}

func (r *rig) publish() {
	r.e.ViewChanged()
	r.settle()
}

// dial opens a connection on a shard.
func (r *rig) dial(shard int) *remote {
	fd := int32(100 + len(r.ends))
	x := &remote{fd: fd, shard: shard}
	r.ends[fd] = x
	r.core(shard).load.Add(1)
	r.core(shard).inbox.put(note{kind: noteConn, fd: fd})
	r.settle()
	return x
}

// step runs one turn of a shard and does what it asks.
func (r *rig) step(i int) {
	events := r.next[i]
	r.next[i], r.wakes[i] = nil, false
	for _, op := range r.core(i).Step(r.now, r.Wall(), events) {
		r.do(i, op)
	}
}

func (r *rig) do(i int, op ioring.Op) {
	x := r.ends[op.FD]
	switch op.Kind {
	case ioring.Recv, ioring.RecvInto:
		x.armed = append(x.armed[:0], op)
	case ioring.Send:
		x.sends++
		if x.stuck {
			x.held = append(x.held, op)
			return
		}
		n := 0
		for _, p := range op.Pieces {
			x.sent = append(x.sent, p...)
			n += len(p)
		}
		r.next[i] = append(r.next[i], ioring.Event{Kind: ioring.Send, Token: op.Token, Res: int32(n)})
	case ioring.Close:
		if x != nil {
			x.closed = true
			for _, a := range append(x.armed, x.held...) {
				r.next[i] = append(r.next[i], ioring.Event{Kind: a.Kind, Token: a.Token, Res: -125})
			}
			x.armed, x.held = nil, nil
		}
		r.next[i] = append(r.next[i], ioring.Event{Kind: ioring.Close, Token: op.Token})
	case ioring.Populate:
		r.next[i] = append(r.next[i], ioring.Event{Kind: ioring.Populate, Token: op.Token})
	}
}

// settle runs everything that can run.
func (r *rig) settle() {
	for moved := true; moved; {
		moved = false
		for i := range r.e.cores {
			if len(r.next[i]) > 0 || r.wakes[i] {
				r.step(i)
				moved = true
			}
		}
		if !r.hold && len(r.jobs) > 0 {
			job := r.jobs[0]
			r.jobs = r.jobs[1:]
			job()
			moved = true
		}
		moved = r.e.RunCold() || moved
	}
}

// pass lets time pass: timers fire.
func (r *rig) pass(ns int64) {
	r.now += ns
	for i := range r.e.cores {
		r.step(i)
	}
	r.settle()
}

// give hands bytes to a connection as the kernel would: whenever it asks.
func (r *rig) give(x *remote, b []byte) {
	r.t.Helper()
	for len(b) > 0 {
		if len(x.armed) == 0 {
			r.t.Fatalf("nobody receives on %d; %d bytes left", x.fd, len(b))
		}
		op := x.armed[0]
		ev := ioring.Event{Kind: op.Kind, Token: op.Token}
		n := len(b)
		if op.Kind == ioring.RecvInto {
			if n < len(op.Bytes) {
				r.t.Fatal("the rest of a frame must come at once")
			}
			n = copy(op.Bytes, b)
		} else {
			n = min(n, ioring.ProvidedSize)
			ev.Buf = r.core(x.shard).pool.Alloc(n)
			copy(ev.Buf.Data, b)
		}
		b = b[n:]
		ev.Res = int32(n)
		x.armed = x.armed[:0]
		r.next[x.shard] = append(r.next[x.shard], ev)
		r.settle()
	}
}

// eof ends a connection from the other side.
func (r *rig) eof(x *remote) {
	op := x.armed[0]
	x.armed = x.armed[:0]
	r.next[x.shard] = append(r.next[x.shard], ioring.Event{Kind: op.Kind, Token: op.Token})
	r.settle()
}

// request makes the bytes of one request.
func (x *remote) request(key, version int16, body func([]byte) []byte) []byte {
	x.corr++
	b := wire.BeginRequest(nil, key, version, x.corr, "test")
	b = body(b)
	wire.EndRequest(b, 0)
	return b
}

// answer takes the next answer off what was sent: its correlation and body.
func (r *rig) answer(x *remote, key, version int16) (int32, []byte) {
	r.t.Helper()
	if len(x.sent) < 4 || len(x.sent) < 4+int(binary.BigEndian.Uint32(x.sent)) {
		r.t.Fatalf("no answer; %d bytes are there, closed %v", len(x.sent), x.closed)
	}
	n := int(binary.BigEndian.Uint32(x.sent))
	frame := x.sent[4 : 4+n]
	x.sent = x.sent[4+n:]
	corr, body, err := wire.ParseResponseHeader(frame, key, version)
	if err != nil {
		r.t.Fatal(err)
	}
	return corr, body
}

// records builds a plain batch of n small records.
func records(n, size int) []byte {
	recs := make([]wire.Record, n)
	for i := range recs {
		recs[i].Value = make([]byte, size)
	}
	return wire.BuildBatch(nil, wire.PlainParams(1_700_000_000_000), recs...)
}

// part is one partition of a produce request.
type part struct {
	index int32
	batch []byte
}

// produceBody is a request for partitions of one topic.
func produceBody(v, acks int16, timeout int32, topic string, parts ...part) func([]byte) []byte {
	return func(b []byte) []byte {
		flex := v >= 9
		if flex {
			b = append(b, 0)
		} else {
			b = wire.AppendInt16(b, -1)
		}
		b = wire.AppendInt32(wire.AppendInt16(b, acks), timeout)
		b = wire.AppendArrayLen(b, 1, flex)
		if v >= 13 {
			b = wire.AppendUUID(b, topicID(topic))
		} else {
			b = wire.AppendString(b, topic, flex)
		}
		b = wire.AppendArrayLen(b, len(parts), flex)
		for _, p := range parts {
			b = wire.AppendBytes(wire.AppendInt32(b, p.index), p.batch, flex)
			if flex {
				b = append(b, 0)
			}
		}
		if flex {
			b = append(b, 0, 0)
		}
		return b
	}
}

func (r *rig) produce(x *remote, v, acks int16, timeout int32, topic string, parts ...part) {
	r.t.Helper()
	r.give(x, x.request(wire.KeyProduce, v, produceBody(v, acks, timeout, topic, parts...)))
}

// produced is one partition's result.
type produced struct {
	code    wire.ErrorCode
	base    int64
	message string
}

func (r *rig) produced(x *remote, v int16) (out []produced) {
	r.t.Helper()
	_, body := r.answer(x, wire.KeyProduce, v)
	var res wire.ProduceResponse
	if err := res.Parse(v, body); err != nil {
		r.t.Fatal(err)
	}
	for it := res.Iter(); it.Next(); {
		out = append(out, produced{it.Err, it.BaseOffset, string(it.Message)})
	}
	return out
}

// target is a fetch of one partition.
func target(topic string, index int32, offset int64) wire.FetchTarget {
	return wire.FetchTarget{Topic: topic, TopicID: topicID(topic), Partition: index, CurrentLeaderEpoch: -1, FetchOffset: offset,
		LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: 1 << 20, HighWatermark: -1}
}

func consume(wait, minBytes int32) wire.FetchParams {
	return wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: wait, MinBytes: minBytes, MaxBytes: 4 << 20, SessionEpoch: -1}
}

func (r *rig) fetch(x *remote, v int16, params wire.FetchParams, reports []wire.Report, targets ...wire.FetchTarget) {
	r.t.Helper()
	r.give(x, x.request(wire.KeyFetch, v, func(b []byte) []byte { return wire.AppendFetchRequest(b, v, &params, targets, reports) }))
}

// fetched is one partition of an answer.
type fetched struct {
	code    wire.ErrorCode
	high    int64
	records []byte
	next    int64 // after the last record, -1 without
}

func (r *rig) fetched(x *remote, v int16) (res wire.FetchResponse, out []fetched) {
	r.t.Helper()
	_, body := r.answer(x, wire.KeyFetch, v)
	if err := res.Parse(v, body); err != nil {
		r.t.Fatal(err)
	}
	for it := res.Partitions(); it.Next(); {
		f := fetched{it.Err, it.HighWatermark, it.Records, -1}
		for b, rest, ok := wire.NextBatch(it.Records); ok; b, rest, ok = wire.NextBatch(rest) {
			f.next = b.NextOffset()
		}
		out = append(out, f)
	}
	return res, out
}

// report says what a mirror's one replica holds of t-0 under a registration.
func report(topic string, index int32, registration, sequence, leo int64) wire.Report {
	return wire.Report{Topic: topic, TopicID: topicID(topic), Partition: index, Replicas: []wire.ReplicaOffset{{ID: 5, Offset: leo}}, ISR: []int32{5},
		MinISR: 1, Fenced: true, RegistrationEpoch: registration, LeaderEpoch: 3, Sequence: sequence, SourceLeaderEpoch: 0, PartitionCount: 2}
}

func mirrorParams() wire.FetchParams {
	p := consume(0, 0)
	p.MirrorName, p.ClusterID = "m", "there"
	return p
}

func (r *rig) none(x *remote, why string) {
	r.t.Helper()
	if len(x.sent) > 0 {
		r.t.Fatalf("%s: %d bytes were sent", why, len(x.sent))
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}
