package api

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"testing"

	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

// fakeControl is a quorum of one: the real Apply over a log in memory.
type fakeControl struct {
	mu       sync.Mutex
	view     *meta.View
	err      error
	proposed []meta.Message
}

func (c *fakeControl) View() *meta.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *fakeControl) Propose(ctx context.Context, cmd meta.Message) (meta.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(c.err, ctx.Err()); err != nil {
		return meta.Result{}, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		return meta.Result{}, errors.New("a proposal without a deadline")
	}
	c.proposed = append(c.proposed, cmd)
	view, res := meta.Apply(c.view, c.view.Index()+1, meta.Encode(cmd))
	c.view = view
	return res, nil
}

// fakeData knows what it is given.
type fakeData struct {
	statuses []status.Partition
	dirs     []status.Dir
	deleted  []int64
}

func (d *fakeData) Status(id [16]byte, partition int32) (status.Partition, bool) {
	for _, p := range d.statuses {
		if p.TopicID == id && p.Partition == partition {
			return p, true
		}
	}
	return status.Partition{}, false
}
func (d *fakeData) Statuses() []status.Partition { return d.statuses }
func (d *fakeData) Dirs() []status.Dir           { return d.dirs }

func (d *fakeData) DeleteRecords(topic string, partition int32, before int64) (int64, wire.ErrorCode) {
	d.deleted = append(d.deleted, before)
	if before > 100 {
		return 0, wire.ErrOffsetOutOfRange
	}
	return 42, wire.ErrNone
}

func (d *fakeData) EpochEnd(topic string, partition, current, epoch int32) (int32, int64, wire.ErrorCode) {
	if current == 9 {
		return 0, 0, wire.ErrUnknownLeaderEpoch
	}
	return epoch - 1, 77, wire.ErrNone
}

// fakeMirrors says yes and keeps what it was asked.
type fakeMirrors struct {
	asked   any
	outcome Outcome
	short   bool // answers for no topic at all
}

func (m *fakeMirrors) Create(_ context.Context, name string, configs map[string]string) Outcome {
	m.asked = configs
	return m.outcome
}
func (m *fakeMirrors) Delete(_ context.Context, name string) Outcome {
	m.asked = name
	return m.outcome
}
func (m *fakeMirrors) all(n int) []TopicOutcome {
	if m.short {
		return nil
	}
	out := make([]TopicOutcome, n)
	for i := range out {
		out[i].Outcome = m.outcome
	}
	return out
}
func (m *fakeMirrors) AddTopics(_ context.Context, topics []AddTopic) []TopicOutcome {
	m.asked = topics
	return m.all(len(topics))
}
func (m *fakeMirrors) RemoveTopics(_ context.Context, _ string, topics []string) []TopicOutcome {
	m.asked = topics
	return m.all(len(topics))
}
func (m *fakeMirrors) AlterType(_ context.Context, _ string, topics []AlterTopic) []TopicOutcome {
	m.asked = topics
	return m.all(len(topics))
}
func (m *fakeMirrors) Register(_ context.Context, r RegisterRequest) []RegisterOutcome {
	m.asked = r
	var out []RegisterOutcome
	for _, t := range r.Topics {
		out = append(out, RegisterOutcome{Name: t.Name, Code: m.outcome.Code, Message: m.outcome.Message, Epoch: 12, ReleaseNumber: 3})
	}
	return out
}
func (m *fakeMirrors) Unregister(_ context.Context, r UnregisterRequest) []RegisterOutcome {
	m.asked = r
	if r.All {
		return []RegisterOutcome{{Name: "all-of-it"}}
	}
	out := make([]RegisterOutcome, len(r.Topics))
	for i := range out {
		out[i] = RegisterOutcome{Epoch: 0, Code: m.outcome.Code}
	}
	return out
}

// bed is a Server with its fakes and a cluster of three brokers: 1 (we) and 2
// live, 3 fenced.
type bed struct {
	t       testing.TB
	s       *Server
	control *fakeControl
	data    *fakeData
	mirrors *fakeMirrors
	config  *config.Config
	note    string
}

func newBed(t testing.TB) *bed {
	t.Helper()
	c := config.Defaults()
	b := &bed{t: t, control: &fakeControl{view: meta.Empty()}, data: &fakeData{}, mirrors: &fakeMirrors{}, config: &c}
	var ids uint64
	b.s = New(Deps{NodeID: 1, Config: &c, Control: b.control, Data: b.data, Mirrors: b.mirrors, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		NewID: func() (id [16]byte) { ids++; binary.BigEndian.PutUint64(id[8:], ids); id[0] = 7; return id },
		Now:   func() int64 { return 1_000_000 },
		Endpoint: func(listener string, b *meta.Broker) (string, int32) {
			if listener == "INSIDE" && b.ID == 2 {
				return "", 0
			}
			return b.Host, b.Port
		},
		Note: func([16]byte) string { return b.note }})
	b.apply(&msg.BootstrapCommand{ClusterId: "here", Features: []msg.BootstrapCommandFeatureLevel{{Name: meta.FeatureMirrorSync, Level: 1}}})
	for id := int32(1); id <= 3; id++ {
		rack := "r" + strconv.Itoa(int(id))
		res := b.apply(&msg.RegisterBrokerCommand{BrokerId: id, IncarnationId: [16]byte{byte(id)}, Host: "h" + strconv.Itoa(int(id)), Port: 9090 + id, Rack: &rack})
		if id < 3 {
			b.apply(&msg.UnfenceBrokerCommand{BrokerId: id, BrokerEpoch: res.Number})
		}
	}
	return b
}

