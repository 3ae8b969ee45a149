package api

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// errorsIn lists the codes and texts of all errors in a response.
func errorsIn(v reflect.Value, out []string) []string {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return errorsIn(v.Elem(), out)
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = errorsIn(v.Index(i), out)
		}
	case reflect.Struct:
		if c := v.FieldByName("ErrorCode"); c.IsValid() && c.Int() != 0 {
			text := ""
			if m := v.FieldByName("ErrorMessage"); m.IsValid() && !m.IsNil() {
				text = ": " + m.Elem().String()
			}
			out = append(out, wire.ErrorCode(c.Int()).Name()+text)
		}
		for i := range v.NumField() {
			out = errorsIn(v.Field(i), out)
		}
	}
	return out
}

type topicReq = kmsg.CreateTopicsRequestTopic

func create(topics ...topicReq) message {
	q := kmsg.NewPtrCreateTopicsRequest()
	q.Topics = topics
	return q
}

func plain(name string, partitions int32, replicas int16, kv ...string) topicReq {
	t := topicReq{Topic: name, NumPartitions: partitions, ReplicationFactor: replicas}
	for i := 0; i < len(kv); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: kv[i], Value: &kv[i+1]})
	}
	return t
}

func alter(kind kmsg.ConfigResourceType, name string, ops ...kmsg.IncrementalAlterConfigsRequestResourceConfig) message {
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	q.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: ops}}
	return q
}

func op(name string, op kmsg.IncrementalAlterConfigOp, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Op: op, Value: &value}
}

func describe(kind kmsg.ConfigResourceType, name string) message {
	q := kmsg.NewPtrDescribeConfigsRequest()
	q.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name}}
	return q
}

func deletion(topics ...kmsg.DeleteTopicsRequestTopic) message {
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.Topics = topics
	return q
}

func growth(topics ...kmsg.CreatePartitionsRequestTopic) message {
	q := kmsg.NewPtrCreatePartitionsRequest()
	q.Topics = topics
	return q
}

func newMirror(name string, kv ...string) message {
	q := &msg.CreateClusterMirrorRequest{MirrorName: name}
	for i := 0; i < len(kv); i += 2 {
		q.Config = append(q.Config, msg.CreateClusterMirrorRequestMirrorConfig{Name: kv[i], Value: &kv[i+1]})
	}
	return q
}

