package control

import (
	"context"
	"fmt"
	"time"

	"lockstep/control/remote"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/sdk"
)

// Outcome is what a request about a mirror hears.
type Outcome struct {
	Code    wire.ErrorCode
	Message string
}

// TopicOutcome is an Outcome for one topic.
type TopicOutcome struct {
	Name string
	Outcome
}

// AddTopic is one topic of AddTopicsToMirror.
type AddTopic struct {
	Name   string
	ID     [16]byte // zero = the source's
	Mirror string
	Type   int8
}

// AlterTopic is one topic of AlterMirrorTopicType.
type AlterTopic struct {
	Name string
	ID   [16]byte
	Type int8
}

// SyncTopic is one topic of Register or Unregister.
type SyncTopic struct {
	Name          string
	ID            [16]byte
	Recovery      bool
	ReleaseNumber int64 // Register: -1 not named
	Epoch         int64 // Unregister: -1 any, 0 only ask
}

// SyncOutcome answers one topic of Register or Unregister.
type SyncOutcome struct {
	TopicOutcome
	Epoch         int64 // Register: the registration; Unregister: the one that stands, 0 none
	ReleaseNumber int64 // Register refused: the release a recovery must name
}

func failed(err error) Outcome {
	return Outcome{wire.ErrRequestTimedOut, err.Error()}
}

// Create makes a mirror. Without mirror.source.cluster.id the source is asked.
func (m *Mirrors) Create(ctx context.Context, name string, configs map[string]string) Outcome {
	id, err := m.askClusterID(ctx, configs)
	want := configs["mirror.source.cluster.id"]
	switch {
	case err != nil && want == "":
		return Outcome{wire.ErrInvalidRequest, fmt.Sprintf("the source does not answer (%v): check bootstrap.servers, or name mirror.source.cluster.id to create the mirror all the same", err)}
	case err == nil && want != "" && id != want:
		return Outcome{wire.ErrInvalidRequest, "the source at bootstrap.servers is cluster " + id + ", not " + want}
	case err == nil:
		want = id
	}
	if want == m.o.Node.View().ClusterID() {
		return Outcome{wire.ErrInvalidRequest, "bootstrap.servers is this cluster itself: a cluster cannot mirror itself"}
	}
	cmd := &msg.CreateMirrorCommand{Mirror: name, Configs: []msg.CreateMirrorCommandConfig{{Name: "mirror.source.cluster.id", Value: want}}}
	for k, v := range configs {
		if k != "mirror.source.cluster.id" {
			cmd.Configs = append(cmd.Configs, msg.CreateMirrorCommandConfig{Name: k, Value: v})
		}
	}
	return m.whole(ctx, cmd)
}

func (m *Mirrors) askClusterID(ctx context.Context, configs map[string]string) (string, error) {
	src, err := m.o.Dial(configs)
	if err != nil {
		return "", err
	}
	defer src.Close()
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	return src.ClusterID(ctx)
}

// Delete removes a mirror whose topics have all stopped.
func (m *Mirrors) Delete(ctx context.Context, name string) Outcome {
	return m.whole(ctx, &msg.DeleteMirrorCommand{Mirror: name})
}

func (m *Mirrors) whole(ctx context.Context, cmd meta.Message) Outcome {
	res, err := m.o.Node.Propose(ctx, cmd)
	if err != nil {
		return failed(err)
	}
	m.Kick()
	return Outcome{wire.ErrorCode(res.ErrorCode), text(res.ErrorMessage)}
}

// each proposes a command whose result has an item for each topic.
func (m *Mirrors) each(ctx context.Context, cmd meta.Message, names []string) []TopicOutcome {
	res, err := m.o.Node.Propose(ctx, cmd)
	out := make([]TopicOutcome, len(names))
	for i, n := range names {
		out[i] = TopicOutcome{Name: n, Outcome: Outcome{wire.ErrorCode(res.ErrorCode), text(res.ErrorMessage)}}
		if err != nil {
			out[i].Outcome = failed(err)
		} else if i < len(res.Items) {
			out[i].Outcome = Outcome{wire.ErrorCode(res.Items[i].ErrorCode), text(res.Items[i].ErrorMessage)}
		}
	}
	m.Kick()
	return out
}

