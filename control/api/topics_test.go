package api

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

func (b *bed) metadata(listener string, version int16, q *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	b.t.Helper()
	resp := kmsg.NewPtrMetadataResponse()
	b.askOn(listener, wire.KeyMetadata, version, q, resp)
	return resp
}

func names(resp *kmsg.MetadataResponse) (out []string) {
	for _, t := range resp.Topics {
		if t.Topic == nil {
			out = append(out, "-")
		} else {
			out = append(out, *t.Topic)
		}
	}
	return out
}

func TestMetadataAllOrNone(t *testing.T) {
	b := fullBed(t)
	for v := int16(0); v <= 13; v++ {
		all, none := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataRequest()
		none.Topics = []kmsg.MetadataRequestTopic{}
		if v == 0 {
			all.Topics = none.Topics // version 0 has no null
		}
		if got := names(b.metadata("", v, all)); !slices.Equal(got, []string{"a", "t"}) {
			t.Errorf("version %d: all topics are %v", v, got)
		}
		if v > 0 {
			if got := names(b.metadata("", v, none)); got != nil {
				t.Errorf("version %d: no topics are %v", v, got)
			}
		}
	}
}

func TestMetadataOfAPartition(t *testing.T) {
	b := newBed(t)
	b.apply(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "a", TopicId: [16]byte{1}, Assignments: []msg.CreateTopicsCommandAssignment{
		{Replicas: []int32{1, 3}}, {Replicas: []int32{2, 1}}, {Replicas: []int32{2, 3}}}}}})
	b.data.statuses = []status.Partition{{TopicID: [16]byte{1}, Partition: 1, Offline: true}}
	b.data.dirs = []status.Dir{{Path: "/d", Error: "gone"}}
	q := kmsg.NewPtrMetadataRequest()
	q.IncludeTopicAuthorizedOperations = true
	resp := b.metadata("", 12, q)
	if len(resp.Brokers) != 2 || resp.Brokers[1].Host != "h2" || resp.Brokers[1].Port != 9092 || *resp.Brokers[1].Rack != "r2" || *resp.ClusterID != "here" || resp.ControllerID != 1 {
		t.Fatalf("%+v", resp)
	}
	top := resp.Topics[0]
	if top.TopicID != [16]byte{1} || top.AuthorizedOperations != topicOperations || top.IsInternal || top.ErrorCode != 0 {
		t.Fatalf("%+v", top)
	}
	want := []kmsg.MetadataResponseTopicPartition{
		{Partition: 0, Leader: 1, Replicas: []int32{1, 3}, ISR: []int32{1}, OfflineReplicas: []int32{3}},
		{Partition: 1, Leader: 2, Replicas: []int32{2, 1}, ISR: []int32{2, 1}, OfflineReplicas: []int32{1}},
		{Partition: 2, Leader: 2, Replicas: []int32{2, 3}, ISR: []int32{2}, OfflineReplicas: []int32{3}},
	}
	if !reflect.DeepEqual(top.Partitions, want) {
		t.Fatalf("%+v", top.Partitions)
	}
	// A listener that reaches broker 1 only: the others' leaders are not to be reached.
	resp = b.metadata("INSIDE", 12, q)
	p := resp.Topics[0].Partitions
	if len(resp.Brokers) != 1 || p[0].ErrorCode != 0 || p[1].ErrorCode != int16(wire.ErrListenerNotFound) || p[1].Leader != -1 {
		t.Fatalf("%+v", resp)
	}
	if p = b.metadata("INSIDE", 5, q).Topics[0].Partitions; p[1].ErrorCode != int16(wire.ErrLeaderNotAvailable) {
		t.Fatalf("%+v", p)
	}
	b.apply(&msg.FenceBrokerCommand{BrokerId: 2, BrokerEpoch: b.control.view.Broker(2).Epoch})
	p = b.metadata("", 12, q).Topics[0].Partitions
	if p[1].Leader != 1 || p[2].Leader != -1 || p[2].ErrorCode != int16(wire.ErrLeaderNotAvailable) || p[0].LeaderEpoch != 0 || p[1].LeaderEpoch != 1 {
		t.Fatalf("%+v", p)
	}
	b.apply(&msg.FenceBrokerCommand{BrokerId: 1, BrokerEpoch: b.control.view.Broker(1).Epoch})
	if got := b.metadata("", 12, q); got.ControllerID != -1 || len(got.Brokers) != 0 {
		t.Fatalf("%+v", got)
	}
}