// refusals are requests that are refused, one for each reason.
func refusals() []struct {
	name string
	key  int16
	req  message
} {
	placed := plain("x", -1, -1)
	placed.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{1}}}
	both, stranger, twice, again := placed, placed, placed, placed
	again.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{1}}, {Partition: 1, Replicas: []int32{2}}}
	both.NumPartitions = 2
	stranger.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 9}}}
	twice.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 1}}}
	null := plain("x", 1, 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	added := func(t msg.AddTopicsToMirrorRequestTopicState) message {
		return &msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{t}}
	}
	endpoints := kmsg.NewPtrDescribeClusterRequest()
	endpoints.EndpointType = 2
	replacing := kmsg.NewPtrAlterConfigsRequest()
	replacing.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 64, ResourceName: "m", Configs: []kmsg.AlterConfigsRequestResourceConfig{
		{Name: "mirror.source.cluster.id", Value: ptr("there")}}}}
	id1, id9 := [16]byte{1}, [16]byte{9}
	return []struct {
		name string
		key  int16
		req  message
	}{
		{"create: exists", 19, create(plain("a", 1, 1))},
		{"create: bad name", 19, create(plain("a/b", 1, 1))},
		{"create: no partitions", 19, create(plain("x", 0, 1))},
		{"create: too many partitions", 19, create(plain("x", 100_001, 1))},
		{"create: no replicas", 19, create(plain("x", 1, 0))},
		{"create: too many replicas", 19, create(plain("x", 1, 3))},
		{"create: named twice", 19, create(plain("x", 1, 1), plain("x", 1, 1))},
		{"create: unknown config", 19, create(plain("x", 1, 1, "retention.mz", "1"))},
		{"create: config out of range", 19, create(plain("x", 1, 1, "min.insync.replicas", "0"))},
		{"create: config without value", 19, create(null)},
		{"create: tiered", 19, create(plain("x", 1, 1, "remote.storage.enable", "true"))},
		{"create: assignment with holes", 19, create(placed)},
		{"create: assignment and partitions", 19, create(both)},
		{"create: assignment to a stranger", 19, create(stranger)},
		{"create: assignment twice to one", 19, create(twice)},
		{"create: assignment of one partition twice", 19, create(again)},
		{"delete: unknown", 20, deletion(kmsg.DeleteTopicsRequestTopic{Topic: ptr("nope")})},
		{"delete: unknown id", 20, deletion(kmsg.DeleteTopicsRequestTopic{TopicID: id9})},
		{"delete: name and id", 20, deletion(kmsg.DeleteTopicsRequestTopic{Topic: ptr("a"), TopicID: id1})},
		{"delete: neither", 20, deletion(kmsg.DeleteTopicsRequestTopic{})},
		{"delete: twice", 20, deletion(kmsg.DeleteTopicsRequestTopic{Topic: ptr("a")}, kmsg.DeleteTopicsRequestTopic{TopicID: id1})},
		{"grow: unknown", 37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "nope", Count: 2})},
		{"grow: fewer", 37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 2})},
		{"grow: mirrored", 37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "t", Count: 9})},
		{"grow: registered", 37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "src", Count: 9})},
		{"grow: wrong assignment", 37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 3, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}})},
		{"grow: twice", 37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 3}, kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 4})},
		{"describe: unknown topic", 32, describe(2, "nope")},
		{"describe: bad topic", 32, describe(2, "no/pe")},
		{"describe: other broker", 32, describe(4, "2")},
		{"describe: unknown mirror", 32, describe(64, "nope")},
		{"describe: loggers", 32, describe(8, "1")},
		{"alter: unknown topic", 44, alter(2, "nope", op("retention.ms", 0, "1"))},
		{"alter: one broker", 44, alter(4, "1", op("num.partitions", 0, "1"))},
		{"alter: static", 44, alter(4, "", op("log.dirs", 0, "/x"))},
		{"alter: broker out of range", 44, alter(4, "", op("num.partitions", 0, "0"))},
		{"alter: unknown mirror", 44, alter(64, "nope", op("bootstrap.servers", 0, "x:1"))},
		{"alter: mirror without servers", 44, alter(64, "m", op("bootstrap.servers", 1, ""))},
		{"alter: mirror to another source", 44, alter(64, "m", op("mirror.source.cluster.id", 0, "elsewhere"))},
		{"alter: other resource", 44, alter(8, "1", op("x", 0, "1"))},
		{"alter: append to a number", 44, alter(2, "a", op("retention.ms", 2, "1"))},
		{"alter: bad list", 44, alter(2, "a", op("cleanup.policy", 2, "shred"))},
		{"alter: nothing left", 44, alter(2, "a", op("cleanup.policy", 3, "delete"))},
		{"alter: twice", 44, alter(2, "a", op("retention.ms", 0, "1"), op("retention.ms", 1, ""))},
		{"alter: no operation", 44, alter(2, "a", op("retention.ms", 7, "1"))},
		{"alter: no name", 44, alter(2, "a", op("", 0, "1"))},
		{"alter: no value", 44, alter(2, "a", kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "retention.ms"})},
		{"replace: mirror without servers", 33, replacing},
		{"cluster: controllers", 60, endpoints},
		{"mirror: exists", 106, newMirror("m", "bootstrap.servers", "x:1")},
		{"mirror: bad name", 106, newMirror("m/n", "bootstrap.servers", "x:1")},
		{"mirror: no servers", 106, newMirror("n")},
		{"mirror: bad server", 106, newMirror("n", "bootstrap.servers", "x")},
		{"mirror: unknown setting", 106, newMirror("n", "bootstrap.server", "x:1")},
		{"mirror: itself", 106, newMirror("n", "bootstrap.servers", "x:1", "mirror.source.cluster.id", "here")},
		{"delete mirror: unknown", 104, &msg.DeleteClusterMirrorRequest{MirrorName: "nope"}},
		{"delete mirror: no name", 104, &msg.DeleteClusterMirrorRequest{}},
		{"add: no mirror", 95, added(msg.AddTopicsToMirrorRequestTopicState{TopicName: "x"})},
		{"add: unknown mirror", 95, added(msg.AddTopicsToMirrorRequestTopicState{TopicName: "x", MirrorName: ptr("nope")})},
		{"add: bad topic", 95, added(msg.AddTopicsToMirrorRequestTopicState{MirrorName: ptr("m")})},
		{"add: internal", 95, added(msg.AddTopicsToMirrorRequestTopicState{TopicName: "__consumer_offsets", MirrorName: ptr("m")})},
		{"add: bad type", 95, added(msg.AddTopicsToMirrorRequestTopicState{TopicName: "x", MirrorName: ptr("m"), MirrorType: 2})},
		{"remove: unknown mirror", 96, &msg.RemoveTopicsFromMirrorRequest{MirrorName: "nope", Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: "t"}}}},
		{"remove: unknown topic", 96, &msg.RemoveTopicsFromMirrorRequest{MirrorName: "m", Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: "nope"}}}},
		{"type: unknown mirror", 109, &msg.AlterMirrorTopicTypeRequest{MirrorName: "nope", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "t"}}}},
		{"type: bad type", 109, &msg.AlterMirrorTopicTypeRequest{MirrorName: "m", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "t", MirrorType: -1}}}},
		{"type: other id", 109, &msg.AlterMirrorTopicTypeRequest{MirrorName: "m", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "t", TopicId: id9}}}},
		{"type: id of another", 109, &msg.AlterMirrorTopicTypeRequest{MirrorName: "m", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "t", TopicId: id1}}}},
		{"pause", 102, &msg.PauseMirrorTopicsRequest{MirrorName: "m"}},
		{"resume", 103, &msg.ResumeMirrorTopicsRequest{MirrorName: "m"}},
		{"register: unknown topic", 107, &msg.RegisterMirrorSyncTopicRequest{MirrorName: "x", Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicName: "nope"}}}},
		{"register: unknown id", 107, &msg.RegisterMirrorSyncTopicRequest{MirrorName: "x", Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicId: id9}}}},
		{"register: no mirror", 107, &msg.RegisterMirrorSyncTopicRequest{Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicName: "a"}}}},
		{"unregister: no mirror", 108, &msg.UnregisterMirrorSyncTopicRequest{}},
		{"release: unknown id", 108, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "x", Release: true, Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{{TopicId: id9}}}},
		{"release: unknown topic", 108, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "x", Release: true, Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{{TopicName: "nope"}}}},
	}
}

