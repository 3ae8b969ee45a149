package api

import (
	"reflect"
	"slices"
	"testing"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

// step puts an event of a promotion into the log.
func (b *bed) step(id byte, phase mirror.Phase, event mirror.PromotionEventKind, number int64) {
	b.t.Helper()
	b.apply(&msg.PromotionStepCommand{Fence: -1, Topics: []msg.PromotionStepCommandTopic{{TopicId: [16]byte{id}, ExpectedPhase: int8(phase), Event: int8(event), Number: number}}})
}

// state puts a partition into a state.
func (b *bed) state(id byte, partition int32, state mirror.PartitionState, f func(*msg.MirrorPartitionStatesCommandPartition)) {
	b.t.Helper()
	p := b.control.view.TopicByID([16]byte{id}).Partitions[partition]
	r := msg.MirrorPartitionStatesCommandPartition{TopicId: [16]byte{id}, Partition: partition, LeaderEpoch: p.LeaderEpoch, StateEpoch: p.StateEpoch,
		State: int8(state), Previous: int8(p.State), LmeEpoch: -1, LmeOffset: -1}
	if f != nil {
		f(&r)
	}
	b.apply(&msg.MirrorPartitionStatesCommand{BrokerId: p.Leader, Partitions: []msg.MirrorPartitionStatesCommandPartition{r}})
}

func (b *bed) mirrors99(names ...string) *msg.DescribeClusterMirrorsResponse {
	b.t.Helper()
	resp := new(msg.DescribeClusterMirrorsResponse)
	b.ask(99, 0, &msg.DescribeClusterMirrorsRequest{MirrorNames: names}, resp)
	return resp
}

func annotation(t *msg.DescribeClusterMirrorsResponseDescribedTopic) string {
	if t.Annotation == nil {
		return ""
	}
	return *t.Annotation
}

// mirroring is a bed whose topic t has partitions led by 1 and by 2.
func mirroring(t *testing.T) *bed {
	b := newBed(t)
	b.apply(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "t", TopicId: [16]byte{2}, Assignments: []msg.CreateTopicsCommandAssignment{
		{Replicas: []int32{1}}, {Replicas: []int32{2}}, {Replicas: []int32{1}}}}}})
	b.apply(&msg.CreateMirrorCommand{Mirror: "m", Configs: []msg.CreateMirrorCommandConfig{{Name: "bootstrap.servers", Value: "far:9092"}, {Name: "mirror.source.cluster.id", Value: "there"}}})
	b.apply(&msg.AddTopicsToMirrorCommand{Mirror: "m", Topics: []msg.AddTopicsToMirrorCommandTopic{{Name: "t", TopicId: [16]byte{2}, NumPartitions: 3, ReplicationFactor: 1, MirrorType: 1}}})
	b.data.statuses = []status.Partition{
		{TopicID: [16]byte{2}, Partition: 0, Leader: true, End: 90, LatestEpoch: 6, Mirror: &status.Mirror{Sync: true, SourceHigh: 100, ContactMS: 555, LostAcked: 1}},
		{TopicID: [16]byte{2}, Partition: 2, Leader: true, End: 50, LatestEpoch: 7, Mirror: &status.Mirror{Sync: true, SourceHigh: 40, LastError: "connection refused"}},
	}
	return b
}

