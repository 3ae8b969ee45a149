package meta

import (
	"encoding/binary"
	"errors"
	"slices"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

// SnapshotVersion is the version of the snapshot's framing.
const SnapshotVersion = 1

var errSnapshot = errors.New("meta: malformed snapshot")

// AppendSnapshot appends the View as bytes: the version, then records, each
// with its length, a header first and then the topics by name. Equal Views
// give equal bytes. A checksum is the caller's.
func AppendSnapshot(b []byte, v *View) []byte {
	b = append(b, SnapshotVersion)
	b = appendRecord(b, headerRecord(v))
	for t := range v.Topics() {
		b = appendRecord(b, topicRecord(t))
	}
	return b
}

func appendRecord(b []byte, m Message) []byte {
	body := Encode(m)
	b = binary.AppendUvarint(b, uint64(len(body)))
	return append(b, body...)
}

// ReadSnapshot reads what AppendSnapshot has written. Diff from a View of
// before sees the restored one in full.
func ReadSnapshot(b []byte) (*View, error) {
	if len(b) == 0 || b[0] != SnapshotVersion {
		return nil, errSnapshot
	}
	v := Empty()
	for b = b[1:]; len(b) > 0; {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, errSnapshot
		}
		m, err := Decode(b[n : n+int(size)])
		if err != nil {
			return nil, err
		}
		b = b[n+int(size):]
		switch r := m.(type) {
		case *msg.SnapshotHeader:
			restoreHeader(v, r)
		case *msg.SnapshotTopic:
			t := restoreTopic(r)
			v.topics = v.topics.Set(t.Name, t)
			v.names = v.names.Set(t.ID, t.Name)
			v.partitions += len(t.Partitions)
		default:
			return nil, errSnapshot
		}
	}
	return v, nil
}

func headerRecord(v *View) *msg.SnapshotHeader {
	h := &msg.SnapshotHeader{Index: int64(v.index), ClusterId: v.clusterID, NextProducerId: v.nextPID, Fences: v.fences[:]}
	for _, f := range v.features {
		h.Features = append(h.Features, msg.SnapshotHeaderFeatureLevel{Name: f.Name, Level: f.Level})
	}
	for _, c := range v.controllers {
		h.Controllers = append(h.Controllers, msg.SnapshotHeaderController{ControllerId: c.ID, IncarnationId: c.Incarnation, Host: c.Host, Port: c.Port})
	}
	for _, b := range v.brokers {
		h.Brokers = append(h.Brokers, msg.SnapshotHeaderBroker{BrokerId: b.ID, Epoch: b.Epoch, IncarnationId: b.Incarnation,
			Host: b.Host, Port: b.Port, Rack: b.Rack, Fenced: b.Fenced, InShutdown: b.InShutdown})
	}
	for it := v.brokerCfg.Iterator(); !it.Done(); {
		name, configs, _ := it.Next()
		r := msg.SnapshotHeaderBrokerConfig{Name: name}
		for _, k := range sortedKeys(configs) {
			r.Configs = append(r.Configs, msg.SnapshotHeaderConfig{Name: k, Value: configs[k]})
		}
		h.BrokerConfigs = append(h.BrokerConfigs, r)
	}
	for m := range v.Mirrors() {
		r := msg.SnapshotHeaderMirror{Name: m.Name}
		for _, k := range sortedKeys(m.Configs) {
			r.Configs = append(r.Configs, msg.SnapshotHeaderMirrorConfig{Name: k, Value: m.Configs[k]})
		}
		h.Mirrors = append(h.Mirrors, r)
	}
	return h
}

func restoreHeader(v *View, h *msg.SnapshotHeader) {
	v.index, v.clusterID, v.nextPID = uint64(h.Index), h.ClusterId, h.NextProducerId
	copy(v.fences[:], h.Fences)
	for _, f := range h.Features {
		v.features = append(v.features, Feature{f.Name, f.Level})
	}
	for _, c := range h.Controllers {
		v.controllers = append(v.controllers, &Controller{ID: c.ControllerId, Incarnation: c.IncarnationId, Host: c.Host, Port: c.Port})
	}
	for _, b := range h.Brokers {
		v.brokers = append(v.brokers, &Broker{ID: b.BrokerId, Epoch: b.Epoch, Incarnation: b.IncarnationId,
			Host: b.Host, Port: b.Port, Rack: b.Rack, Fenced: b.Fenced, InShutdown: b.InShutdown})
	}
	for _, r := range h.BrokerConfigs {
		configs := make(map[string]string, len(r.Configs))
		for _, kv := range r.Configs {
			configs[kv.Name] = kv.Value
		}
		v.brokerCfg = v.brokerCfg.Set(r.Name, configs)
	}
	for _, r := range h.Mirrors {
		m := &Mirror{Name: r.Name, Configs: make(map[string]string, len(r.Configs))}
		for _, kv := range r.Configs {
			m.Configs[kv.Name] = kv.Value
		}
		v.mirrors = v.mirrors.Set(m.Name, m)
	}
}

