package api

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func ptr[T any](v T) *T { return &v }

// sample is a request of every key with all its arrays filled.
func sample(key, version int16) (req, resp message) {
	switch key {
	case wire.KeyMetadata:
		q := kmsg.NewPtrMetadataRequest()
		q.Topics = []kmsg.MetadataRequestTopic{{Topic: ptr("a")}, {Topic: ptr("nope")}}
		q.IncludeTopicAuthorizedOperations, q.IncludeClusterAuthorizedOperations = true, true
		return q, q.ResponseKind()
	case wire.KeyCreateTopics:
		q := kmsg.NewPtrCreateTopicsRequest()
		q.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 3, ReplicationFactor: 2,
			Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: ptr("5")}}},
			{Topic: "placed", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{
				{Partition: 1, Replicas: []int32{1}}, {Partition: 0, Replicas: []int32{2}}}}}
		return q, q.ResponseKind()
	case wire.KeyDeleteTopics:
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.TopicNames = []string{"a", "nope"}
		q.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: ptr("nope")}, {TopicID: [16]byte{1}}}
		return q, q.ResponseKind()
	case wire.KeyDeleteRecords:
		q := kmsg.NewPtrDeleteRecordsRequest()
		q.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "a", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: -1}}}}
		return q, q.ResponseKind()
	case wire.KeyInitProducerId:
		q := kmsg.NewPtrInitProducerIDRequest()
		return q, q.ResponseKind()
	case wire.KeyOffsetForLeaderEpoch:
		q := kmsg.NewPtrOffsetForLeaderEpochRequest()
		q.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1, LeaderEpoch: 5}}}}
		return q, q.ResponseKind()
	case wire.KeyDescribeConfigs:
		q := kmsg.NewPtrDescribeConfigsRequest()
		q.IncludeSynonyms, q.IncludeDocumentation = true, true
		q.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: "a"}, {ResourceType: 4, ResourceName: "1"},
			{ResourceType: 64, ResourceName: "m"}, {ResourceType: 2, ResourceName: "a", ConfigNames: []string{"retention.ms"}}}
		return q, q.ResponseKind()
	case wire.KeyAlterConfigs:
		q := kmsg.NewPtrAlterConfigsRequest()
		q.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "a", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: ptr("9")}}}}
		return q, q.ResponseKind()
	case wire.KeyDescribeLogDirs:
		q := kmsg.NewPtrDescribeLogDirsRequest()
		q.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}}
		return q, q.ResponseKind()
	case wire.KeyCreatePartitions:
		q := kmsg.NewPtrCreatePartitionsRequest()
		q.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 4, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1, 2}}, {Replicas: []int32{2, 1}}}}}
		return q, q.ResponseKind()
	case wire.KeyIncrementalAlterConfigs:
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 2, ResourceName: "a",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "cleanup.policy", Op: 2, Value: ptr("compact")}}}}
		return q, q.ResponseKind()
	case wire.KeyDescribeCluster:
		q := kmsg.NewPtrDescribeClusterRequest()
		q.IncludeClusterAuthorizedOperations = true
		return q, q.ResponseKind()
	}
	return mirrorSample(key)
}