func TestMetadataByNameAndID(t *testing.T) {
	b := fullBed(t)
	q := kmsg.NewPtrMetadataRequest()
	q.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{1}}, {TopicID: [16]byte{9}}, {Topic: ptr("a")}, {Topic: ptr("a")}, {Topic: ptr("a/b")}, {Topic: ptr("nope")}}
	code := func(resp *kmsg.MetadataResponse) (out []wire.ErrorCode) {
		for _, t := range resp.Topics {
			out = append(out, wire.ErrorCode(t.ErrorCode))
		}
		return out
	}
	resp := b.metadata("", 12, q)
	if got, want := code(resp), []wire.ErrorCode{0, wire.ErrUnknownTopicId, 0, wire.ErrInvalidTopic, wire.ErrUnknownTopicOrPartition}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := names(resp), []string{"a", "-", "a", "a/b", "nope"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	q.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{1}}, {}}
	if got := code(b.metadata("", 11, q)); !slices.Equal(got, []wire.ErrorCode{wire.ErrInvalidRequest, wire.ErrInvalidRequest}) {
		t.Errorf("version 11 by id: %v", got)
	}
}

func TestMetadataCreatesTopics(t *testing.T) {
	ask := func(b *bed, v int16, allow bool, names ...string) (out []wire.ErrorCode) {
		q := kmsg.NewPtrMetadataRequest()
		q.AllowAutoTopicCreation = allow
		for i := range names {
			q.Topics = append(q.Topics, kmsg.MetadataRequestTopic{Topic: &names[i]})
		}
		for _, t := range b.metadata("", v, q).Topics {
			if out = append(out, wire.ErrorCode(t.ErrorCode)); t.ErrorCode == 0 && len(t.Partitions) == 0 {
				out = append(out, -1)
			}
		}
		return out
	}
	unknown := wire.ErrUnknownTopicOrPartition
	b := newBed(t)
	b.config.NumPartitions = 3
	if got := ask(b, 12, false, "x"); !slices.Equal(got, []wire.ErrorCode{unknown}) {
		t.Errorf("not allowed: %v", got)
	}
	if got := ask(b, 12, true, "x", "x", "__consumer_offsets", "no/pe", ".."); !slices.Equal(got, []wire.ErrorCode{0, unknown, wire.ErrInvalidTopic, wire.ErrInvalidTopic}) {
		t.Errorf("allowed: %v", got)
	}
	x := b.control.view.TopicByName("x")
	if b.control.view.NumTopics() != 1 || len(x.Partitions) != 3 || len(b.control.proposed) != 1 {
		t.Errorf("%d topics, %+v, %d commands", b.control.view.NumTopics(), x, len(b.control.proposed))
	}
	if got := ask(b, 3, false, "old"); !slices.Equal(got, []wire.ErrorCode{0}) {
		t.Errorf("version 3 always creates: %v", got)
	}
	b.config.DefaultReplication = 5
	if got := ask(b, 12, true, "y"); !slices.Equal(got, []wire.ErrorCode{wire.ErrInvalidReplicationFactor}) {
		t.Errorf("replication factor 5 of 2 brokers: %v", got)
	}
	b.control.err = ErrNoController
	if got := ask(b, 12, true, "y"); !slices.Equal(got, []wire.ErrorCode{wire.ErrLeaderNotAvailable}) {
		t.Errorf("without a controller: %v", got)
	}
	b.control.err = nil
	b.apply(&msg.AlterConfigsCommand{Resources: []msg.AlterConfigsCommandResource{{Type: meta.ResourceBroker, Ops: []msg.AlterConfigsCommandOp{
		{Name: "auto.create.topics.enable", Value: ptr("false")}, {Name: "default.replication.factor", Value: ptr("2")}}}}})
	if got := ask(b, 12, true, "y"); !slices.Equal(got, []wire.ErrorCode{unknown}) {
		t.Errorf("creation is off in the cluster: %v", got)
	}
	b.apply(&msg.AlterConfigsCommand{Resources: []msg.AlterConfigsCommandResource{{Type: meta.ResourceBroker, Ops: []msg.AlterConfigsCommandOp{{Name: "auto.create.topics.enable", Op: 1}}}}})
	if got := ask(b, 12, true, "y"); !slices.Equal(got, []wire.ErrorCode{0}) || len(b.control.view.TopicByName("y").Partitions[0].Replicas) != 2 {
		t.Errorf("the cluster's defaults: %v", got)
	}
}

