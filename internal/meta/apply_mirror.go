package meta

import (
	"slices"
	"strings"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

func (x *tx) createMirror(c *msg.CreateMirrorCommand) {
	if bad := checkName(c.Mirror); bad != nil {
		x.fail(invalidRequest, bad.text)
		return
	}
	if x.v.Mirror(c.Mirror) != nil {
		x.fail(mirrorAlreadyExists, "mirror already exists")
		return
	}
	m := &Mirror{Name: c.Mirror, Configs: make(map[string]string, len(c.Configs))}
	for _, kv := range c.Configs {
		m.Configs[kv.Name] = kv.Value
	}
	if bad := x.checkMirrorConfigs(m); bad != nil {
		x.fail(bad.code, bad.text)
		return
	}
	x.v.mirrors = x.v.mirrors.Set(m.Name, m)
	x.set.mirrors = true
}

func (x *tx) checkMirrorConfigs(m *Mirror) *refusal {
	switch {
	case m.Configs["bootstrap.servers"] == "":
		return refuse(invalidRequest, "a mirror needs bootstrap.servers")
	case m.SourceClusterID() == "":
		return refuse(invalidRequest, "a mirror needs mirror.source.cluster.id")
	case m.SourceClusterID() == x.v.clusterID:
		return refuse(invalidRequest, "a cluster cannot mirror itself")
	}
	return nil
}

func (x *tx) deleteMirror(c *msg.DeleteMirrorCommand) {
	if x.v.Mirror(c.Mirror) == nil {
		x.fail(unknownMirror, "no such mirror")
		return
	}
	var stopped []*Topic
	for t := range x.v.Topics() {
		if t.Mirror == nil || t.Mirror.Mirror != c.Mirror {
			continue
		}
		if !t.fullyStopped() {
			x.fail(mirrorNotEmpty, "topic "+t.Name+" has not stopped")
			return
		}
		stopped = append(stopped, t)
	}
	for _, t := range stopped {
		x.edit(t).Mirror = nil
	}
	x.v.mirrors = x.v.mirrors.Delete(c.Mirror)
	x.set.mirrors = true
}

// fullyStopped tells whether a mirrored topic is writable in every partition.
func (t *Topic) fullyStopped() bool {
	return t.Mirror.Desired == mirror.Stopped &&
		!slices.ContainsFunc(t.Partitions, func(p *Partition) bool { return p.State != mirror.Stopped })
}

func (x *tx) addTopicsToMirror(c *msg.AddTopicsToMirrorCommand) {
	m := x.v.Mirror(c.Mirror)
	if m == nil {
		x.fail(unknownMirror, "no such mirror")
		return
	}
	budget := MaxPartitionsPerCommand
	for i := range c.Topics {
		r := &c.Topics[i]
		item := ResultItem{Name: r.Name, TopicId: r.TopicId, Partition: -1}
		bad := x.addTopic(m, r, i, &budget)
		if bad == nil {
			item.TopicId = x.topic(r.Name).ID
		}
		x.answer(item, bad)
	}
}

func (x *tx) addTopic(m *Mirror, r *msg.AddTopicsToMirrorCommandTopic, i int, budget *int) *refusal {
	if r.MirrorType != int8(mirror.Async) && r.MirrorType != int8(mirror.Sync) {
		return refuse(invalidRequest, "unknown mirror type")
	}
	if r.MirrorType == int8(mirror.Sync) && x.v.Feature(FeatureMirrorSync) < 1 {
		return refuse(mirrorSyncVersionMismatch, "mirror.sync.version is 0 in this cluster")
	}
	t := x.topic(r.Name)
	if t == nil {
		return x.createMirrored(m, r, i, budget)
	}
	if r.TopicId != (UUID{}) && r.TopicId != t.ID {
		return refuse(inconsistentTopicID, "the topic has another id here: delete it, or mirror under its own id")
	}
	if t.Mirror != nil && !t.fullyStopped() {
		switch {
		case t.Mirror.Mirror != m.Name:
			return refuse(topicInOtherMirror, "topic is in mirror "+t.Mirror.Mirror)
		case t.Mirror.Desired == mirror.Mirroring:
			return nil // again
		case t.Mirror.Desired == mirror.Stopped:
			return refuse(topicBeingStopped, "topic is being stopped")
		}
		return refuse(topicNotStopped, "topic is paused: resume it")
	}
	switch want := int(r.NumPartitions); {
	case want < len(t.Partitions):
		return refuse(invalidPartitions, "topic has more partitions here than at the source")
	case want > len(t.Partitions):
		if bad := x.grow(t, want, nil, false, budget); bad != nil {
			return bad
		}
	}
	x.startMirroring(x.edit(x.topic(t.Name)), m, mirror.Type(r.MirrorType))
	return nil
}

// createMirrored creates a topic as the source has it, in the same command.
func (x *tx) createMirrored(m *Mirror, r *msg.AddTopicsToMirrorCommandTopic, i int, budget *int) *refusal {
	if r.NumPartitions <= 0 {
		return refuse(unknownTopicOrPartition, "topic is neither here nor at the source")
	}
	n := newTopic{id: r.TopicId, name: r.Name, partitions: int(r.NumPartitions), replicas: int(r.ReplicationFactor),
		configs: make(map[string]string, len(r.Configs))}
	for _, kv := range r.Configs {
		n.configs[kv.Name] = kv.Value
	}
	if n.id == (UUID{}) {
		n.id = x.deriveID(i)
	}
	t, bad := x.buildTopic(n, budget)
	if bad != nil {
		return bad
	}
	x.insert(t)
	x.startMirroring(t, m, mirror.Type(r.MirrorType))
	return nil
}

// startMirroring begins a life as destination. Registrations of an earlier life
// as source are released, or the topic would gate on a dead mirror.
func (x *tx) startMirroring(t *Topic, m *Mirror, desired mirror.Type) {
	t.Mirror = &TopicMirror{Mirror: m.Name, SourceClusterID: m.SourceClusterID(), Desired: mirror.Mirroring}
	if desired == mirror.Sync {
		t.Mirror.Promotion, _ = t.Mirror.Promotion.Step(mirror.PromotionEvent{Kind: mirror.DesiredSync})
	}
	for i := range t.Partitions {
		p := editPartition(t, i)
		p.State, p.Previous, p.StopStep = mirror.Unknown, mirror.Unknown, 0
		p.RetryAttempt, p.NonRetryable, p.Error = 0, false, ""
		p.StateEpoch++
	}
	t.Registrations = slices.Clone(t.Registrations)
	for i, r := range t.Registrations {
		if r.Gates() {
			t.Registrations[i] = mirror.Release(r, true, mirror.AnyEpoch, x.index).Entry
		}
	}
}

// eachMirrorTopic runs one operator's verb on topics of a mirror.
func (x *tx) eachMirrorTopic(name string, topics []string, verb func(*Topic) *refusal) {
	if x.v.Mirror(name) == nil {
		x.fail(unknownMirror, "no such mirror")
		return
	}
	for _, topic := range topics {
		t, bad := x.mirrored(name, topic)
		if bad == nil {
			bad = verb(t)
		}
		item := ResultItem{Name: topic, Partition: -1}
		if t != nil {
			item.TopicId = t.ID
		}
		x.answer(item, bad)
	}
}

func (x *tx) mirrored(name, topic string) (*Topic, *refusal) {
	t := x.topic(topic)
	switch {
	case t == nil:
		return nil, refuse(unknownTopicOrPartition, "no such topic")
	case t.Mirror == nil:
		return t, refuse(topicNotInMirror, "topic is not mirrored")
	case t.Mirror.Mirror != name:
		return t, refuse(topicNotInMirror, "topic is in mirror "+t.Mirror.Mirror)
	}
	return t, nil
}

// stopTopic works from any state. The promotion is cleared when the last
// partition has stopped: until then it says what the Unregister must name.
func (x *tx) stopTopic(t *Topic) *refusal {
	if t.Mirror.Desired != mirror.Stopped {
		editMirror(x.edit(t)).Desired = mirror.Stopped
	}
	return nil
}

func (x *tx) pauseTopic(t *Topic) *refusal {
	switch t.Mirror.Desired {
	case mirror.Stopped:
		return refuse(topicBeingStopped, "topic is being stopped")
	case mirror.Paused:
		return nil
	}
	m := editMirror(x.edit(t))
	m.Desired = mirror.Paused
	m.Promotion, _ = m.Promotion.Step(mirror.PromotionEvent{Kind: mirror.Pause})
	return nil
}

func (x *tx) resumeTopic(t *Topic) *refusal {
	switch t.Mirror.Desired {
	case mirror.Mirroring:
		return nil
	case mirror.Paused:
		editMirror(x.edit(t)).Desired = mirror.Mirroring
		return nil
	}
	return refuse(topicNotPaused, "topic is not paused")
}

func (x *tx) alterMirrorTopicType(c *msg.AlterMirrorTopicTypeCommand) {
	types := make(map[string]int8, len(c.Topics))
	names := make([]string, len(c.Topics))
	for i, r := range c.Topics {
		names[i], types[r.Name] = r.Name, r.MirrorType
	}
	x.eachMirrorTopic(c.Mirror, names, func(t *Topic) *refusal { return x.alterType(t, types[t.Name]) })
}

func (x *tx) alterType(t *Topic, desired int8) *refusal {
	e := mirror.PromotionEvent{Kind: mirror.DesiredAsync}
	switch {
	case t.Mirror.Desired == mirror.Stopped:
		return refuse(topicBeingStopped, "topic is being stopped")
	case desired == int8(mirror.Sync):
		if x.v.Feature(FeatureMirrorSync) < 1 {
			return refuse(mirrorSyncVersionMismatch, "mirror.sync.version is 0 in this cluster")
		}
		e.Kind = mirror.DesiredSync
	case desired != int8(mirror.Async):
		return refuse(invalidRequest, "unknown mirror type")
	}
	x.promote(t, e)
	return nil
}

// promote moves a topic's promotion; nothing is touched when nothing changes.
func (x *tx) promote(t *Topic, e mirror.PromotionEvent) {
	if next, _ := t.Mirror.Promotion.Step(e); next != t.Mirror.Promotion {
		editMirror(x.edit(t)).Promotion = next
	}
}

func (x *tx) mirrorPartitionStates(c *msg.MirrorPartitionStatesCommand) {
	if len(c.Partitions) > MaxStateDeltas {
		x.fail(invalidRequest, "too many partitions in one command")
		return
	}
	if !x.fenceHolds(FenceCoordinator, c.Fence) {
		return
	}
	for i := range c.Partitions {
		r := &c.Partitions[i]
		t, p, bad := x.partitionOf(r.TopicId, r.Partition)
		if bad == nil {
			bad = checkState(t, p, c.BrokerId, r)
		}
		if bad == nil {
			x.setState(x.edit(t), r)
		}
		x.answer(itemOf(t, r.TopicId, r.Partition), bad)
	}
}

func checkState(t *Topic, p *Partition, broker int32, r *msg.MirrorPartitionStatesCommandPartition) *refusal {
	to := mirror.PartitionState(r.State)
	switch {
	case t.Mirror == nil:
		return refuse(topicNotInMirror, "topic is not mirrored")
	case p.LeaderEpoch != r.LeaderEpoch:
		return refuse(fencedLeaderEpoch, "leader epoch is not the current one")
	case broker < 0 || p.Leader != broker:
		return refuse(notLeader, "broker does not lead this partition")
	case p.StateEpoch != r.StateEpoch:
		return refuse(invalidUpdateVersion, "state epoch is not the current one")
	case !mirror.Allowed(p.State, to) || to < mirror.Unknown || to > mirror.Failed:
		return refuse(invalidMirrorStates, "from "+p.State.String()+" to "+to.String())
	case to == mirror.Stopping && t.Mirror.Desired != mirror.Stopped,
		to == mirror.Pausing && t.Mirror.Desired != mirror.Paused && p.State != mirror.Pausing && p.State != mirror.Failed,
		p.State == mirror.Stopped && to != mirror.Stopped && t.Mirror.Desired == mirror.Stopped:
		return refuse(invalidMirrorStates, to.String()+" is not what is desired")
	case r.StopStep < 0 || r.StopStep > int8(mirror.StopFinished):
		return refuse(invalidMirrorStates, "unknown step")
	}
	return nil
}

func (x *tx) setState(t *Topic, r *msg.MirrorPartitionStatesCommandPartition) {
	p := editPartition(t, int(r.Partition))
	p.State, p.Previous = mirror.PartitionState(r.State), mirror.PartitionState(r.Previous)
	p.StopStep, p.RetryAttempt, p.NonRetryable = mirror.StopStep(r.StopStep), r.RetryAttempt, r.NonRetryable
	p.Error = ""
	if r.Error != nil {
		p.Error = strings.ToValidUTF8((*r.Error)[:min(len(*r.Error), MaxErrorLength)], "")
	}
	if r.LmeEpoch >= 0 {
		p.LMEEpoch, p.LMEOffset = r.LmeEpoch, r.LmeOffset
	}
	if r.Lineage != nil {
		p.Lineage = make([]LineageEntry, len(r.Lineage))
		for i, e := range r.Lineage {
			p.Lineage[i] = LineageEntry{e.ClusterId, e.TopicId, e.FirstEpoch, e.FirstOffset}
		}
	}
	p.StateEpoch++
	if p.State == mirror.Stopping && p.StopStep > mirror.StopUnregister && !t.Mirror.UnregisterDone {
		editMirror(t).UnregisterDone = true
	}
	if p.State == mirror.Stopped && t.fullyStopped() {
		// The last step of the stop: desired and effective type are cleared.
		m := editMirror(t)
		m.Promotion, m.UnregisterDone = mirror.Promotion{}, true
	}
}
