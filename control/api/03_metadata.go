package api

// Metadata, versions 0-13.
//
//   - No topics means all in version 0; from 1 on that is null, and an empty list
//     means none. From 12 on a topic may be asked for by id.
//   - A missing topic is created when request and broker allow it and its name is
//     valid and not internal. The answer has it already, for it is durable then.
//   - The controller is any live broker: commands reach the active one from all.
//   - A partition without a leader that this listener can reach is answered in
//     full, with its own error.

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

// internalTopics are those that clients may not create by asking for them.
var internalTopics = map[string]bool{"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true, "__mirror_state": true}

func metadata(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrMetadataRequest()
	if !read(req, r) {
		return nil
	}
	all := req.Topics == nil || r.Version == 0 && len(req.Topics) == 0
	failed := map[string]wire.ErrorCode{}
	if !all && (req.AllowAutoTopicCreation || r.Version < 4) && s.autoCreation() {
		failed = s.autoCreate(ctx, req.Topics)
	}
	v := s.d.Control.View()
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(r.Version)
	cluster := v.ClusterID()
	resp.ClusterID = &cluster
	resp.ControllerID = s.alive(v)
	reach := map[int32]bool{}
	for _, b := range v.Brokers() {
		host, port := s.d.Endpoint(r.Listener, b)
		if b.Fenced || host == "" {
			continue
		}
		reach[b.ID] = true
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: b.ID, Host: host, Port: port, Rack: words(b.Rack)})
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	m := &metadataTopics{s: s, v: v, reach: reach, operations: req.IncludeTopicAuthorizedOperations, version: r.Version,
		failures: slices.ContainsFunc(s.d.Data.Dirs(), func(d status.Dir) bool { return d.Error != "" })}
	if all {
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, v.NumTopics())
		for t := range v.Topics() {
			resp.Topics = append(resp.Topics, m.found(t))
		}
		return resp
	}
	seen := map[string]bool{}
	for i := range req.Topics {
		q := &req.Topics[i]
		key := string(q.TopicID[:])
		if q.Topic != nil {
			key += *q.Topic
		}
		if !seen[key] {
			seen[key] = true
			resp.Topics = append(resp.Topics, m.topic(q, failed))
		}
	}
	return resp
}

type metadataTopics struct {
	s          *Server
	v          *meta.View
	reach      map[int32]bool // brokers that the listener's clients reach
	operations bool
	version    int16
	failures   bool // one of our log directories has failed
}

// topic answers one topic asked for.
func (m *metadataTopics) topic(q *kmsg.MetadataRequestTopic, failed map[string]wire.ErrorCode) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID = q.Topic, q.TopicID
	byID := q.TopicID != [16]byte{}
	if byID && m.version < 12 || !byID && q.Topic == nil {
		name := ""
		if q.Topic != nil {
			name = *q.Topic
		}
		t.Topic, t.ErrorCode = &name, int16(wire.ErrInvalidRequest)
		return t
	}
	if byID {
		if f := m.v.TopicByID(q.TopicID); f != nil {
			return m.found(f)
		}
		t.Topic, t.ErrorCode = nil, int16(wire.ErrUnknownTopicId)
		return t
	}
	if f := m.v.TopicByName(*q.Topic); f != nil {
		return m.found(f)
	}
	code, tried := failed[*q.Topic]
	switch {
	case !validTopicName(*q.Topic):
		code = wire.ErrInvalidTopic
	case !tried:
		code = wire.ErrUnknownTopicOrPartition
	}
	t.ErrorCode = int16(code)
	return t
}

func (m *metadataTopics) found(t *meta.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, internalTopics[t.Name]
	if m.operations {
		out.AuthorizedOperations = topicOperations
	}
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		o := &out.Partitions[i]
		*o = kmsg.NewMetadataResponseTopicPartition()
		o.Partition, o.Leader, o.LeaderEpoch, o.Replicas, o.ISR = int32(i), p.Leader, p.LeaderEpoch, p.Replicas, p.ISR
		switch {
		case p.Leader < 0:
			o.ErrorCode = int16(wire.ErrLeaderNotAvailable)
		case !m.reach[p.Leader]:
			o.Leader, o.ErrorCode = -1, int16(wire.ErrListenerNotFound)
			if b := m.v.Broker(p.Leader); b == nil || b.Fenced || m.version < 6 {
				o.ErrorCode = int16(wire.ErrLeaderNotAvailable)
			}
		}
		for _, id := range p.Replicas {
			if m.offline(t, int32(i), id) {
				o.OfflineReplicas = append(o.OfflineReplicas, id)
			}
		}
	}
	return out
}

// offline tells whether a replica cannot be read: its broker is gone, or it is
// ours and its log directory has failed.
func (m *metadataTopics) offline(t *meta.Topic, partition, id int32) bool {
	if b := m.v.Broker(id); b == nil || b.Fenced {
		return true
	}
	if id != m.s.d.NodeID || !m.failures {
		return false
	}
	st, ok := m.s.d.Data.Status(t.ID, partition)
	return ok && st.Offline
}

// autoCreate creates the topics that do not exist. It returns the errors to
// answer for those that could not be created.
func (s *Server) autoCreate(ctx context.Context, topics []kmsg.MetadataRequestTopic) map[string]wire.ErrorCode {
	failed := map[string]wire.ErrorCode{}
	v := s.d.Control.View()
	partitions, replicas := s.topicDefaults(v)
	cmd := new(msg.CreateTopicsCommand)
	for i := range topics {
		q := &topics[i]
		if q.TopicID != [16]byte{} || q.Topic == nil || v.TopicByName(*q.Topic) != nil || internalTopics[*q.Topic] || !validTopicName(*q.Topic) {
			continue
		}
		if _, twice := failed[*q.Topic]; twice {
			continue
		}
		failed[*q.Topic] = wire.ErrLeaderNotAvailable // retried by every client
		if len(cmd.Topics) < maxAutoCreate {
			cmd.Topics = append(cmd.Topics, msg.CreateTopicsCommandNewTopic{Name: *q.Topic, TopicId: s.d.NewID(),
				NumPartitions: partitions, ReplicationFactor: replicas})
		}
	}
	if len(cmd.Topics) == 0 {
		return failed
	}
	res, o := s.propose(ctx, cmd, 0)
	if res == nil {
		s.d.Log.Warn("topics not created for a metadata request", "topics", len(cmd.Topics), "error", o.Code, "reason", o.Message)
		return failed
	}
	for i := range cmd.Topics {
		if o := item(res, i); o.Code != wire.ErrNone && o.Code != wire.ErrTopicAlreadyExists {
			failed[cmd.Topics[i].Name] = o.Code
		}
	}
	return failed
}

// validTopicName tells whether Kafka accepts the name: one rule for topics and
// mirrors.
func validTopicName(name string) bool { return config.ValidMirrorName(name) }