func TestCreateTopics(t *testing.T) {
	b := newBed(t)
	b.config.NumPartitions, b.config.RetentionMs = 4, 1234
	placed := plain("placed", -1, -1)
	placed.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{1}}, {Partition: 0, Replicas: []int32{2}}}
	q := create(plain("plain", -1, -1, "cleanup.policy", "compact"), placed).(*kmsg.CreateTopicsRequest)
	q.ValidateOnly = true
	resp := kmsg.NewPtrCreateTopicsResponse()
	b.ask(19, 7, q, resp)
	if b.control.view.NumTopics() != 0 || resp.Topics[0].ErrorCode != 0 || resp.Topics[0].NumPartitions != 4 || resp.Topics[0].TopicID != [16]byte{} {
		t.Fatalf("dry: %+v", resp.Topics[0])
	}
	q.ValidateOnly = false
	b.ask(19, 7, q, resp)
	v := b.control.view
	pl, pc := v.TopicByName("plain"), v.TopicByName("placed")
	if pl == nil || len(pl.Partitions) != 4 || pl.Configs["cleanup.policy"] != "compact" || pl.ID != resp.Topics[0].TopicID {
		t.Fatalf("%+v", pl)
	}
	if len(pc.Partitions) != 2 || pc.Partitions[0].Leader != 2 || pc.Partitions[1].Leader != 1 || resp.Topics[1].NumPartitions != 2 || resp.Topics[1].ReplicationFactor != 1 {
		t.Fatalf("%+v %+v", pc, resp.Topics[1])
	}
	sources := map[string][2]any{}
	for _, c := range resp.Topics[0].Configs {
		sources[c.Name] = [2]any{*c.Value, kmsg.ConfigSource(c.Source)}
	}
	want := map[string][2]any{"cleanup.policy": {"compact", kmsg.ConfigSourceDynamicTopicConfig}, "retention.ms": {"1234", kmsg.ConfigSourceStaticBrokerConfig},
		"segment.bytes": {"1073741824", kmsg.ConfigSourceDefaultConfig}}
	for name, w := range want {
		if sources[name] != w {
			t.Errorf("%s is %v, want %v", name, sources[name], w)
		}
	}
	// One bad topic leaves the others alone.
	b.ask(19, 7, create(plain("plain", 1, 1), plain("good", 1, 1)), resp)
	if resp.Topics[0].ErrorCode != int16(wire.ErrTopicAlreadyExists) || resp.Topics[0].NumPartitions != -1 || resp.Topics[1].ErrorCode != 0 || b.control.view.TopicByName("good") == nil {
		t.Fatalf("%+v", resp.Topics)
	}
}

func TestDeleteTopics(t *testing.T) {
	b := fullBed(t)
	b.topic("c", 3, 1)
	resp := kmsg.NewPtrDeleteTopicsResponse()
	b.ask(20, 6, deletion(kmsg.DeleteTopicsRequestTopic{TopicID: [16]byte{1}}, kmsg.DeleteTopicsRequestTopic{Topic: ptr("c")}, kmsg.DeleteTopicsRequestTopic{Topic: ptr("nope")}), resp)
	if r := resp.Topics; *r[0].Topic != "a" || r[0].ErrorCode != 0 || r[1].TopicID != [16]byte{3} || r[1].ErrorCode != 0 || r[2].ErrorCode != 3 || b.control.view.NumTopics() != 1 {
		t.Fatalf("%+v", r)
	}
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.TopicNames = []string{"t"}
	b.config.DeleteTopics = false
	for v, want := range map[int16]wire.ErrorCode{1: wire.ErrInvalidRequest, 2: wire.ErrInvalidRequest, 3: wire.ErrTopicDeletionDisabled, 5: wire.ErrTopicDeletionDisabled} {
		if b.ask(20, v, q, resp); resp.Topics[0].ErrorCode != int16(want) || b.control.view.NumTopics() != 1 {
			t.Errorf("version %d: %+v", v, resp.Topics[0])
		}
	}
	b.config.DeleteTopics = true
	if b.ask(20, 1, q, resp); resp.Topics[0].ErrorCode != 0 || b.control.view.NumTopics() != 0 {
		t.Errorf("%+v", resp.Topics[0])
	}
}

