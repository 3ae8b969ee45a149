package api

import (
	"strconv"

	"lockstep/internal/config"
	"lockstep/internal/meta"
)

// dynamicNames are the broker settings that can be changed for all brokers
// while they run: those that Apply and these handlers read from the View.
var dynamicNames = []string{"auto.create.topics.enable", "default.replication.factor", "delete.topic.enable",
	"min.insync.replicas", "num.partitions", "unclean.leader.election.enable"}

// dynamic is a broker setting in force: the cluster's, or this broker's own.
func (s *Server) dynamic(name, own string) string {
	if v, ok := s.d.Control.View().BrokerConfig()[name]; ok {
		return v
	}
	return own
}

func (s *Server) autoCreation() bool {
	return s.dynamic("auto.create.topics.enable", strconv.FormatBool(s.d.Config.AutoCreateTopics)) == "true"
}

func (s *Server) deletion() bool {
	return s.dynamic("delete.topic.enable", strconv.FormatBool(s.d.Config.DeleteTopics)) == "true"
}

// topicDefaults are the partitions and the replication factor of a topic that
// asks for neither.
func (s *Server) topicDefaults(v *meta.View) (partitions int32, replicas int16) {
	c := v.BrokerConfig()
	number := func(name string, own int32) int32 {
		if n, err := strconv.ParseInt(c[name], 10, 32); err == nil {
			return int32(n)
		}
		return own
	}
	return number("num.partitions", s.d.Config.NumPartitions), int16(number("default.replication.factor", s.d.Config.DefaultReplication))
}

// topicConfig is the configuration in force of a topic with these settings.
func (s *Server) topicConfig(settings map[string]string) (config.Topic, error) {
	c := *s.d.Config
	b := s.d.Control.View().BrokerConfig()
	if n, err := strconv.ParseInt(b["min.insync.replicas"], 10, 32); err == nil {
		c.MinInsyncReplicas = int32(n)
	}
	if u, ok := b["unclean.leader.election.enable"]; ok {
		c.UncleanLeaderElection = u == "true"
	}
	return config.TopicOf(&c, settings)
}
