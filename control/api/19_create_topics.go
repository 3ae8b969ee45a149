package api

// CreateTopics, versions 2-7.
//
//   - -1 for partitions or replication factor is the broker's default, and must
//     be given with a manual assignment, which is whole and counts from 0.
//   - A name twice in one request is an error for both.
//   - From 5 on the answer has the partitions, replicas and configs in force;
//     from 7 on the topic id. A dry run has no id.
//   - The answer comes when the topics are durable. TimeoutMillis ≤ 0 waits as
//     long as request.timeout.ms.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/config"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func createTopics(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrCreateTopicsRequest()
	if !read(req, r) {
		return nil
	}
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.SetVersion(r.Version)
	count := map[string]int{}
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	cmd := &msg.CreateTopicsCommand{ValidateOnly: req.ValidateOnly}
	var asked []int // index in the response, by item of the command
	for i := range req.Topics {
		q := &req.Topics[i]
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic = q.Topic
		n, o := s.newTopic(q)
		if count[q.Topic] > 1 {
			o = Outcome{wire.ErrInvalidRequest, "the topic is named twice in the request: name it once"}
		}
		if o.Code != wire.ErrNone {
			failTopic(&out, o)
		} else {
			asked = append(asked, i)
			cmd.Topics = append(cmd.Topics, n)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(asked) == 0 {
		return resp
	}
	res, o := s.propose(ctx, cmd, req.TimeoutMillis)
	for k, i := range asked {
		if res != nil {
			o = item(res, k)
		}
		if o.Code != wire.ErrNone {
			failTopic(&resp.Topics[i], o)
			continue
		}
		s.created(&resp.Topics[i], &cmd.Topics[k], req.ValidateOnly)
	}
	return resp
}

func failTopic(t *kmsg.CreateTopicsResponseTopic, o Outcome) {
	t.ErrorCode, t.ErrorMessage = int16(o.Code), words(o.Message)
	t.NumPartitions, t.ReplicationFactor = -1, -1
}

// newTopic checks one topic and fills its defaults.
func (s *Server) newTopic(q *kmsg.CreateTopicsRequestTopic) (n msg.CreateTopicsCommandNewTopic, o Outcome) {
	if !validTopicName(q.Topic) {
		return n, Outcome{wire.ErrInvalidTopic, fmt.Sprintf("%.60q is not a topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor ..", q.Topic)}
	}
	partitions, replicas := s.topicDefaults(s.d.Control.View())
	n = msg.CreateTopicsCommandNewTopic{Name: q.Topic, TopicId: s.d.NewID(), NumPartitions: q.NumPartitions, ReplicationFactor: q.ReplicationFactor}
	if len(q.ReplicaAssignment) > 0 {
		if n.Assignments, o = assignments(q); o.Code != wire.ErrNone {
			return n, o
		}
		n.NumPartitions, n.ReplicationFactor = int32(len(n.Assignments)), int16(len(n.Assignments[0].Replicas))
	}
	if n.NumPartitions == -1 {
		n.NumPartitions = partitions
	}
	if n.ReplicationFactor == -1 {
		n.ReplicationFactor = replicas
	}
	switch live := s.live(); {
	case n.NumPartitions < 1:
		return n, Outcome{wire.ErrInvalidPartitions, fmt.Sprintf("%d partitions: ask for at least 1, or for -1, the broker's default", n.NumPartitions)}
	case n.ReplicationFactor < 1 && n.Assignments == nil:
		return n, Outcome{wire.ErrInvalidReplicationFactor, fmt.Sprintf("replication factor %d: ask for at least 1, or for -1, the broker's default", n.ReplicationFactor)}
	case n.Assignments == nil && int(n.ReplicationFactor) > live:
		return n, Outcome{wire.ErrInvalidReplicationFactor, fmt.Sprintf("replication factor %d is above the %d live brokers: lower it, or start more brokers", n.ReplicationFactor, live)}
	}
	settings := map[string]string{}
	for _, c := range q.Configs {
		if c.Value == nil {
			return n, Outcome{wire.ErrInvalidConfig, c.Name + " has no value: give it one, or leave it out for the default"}
		}
		settings[c.Name] = *c.Value
	}
	if _, err := s.topicConfig(settings); err != nil {
		return n, badConfig(err)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		n.Configs = append(n.Configs, msg.CreateTopicsCommandConfig{Name: name, Value: settings[name]})
	}
	return n, Outcome{}
}

// live is the number of brokers that new replicas may go to.
func (s *Server) live() (n int) {
	for _, b := range s.d.Control.View().Brokers() {
		if b.Alive() {
			n++
		}
	}
	return n
}

// assignments orders a manual assignment by partition.
func assignments(q *kmsg.CreateTopicsRequestTopic) ([]msg.CreateTopicsCommandAssignment, Outcome) {
	if q.NumPartitions != -1 || q.ReplicationFactor != -1 {
		return nil, Outcome{wire.ErrInvalidRequest, "a manual assignment says how many partitions and replicas there are: give -1 for both"}
	}
	out := make([]msg.CreateTopicsCommandAssignment, len(q.ReplicaAssignment))
	for _, a := range q.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(out) || out[a.Partition].Replicas != nil || len(a.Replicas) == 0 {
			return nil, Outcome{wire.ErrInvalidReplicaAssignment, "a manual assignment names the partitions 0, 1, 2, … once each, with at least one replica: correct it"}
		}
		out[a.Partition].Replicas = slices.Clone(a.Replicas)
	}
	return out, Outcome{}
}

// created fills the answer for a topic that was created.
func (s *Server) created(out *kmsg.CreateTopicsResponseTopic, n *msg.CreateTopicsCommandNewTopic, dry bool) {
	if !dry {
		out.TopicID = n.TopicId
	}
	out.NumPartitions, out.ReplicationFactor = n.NumPartitions, n.ReplicationFactor
	settings := map[string]string{}
	for _, c := range n.Configs {
		settings[c.Name] = c.Value
	}
	t, err := s.topicConfig(settings)
	if err != nil {
		return // checked before; the topic exists, only its configs are not told
	}
	for _, kv := range t.Values() {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source = kv[0], &kv[1], int8(s.topicSource(settings, kv[0], kv[1]))
		out.Configs = append(out.Configs, c)
	}
}

// topicSource tells where a topic's setting comes from.
func (s *Server) topicSource(settings map[string]string, name, value string) kmsg.ConfigSource {
	if _, own := settings[name]; own {
		return kmsg.ConfigSourceDynamicTopicConfig
	}
	if _, all := s.d.Control.View().BrokerConfig()[name]; all {
		return kmsg.ConfigSourceDynamicDefaultBrokerConfig
	}
	if value != plainTopic[name] {
		return kmsg.ConfigSourceStaticBrokerConfig
	}
	return kmsg.ConfigSourceDefaultConfig
}

// plainTopic has the settings of a topic on a broker that sets nothing.
var plainTopic = func() map[string]string {
	c := config.Defaults()
	out := map[string]string{}
	for _, kv := range config.NewTopic(&c).Values() {
		out[kv[0]] = kv[1]
	}
	return out
}()