func TestDeleteRecords(t *testing.T) {
	b := fullBed(t)
	b.apply(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "log", NumPartitions: 1, ReplicationFactor: 1,
		Configs: []msg.CreateTopicsCommandConfig{{Name: "cleanup.policy", Value: "compact"}}}}})
	for _, x := range []struct {
		topic     string
		partition int32
		offset    int64
		low       int64
		code      wire.ErrorCode
	}{{"a", 0, -1, 42, 0}, {"a", 1, 7, 42, 0}, {"a", 0, -2, -1, wire.ErrOffsetOutOfRange}, {"a", 0, 101, -1, wire.ErrOffsetOutOfRange},
		{"a", 2, 7, -1, wire.ErrUnknownTopicOrPartition}, {"a", -1, 7, -1, wire.ErrUnknownTopicOrPartition}, {"nope", 0, 7, -1, wire.ErrUnknownTopicOrPartition},
		{"t", 0, 7, -1, wire.ErrPolicyViolation}, {"log", 0, 7, -1, wire.ErrPolicyViolation}} {
		q, resp := kmsg.NewPtrDeleteRecordsRequest(), kmsg.NewPtrDeleteRecordsResponse()
		q.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: x.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: x.partition, Offset: x.offset}}}}
		b.ask(21, 2, q, resp)
		if p := resp.Topics[0].Partitions[0]; p.LowWatermark != x.low || p.ErrorCode != int16(x.code) || p.Partition != x.partition {
			t.Errorf("%+v: %+v", x, p)
		}
	}
	if !slices.Equal(b.data.deleted, []int64{-1, 7, 101}) {
		t.Errorf("the data plane was asked for %v", b.data.deleted)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	b := fullBed(t)
	q, resp := kmsg.NewPtrOffsetForLeaderEpochRequest(), kmsg.NewPtrOffsetForLeaderEpochResponse()
	q.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
		{Partition: 0, CurrentLeaderEpoch: 1, LeaderEpoch: 6}, {Partition: 1, CurrentLeaderEpoch: 9, LeaderEpoch: 6}, {Partition: 2}}}}
	b.ask(23, 4, q, resp)
	want := []kmsg.OffsetForLeaderEpochResponseTopicPartition{{Partition: 0, LeaderEpoch: 5, EndOffset: 77},
		{Partition: 1, LeaderEpoch: -1, EndOffset: -1, ErrorCode: int16(wire.ErrUnknownLeaderEpoch)}, {Partition: 2, LeaderEpoch: -1, EndOffset: -1, ErrorCode: 3}}
	if got := resp.Topics[0].Partitions; !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v", got)
	}
}

func TestCreatePartitions(t *testing.T) {
	b := fullBed(t)
	q := growth(kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 4, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1, 2}}, {Replicas: []int32{2, 1}}}}).(*kmsg.CreatePartitionsRequest)
	q.ValidateOnly = true
	if lines := b.respond(37, q); lines != nil || len(b.control.view.TopicByName("a").Partitions) != 2 {
		t.Fatalf("dry: %q", lines)
	}
	q.ValidateOnly = false
	if lines := b.respond(37, q); lines != nil || len(b.control.view.TopicByName("a").Partitions) != 4 || b.control.view.TopicByName("a").Partitions[3].Leader != 2 {
		t.Fatalf("%q", lines)
	}
}

func (b *bed) initProducer(v int16, f func(*kmsg.InitProducerIDRequest)) *kmsg.InitProducerIDResponse {
	b.t.Helper()
	q, resp := kmsg.NewPtrInitProducerIDRequest(), kmsg.NewPtrInitProducerIDResponse()
	if f != nil {
		f(q)
	}
	b.ask(22, v, q, resp)
	return resp
}