func topicRecord(t *Topic) *msg.SnapshotTopic {
	r := &msg.SnapshotTopic{TopicId: t.ID, Name: t.Name, Index: int64(t.Index)}
	for _, k := range sortedKeys(t.Configs) {
		r.Configs = append(r.Configs, msg.SnapshotTopicConfig{Name: k, Value: t.Configs[k]})
	}
	for _, p := range t.Partitions {
		r.Partitions = append(r.Partitions, partitionRecord(p))
	}
	for _, e := range t.Registrations {
		r.Registrations = append(r.Registrations, msg.SnapshotTopicRegistration{Mirror: e.Mirror, ClusterId: e.ClusterID,
			Epoch: e.Epoch, Released: e.Released, ReleaseNumber: e.ReleaseNumber})
	}
	if m := t.Mirror; m != nil {
		r.Mirror = &msg.SnapshotTopicTopicMirror{Mirror: m.Mirror, SourceClusterId: m.SourceClusterID, Desired: int8(m.Desired),
			UnregisterDone: m.UnregisterDone, Phase: int8(m.Phase), RegistrationEpoch: m.RegistrationEpoch, Recovery: m.Recovery,
			ReleaseNumber: m.ReleaseNumber, OwedUnregister: m.OwedUnregister, SpentEpoch: m.SpentEpoch, Attempts: m.Attempts}
	}
	return r
}

func partitionRecord(p *Partition) msg.SnapshotTopicPartition {
	r := msg.SnapshotTopicPartition{Replicas: p.Replicas, ISR: p.ISR, ELR: p.ELR, Leader: p.Leader, LastLeader: p.LastLeader,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, State: int8(p.State), Previous: int8(p.Previous),
		StopStep: int8(p.StopStep), StateEpoch: p.StateEpoch, LmeEpoch: p.LMEEpoch, LmeOffset: p.LMEOffset,
		RetryAttempt: p.RetryAttempt, NonRetryable: p.NonRetryable, Error: p.Error}
	for _, e := range p.Lineage {
		r.Lineage = append(r.Lineage, msg.SnapshotTopicLineageEntry{ClusterId: e.ClusterID, TopicId: e.TopicID,
			FirstEpoch: e.FirstEpoch, FirstOffset: e.FirstOffset})
	}
	return r
}

func restoreTopic(r *msg.SnapshotTopic) *Topic {
	t := &Topic{ID: r.TopicId, Name: r.Name, Index: uint64(r.Index), Configs: make(map[string]string, len(r.Configs))}
	for _, kv := range r.Configs {
		t.Configs[kv.Name] = kv.Value
	}
	for i := range r.Partitions {
		t.Partitions = append(t.Partitions, restorePartition(&r.Partitions[i]))
	}
	for _, e := range r.Registrations {
		t.Registrations = append(t.Registrations, Registration{Mirror: e.Mirror, ClusterID: e.ClusterId,
			Epoch: e.Epoch, Released: e.Released, ReleaseNumber: e.ReleaseNumber})
	}
	if m := r.Mirror; m != nil {
		t.Mirror = &TopicMirror{Mirror: m.Mirror, SourceClusterID: m.SourceClusterId, Desired: mirror.PartitionState(m.Desired),
			UnregisterDone: m.UnregisterDone,
			Promotion: mirror.Promotion{Phase: mirror.Phase(m.Phase), RegistrationEpoch: m.RegistrationEpoch, Recovery: m.Recovery,
				ReleaseNumber: m.ReleaseNumber, OwedUnregister: m.OwedUnregister, SpentEpoch: m.SpentEpoch, Attempts: m.Attempts}}
	}
	return t
}

func restorePartition(r *msg.SnapshotTopicPartition) *Partition {
	p := &Partition{Replicas: r.Replicas, ISR: r.ISR, ELR: r.ELR, Leader: r.Leader, LastLeader: r.LastLeader,
		LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, State: mirror.PartitionState(r.State),
		Previous: mirror.PartitionState(r.Previous), StopStep: mirror.StopStep(r.StopStep), StateEpoch: r.StateEpoch,
		LMEEpoch: r.LmeEpoch, LMEOffset: r.LmeOffset, RetryAttempt: r.RetryAttempt, NonRetryable: r.NonRetryable, Error: r.Error}
	for _, e := range r.Lineage {
		p.Lineage = append(p.Lineage, LineageEntry{e.ClusterId, e.TopicId, e.FirstEpoch, e.FirstOffset})
	}
	return p
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