// AddTopics begins to mirror topics, each created here as it is at the source.
func (m *Mirrors) AddTopics(ctx context.Context, topics []AddTopic) []TopicOutcome {
	out := make([]TopicOutcome, len(topics))
	byMirror := map[string][]int{}
	for i, t := range topics {
		out[i].Name = t.Name
		byMirror[t.Mirror] = append(byMirror[t.Mirror], i)
	}
	for name, at := range byMirror {
		m.addTo(ctx, name, topics, at, out)
	}
	return out
}

// askTopics asks a mirror's source for topics, and whether it is the mirror's
// source still.
func askTopics(ctx context.Context, client Source, mir *meta.Mirror, names []string) ([]remote.Topic, Outcome) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	id, want := "", mir.SourceClusterID()
	found, err := client.Topics(ctx, names)
	if err == nil && want != "" {
		id, err = client.ClusterID(ctx)
	}
	switch {
	case err != nil:
		return nil, Outcome{wire.ErrRequestTimedOut, "the source does not answer: " + err.Error()}
	case id != want:
		return nil, Outcome{wire.ErrInvalidRequest, "bootstrap.servers leads to cluster " + id + ", the mirror is of " + want + ": make another mirror for it"}
	}
	return found, Outcome{}
}

// addTo adds the topics at the given places to one mirror.
func (m *Mirrors) addTo(ctx context.Context, name string, topics []AddTopic, at []int, out []TopicOutcome) {
	all := func(o Outcome) {
		for _, i := range at {
			out[i].Outcome = o
		}
	}
	v := m.o.Node.View()
	if v.Mirror(name) == nil {
		all(Outcome{wire.ErrUnknownClusterMirror, "no mirror " + name + " here: create it first"})
		return
	}
	client := m.client(name)
	if client == nil {
		all(Outcome{wire.ErrInvalidRequest, "the mirror's configs do not make a client: see the log"})
		return
	}
	names := make([]string, 0, len(at))
	for _, i := range at {
		names = append(names, topics[i].Name)
	}
	found, refused := askTopics(ctx, client, v.Mirror(name), names)
	if refused.Code != wire.ErrNone {
		all(refused)
		return
	}
	byName := map[string]remote.Topic{}
	for _, t := range found {
		byName[t.Name] = t
	}
	cmd := &msg.AddTopicsToMirrorCommand{Mirror: name}
	var asked []int
	for _, i := range at {
		src, ok := byName[topics[i].Name]
		if o := m.checkAdd(v, topics[i], src, ok); o.Code != wire.ErrNone {
			out[i].Outcome = o
			continue
		}
		asked = append(asked, i)
		cmd.Topics = append(cmd.Topics, msg.AddTopicsToMirrorCommandTopic{TopicId: src.ID, Name: src.Name,
			NumPartitions: int32(len(src.Leaders)), ReplicationFactor: -1, MirrorType: topics[i].Type})
	}
	if len(asked) == 0 {
		return
	}
	names = names[:0]
	for _, i := range asked {
		names = append(names, topics[i].Name)
	}
	for k, o := range m.each(ctx, cmd, names) {
		out[asked[k]] = o
	}
	m.mu.Lock()
	if s := m.sources[name]; s != nil {
		s.next = time.Time{} // the new topics' leaders are to be looked up at once
	}
	m.mu.Unlock()
	m.Kick()
}

// checkAdd refuses what cannot be mirrored byte for byte.
func (m *Mirrors) checkAdd(v *meta.View, t AddTopic, src remote.Topic, found bool) Outcome {
	if !found {
		return Outcome{wire.ErrUnknownTopicOrPartition, "the source has no topic " + t.Name}
	}
	if t.ID != ([16]byte{}) && t.ID != src.ID {
		return Outcome{wire.ErrInconsistentTopicId, "the source's topic has another id: it was deleted and created again"}
	}
	here := v.TopicByName(t.Name)
	if here == nil || here.Mirror != nil && here.Mirror.Mirror == t.Mirror && here.Mirror.Desired != mirror.Stopped {
		return Outcome{}
	}
	for i := range here.Partitions {
		if st, ok := m.o.Data.Status(here.ID, int32(i)); ok && st.End > 0 {
			return Outcome{wire.ErrTopicAlreadyExists, "the topic has records here, and aligning an existing log with a source comes with failback: delete the topic here first, or mirror under another name"}
		}
	}
	return Outcome{}
}