func TestDescribeOfAMirroringTopic(t *testing.T) {
	b := mirroring(t)
	b.state(2, 0, mirror.LogTruncation, nil)
	b.state(2, 2, mirror.LogTruncation, nil)
	b.state(2, 2, mirror.Failed, func(r *msg.MirrorPartitionStatesCommandPartition) {
		r.RetryAttempt, r.NonRetryable, r.Error = 4, true, ptr("disk")
	})
	resp := b.mirrors99()
	if len(resp.Mirrors) != 1 || resp.Mirrors[0].MirrorName != "m" || len(resp.Mirrors[0].Topics) != 1 || resp.Mirrors[0].AuthorizedOperations != -2147483648 {
		t.Fatalf("%+v", resp)
	}
	d := &resp.Mirrors[0].Topics[0]
	type part = msg.DescribeClusterMirrorsResponseDescribedPartition
	want := []part{
		{PartitionIndex: 0, SourceOffset: 100, DestinationOffset: 90, LogEndOffset: 90, Lag: 10, StateValue: "LOG_TRUNCATION", LastSourceEpoch: 6, LastContactMs: 555, LostAckedRecords: true},
		{PartitionIndex: 2, SourceOffset: 40, DestinationOffset: 50, LogEndOffset: 50, Lag: 0, StateValue: "FAILED", RetryAttempt: -1, ErrorMessage: ptr("disk"), LastSourceEpoch: 7, LastContactMs: -1},
	}
	if !reflect.DeepEqual(d.Partitions, want) {
		t.Errorf("got  %+v\nwant %+v", d.Partitions, want)
	}
	if d.DesiredMirrorType != 1 || d.EffectiveMirrorType != 0 || d.RecoveryPending || d.RegistrationEpoch != -1 || d.FlushAck != "appended" {
		t.Errorf("%+v", d)
	}
	// Partition 1 has another leader; when nobody leads it, every broker tells of it.
	b.apply(&msg.FenceBrokerCommand{BrokerId: 2, BrokerEpoch: b.control.view.Broker(2).Epoch})
	d = &b.mirrors99().Mirrors[0].Topics[0]
	if len(d.Partitions) != 3 || d.Partitions[1].DestinationOffset != -1 || d.Partitions[1].Lag != -1 {
		t.Errorf("%+v", d.Partitions)
	}
}

func TestDescribeSaysWhereAPromotionStands(t *testing.T) {
	const weak = "weak destination: min.insync.replicas=1, replication factor 1, flush.ack=appended"
	b := mirroring(t)
	says := func(want string, phase mirror.Phase, effective int8, recovery bool, epoch int64) {
		t.Helper()
		d := &b.mirrors99("m").Mirrors[0].Topics[0]
		if p := b.control.view.TopicByName("t").Mirror.Phase; p != phase {
			t.Fatalf("the phase is %v", p)
		}
		if annotation(d) != want || d.EffectiveMirrorType != effective || d.RecoveryPending != recovery || d.RegistrationEpoch != epoch {
			t.Errorf("%q, type %d, recovery %v, epoch %d; want %q", annotation(d), d.EffectiveMirrorType, d.RecoveryPending, d.RegistrationEpoch, want)
		}
	}
	says("promotion pending: lag 10; "+weak, mirror.Pending, 0, false, -1)
	b.note = "source cannot gate on mirrors (VERSION_MISMATCH)"
	says("promotion pending: lag 10; "+b.note+"; "+weak, mirror.Pending, 0, false, -1)
	b.note = ""
	b.data.statuses[1].Mirror.SourceHigh = -1
	says("promotion pending: lag unknown; "+weak, mirror.Pending, 0, false, -1)
	b.step(2, mirror.Pending, mirror.InStep, 0)
	says("promotion pending: lag unknown; "+weak, mirror.Registering, 0, false, -1)
	b.step(2, mirror.Registering, mirror.RegisterOK, 33)
	says("no answer of the source since this broker started: a release it made is not known here; "+weak, mirror.InSync, 1, false, 33)
	now := b.s.d.Now()
	for i := range b.data.statuses {
		b.data.statuses[i].Mirror.ContactMS = now - 7000
	}
	says("source silent for 7 s: a release it made since is not known here; "+weak, mirror.InSync, 1, false, 33)
	for i := range b.data.statuses {
		b.data.statuses[i].Mirror.ContactMS = now
	}
	says(weak, mirror.InSync, 1, false, 33)
	// The source's word counts at once, whatever the promotion machine waits for.
	b.data.statuses[1].Mirror.FailingSinceMS, b.data.statuses[1].Mirror.FailReason = now-3000, "INVALID_SYNC_REGISTRATION"
	says("NOT IN SYNC for 3 s: the source does not count our reports (INVALID_SYNC_REGISTRATION); what it acknowledges may be missing here; "+weak, mirror.InSync, 0, false, 33)
	b.data.statuses[1].Mirror.FailReason = "MIRROR_REGISTRATION_PROPAGATING"
	says(weak, mirror.InSync, 1, false, 33)
	b.data.statuses[1].Mirror.FailingSinceMS = 0
	b.respond(44, alter(2, "t", op("min.insync.replicas", 0, "2"), op("flush.messages", 0, "1")))
	says("weak destination: replication factor 1", mirror.InSync, 1, false, 33)
	if d := b.mirrors99().Mirrors[0].Topics[0]; d.FlushAck != "durable" {
		t.Errorf("flush.messages=1 is %s", d.FlushAck)
	}
	b.step(2, mirror.InSync, mirror.AllFailing, 0)
	says("released by source - recovery in flight; weak destination: replication factor 1", mirror.Recovery, 0, true, -1)
	b.note = "all partitions failing - recovery in flight"
	says(b.note+"; weak destination: replication factor 1", mirror.Recovery, 0, true, -1)
}

