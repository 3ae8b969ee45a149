package control

import (
	"strings"
	"testing"
	"time"

	"lockstep/control/remote"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

func TestCreateAsksTheSource(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		create := func(name string, configs ...string) Outcome {
			c := map[string]string{"bootstrap.servers": "far:1"}
			for i := 0; i < len(configs); i += 2 {
				c[configs[i]] = configs[i+1]
			}
			return b.mirrors.Create(t.Context(), name, c)
		}
		const key = "mirror.source.cluster.id"
		if o := create("a"); o.Code != 0 || b.node.View().Mirror("a").SourceClusterID() != "source-cluster" {
			t.Fatal(o)
		}
		if o := create("a"); o.Code != wire.ErrClusterMirrorAlreadyExists {
			t.Error(o)
		}
		if o := create("b", key, "another"); o.Code != wire.ErrInvalidRequest || !strings.Contains(o.Message, "source-cluster, not another") {
			t.Error(o)
		}
		b.src.set(func(s *fakeSource) { s.hole = true })
		start := time.Now()
		if o := create("b"); o.Code != wire.ErrInvalidRequest || !strings.Contains(o.Message, "does not answer") {
			t.Error(o)
		}
		if d := time.Since(start); d > sourceTimeout {
			t.Errorf("answered after %v", d)
		}
		if o := create("b", key, "dest-cluster"); o.Code != wire.ErrInvalidRequest || !strings.Contains(o.Message, "itself") {
			t.Error(o)
		}
		if o := create("b", key, "known"); o.Code != 0 || b.node.View().Mirror("b").SourceClusterID() != "known" {
			t.Error(o)
		}
		if o := b.mirrors.Delete(t.Context(), "b"); o.Code != 0 || b.node.View().Mirror("b") != nil {
			t.Error(o)
		}
		if b.src.closed != b.src.dials {
			t.Errorf("%d clients made, %d closed", b.src.dials, b.src.closed)
		}
	})
}

func TestAddTopicsRefusals(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *bed) {
		b.src.topics["full"] = remote.Topic{Name: "full", ID: [16]byte{8}, Leaders: make([]status.SourceLeader, 1)}
		if o := b.mirrors.Create(t.Context(), mirrorName, map[string]string{"bootstrap.servers": "far:1"}); o.Code != 0 {
			t.Fatal(o)
		}
		b.must(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "full", TopicId: [16]byte{8}, NumPartitions: 1, ReplicationFactor: 1}}})
		b.data.set([16]byte{8}, 0, func(p *fakePart) { p.end = 1 })
		out := b.mirrors.AddTopics(t.Context(), []AddTopic{{Name: "absent", Mirror: mirrorName}, {Name: topicName, Mirror: mirrorName, ID: [16]byte{1}},
			{Name: "full", Mirror: mirrorName}, {Name: topicName, Mirror: mirrorName, ID: topicID}, {Name: "x", Mirror: "nobody"}})
		for i, want := range []wire.ErrorCode{wire.ErrUnknownTopicOrPartition, wire.ErrInconsistentTopicId, wire.ErrTopicAlreadyExists, 0, wire.ErrUnknownClusterMirror} {
			if out[i].Code != want || want != 0 && out[i].Message == "" {
				t.Errorf("%d: %+v, want %v", i, out[i], want)
			}
		}
		if x := b.topic(); x == nil || len(x.Partitions) != 2 || x.Mirror == nil || b.node.View().TopicByName("full").Mirror != nil {
			t.Errorf("%+v", x)
		}
		b.src.set(func(s *fakeSource) { s.down = true })
		if o := b.mirrors.AddTopics(t.Context(), []AddTopic{{Name: "full", Mirror: mirrorName}}); o[0].Code != wire.ErrRequestTimedOut {
			t.Error(o)
		}
	})
}