// RemoveTopics stops mirroring: the topics become writable here.
func (m *Mirrors) RemoveTopics(ctx context.Context, name string, topics []string) []TopicOutcome {
	return m.each(ctx, &msg.StopMirrorTopicsCommand{Mirror: name, Topics: topics}, topics)
}

// AlterType changes the desired type; ASYNC takes effect at once.
func (m *Mirrors) AlterType(ctx context.Context, name string, topics []AlterTopic) []TopicOutcome {
	cmd := &msg.AlterMirrorTopicTypeCommand{Mirror: name}
	names := make([]string, 0, len(topics))
	for _, t := range topics {
		cmd.Topics = append(cmd.Topics, msg.AlterMirrorTopicTypeCommandTopic{Name: t.Name, MirrorType: t.Type})
		names = append(names, t.Name)
	}
	return m.each(ctx, cmd, names)
}

// Register lets a destination gate topics of this cluster. The answer is
// Apply's at the commit index, given once every shard gates by it (R10, R22).
func (m *Mirrors) Register(ctx context.Context, name, clusterID string, topics []SyncTopic) []SyncOutcome {
	cmd := &msg.RegisterSyncCommand{Fence: noFence, Mirror: name, ClusterId: clusterID}
	dues := make([]due, len(topics))
	for i, t := range topics {
		held, fence := m.held(ctx, name, t, &dues[i])
		if held {
			cmd.Fence = fence
		}
		cmd.Topics = append(cmd.Topics, msg.RegisterSyncCommandTopic{TopicId: t.ID, Recovery: t.Recovery,
			ReleaseNumber: max(t.ReleaseNumber, 0), Held: held})
	}
	out, res := m.ledger(ctx, cmd, topics)
	for i := range dues {
		lost := ""
		if res == nil {
			lost = out[i].Message
		}
		dues[i].settle(lost)
	}
	if res == nil {
		return out
	}
	for i := range out {
		if i >= len(res.Items) {
			continue
		}
		it := &res.Items[i]
		out[i].Epoch, out[i].ReleaseNumber = -1, -1
		switch out[i].Code {
		case wire.ErrNone:
			out[i].Epoch = it.Number
			m.o.Log.Warn("topic is gated on a mirror: acks=all waits for it", "topic", out[i].Name, "mirror", name,
				"destination_cluster", clusterID, "registration_epoch", it.Number)
		case wire.ErrMirrorSyncReleasedRequiresFreshPromotion:
			out[i].ReleaseNumber = it.Number
		}
		if it.Warn {
			m.o.Log.Warn("release cleared by a Register that does not name it; it may be older than the release", "topic", out[i].Name, "mirror", name)
		}
	}
	index := m.o.Node.View().Index()
	if !m.barrier(ctx, index) {
		for i := range out {
			out[i].Outcome = Outcome{wire.ErrRequestTimedOut, "registered, but a leader does not gate by it yet: ask again"}
		}
		return out
	}
	m.o.Data.Answered(index)
	return out
}

// held asks the release policy whether it keeps a marker. Without an answer
// the built-in rule holds nothing.
func (m *Mirrors) held(ctx context.Context, name string, t SyncTopic, d *due) (hold bool, fence int64) {
	subject := sdk.Subject{Mirror: name, Topic: t.Name, TopicID: t.ID, Partition: -1}
	released := false
	if here := m.o.Node.View().TopicByID(t.ID); here != nil {
		for _, r := range here.Registrations {
			released = released || r.Mirror == name && r.Released
		}
	}
	asked, err := m.o.Release.Handle(ctx, sdk.Event{NowMS: m.o.Now().UnixMilli(), Type: sdk.RegisterAsked, Subject: subject,
		Facts: sdk.Facts{Released: released, Recovery: t.Recovery}})
	if err != nil {
		return false, noFence
	}
	d.asked = asked
	for _, w := range asked.Wishes {
		why := ""
		switch {
		case w.Subject != subject:
			why = "not about this topic"
		case w.Do == sdk.Hold && !released:
			why = "nothing is released that could be held"
		case w.Do != sdk.Hold && w.Do != sdk.Admit:
			why = "not a release's wish"
		}
		d.verdicts = append(d.verdicts, m.verdict(w, why))
		hold = hold || why == "" && w.Do == sdk.Hold
	}
	return hold, asked.Fence
}