func TestDescribeOfAFailOver(t *testing.T) {
	b := mirroring(t)
	b.apply(&msg.StopMirrorTopicsCommand{Mirror: "m", Topics: []string{"t"}})
	d := &b.mirrors99().Mirrors[0].Topics[0]
	if annotation(d) != "stopping: not writable yet on all partitions" {
		t.Errorf("%q", annotation(d))
	}
	for p := range int32(3) {
		b.state(2, p, mirror.Stopping, nil)
		b.state(2, p, mirror.Stopped, func(r *msg.MirrorPartitionStatesCommandPartition) {
			r.LmeEpoch, r.LmeOffset = 6, 90
			r.Lineage = []msg.MirrorPartitionStatesCommandLineageEntry{{ClusterId: "first", FirstEpoch: 0}, {ClusterId: "there", FirstEpoch: 3, FirstOffset: 20},
				{ClusterId: "here", FirstEpoch: 7, FirstOffset: 90}}
		})
	}
	b.data.statuses[0].Mirror, b.data.statuses[0].LatestEpoch = nil, 9
	d = &b.mirrors99().Mirrors[0].Topics[0]
	if annotation(d) != "failed over: writable here; the old source must not take writes" || d.Partitions[0].StateValue != "STOPPED" ||
		d.Partitions[0].DestinationOffset != 90 || d.Partitions[0].SourceOffset != -1 || d.Partitions[0].Lag != -1 || d.Partitions[0].LastSourceEpoch != 6 {
		t.Errorf("%q %+v", annotation(d), d.Partitions[0])
	}
	for cluster, want := range map[string][2]int64{"there": {6, 90}, "first": {2, 20}, "here": {-1, -1}, "else": {-1, -1}} {
		resp := new(msg.DescribeClusterMirrorsResponse)
		b.ask(99, 0, &msg.DescribeClusterMirrorsRequest{ClusterId: &cluster, LastMirrorEpochLookups: []msg.DescribeClusterMirrorsRequestEpochLookup{
			{TopicId: [16]byte{2}, Partitions: []int32{1, 9}}, {TopicId: [16]byte{8}, Partitions: []int32{0}}}}, resp)
		p := resp.LookupResults[0].Partitions
		if got := [2]int64{int64(p[0].LastMirrorEpoch), p[0].LastMirrorOffset}; got != want || len(p[0].Lineage) != 3 || p[0].Lineage[1].FirstOffset != 20 {
			t.Errorf("%s: %v %+v, want %v", cluster, got, p[0].Lineage, want)
		}
		if p[1].LastMirrorEpoch != -1 || p[1].LastMirrorOffset != -1 || resp.LookupResults[1].Partitions[0].LastMirrorEpoch != -1 {
			t.Errorf("%+v", resp.LookupResults)
		}
	}
	// The mirror is deleted: the lineage still knows.
	b.apply(&msg.DeleteMirrorCommand{Mirror: "m"})
	resp := new(msg.DescribeClusterMirrorsResponse)
	b.ask(99, 0, &msg.DescribeClusterMirrorsRequest{ClusterId: ptr("there"), LastMirrorEpochLookups: []msg.DescribeClusterMirrorsRequestEpochLookup{{TopicId: [16]byte{2}, Partitions: []int32{0}}}}, resp)
	if p := resp.LookupResults[0].Partitions[0]; p.LastMirrorEpoch != 6 || p.LastMirrorOffset != 90 || len(resp.Mirrors) != 0 {
		t.Errorf("%+v", resp)
	}
}

