package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestStockFileStarts(t *testing.T) {
	source, err := os.ReadFile("testdata/server.properties")
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Load(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeID != 1 || !c.Broker || !c.Controller || c.NumPartitions != 1 || c.RetentionMs != 168*3_600_000 || c.SegmentBytes != 1<<30 ||
		!slices.Equal(c.LogDirs, []string{"/tmp/kraft-combined-logs"}) || c.OffsetsReplication != 1 || c.TransactionMinISR != 1 || c.InterBrokerListener != "PLAINTEXT" {
		t.Errorf("%+v", c)
	}
	if want := []Listener{{"PLAINTEXT", "", 9092, "PLAINTEXT"}, {"CONTROLLER", "", 9093, "PLAINTEXT"}}; !slices.Equal(c.Listeners, want) {
		t.Errorf("listeners %+v", c.Listeners)
	}
	if c.Advertised[0].Host != "localhost" || !slices.Equal(c.QuorumBootstrap, []HostPort{{"localhost", 9093}}) {
		t.Errorf("%+v %+v", c.Advertised, c.QuorumBootstrap)
	}
	// One warning each, with its line, for what has no meaning here.
	if len(warnings) != 7 || !strings.Contains(strings.Join(warnings, "\n"), "line 15: num.network.threads") {
		t.Errorf("%d warnings:\n%s", len(warnings), strings.Join(warnings, "\n"))
	}
}

func TestDefaults(t *testing.T) {
	c := Defaults()
	want := map[string]string{
		"message.max.bytes": "1048588", "socket.request.max.bytes": "104857600", "fetch.max.bytes": "57671680", "log.retention.ms": "604800000",
		"log.roll.ms": "604800000", "log.flush.interval.messages": "9223372036854775807", "replica.lag.time.max.ms": "30000",
		"mirror.sync.topic.demote.timeout.ms": "30000", "unstable.api.versions.enable": "true", "lockstep.io.engine": "auto", "lockstep.flush.ack": "appended",
		"lockstep.admin.listener": "127.0.0.1:9644", "lockstep.mirror.register.barrier.ms": "10000", "lockstep.mirror.fetches": "63", "min.insync.replicas": "1", "log.dirs": "/tmp/kafka-logs",
		"auto.create.topics.enable": "true", "log.message.timestamp.after.max.ms": "3600000", "connections.max.idle.ms": "600000", "log.cleaner.min.cleanable.ratio": "0.5",
	}
	for _, kv := range c.Values() {
		if w, ok := want[kv[0]]; ok && w != kv[1] {
			t.Errorf("%s=%s, want %s", kv[0], kv[1], w)
		}
		delete(want, kv[0])
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
	if c.NodeID != 1 || !c.Broker || !c.Controller || len(c.Listeners) != 1 || c.InterBrokerListener != "PLAINTEXT" {
		t.Errorf("%+v", c)
	}
}

// TestValuesReadBack checks that every shown value is accepted again and means the same.
func TestValuesReadBack(t *testing.T) {
	c, _, err := Load(nil, []string{"log.retention.minutes=5", "compression.type=zstd", "lockstep.io.reactors=3"})
	if err != nil {
		t.Fatal(err)
	}
	var overrides []string
	for _, kv := range c.Values() {
		overrides = append(overrides, kv[0]+"="+kv[1])
	}
	again, warnings, err := Load(nil, overrides)
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	if !reflect.DeepEqual(c, again) {
		t.Errorf("was %+v\nis  %+v", c, again)
	}
}

func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		source    string
		overrides []string
		ok        func(*Config) bool
	}{
		{"log.retention.hours=2", nil, func(c *Config) bool { return c.RetentionMs == 7_200_000 }},
		{"log.retention.hours=2\nlog.retention.minutes=3", nil, func(c *Config) bool { return c.RetentionMs == 180_000 }},
		{"log.retention.hours=2\nlog.retention.minutes=3\nlog.retention.ms=9", nil, func(c *Config) bool { return c.RetentionMs == 9 }},
		{"log.retention.hours=-1", nil, func(c *Config) bool { return c.RetentionMs == -1 }},
		{"log.roll.hours=1", nil, func(c *Config) bool { return c.RollMs == 3_600_000 }},
		{"log.roll.hours=1\nlog.roll.ms=5", nil, func(c *Config) bool { return c.RollMs == 5 }},
		{"log.dir=/a", nil, func(c *Config) bool { return slices.Equal(c.LogDirs, []string{"/a"}) }},
		{"log.dir=/a\nlog.dirs=/b, /c", nil, func(c *Config) bool { return slices.Equal(c.LogDirs, []string{"/b", "/c"}) }},
		{"broker.id=7", nil, func(c *Config) bool { return c.NodeID == 7 }},
		{"broker.id=7\nnode.id=7", nil, func(c *Config) bool { return c.NodeID == 7 }},
		{"num.partitions=3", []string{"num.partitions=4", " num.partitions = 5"}, func(c *Config) bool { return c.NumPartitions == 5 }},
		{"num.partitions=3\nnum.partitions=6", nil, func(c *Config) bool { return c.NumPartitions == 6 }},
		{"log.dirs = \\\n   /x,\\\n /y", nil, func(c *Config) bool { return slices.Equal(c.LogDirs, []string{"/x", "/y"}) }},
		{"super.users = User:${admin}", nil, func(c *Config) bool { return c.SuperUsers == "User:${admin}" }},
		{"process.roles=controller\nlisteners=CONTROLLER://[::1]:9093", nil, func(c *Config) bool {
			return !c.Broker && c.Listeners[0] == Listener{"CONTROLLER", "::1", 9093, "PLAINTEXT"}
		}},
		{"listeners=IN://:1,OUT://h:2\nlistener.security.protocol.map=in:SSL,OUT:sasl_ssl\ninter.broker.listener.name=out", nil, func(c *Config) bool {
			return c.Listeners[0].Protocol == "SSL" && c.Listeners[1].Protocol == "SASL_SSL" && c.InterBrokerListener == "OUT"
		}},
		{"controller.quorum.voters=1@a:9093,2@b:9094", nil, func(c *Config) bool {
			return slices.Equal(c.QuorumVoters, []Voter{{1, HostPort{"a", 9093}}, {2, HostPort{"b", 9094}}})
		}},
		{"ssl.keystore.password=secret\nlistener.name.in.ssl.client.auth=required", nil, func(c *Config) bool { return len(c.Security) == 2 }},
		{"lockstep.flush.ack=durable", nil, func(c *Config) bool { t := NewTopic(c); return t.Durable() }},
		{"log.flush.interval.messages=1", nil, func(c *Config) bool { t := NewTopic(c); return t.Durable() && t.FlushAck == FlushAppended }},
	} {
		got, _, err := Load([]byte(c.source), c.overrides)
		if err != nil || !c.ok(&got) {
			t.Errorf("%q %q: %v %+v", c.source, c.overrides, err, got)
		}
	}
}

