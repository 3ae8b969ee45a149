package api

// DescribeConfigs, versions 1-4, of topics (2), brokers (4) and mirrors (64).
//
//   - No names, or an empty list, means all.
//   - A broker describes itself; the empty name is what is set for all brokers.
//   - Values of secrets are null and marked sensitive. Documentation is null.
//   - A mirror lists what was set; its source has no number in Kafka and is 0.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/wire"
)

func describeConfigs(_ context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrDescribeConfigsRequest()
	if !read(req, r) {
		return nil
	}
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.SetVersion(r.Version)
	for i := range req.Resources {
		q := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.ResourceType, q.ResourceName
		all, o := s.configsOf(q)
		out.ErrorCode, out.ErrorMessage = int16(o.Code), words(o.Message)
		for _, c := range all {
			if len(q.ConfigNames) > 0 && !slices.Contains(q.ConfigNames, c.Name) {
				continue
			}
			if !req.IncludeSynonyms {
				c.ConfigSynonyms = nil
			}
			out.Configs = append(out.Configs, c)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

type configEntry = kmsg.DescribeConfigsResponseResourceConfig

func (s *Server) configsOf(q *kmsg.DescribeConfigsRequestResource) ([]configEntry, Outcome) {
	v := s.d.Control.View()
	switch int8(q.ResourceType) {
	case meta.ResourceTopic:
		t, o := findTopic(v, q.ResourceName)
		if t == nil {
			return nil, o
		}
		return s.topicConfigs(t)
	case meta.ResourceBroker:
		return s.brokerConfigs(v, q.ResourceName)
	case meta.ResourceMirror:
		if o := unknownMirror(v, q.ResourceName); o.Code != wire.ErrNone {
			return nil, o
		}
		return settings(v.Mirror(q.ResourceName).Configs, kmsg.ConfigSourceUnknown), Outcome{}
	}
	return nil, unknownResource
}

var unknownResource = Outcome{wire.ErrInvalidRequest, "this type of resource has no configs here: name a topic (2), a broker (4) or a mirror (64)"}

func findTopic(v *meta.View, name string) (*meta.Topic, Outcome) {
	if t := v.TopicByName(name); t != nil {
		return t, Outcome{}
	}
	if !validTopicName(name) {
		return nil, Outcome{wire.ErrInvalidTopic, fmt.Sprintf("%.60q is not a topic name: list the topics to see which exist", name)}
	}
	return nil, Outcome{wire.ErrUnknownTopicOrPartition, "no topic " + name + ": list the topics to see which exist"}
}

// entryOf makes a config entry; a secret's value stays here.
func entryOf(name, value string, source kmsg.ConfigSource) configEntry {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Source, c.ConfigType = name, source, typeOf(name, value)
	if c.IsSensitive = sensitive(name); c.IsSensitive {
		c.ConfigType = kmsg.ConfigTypePassword
	} else {
		c.Value = &value
	}
	return c
}

// synonym adds where else the value could have come from.
func synonym(c *configEntry, name, value string, source kmsg.ConfigSource) {
	y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	y.Name, y.Source = name, source
	if !c.IsSensitive {
		y.Value = &value
	}
	c.ConfigSynonyms = append(c.ConfigSynonyms, y)
}

// settings lists what was set, all of one source.
func settings(m map[string]string, source kmsg.ConfigSource) (out []configEntry) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		c := entryOf(name, m[name], source)
		synonym(&c, name, m[name], source)
		out = append(out, c)
	}
	return out
}

func (s *Server) topicConfigs(t *meta.Topic) ([]configEntry, Outcome) {
	in, err := s.topicConfig(t.Configs)
	if err != nil {
		return nil, badConfig(err)
	}
	static := config.NewTopic(s.d.Config).Values()
	cluster := s.d.Control.View().BrokerConfig()
	var out []configEntry
	for i, kv := range in.Values() {
		name, value := kv[0], kv[1]
		c := entryOf(name, value, s.topicSource(t.Configs, name, value))
		if own, ok := t.Configs[name]; ok {
			synonym(&c, name, own, kmsg.ConfigSourceDynamicTopicConfig)
		}
		broker := brokerName[name]
		if all, ok := cluster[name]; ok {
			synonym(&c, name, all, kmsg.ConfigSourceDynamicDefaultBrokerConfig)
		}
		if static[i][1] != plainTopic[name] && broker != "" {
			synonym(&c, broker, static[i][1], kmsg.ConfigSourceStaticBrokerConfig)
		}
		if broker != "" {
			synonym(&c, broker, plainTopic[name], kmsg.ConfigSourceDefaultConfig)
		}
		out = append(out, c)
	}
	return out, Outcome{}
}

func (s *Server) brokerConfigs(v *meta.View, name string) ([]configEntry, Outcome) {
	if name == "" {
		return settings(v.BrokerConfig(), kmsg.ConfigSourceDynamicDefaultBrokerConfig), Outcome{}
	}
	id := strconv.Itoa(int(s.d.NodeID))
	if name != id {
		return nil, Outcome{wire.ErrInvalidRequest, fmt.Sprintf("this is broker %s: send the request to broker %.20q, or name no broker for what is set for all", id, name)}
	}
	var out []configEntry
	for _, n := range []string{"broker.id", "node.id"} {
		c := entryOf(n, id, kmsg.ConfigSourceStaticBrokerConfig)
		c.ReadOnly, c.ConfigType = true, kmsg.ConfigTypeInt
		out = append(out, c)
	}
	for _, kv := range s.d.Config.Values() {
		name, value := kv[0], kv[1]
		source := kmsg.ConfigSourceDefaultConfig
		if value != plainBroker[name] {
			source = kmsg.ConfigSourceStaticBrokerConfig
		}
		static := source
		all, ok := v.BrokerConfig()[name]
		if ok {
			value, source = all, kmsg.ConfigSourceDynamicDefaultBrokerConfig
		}
		c := entryOf(name, value, source)
		c.ReadOnly = !slices.Contains(dynamicNames, name)
		if ok {
			synonym(&c, name, all, source)
		}
		if static == kmsg.ConfigSourceStaticBrokerConfig {
			synonym(&c, name, kv[1], static)
		}
		synonym(&c, name, plainBroker[name], kmsg.ConfigSourceDefaultConfig)
		out = append(out, c)
	}
	return out, Outcome{}
}

// plainBroker has the settings of a broker that sets nothing.
var plainBroker = func() map[string]string {
	out := map[string]string{}
	for _, kv := range config.Defaults().Values() {
		out[kv[0]] = kv[1]
	}
	return out
}()

// sensitive tells whether a setting is a secret.
func sensitive(name string) bool {
	return strings.HasSuffix(name, ".password") || strings.HasSuffix(name, ".secret") || strings.HasSuffix(name, "sasl.jaas.config") ||
		strings.HasSuffix(name, "ssl.keystore.key")
}

// typeOf tells a setting's type as far as clients show it: whole numbers count
// as LONG but for those below.
func typeOf(name, value string) kmsg.ConfigType {
	switch name {
	case "index.interval.bytes", "max.message.bytes", "min.insync.replicas", "segment.bytes", "segment.index.bytes", "num.partitions",
		"default.replication.factor", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level":
		return kmsg.ConfigTypeInt
	case "cleanup.policy", "log.cleanup.policy", "log.dirs", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
		"mirror.replication.throttled.replicas", "bootstrap.servers":
		return kmsg.ConfigTypeList
	case "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio":
		return kmsg.ConfigTypeDouble
	}
	if value == "true" || value == "false" {
		return kmsg.ConfigTypeBoolean
	}
	if _, err := strconv.ParseInt(value, 10, 64); err == nil {
		return kmsg.ConfigTypeLong
	}
	return kmsg.ConfigTypeString
}

// brokerName is the broker setting that is a topic setting's default.
var brokerName = map[string]string{
	"cleanup.policy": "log.cleanup.policy", "compression.type": "compression.type", "delete.retention.ms": "log.cleaner.delete.retention.ms",
	"file.delete.delay.ms": "log.segment.delete.delay.ms", "flush.ack": "lockstep.flush.ack", "flush.messages": "log.flush.interval.messages",
	"flush.ms": "log.flush.interval.ms", "index.interval.bytes": "log.index.interval.bytes", "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
	"max.message.bytes": "message.max.bytes", "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms", "message.timestamp.type": "log.message.timestamp.type",
	"min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio", "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
	"min.insync.replicas": "min.insync.replicas", "preallocate": "log.preallocate", "retention.bytes": "log.retention.bytes",
	"retention.ms": "log.retention.ms", "segment.bytes": "log.segment.bytes", "segment.index.bytes": "log.index.size.max.bytes",
	"segment.jitter.ms": "log.roll.jitter.ms", "segment.ms": "log.roll.ms", "unclean.leader.election.enable": "unclean.leader.election.enable",
}