// apply puts a command straight into the log.
func (b *bed) apply(cmd meta.Message) meta.Result {
	b.t.Helper()
	view, res := meta.Apply(b.control.view, b.control.view.Index()+1, meta.Encode(cmd))
	b.control.view = view
	if res.ErrorCode != 0 {
		b.t.Fatalf("%T: %d %s", cmd, res.ErrorCode, *res.ErrorMessage)
	}
	for _, it := range res.Items {
		if it.ErrorCode != 0 {
			b.t.Fatalf("%T: %s: %d %s", cmd, it.Name, it.ErrorCode, *it.ErrorMessage)
		}
	}
	return res
}

// topic creates one led by broker 1 and followed by broker 2.
func (b *bed) topic(name string, id byte, partitions int) *meta.Topic {
	b.t.Helper()
	n := msg.CreateTopicsCommandNewTopic{Name: name, TopicId: [16]byte{id}}
	for range partitions {
		n.Assignments = append(n.Assignments, msg.CreateTopicsCommandAssignment{Replicas: []int32{1, 2}})
	}
	b.apply(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{n}})
	return b.control.view.TopicByName(name)
}

// mirror makes mirror m of cluster "there" with topic name of two partitions.
func (b *bed) mirror(m, name string, id byte, kind int8) {
	b.t.Helper()
	b.apply(&msg.CreateMirrorCommand{Mirror: m, Configs: []msg.CreateMirrorCommandConfig{{Name: "bootstrap.servers", Value: "far:9092"},
		{Name: "mirror.source.cluster.id", Value: "there"}, {Name: "ssl.key.password", Value: "hush"}}})
	b.apply(&msg.AddTopicsToMirrorCommand{Mirror: m, Topics: []msg.AddTopicsToMirrorCommandTopic{{Name: name, TopicId: [16]byte{id}, NumPartitions: 2,
		ReplicationFactor: 1, MirrorType: kind}}})
}

// message is what a client needs of a request or a response.
type message interface {
	SetVersion(int16)
	IsFlexible() bool
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

const correlation = 0x01020304

func (b *bed) serve(key, version int16, listener string, body []byte) []byte {
	return b.s.Serve(context.Background(), Request{Key: key, Version: version, Correlation: correlation, ClientID: "test", Listener: listener, Body: body})
}

// ask sends a request and reads the response, whose every byte must be known to
// the client's codec.
func (b *bed) ask(key, version int16, req, resp message) {
	b.t.Helper()
	b.askOn("PLAINTEXT", key, version, req, resp)
}

func (b *bed) askOn(listener string, key, version int16, req, resp message) {
	b.t.Helper()
	req.SetVersion(version)
	resp.SetVersion(version)
	frame := b.serve(key, version, listener, req.AppendTo(nil))
	head := 8
	if resp.IsFlexible() {
		head++
	}
	if len(frame) < head {
		b.t.Fatalf("key %d version %d: frame of %d bytes", key, version, len(frame))
	}
	if n := binary.BigEndian.Uint32(frame); int(n) != len(frame)-4 {
		b.t.Fatalf("key %d version %d: size %d in a frame of %d", key, version, n, len(frame))
	}
	if binary.BigEndian.Uint32(frame[4:]) != correlation || head == 9 && frame[8] != 0 {
		b.t.Fatalf("key %d version %d: header % x", key, version, frame[4:head])
	}
	if err := resp.ReadFrom(frame[head:]); err != nil {
		b.t.Fatalf("key %d version %d: %v", key, version, err)
	}
	if again := resp.AppendTo(nil); string(again) != string(frame[head:]) {
		b.t.Fatalf("key %d version %d: the client reads % x\nof % x", key, version, again, frame[head:])
	}
}

// seed is a random test's seed: LOCKSTEP_SEED, or a fresh one that is printed.
func seed(t testing.TB) int64 {
	n, err := strconv.ParseInt(os.Getenv("LOCKSTEP_SEED"), 10, 64)
	if err != nil {
		n = rand.Int63()
	}
	t.Logf("LOCKSTEP_SEED=%d", n)
	return n
}