func TestFaults(t *testing.T) {
	for source, want := range map[string]string{
		"\n# c\nnum.partition=3":                     "line 3: unknown setting num.partition; did you mean num.partitions?",
		"a.list=x\\\n y=z\nlog.dri=1":                "line 3: unknown setting log.dri; did you mean log.dir?",
		"lockstep.io.engin=auto":                     "did you mean lockstep.io.engine?",
		"ssl.keystore.pasword=topsecret":             "did you mean ssl.keystore.password?",
		"num.partitions=0":                           "line 1: num.partitions: 0 is below 1",
		"num.partitions=x":                           `"x" is not a whole number`,
		"node.id=99999999999999999999":               "is above 2147483647",
		"log.segment.bytes=1000":                     "is below 1048576",
		"delete.topic.enable=yes":                    "neither true nor false",
		"compression.type=brotli":                    "none of producer",
		"log.cleanup.policy=compact,drop":            `"drop" is none of compact, delete`,
		"log.cleaner.min.cleanable.ratio=1.5":        "not a number from 0 to 1",
		"log.cleaner.min.cleanable.ratio=NaN":        "not a number from 0 to 1",
		"process.roles=broker,zookeeper":             "zookeeper",
		"process.roles=":                             "process.roles",
		"node.id=1\nbroker.id=2":                     "differ",
		"log.retention.ms=0":                         "delete everything",
		"listeners=9092":                             "is not NAME://host:port",
		"listeners=PLAINTEXT://h:70000":              "is not NAME://host:port",
		"listeners=PLAINTEXT://::1:9092":             "is not NAME://host:port",
		"listeners=FOO://h:1":                        "no security protocol for listener FOO",
		"listeners=PLAINTEXT://:1,PLAINTEXT://:2":    "stands twice",
		"listeners=CONTROLLER://:1":                  "not a controller listener",
		"controller.listener.names=CTL":              "CTL is not in listeners",
		"inter.broker.listener.name=FOO":             "FOO is not in listeners",
		"advertised.listeners=PLAINTEXT://0.0.0.0:1": "cannot be reached",
		"advertised.listeners=SSL://h:1":             "SSL is not in listeners",
		"controller.quorum.voters=a@b:1":             "is not id@host:port",
		"controller.quorum.voters=1@a:1,1@b:1":       "stands twice",
		"lockstep.admin.listener=9644":               "is not host:port",
		"broker.session.timeout.ms=2000":             "must be above",
	} {
		_, _, err := Load([]byte(source), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
	_, _, err := Load([]byte("num.partitions=0\nnonsense=1"), []string{"justname", "node.id=-1"})
	for _, want := range []string{"line 1", "line 2", "override: want name=value", "override: node.id: -1 is below 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, _, err := Load(make([]byte, maxText+1), nil); err == nil {
		t.Error("a huge text is accepted")
	}
}

func TestWarnings(t *testing.T) {
	_, w, err := Load([]byte("min.insync.replicas=2\nzookeeper.connect=h:1\nmessage.max.bytes=200000000"), nil)
	if err != nil || len(w) != 3 || !strings.Contains(w[0], "line 2: zookeeper.connect") {
		t.Errorf("%q %v", w, err)
	}
}

func TestNamesAreInOneClass(t *testing.T) {
	var c Config
	var r raw
	b := bind(&c, &r)
	if len(b.index) != len(b.entries) {
		t.Error("a setting is bound twice")
	}
	seen := map[string]bool{}
	for _, n := range slices.Concat(unusedNames, securityNames) {
		if b.find(n) != nil || seen[n] {
			t.Errorf("%s is in two classes", n)
		}
		seen[n] = true
	}
}

func TestTopic(t *testing.T) {
	c, _, err := Load(nil, []string{"min.insync.replicas=2", "log.retention.hours=1", "default.replication.factor=3", "log.cleanup.policy=compact,delete"})
	if err != nil {
		t.Fatal(err)
	}
	topic := NewTopic(&c)
	if topic.MinInsyncReplicas != 2 || topic.RetentionMs != 3_600_000 || topic.Durable() || !topic.Compacted() || topic.SegmentMs != c.RollMs {
		t.Errorf("%+v", topic)
	}
	for _, s := range []map[string]string{{"flush.messages": "1"}, {"flush.ack": "durable"}} {
		if topic, err := TopicOf(&c, s); err != nil || !topic.Durable() {
			t.Errorf("%v: %v", s, err)
		}
	}
	for name, value := range map[string]string{
		"flush.ack": "maybe", "retention.ms": "-2", "min.insync.replicas": "0", "cleanup.policy": "", "segment.bytes": "5", "remote.storage.enable": "true",
		"compression.type": "none", "retention.mss": "1", "max.message.bytes": "-1", "message.timestamp.type": "createtime",
	} {
		if ValidateTopic(name, value) == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
	if err := ValidateTopic("retention.mss", "1"); !strings.Contains(err.Error(), "did you mean retention.ms?") {
		t.Error(err)
	}
	values := topic.Values()
	if names := TopicNames(); len(names) != len(values) || !slices.IsSorted(names) || len(names) < 34 {
		t.Errorf("%d names", len(names))
	}
	own := map[string]string{}
	for _, kv := range values {
		own[kv[0]] = kv[1]
		if err := ValidateTopic(kv[0], kv[1]); err != nil {
			t.Error(err)
		}
	}
	d := Defaults()
	if again, err := TopicOf(&d, own); err != nil || !reflect.DeepEqual(again, topic) {
		t.Errorf("%v\nwas %+v\nis  %+v", err, topic, again)
	}
}

func TestMirror(t *testing.T) {
	m, err := MirrorOf(map[string]string{"bootstrap.servers": "a:1, b:2", "mirror.source.cluster.id": "id", "ssl.keystore.password": "p"})
	if err != nil || m.Complete() != nil || len(m.BootstrapServers) != 2 || m.FetchWaitMaxMs != 1000 || m.Security["ssl.keystore.password"] != "p" ||
		!slices.Contains(m.PropertiesExclude, "min.insync.replicas") || m.TopicsExclude[0] != "__.*" {
		t.Errorf("%v %+v", err, m)
	}
	for name, value := range map[string]string{
		"bootstrap.servers": "a", "mirror.topics.include": "(", "mirror.fetch.min.bytes": "-1", "mirror.fetch.wait": "1", "security.protocol": "TLS",
	} {
		if ValidateMirror(name, value) == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
	if m, _ := MirrorOf(map[string]string{"bootstrap.servers": "a:1"}); m.Complete() == nil {
		t.Error("a mirror without cluster id is complete")
	}
	if len(MirrorNames()) != 21 {
		t.Errorf("%d names", len(MirrorNames()))
	}
	for name, want := range map[string]bool{"a": true, "A-b_c.9": true, "": false, ".": false, "..": false, "a b": false, "a/b": false, strings.Repeat("x", 249): true, strings.Repeat("x", 250): false} {
		if ValidMirrorName(name) != want {
			t.Errorf("%q", name)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abc", "acb", 2}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d", c.a, c.b, got)
		}
	}
}