func TestASourceListsItsRegistrations(t *testing.T) {
	b := newBed(t)
	b.topic("a", 1, 2)
	b.topic("c", 3, 1)
	b.apply(&msg.RegisterSyncCommand{Mirror: "x", ClusterId: "dest", Topics: []msg.RegisterSyncCommandTopic{{TopicId: [16]byte{1}}, {TopicId: [16]byte{3}}}})
	b.apply(&msg.RegisterSyncCommand{Mirror: "y", Topics: []msg.RegisterSyncCommandTopic{{TopicId: [16]byte{1}}}})
	first := int64(b.control.view.Index()) - 1
	b.apply(&msg.ReleaseSyncCommand{Mirror: "y", Fence: -1, RegistrationEpoch: -1})
	b.data.statuses = []status.Partition{{TopicID: [16]byte{1}, Partition: 1, Mirrors: []status.Report{{Name: "x", Unfenced: true}, {Name: "y"}}}}
	want := []msg.DescribeClusterMirrorsResponseRegistration{
		{TopicName: "a", TopicId: [16]byte{1}, MirrorName: "x", DestinationClusterId: "dest", RegistrationEpoch: first, ReleaseNumber: -1, Unfenced: true},
		{TopicName: "a", TopicId: [16]byte{1}, MirrorName: "y", RegistrationEpoch: first + 1, Released: true, ReleaseNumber: first + 2},
		{TopicName: "c", TopicId: [16]byte{3}, MirrorName: "x", DestinationClusterId: "dest", RegistrationEpoch: first, ReleaseNumber: -1},
	}
	if resp := b.mirrors99(); !reflect.DeepEqual(resp.Registrations, want) || len(resp.Mirrors) != 0 {
		t.Errorf("got  %+v\nwant %+v", resp.Registrations, want)
	}
	resp := b.mirrors99("y", "nope", "nope")
	if !reflect.DeepEqual(resp.Registrations, want[1:2]) || len(resp.Mirrors) != 1 || resp.Mirrors[0].ErrorCode != int16(wire.ErrUnknownClusterMirror) {
		t.Errorf("%+v", resp)
	}
}

