package meta

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

// newTopic is what a topic to be created asks for.
type newTopic struct {
	id         UUID
	name       string
	partitions int
	replicas   int
	assigned   [][]int32
	configs    map[string]string
}

func (x *tx) createTopics(c *msg.CreateTopicsCommand) {
	budget := MaxPartitionsPerCommand
	for i := range c.Topics {
		r := &c.Topics[i]
		n := newTopic{id: r.TopicId, name: r.Name, partitions: int(r.NumPartitions), replicas: int(r.ReplicationFactor),
			configs: make(map[string]string, len(r.Configs))}
		for _, a := range r.Assignments {
			n.assigned = append(n.assigned, a.Replicas)
		}
		for _, kv := range r.Configs {
			n.configs[kv.Name] = kv.Value
		}
		if n.id == (UUID{}) {
			n.id = x.deriveID(i)
		}
		t, bad := x.buildTopic(n, &budget)
		if bad != nil {
			x.answer(ResultItem{Name: n.name, Partition: -1}, bad)
			continue
		}
		if !c.ValidateOnly {
			x.insert(t)
		}
		x.answer(topicItem(t, -1), nil)
	}
}

// buildTopic checks all that a new topic asks for. budget is what is left of
// the partitions this command may create.
func (x *tx) buildTopic(n newTopic, budget *int) (*Topic, *refusal) {
	if bad := checkName(n.name); bad != nil {
		return nil, bad
	}
	if x.topic(n.name) != nil {
		return nil, refuse(topicAlreadyExists, "topic already exists")
	}
	if t := x.topicByID(n.id); t != nil {
		return nil, refuse(topicAlreadyExists, "topic id belongs to topic "+t.Name)
	}
	if len(n.assigned) > 0 {
		n.partitions = len(n.assigned)
	}
	if n.partitions == -1 {
		n.partitions = x.configInt(nil, "num.partitions", 1)
	}
	if n.replicas == -1 {
		n.replicas = x.configInt(nil, "default.replication.factor", 1)
	}
	if n.partitions < 1 || n.partitions > MaxPartitionsPerTopic || n.partitions > *budget {
		return nil, refuse(invalidPartitions, "number of partitions out of range")
	}
	sets, bad := x.assignment(n.assigned, 0, n.partitions, n.replicas)
	if bad != nil {
		return nil, bad
	}
	*budget -= n.partitions
	t := &Topic{ID: n.id, Name: n.name, Configs: n.configs, Partitions: make([]*Partition, 0, len(sets))}
	for _, set := range sets {
		t.Partitions = append(t.Partitions, x.newPartition(set))
	}
	return t, nil
}

// deriveID makes a topic id of the command itself: pure, and like a random one
// not to be met in another cluster.
func (x *tx) deriveID(item int) UUID {
	b := binary.BigEndian.AppendUint64([]byte(x.v.clusterID), uint64(x.index))
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(b, uint32(item)))
	id := UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, as Kafka's
	return id
}

func checkName(name string) *refusal {
	if name == "" || name == "." || name == ".." || len(name) > MaxNameLength {
		return refuse(invalidTopic, "a name has 1 to 249 characters and is neither . nor ..")
	}
	for _, r := range []byte(name) {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return refuse(invalidTopic, "a name has only letters, digits, '.', '_' and '-'")
		}
	}
	return nil
}

func (x *tx) deleteTopics(c *msg.DeleteTopicsCommand) {
	for i := range c.Topics {
		r := &c.Topics[i]
		t, code := x.topic(r.Name), unknownTopicOrPartition
		if r.TopicId != (UUID{}) {
			t, code = x.topicByID(r.TopicId), unknownTopicID
		}
		switch {
		case t == nil:
			x.answer(ResultItem{Name: r.Name, TopicId: r.TopicId, Partition: -1}, refuse(code, "no such topic"))
		case r.Name != "" && t.Name != r.Name:
			x.answer(topicItem(t, -1), refuse(inconsistentTopicID, "topic id belongs to another name"))
		case t.Mirror != nil && (t.Mirror.Phase == mirror.InSync || t.Mirror.OwedUnregister != 0):
			x.answer(topicItem(t, -1), refuse(invalidRequest,
				"the source still gates on this topic in mirror "+t.Mirror.Mirror+": make it async or stop it first"))
		default:
			x.remove(t)
			x.answer(topicItem(t, -1), nil)
		}
	}
}