func mirrorSample(key int16) (req, resp message) {
	switch key {
	case wire.KeyAddTopicsToMirror:
		return &msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{{TopicName: "t", MirrorName: ptr("m"), MirrorType: 1}}}, new(msg.AddTopicsToMirrorResponse)
	case wire.KeyRemoveTopicsFromMirror:
		return &msg.RemoveTopicsFromMirrorRequest{MirrorName: "m", Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: "t"}}}, new(msg.RemoveTopicsFromMirrorResponse)
	case wire.KeyListClusterMirrors:
		return &msg.ListClusterMirrorsRequest{IncludeTopicNames: true}, new(msg.ListClusterMirrorsResponse)
	case wire.KeyDescribeClusterMirrors:
		return &msg.DescribeClusterMirrorsRequest{MirrorNames: []string{"m", "nope"}, ClusterId: ptr("there"), LastMirrorEpochLookups: []msg.DescribeClusterMirrorsRequestEpochLookup{
			{TopicId: [16]byte{2}, Partitions: []int32{0, 1, 7}}}}, new(msg.DescribeClusterMirrorsResponse)
	case wire.KeyPauseMirrorTopics:
		return &msg.PauseMirrorTopicsRequest{MirrorName: "m", Topics: []msg.PauseMirrorTopicsRequestTopicState{{TopicName: "t"}}}, new(msg.PauseMirrorTopicsResponse)
	case wire.KeyResumeMirrorTopics:
		return &msg.ResumeMirrorTopicsRequest{MirrorName: "m", Topics: []msg.ResumeMirrorTopicsRequestTopicState{{TopicName: "t"}}}, new(msg.ResumeMirrorTopicsResponse)
	case wire.KeyDeleteClusterMirror:
		return &msg.DeleteClusterMirrorRequest{MirrorName: "m"}, new(msg.DeleteClusterMirrorResponse)
	case wire.KeyCreateClusterMirror:
		return &msg.CreateClusterMirrorRequest{MirrorName: "n", Config: []msg.CreateClusterMirrorRequestMirrorConfig{{Name: "bootstrap.servers", Value: ptr("x:1")}}}, new(msg.CreateClusterMirrorResponse)
	case wire.KeyRegisterMirrorSyncTopic:
		return &msg.RegisterMirrorSyncTopicRequest{MirrorName: "theirs", DestinationClusterId: "c", Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{
			{TopicName: "a", TopicId: [16]byte{1}, RecoveryPromotion: true, ReleaseNumber: 4}}}, new(msg.RegisterMirrorSyncTopicResponse)
	case wire.KeyUnregisterMirrorSyncTopic:
		return &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "theirs", DestinationClusterId: "c", Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{
			{TopicName: "a", TopicId: [16]byte{1}, RegistrationEpoch: 5}}}, new(msg.UnregisterMirrorSyncTopicResponse)
	case wire.KeyAlterMirrorTopicType:
		return &msg.AlterMirrorTopicTypeRequest{MirrorName: "m", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "t", MirrorType: 1}}}, new(msg.AlterMirrorTopicTypeResponse)
	}
	return nil, nil
}

// eachVersion runs f for every key and version of the table that is served here.
func eachVersion(t *testing.T, f func(t *testing.T, row wire.API, version int16)) {
	for _, row := range wire.APIs() {
		if row.Hot {
			continue
		}
		for v := row.Min; v <= row.Max; v++ {
			f(t, row, v)
		}
	}
}

func fullBed(t testing.TB) *bed {
	b := newBed(t)
	b.topic("a", 1, 2)
	b.mirror("m", "t", 2, 1)
	return b
}

func TestEveryKeyAndVersionIsAnsweredInKafkasForm(t *testing.T) {
	n := 0
	eachVersion(t, func(t *testing.T, row wire.API, v int16) {
		req, resp := sample(row.Key, v)
		if req == nil {
			t.Fatalf("%s is in the table and has no handler or no sample", row.Name)
		}
		fullBed(t).ask(row.Key, v, req, resp)
		n++
	})
	if n < 60 {
		t.Fatalf("only %d versions", n)
	}
}