func TestListMirrors(t *testing.T) {
	b := newBed(t)
	b.mirror("m", "t", 2, 0)
	b.apply(&msg.AddTopicsToMirrorCommand{Mirror: "m", Topics: []msg.AddTopicsToMirrorCommandTopic{{Name: "p", TopicId: [16]byte{4}, NumPartitions: 1, ReplicationFactor: 1},
		{Name: "s", TopicId: [16]byte{5}, NumPartitions: 1, ReplicationFactor: 1}}})
	b.apply(&msg.CreateMirrorCommand{Mirror: "empty", Configs: []msg.CreateMirrorCommandConfig{{Name: "bootstrap.servers", Value: "e:1"}, {Name: "mirror.source.cluster.id", Value: "z"}}})
	b.apply(&msg.PauseMirrorTopicsCommand{Mirror: "m", Topics: []string{"p"}})
	b.apply(&msg.StopMirrorTopicsCommand{Mirror: "m", Topics: []string{"s"}})
	resp := new(msg.ListClusterMirrorsResponse)
	b.ask(98, 0, &msg.ListClusterMirrorsRequest{IncludeTopicNames: true}, resp)
	want := []msg.ListClusterMirrorsResponseClusterMirror{{MirrorName: "empty", SourceBootstrap: "e:1", SourceClusterId: "z"},
		{MirrorName: "m", SourceBootstrap: "far:9092", SourceClusterId: "there", TopicCount: 1, TopicNames: []string{"p", "t"}}}
	if len(resp.Mirrors) != 2 || len(resp.Mirrors[0].TopicNames) > 0 || !reflect.DeepEqual(resp.Mirrors[1], want[1]) ||
		resp.Mirrors[0].SourceBootstrap != "e:1" || resp.Mirrors[0].TopicCount != 0 {
		t.Errorf("got  %+v\nwant %+v", resp.Mirrors, want)
	}
	b.ask(98, 0, &msg.ListClusterMirrorsRequest{}, resp)
	if len(resp.Mirrors[1].TopicNames) != 0 || resp.Mirrors[1].TopicCount != 1 {
		t.Errorf("%+v", resp.Mirrors)
	}
}

func TestVerbsPassOnWhatIsRightAndAnswerAtItsPlace(t *testing.T) {
	b := fullBed(t)
	b.mirrors.outcome = Outcome{wire.ErrTopicNotInClusterMirror, "topic is not mirrored"}
	codes := func(key int16, req message, passed any, want ...wire.ErrorCode) {
		t.Helper()
		_, resp := sample(key, 0)
		b.mirrors.asked = nil
		b.ask(key, 0, req, resp)
		var got []wire.ErrorCode
		topics := reflect.ValueOf(resp).Elem().FieldByName("Topics")
		for i := range topics.Len() {
			got = append(got, wire.ErrorCode(topics.Index(i).FieldByName("ErrorCode").Int()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("key %d: codes %v, want %v", key, got, want)
		}
		if !reflect.DeepEqual(b.mirrors.asked, passed) {
			t.Errorf("key %d: passed on %+v, want %+v", key, b.mirrors.asked, passed)
		}
	}
	bad, no := wire.ErrTopicNotInClusterMirror, wire.ErrUnknownTopicOrPartition
	codes(95, &msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{{TopicName: "x", MirrorName: ptr("nope")},
		{TopicName: "y", TopicId: [16]byte{5}, MirrorName: ptr("m"), MirrorType: 1}}}, []AddTopic{{Name: "y", ID: [16]byte{5}, Mirror: "m", Type: 1}}, wire.ErrUnknownClusterMirror, bad)
	codes(96, &msg.RemoveTopicsFromMirrorRequest{MirrorName: "m", Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: "nope"}, {TopicId: [16]byte{2}}, {TopicName: "a"}}},
		[]string{"t", "a"}, no, bad, bad)
	codes(109, &msg.AlterMirrorTopicTypeRequest{MirrorName: "m", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "nope"}, {TopicName: "t", MirrorType: 1}}},
		[]AlterTopic{{Name: "t", ID: [16]byte{2}, Type: 1}}, no, bad)
	codes(107, &msg.RegisterMirrorSyncTopicRequest{MirrorName: "x", Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicName: "nope"}}}, nil, no)
	b.mirrors.short = true
	codes(96, &msg.RemoveTopicsFromMirrorRequest{MirrorName: "m", Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: "t"}}}, []string{"t"}, wire.ErrUnknownServerError)
}