// OK to a Register waits until the data plane gates by it, and is noted.
func TestRegisterWaitsForTheGates(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.plainTopic()
		b.until("the fences", time.Second, b.fenced)
		b.data.lag = 1
		ask := func() (SyncOutcome, time.Duration) {
			start := time.Now()
			o := b.mirrors.Register(t.Context(), "far", "dest", []SyncTopic{{Name: topicName, ID: topicID, ReleaseNumber: -1}})
			return o[0], time.Since(start)
		}
		if o, d := ask(); o.Code != wire.ErrRequestTimedOut || d < 10*time.Second || d > 11*time.Second || len(b.data.answers) != 0 {
			t.Errorf("%+v after %v, answered %v", o, d, b.data.answers)
		}
		b.data.lag = 0
		o, d := ask()
		if o.Code != 0 || d > time.Second || len(b.data.answers) != 1 || b.data.answers[0] < uint64(o.Epoch) {
			t.Errorf("%+v after %v, answered %v", o, d, b.data.answers)
		}
		r := b.topic().Registrations
		if len(r) != 1 || !r[0].Gates() || r[0].Epoch != o.Epoch || r[0].ClusterID != "dest" {
			t.Errorf("%+v", r)
		}
		if got := b.logs.count("topic is gated on a mirror"); got != 2 {
			t.Errorf("said %d times", got)
		}
	})
}

// The source's ledger through the verbs: an Unregister removes what it names
// only, another cluster is refused, a release is numbered and keeps its marker.
func TestLedgerVerbs(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.plainTopic()
		b.until("the fences", time.Second, b.fenced)
		topics := func(epoch, number int64, recovery bool) []SyncTopic {
			return []SyncTopic{{Name: topicName, ID: topicID, Epoch: epoch, ReleaseNumber: number, Recovery: recovery}}
		}
		reg := b.mirrors.Register(t.Context(), "far", "dest", topics(0, -1, false))[0]
		if reg.Code != 0 {
			t.Fatal(reg)
		}
		if o := b.mirrors.Register(t.Context(), "far", "other", topics(0, -1, false))[0]; o.Code != wire.ErrInvalidSyncRegistration {
			t.Errorf("another cluster: %+v", o)
		}
		if o := b.mirrors.Unregister(t.Context(), "far", "dest", topics(0, 0, false))[0]; o.Code != 0 || o.Epoch != reg.Epoch {
			t.Errorf("the question: %+v, stands %d", o, reg.Epoch)
		}
		if o := b.mirrors.Unregister(t.Context(), "far", "dest", topics(reg.Epoch-1, 0, false))[0]; o.Code != 0 || o.Epoch != reg.Epoch || !b.topic().Gated() {
			t.Errorf("an old epoch: %+v", o)
		}
		rel := b.mirrors.Release(t.Context(), "far", topics(0, 0, false))
		if len(rel) != 1 || rel[0].Code != 0 || b.topic().Gated() {
			t.Fatal(rel)
		}
		if o := b.mirrors.Unregister(t.Context(), "far", "dest", topics(reg.Epoch, 0, false))[0]; o.Code != 0 || len(b.topic().Registrations) != 1 {
			t.Errorf("an Unregister removed the marker: %+v", o)
		}
		if o := b.mirrors.Register(t.Context(), "far", "dest", topics(0, rel[0].ReleaseNumber-1, true))[0]; o.Code != wire.ErrMirrorSyncReleasedRequiresFreshPromotion {
			t.Errorf("a recovery of an older release: %+v", o)
		}
		if o := b.mirrors.Register(t.Context(), "far", "dest", topics(0, -1, true))[0]; o.Code != 0 {
			t.Errorf("a recovery by the KIP's rule: %+v", o)
		}
		if n := b.logs.count("release cleared by a Register that does not name it"); n != 1 {
			t.Errorf("said %d times", n)
		}
		b.must(&msg.SetFeatureCommand{Name: meta.FeatureMirrorSync, Level: 0})
		if o := b.mirrors.Register(t.Context(), "far", "dest", topics(0, -1, false))[0]; o.Code != wire.ErrMirrorSyncVersionMismatch {
			t.Errorf("with the feature off: %+v", o)
		}
		if o := b.mirrors.Release(t.Context(), "nobody", topics(0, 0, false)); o[0].Code != wire.ErrInvalidSyncRegistration {
			t.Errorf("release of nobody: %+v", o)
		}
	})
}

// A source that no longer has our offset: mirroring starts anew where it begins.
func TestOutOfReachStartsAnew(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(false)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.data.set(topicID, 0, func(p *fakePart) { p.outOfReach = true })
		b.until("anew", 5*time.Second, func() bool {
			b.data.mu.Lock()
			defer b.data.mu.Unlock()
			return b.data.part(topicID, 0).end == 5
		})
	})
}
