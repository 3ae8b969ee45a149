package api

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/config"
	"lockstep/internal/meta"
)

func (b *bed) describeConfigs(q message) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	b.t.Helper()
	q.(*kmsg.DescribeConfigsRequest).IncludeSynonyms = true
	resp := kmsg.NewPtrDescribeConfigsResponse()
	b.ask(32, 4, q, resp)
	if resp.Resources[0].ErrorCode != 0 {
		b.t.Fatalf("%d %v", resp.Resources[0].ErrorCode, *resp.Resources[0].ErrorMessage)
	}
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range resp.Resources[0].Configs {
		out[c.Name] = c
	}
	return out
}

// show writes a config with its synonyms in one line.
func show(c kmsg.DescribeConfigsResponseResourceConfig) string {
	value := func(v *string) string {
		if v == nil {
			return "null"
		}
		return *v
	}
	out := fmt.Sprintf("%s %s %s readonly=%v", value(c.Value), c.Source, c.ConfigType, c.ReadOnly)
	for _, y := range c.ConfigSynonyms {
		out += fmt.Sprintf(" | %s=%s %s", y.Name, value(y.Value), y.Source)
	}
	return out
}

func TestDescribeConfigsOfATopic(t *testing.T) {
	b := fullBed(t)
	b.config.RetentionMs = 1000
	if lines := b.respond(44, alter(4, "", op("min.insync.replicas", 0, "2"))); lines != nil {
		t.Fatal(lines)
	}
	if lines := b.respond(44, alter(2, "a", op("segment.bytes", 0, "2097152"))); lines != nil {
		t.Fatal(lines)
	}
	got := b.describeConfigs(describe(2, "a"))
	if len(got) != len(config.TopicNames()) {
		t.Errorf("%d configs of %d", len(got), len(config.TopicNames()))
	}
	for name, want := range map[string]string{
		"segment.bytes": "2097152 DYNAMIC_TOPIC_CONFIG INT readonly=false | segment.bytes=2097152 DYNAMIC_TOPIC_CONFIG | log.segment.bytes=1073741824 DEFAULT_CONFIG",
		"retention.ms":  "1000 STATIC_BROKER_CONFIG LONG readonly=false | log.retention.ms=1000 STATIC_BROKER_CONFIG | log.retention.ms=604800000 DEFAULT_CONFIG",
		"min.insync.replicas": "2 DYNAMIC_DEFAULT_BROKER_CONFIG INT readonly=false | min.insync.replicas=2 DYNAMIC_DEFAULT_BROKER_CONFIG" +
			" | min.insync.replicas=1 DEFAULT_CONFIG",
		"cleanup.policy":                         "delete DEFAULT_CONFIG LIST readonly=false | log.cleanup.policy=delete DEFAULT_CONFIG",
		"unclean.leader.election.enable":         "false DEFAULT_CONFIG BOOLEAN readonly=false | unclean.leader.election.enable=false DEFAULT_CONFIG",
		"min.cleanable.dirty.ratio":              "0.5 DEFAULT_CONFIG DOUBLE readonly=false | log.cleaner.min.cleanable.ratio=0.5 DEFAULT_CONFIG",
		"mirror.support.unclean.leader.election": "false DEFAULT_CONFIG BOOLEAN readonly=false",
	} {
		if s := show(got[name]); s != want {
			t.Errorf("%s\n got %s\nwant %s", name, s, want)
		}
	}
	q := describe(2, "a").(*kmsg.DescribeConfigsRequest)
	q.Resources[0].ConfigNames = []string{"retention.ms", "nope"}
	if got := b.describeConfigs(q); len(got) != 1 {
		t.Errorf("%v", got)
	}
	q.Resources[0].ConfigNames = []string{}
	if got := b.describeConfigs(q); len(got) != len(config.TopicNames()) {
		t.Errorf("an empty list gave %d", len(got))
	}
}