// respond asks in the newest version and returns the errors of the answer.
func (b *bed) respond(key int16, req message) []string {
	_, resp := sample(key, wire.Lookup(key).Max)
	b.ask(key, wire.Lookup(key).Max, req, resp)
	return errorsIn(reflect.ValueOf(resp), nil)
}

func TestTheWordsOfRefusals(t *testing.T) {
	var got strings.Builder
	for _, r := range refusals() {
		b := fullBed(t)
		b.topic("src", 3, 1)
		b.apply(&msg.RegisterSyncCommand{Mirror: "far", ClusterId: "c", Topics: []msg.RegisterSyncCommandTopic{{TopicId: [16]byte{3}}}})
		index := b.control.view.Index()
		lines := b.respond(r.key, r.req)
		if len(lines) == 0 {
			t.Errorf("%s: not refused", r.name)
		}
		if b.control.view.Index() > index && b.control.view.NumTopics() != 3 {
			t.Errorf("%s: refused, and done", r.name)
		}
		for _, line := range lines {
			fmt.Fprintf(&got, "%s\n\t%s\n", r.name, line)
			if !strings.ContainsAny(line, ":;") {
				t.Errorf("%s: %q does not say what to do", r.name, line)
			}
		}
	}
	file := filepath.Join("testdata", "refusals.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		g, w := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
		for i := range g {
			if i >= len(w) || g[i] != w[i] {
				t.Fatalf("line %d is %q; see %s, and -update", i+1, g[i], file)
			}
		}
		t.Fatalf("the end of %s is missing", file)
	}
}

func TestWhatAFailedProposalMeans(t *testing.T) {
	for _, x := range []struct {
		err  error
		want wire.ErrorCode
	}{
		{ErrNoController, wire.ErrNotController},
		{fmt.Errorf("wrapped: %w", ErrNoController), wire.ErrNotController},
		{ErrUnknownOutcome, wire.ErrRequestTimedOut},
		{errors.New("disk on fire"), wire.ErrRequestTimedOut},
	} {
		for _, r := range []struct {
			key int16
			req message
		}{{19, create(plain("x", 1, 1))}, {20, deletion(kmsg.DeleteTopicsRequestTopic{Topic: ptr("a")})},
			{37, growth(kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 3})}, {44, alter(2, "a", op("retention.ms", 0, "1"))}} {
			b := fullBed(t)
			b.control.err = x.err
			lines := b.respond(r.key, r.req)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], x.want.Name()+": ") {
				t.Errorf("key %d, %v: %q", r.key, x.err, lines)
			}
		}
	}
	b := fullBed(t)
	big := plain("x", 1, 1)
	for i := range 30_000 {
		big.ReplicaAssignment = append(big.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}})
	}
	big.NumPartitions, big.ReplicationFactor = -1, -1
	if lines := b.respond(19, create(big)); len(lines) != 1 || !strings.Contains(lines[0], "split it") {
		t.Errorf("%q", lines)
	}
}