func (x *tx) createPartitions(c *msg.CreatePartitionsCommand) {
	budget := MaxPartitionsPerCommand
	for i := range c.Topics {
		r := &c.Topics[i]
		t := x.topic(r.Name)
		if t == nil {
			x.answer(ResultItem{Name: r.Name, Partition: -1}, refuse(unknownTopicOrPartition, "no such topic"))
			continue
		}
		var given [][]int32
		for _, a := range r.Assignments {
			given = append(given, a.Replicas)
		}
		bad := mayGrow(t, r)
		if bad == nil {
			bad = x.grow(t, int(r.Count), given, c.ValidateOnly, &budget)
		}
		x.answer(topicItem(t, -1), bad)
	}
}

func mayGrow(t *Topic, r *msg.CreatePartitionsCommandTopic) *refusal {
	switch {
	case r.Override:
		return nil
	case t.Mirror != nil && t.Mirror.Desired != mirror.Stopped:
		return refuse(invalidRequest, "topic is mirrored by "+t.Mirror.Mirror+": it grows with its source")
	case t.Gated():
		return refuse(invalidRequest, "topic is registered for sync mirroring: producers of a new partition would wait for its first report")
	}
	return nil
}

// grow adds partitions up to count.
func (x *tx) grow(t *Topic, count int, given [][]int32, dry bool, budget *int) *refusal {
	have := len(t.Partitions)
	more := count - have
	switch {
	case more <= 0:
		return refuse(invalidPartitions, "a topic can only get more partitions than it has")
	case count > MaxPartitionsPerTopic || more > *budget:
		return refuse(invalidPartitions, "number of partitions out of range")
	case len(given) > 0 && len(given) != more:
		return refuse(invalidReplicaAssignment, "assignments must cover exactly the new partitions")
	}
	replicas := len(t.Partitions[0].Replicas)
	if len(given) > 0 && len(given[0]) != replicas {
		return refuse(invalidReplicaAssignment, "new partitions need as many replicas as the old ones")
	}
	sets, bad := x.assignment(given, have, more, replicas)
	if bad != nil || dry {
		return bad
	}
	*budget -= more
	t = x.edit(t)
	for _, set := range sets {
		p := x.newPartition(set)
		if t.Mirror != nil && t.Mirror.Desired == mirror.Stopped {
			p.State = mirror.Stopped // it never was mirrored, so it is writable
		}
		t.Partitions = append(t.Partitions, p)
	}
	x.v.partitions += more
	return nil
}

// partitionOf finds a partition of the command's topic.
func (x *tx) partitionOf(id UUID, partition int32) (*Topic, *Partition, *refusal) {
	t := x.topicByID(id)
	if t == nil {
		return nil, nil, refuse(unknownTopicID, "no topic with this id")
	}
	if partition < 0 || int(partition) >= len(t.Partitions) {
		return t, nil, refuse(unknownTopicOrPartition, "no such partition")
	}
	return t, t.Partitions[partition], nil
}

func itemOf(t *Topic, id UUID, partition int32) ResultItem {
	if t == nil {
		return ResultItem{TopicId: id, Partition: partition}
	}
	return topicItem(t, partition)
}