func TestDescribeConfigsOfABroker(t *testing.T) {
	b := fullBed(t)
	b.config.NumPartitions = 7
	b.respond(44, alter(4, "", op("default.replication.factor", 0, "2")))
	got := b.describeConfigs(describe(4, "1"))
	for name, want := range map[string]string{
		"node.id":                    "1 STATIC_BROKER_CONFIG INT readonly=true",
		"num.partitions":             "7 STATIC_BROKER_CONFIG INT readonly=false | num.partitions=7 STATIC_BROKER_CONFIG | num.partitions=1 DEFAULT_CONFIG",
		"default.replication.factor": "2 DYNAMIC_DEFAULT_BROKER_CONFIG INT readonly=false | default.replication.factor=2 DYNAMIC_DEFAULT_BROKER_CONFIG | default.replication.factor=1 DEFAULT_CONFIG",
		"socket.request.max.bytes":   "104857600 DEFAULT_CONFIG LONG readonly=true | socket.request.max.bytes=104857600 DEFAULT_CONFIG",
	} {
		if s := show(got[name]); s != want {
			t.Errorf("%s\n got %s\nwant %s", name, s, want)
		}
	}
	if got = b.describeConfigs(describe(4, "")); len(got) != 1 || show(got["default.replication.factor"]) != "2 DYNAMIC_DEFAULT_BROKER_CONFIG INT readonly=false | default.replication.factor=2 DYNAMIC_DEFAULT_BROKER_CONFIG" {
		t.Errorf("%v", got)
	}
}

func TestSecretsOfAMirrorStayHere(t *testing.T) {
	b := fullBed(t)
	got := b.describeConfigs(describe(64, "m"))
	c := got["ssl.key.password"]
	if len(got) != 3 || c.Value != nil || !c.IsSensitive || c.ConfigType != kmsg.ConfigTypePassword || len(c.ConfigSynonyms) != 1 || c.ConfigSynonyms[0].Value != nil {
		t.Errorf("%+v", got)
	}
	if s := show(got["bootstrap.servers"]); s != "far:9092 UNKNOWN LIST readonly=false | bootstrap.servers=far:9092 UNKNOWN" {
		t.Error(s)
	}
	for _, name := range []string{"sasl.jaas.config", "ssl.keystore.password", "ssl.keystore.key", "listener.name.x.ssl.key.password"} {
		if !sensitive(name) {
			t.Errorf("%s would be shown", name)
		}
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	b := fullBed(t)
	at := func(want map[string]string, ops ...kmsg.IncrementalAlterConfigsRequestResourceConfig) {
		t.Helper()
		if lines := b.respond(44, alter(2, "a", ops...)); lines != nil {
			t.Fatal(lines)
		}
		if got := b.control.view.TopicByName("a").Configs; !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	at(map[string]string{"retention.ms": "5"}, op("retention.ms", 0, "5"))
	at(map[string]string{"retention.ms": "5", "cleanup.policy": "delete,compact"}, op("cleanup.policy", 2, "compact")) // from the default
	at(map[string]string{"retention.ms": "5", "cleanup.policy": "compact"}, op("cleanup.policy", 3, "delete"))
	at(map[string]string{"cleanup.policy": "compact"}, op("retention.ms", 1, ""))
	q := alter(2, "a", op("cleanup.policy", 1, "")).(*kmsg.IncrementalAlterConfigsRequest)
	q.ValidateOnly = true
	if lines := b.respond(44, q); lines != nil || b.control.view.TopicByName("a").Configs["cleanup.policy"] != "compact" {
		t.Fatalf("dry: %q", lines)
	}
	// One bad resource leaves the others alone.
	q = alter(2, "a", op("retention.ms", 0, "x")).(*kmsg.IncrementalAlterConfigsRequest)
	q.Resources = append(q.Resources, alter(64, "m", op("mirror.fetch.min.bytes", 0, "9")).(*kmsg.IncrementalAlterConfigsRequest).Resources...)
	if lines := b.respond(44, q); len(lines) != 1 || b.control.view.Mirror("m").Configs["mirror.fetch.min.bytes"] != "9" {
		t.Fatalf("%q", lines)
	}
	q.Resources = append(q.Resources[1:], q.Resources[1])
	if lines := b.respond(44, q); len(lines) != 2 || !strings.Contains(lines[0], "named twice") {
		t.Fatalf("%q", lines)
	}
}

func TestAlterConfigsReplacesAll(t *testing.T) {
	b := fullBed(t)
	b.respond(44, alter(2, "a", op("retention.ms", 0, "5"), op("segment.bytes", 0, "2097152")))
	q := kmsg.NewPtrAlterConfigsRequest()
	q.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "a", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: ptr("6")}}}}
	if lines := b.respond(33, q); lines != nil {
		t.Fatal(lines)
	}
	if got := b.control.view.ConfigOf(meta.ResourceTopic, "a"); !maps.Equal(got, map[string]string{"retention.ms": "6"}) {
		t.Fatalf("%v", got)
	}
	q.Resources[0].Configs[0].Value = ptr("x")
	if lines := b.respond(33, q); len(lines) != 1 || b.control.view.TopicByName("a").Configs["retention.ms"] != "6" {
		t.Fatalf("%q", lines)
	}
}