// barrier waits until the data plane gates by an index.
func (m *Mirrors) barrier(ctx context.Context, index uint64) bool {
	if m.o.RegisterBarrier <= 0 {
		return true // the KIP's behaviour, for its tests
	}
	ctx, cancel := context.WithTimeout(ctx, m.o.RegisterBarrier)
	defer cancel()
	for m.o.Data.Applied() < index {
		if ctx.Err() != nil {
			return false
		}
		sleep(ctx, time.Millisecond)
	}
	return true
}

// Unregister ends registrations by a destination's word; it removes the epoch
// it names only, and never a released marker.
func (m *Mirrors) Unregister(ctx context.Context, name, clusterID string, topics []SyncTopic) []SyncOutcome {
	cmd := &msg.UnregisterSyncCommand{Mirror: name, ClusterId: clusterID}
	for _, t := range topics {
		cmd.Topics = append(cmd.Topics, msg.UnregisterSyncCommandTopic{TopicId: t.ID, Epoch: t.Epoch})
	}
	out, res := m.ledger(ctx, cmd, topics)
	for i := range out {
		if res != nil && i < len(res.Items) {
			out[i].Epoch = res.Items[i].Current
		}
	}
	return out
}

// Release ends registrations by an operator of this cluster, the source. It
// waits for no plugin. topics empty: all of that mirror.
func (m *Mirrors) Release(ctx context.Context, name string, topics []SyncTopic) []SyncOutcome {
	cmd := &msg.ReleaseSyncCommand{Mirror: name, Fence: noFence, RegistrationEpoch: mirror.AnyEpoch}
	for _, t := range topics {
		cmd.TopicIds = append(cmd.TopicIds, t.ID)
	}
	res, err := m.o.Node.Propose(ctx, cmd)
	if err != nil {
		o := failed(err)
		o.Message += "; without a quorum of the source there is no release"
		return []SyncOutcome{{TopicOutcome: TopicOutcome{Outcome: o}}}
	}
	var out []SyncOutcome
	for _, it := range res.Items {
		out = append(out, SyncOutcome{TopicOutcome: TopicOutcome{it.Name, Outcome{wire.ErrorCode(it.ErrorCode), text(it.ErrorMessage)}}, ReleaseNumber: it.Number})
		if it.ErrorCode == 0 {
			m.o.Log.Warn("released: acks=all no longer waits for this mirror; what it does not have yet may be lost with this site",
				"mirror", name, "topic", it.Name, "release_number", it.Number)
		}
	}
	return out
}

// ledger proposes a command of the ledger and pairs its items with the topics.
func (m *Mirrors) ledger(ctx context.Context, cmd meta.Message, topics []SyncTopic) ([]SyncOutcome, *meta.Result) {
	out := make([]SyncOutcome, len(topics))
	res, err := m.o.Node.Propose(ctx, cmd)
	for i, t := range topics {
		out[i].Name = t.Name
		switch {
		case err != nil:
			out[i].Outcome = failed(err)
		case res.ErrorCode != 0:
			out[i].Outcome = Outcome{wire.ErrorCode(res.ErrorCode), text(res.ErrorMessage)}
		case i < len(res.Items):
			out[i].Outcome = Outcome{wire.ErrorCode(res.Items[i].ErrorCode), text(res.Items[i].ErrorMessage)}
		}
	}
	if err != nil || res.ErrorCode != 0 {
		return out, nil
	}
	return out, &res
}