func TestRegisterAndUnregister(t *testing.T) {
	b := fullBed(t)
	b.mirrors.outcome = Outcome{wire.ErrMirrorSyncReleasedRequiresFreshPromotion, "released"}
	reg := new(msg.RegisterMirrorSyncTopicResponse)
	b.ask(107, 0, &msg.RegisterMirrorSyncTopicRequest{MirrorName: "x", DestinationClusterId: "d", Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{
		{TopicName: "nope"}, {TopicId: [16]byte{1}, RecoveryPromotion: true, ReleaseNumber: 8}}}, reg)
	if want := (RegisterRequest{Mirror: "x", ClusterID: "d", Topics: []RegisterTopic{{"a", [16]byte{1}, true, 8}}}); !reflect.DeepEqual(b.mirrors.asked, want) {
		t.Errorf("%+v", b.mirrors.asked)
	}
	if r := reg.Topics[1]; r.TopicName != "a" || r.ErrorCode != 154 || r.RegistrationEpoch != 12 || r.ReleaseNumber != 3 || *r.ErrorMessage != "released" || reg.Topics[0].ErrorCode != 3 || reg.Topics[0].RegistrationEpoch != -1 {
		t.Errorf("%+v", reg.Topics)
	}
	b.mirrors.outcome = Outcome{}
	un := new(msg.UnregisterMirrorSyncTopicResponse)
	b.ask(108, 0, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "x", DestinationClusterId: "d", Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{
		{TopicName: "gone", TopicId: [16]byte{9}, RegistrationEpoch: 4}, {TopicName: "a", TopicId: [16]byte{1}, RegistrationEpoch: 5}}}, un)
	if want := (UnregisterRequest{Mirror: "x", ClusterID: "d", Topics: []UnregisterTopic{{"a", [16]byte{1}, 5}}}); !reflect.DeepEqual(b.mirrors.asked, want) {
		t.Errorf("%+v", b.mirrors.asked)
	}
	if un.ErrorCode != 0 || len(un.Topics) != 2 || un.Topics[0].ErrorCode != 0 || un.Topics[0].CurrentEpoch != 0 || un.Topics[1].TopicName != "a" {
		t.Errorf("%+v", un)
	}
	b.ask(108, 0, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "x", Release: true}, un)
	if want := (UnregisterRequest{Mirror: "x", Release: true, All: true}); !reflect.DeepEqual(b.mirrors.asked, want) || len(un.Topics) != 1 || un.Topics[0].TopicName != "all-of-it" {
		t.Errorf("%+v %+v", b.mirrors.asked, un)
	}
	b.mirrors.asked = nil
	b.ask(108, 0, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "x"}, un)
	if b.mirrors.asked != nil || len(un.Topics) != 0 {
		t.Errorf("an Unregister of nothing asked for %+v", b.mirrors.asked)
	}
}

func TestCreateAndDeleteMirror(t *testing.T) {
	b := fullBed(t)
	req := newMirror("n", "bootstrap.servers", "x:1", "ssl.key.password", "hush").(*msg.CreateClusterMirrorRequest)
	req.Config = append(req.Config, msg.CreateClusterMirrorRequestMirrorConfig{Name: "mirror.fetch.min.bytes"})
	if lines := b.respond(106, req); lines != nil || !reflect.DeepEqual(b.mirrors.asked, map[string]string{"bootstrap.servers": "x:1", "ssl.key.password": "hush"}) {
		t.Errorf("%q %v", lines, b.mirrors.asked)
	}
	b.mirrors.outcome = Outcome{wire.ErrClusterMirrorNotEmpty, "mirror has topics"}
	if lines := b.respond(104, &msg.DeleteClusterMirrorRequest{MirrorName: "m"}); len(lines) != 1 ||
		lines[0] != "CLUSTER_MIRROR_NOT_EMPTY: mirror has topics; stop its topics, and wait until describe shows STOPPED" || b.mirrors.asked != "m" {
		t.Errorf("%q", lines)
	}
}