func TestOtherKeysAndVersionsCloseTheConnection(t *testing.T) {
	b := fullBed(t)
	eachVersion(t, func(t *testing.T, row wire.API, v int16) {
		for _, bad := range []int16{row.Min - 1, row.Max + 1, -1, 32767} {
			req, _ := sample(row.Key, row.Max)
			req.SetVersion(row.Max)
			if got := b.serve(row.Key, bad, "", req.AppendTo(nil)); got != nil {
				t.Errorf("%s version %d was answered", row.Name, bad)
			}
		}
	})
	for _, key := range []int16{wire.KeyProduce, wire.KeyFetch, wire.KeyApiVersions, 5, 97, -1, 128, 32767} {
		if got := b.serve(key, 0, "", make([]byte, 64)); got != nil {
			t.Errorf("key %d was answered", key)
		}
	}
	if got := b.serve(wire.KeyMetadata, 12, "", make([]byte, maxBody+1)); got != nil {
		t.Error("a body over the limit was answered")
	}
	b.config.UnstableAPIs = false
	for _, row := range wire.APIs() {
		if req, _ := sample(row.Key, 0); row.Unstable && b.serve(row.Key, 0, "", req.AppendTo(nil)) != nil {
			t.Errorf("%s was answered with unstable versions off", row.Name)
		}
	}
}

// cautious refuses every command, so that a mangled request creates nothing.
func cautious(t testing.TB) *bed {
	b := fullBed(t)
	b.control.err = ErrNoController
	return b
}

func TestTruncatedBodiesCloseTheConnection(t *testing.T) {
	b := cautious(t)
	eachVersion(t, func(t *testing.T, row wire.API, v int16) {
		req, _ := sample(row.Key, v)
		req.SetVersion(v)
		body := req.AppendTo(nil)
		for n := range body {
			if got := b.serve(row.Key, v, "", body[:n:n]); got != nil {
				t.Errorf("%s version %d: %d of %d bytes were answered", row.Name, v, n, len(body))
			}
		}
	})
}

func TestLyingCountsReserveNothing(t *testing.T) {
	b := cautious(t)
	var before, after runtime.MemStats
	eachVersion(t, func(t *testing.T, row wire.API, v int16) {
		req, _ := sample(row.Key, v)
		req.SetVersion(v)
		body := req.AppendTo(nil)
		for at := range body {
			for _, lie := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0xff, 0x07}} {
				lying := append(append(append([]byte{}, body[:at]...), lie...), body[at:]...)
				runtime.ReadMemStats(&before)
				b.serve(row.Key, v, "", lying)
				if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
					t.Fatalf("%s version %d, byte %d: %d bytes were reserved for a body of %d", row.Name, v, at, after.TotalAlloc-before.TotalAlloc, len(lying))
				}
			}
		}
	})
}

func TestMangledBodiesNeverPanic(t *testing.T) {
	rnd := rand.New(rand.NewSource(seed(t)))
	b := cautious(t)
	answered := 0
	eachVersion(t, func(t *testing.T, row wire.API, v int16) {
		req, _ := sample(row.Key, v)
		req.SetVersion(v)
		body := req.AppendTo(nil)
		for range 300 {
			m := append([]byte{}, body...)
			for range 1 + rnd.Intn(4) {
				if len(m) > 0 {
					m[rnd.Intn(len(m))] = byte(rnd.Int())
				}
			}
			if frame := b.serve(row.Key, v, "", m); frame != nil {
				answered++
				if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
					t.Fatalf("%s version %d: bad frame for % x", row.Name, v, m)
				}
			}
		}
	})
	if answered == 0 {
		t.Fatal("nothing got through the decoder: the test shows nothing")
	}
}

// A producer that does not give up does not fill the log.
func TestRefusedTransactionsAreLoggedSeldom(t *testing.T) {
	b := newBed(t)
	var log bytes.Buffer
	b.s.d.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 250 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = ptr("t")
		resp := kmsg.NewPtrInitProducerIDResponse()
		b.ask(wire.KeyInitProducerId, 5, req, resp)
		if resp.ErrorCode != int16(wire.ErrUnsupportedVersion) {
			t.Fatal(resp.ErrorCode)
		}
	}
	if n := bytes.Count(log.Bytes(), []byte("transactions are not supported")); n != 3 {
		t.Errorf("%d lines for 250 requests", n)
	}
}