func (x *tx) alterPartition(c *msg.AlterPartitionCommand) {
	if x.broker(c.BrokerId, c.BrokerEpoch) == nil {
		return
	}
	for i := range c.Partitions {
		r := &c.Partitions[i]
		t, p, bad := x.partitionOf(r.TopicId, r.Partition)
		if bad == nil {
			bad = x.checkISR(p, c.BrokerId, r)
		}
		if bad == nil && !slices.Equal(p.ISR, r.ISR) {
			t = x.edit(t)
			p = editPartition(t, int(r.Partition))
			p.setISR(slices.Clone(r.ISR), x.minISR(t))
			p.PartitionEpoch++
		}
		x.answer(itemOf(t, r.TopicId, r.Partition), bad)
	}
}

func (x *tx) checkISR(p *Partition, leader int32, r *msg.AlterPartitionCommandPartition) *refusal {
	switch {
	case r.LeaderEpoch != p.LeaderEpoch:
		return refuse(fencedLeaderEpoch, "leader epoch is not the current one")
	case p.Leader != leader:
		return refuse(notLeader, "broker does not lead this partition")
	case r.PartitionEpoch != p.PartitionEpoch:
		return refuse(invalidUpdateVersion, "partition epoch is not the current one")
	case !slices.Contains(r.ISR, leader):
		return refuse(invalidRequest, "an ISR includes its leader")
	}
	for i, id := range r.ISR {
		if !slices.Contains(p.Replicas, id) || slices.Contains(r.ISR[:i], id) {
			return refuse(invalidRequest, "an ISR names each of some replicas once")
		}
		if !slices.Contains(p.ISR, id) && !x.alive(id) {
			return refuse(ineligibleReplica, "a broker that is fenced or leaves cannot enter an ISR")
		}
	}
	return nil
}

func (x *tx) electLeaders(c *msg.ElectLeadersCommand) {
	if c.ElectionType != 0 && c.ElectionType != 1 {
		x.fail(invalidRequest, "unknown type of election")
		return
	}
	for i := range c.Partitions {
		r := &c.Partitions[i]
		t, p, bad := x.partitionOf(r.TopicId, r.Partition)
		if bad == nil {
			bad = x.electOne(t, int(r.Partition), p, c.ElectionType)
		}
		x.answer(itemOf(t, r.TopicId, r.Partition), bad)
	}
	if len(c.Partitions) > 0 {
		return
	}
	x.eachPartition(func(t *Topic, i int, p *Partition) {
		if x.electOne(t, i, p, c.ElectionType) == nil {
			x.answer(topicItem(t, int32(i)), nil)
		}
	})
}

func (x *tx) electOne(t *Topic, i int, p *Partition, kind int8) *refusal {
	try := *p
	if kind == 0 {
		preferred := p.Replicas[0]
		if p.Leader == preferred {
			return refuse(electionNotNeeded, "the preferred leader leads")
		}
		if !x.alive(preferred) || !slices.Contains(p.ISR, preferred) {
			return refuse(preferredLeaderMissing, "the preferred leader is not in sync")
		}
		try.lead(preferred)
	} else {
		if p.Leader >= 0 {
			return refuse(electionNotNeeded, "the partition has a leader")
		}
		if try.elect(x.alive, x.minISR(t), true); try.Leader < 0 {
			return refuse(eligibleLeadersMissing, "no replica is alive")
		}
	}
	try.PartitionEpoch++
	x.edit(t).Partitions[i] = &try
	return nil
}

func (x *tx) bumpLeaderEpochs(c *msg.BumpLeaderEpochsCommand) {
	for i := range c.Partitions {
		r := &c.Partitions[i]
		t, p, bad := x.partitionOf(r.TopicId, r.Partition)
		if bad == nil && (r.MinLeaderEpoch < 0 || r.MinLeaderEpoch == 1<<31-1) {
			bad = refuse(invalidRequest, "leader epoch out of range")
		}
		if bad == nil && p.LeaderEpoch <= r.MinLeaderEpoch {
			p = editPartition(x.edit(t), int(r.Partition))
			p.LeaderEpoch = r.MinLeaderEpoch + 1
			p.PartitionEpoch++
		}
		x.answer(itemOf(t, r.TopicId, r.Partition), bad)
	}
}