func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	b := newBed(t)
	seen := map[int64]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	const each = 700 // two blocks and more
	for range 4 {
		all.Go(func() {
			for range each {
				id, ok := b.s.nextProducerID(context.Background())
				mu.Lock()
				if !ok || seen[id] {
					t.Errorf("id %d %v", id, ok)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(b.control.proposed) != 3 || b.control.view.NextProducerID() != 3*meta.ProducerIDBlock {
		t.Errorf("%d blocks for %d ids", len(b.control.proposed), len(seen))
	}
	other := New(b.s.d) // a new process
	if id, ok := other.nextProducerID(context.Background()); !ok || seen[id] {
		t.Errorf("id %d %v", id, ok)
	}
}

func TestInitProducerID(t *testing.T) {
	b := newBed(t)
	for v := int16(0); v <= 5; v++ {
		if r := b.initProducer(v, nil); r.ErrorCode != 0 || r.ProducerID != int64(v) || r.ProducerEpoch != 0 {
			t.Errorf("version %d: %+v", v, r)
		}
	}
	for name, x := range map[string]struct {
		f    func(*kmsg.InitProducerIDRequest)
		want wire.ErrorCode
	}{
		"transactional": {func(q *kmsg.InitProducerIDRequest) { q.TransactionalID = ptr("tx") }, wire.ErrUnsupportedVersion},
		"empty":         {func(q *kmsg.InitProducerIDRequest) { q.TransactionalID = ptr("") }, wire.ErrInvalidRequest},
		"half":          {func(q *kmsg.InitProducerIDRequest) { q.ProducerID = 4 }, wire.ErrInvalidRequest},
	} {
		if r := b.initProducer(4, x.f); r.ErrorCode != int16(x.want) || r.ProducerID != -1 || r.ProducerEpoch != -1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	b = newBed(t)
	b.control.err = ErrNoController
	if r := b.initProducer(4, nil); r.ErrorCode != int16(wire.ErrCoordinatorLoadInProgress) || r.ProducerID != -1 {
		t.Errorf("%+v", r)
	}
	b.control.err = nil
	if r := b.initProducer(4, nil); r.ErrorCode != 0 || r.ProducerID != 0 {
		t.Errorf("afterwards: %+v", r)
	}
	// Who waits for a block can give up.
	block := <-b.s.pids
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, ok := b.s.nextProducerID(ctx); ok {
		t.Error("an id from no block")
	}
	b.s.pids <- block
}

func TestDescribeCluster(t *testing.T) {
	b := newBed(t)
	q, resp := kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrDescribeClusterResponse()
	q.IncludeClusterAuthorizedOperations = true
	b.ask(60, 1, q, resp)
	if resp.ClusterID != "here" || resp.ControllerID != 1 || len(resp.Brokers) != 2 || resp.Brokers[0].Port != 9091 || resp.ClusterAuthorizedOperations != clusterOperations {
		t.Fatalf("%+v", resp)
	}
	q.IncludeFencedBrokers, q.IncludeClusterAuthorizedOperations = true, false
	b.ask(60, 2, q, resp)
	if len(resp.Brokers) != 3 || !resp.Brokers[2].IsFenced || resp.Brokers[0].IsFenced || resp.ClusterAuthorizedOperations != -2147483648 {
		t.Fatalf("%+v", resp)
	}
	b.askOn("INSIDE", 60, 2, q, resp)
	if len(resp.Brokers) != 2 {
		t.Fatalf("%+v", resp)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	b := newBed(t)
	b.data.dirs = []status.Dir{{Path: "/a", TotalBytes: 100, UsableBytes: 60}, {Path: "/b", Error: "EIO", TotalBytes: -1, UsableBytes: -1}}
	b.data.statuses = []status.Partition{{Topic: "y", Partition: 1, Dir: "/a", Size: 7, End: 5, High: 9}, {Topic: "x", Partition: 0, Dir: "/a", Size: 3},
		{Topic: "y", Partition: 0, Dir: "/a"}, {Topic: "z", Dir: "/b", Offline: true}, {Topic: "z", Partition: 1, Dir: "/a", Offline: true}}
	q, resp := kmsg.NewPtrDescribeLogDirsRequest(), kmsg.NewPtrDescribeLogDirsResponse()
	b.ask(35, 4, q, resp)
	type part = kmsg.DescribeLogDirsResponseDirTopicPartition
	want := []kmsg.DescribeLogDirsResponseDir{{Dir: "/a", TotalBytes: 100, UsableBytes: 60, Topics: []kmsg.DescribeLogDirsResponseDirTopic{
		{Topic: "x", Partitions: []part{{Partition: 0, Size: 3}}}, {Topic: "y", Partitions: []part{{Partition: 0}, {Partition: 1, Size: 7, OffsetLag: 4}}}}},
		{Dir: "/b", ErrorCode: int16(wire.ErrKafkaStorageError), TotalBytes: -1, UsableBytes: -1}}
	if !reflect.DeepEqual(resp.Dirs, want) {
		t.Fatalf("got  %+v\nwant %+v", resp.Dirs, want)
	}
	q.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "y", Partitions: []int32{1, 7}}}
	if b.ask(35, 2, q, resp); len(resp.Dirs) != 2 || len(resp.Dirs[0].Topics) != 1 || len(resp.Dirs[0].Topics[0].Partitions) != 1 {
		t.Fatalf("%+v", resp.Dirs)
	}
	q.Topics = []kmsg.DescribeLogDirsRequestTopic{}
	if b.ask(35, 4, q, resp); len(resp.Dirs[0].Topics) != 0 {
		t.Fatalf("%+v", resp.Dirs)
	}
}
