package wire_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"lockstep/internal/msg"
	"lockstep/internal/msg/gen/testdata/stock"
	"lockstep/internal/wire"
)

// TestFetch20AgreesWithSchema checks the hand-written request of version 20
// against a codec generated from its schema.
func TestFetch20AgreesWithSchema(t *testing.T) {
	const seed = 20
	r := rand.New(rand.NewPCG(seed, seed))
	for range 300 {
		var s stock.FetchRequest
		s.Version = 20
		s.Default()
		p := wire.FetchParams{ReplicaID: int32(r.IntN(9)), ReplicaEpoch: 3, MaxWaitMs: 5, MinBytes: 1, MaxBytes: 99, SessionID: 4, SessionEpoch: 2, RackID: "r", MirrorName: "m"}
		s.ReplicaState.ReplicaId, s.ReplicaState.ReplicaEpoch = p.ReplicaID, 3
		s.MaxWaitMs, s.MinBytes, s.MaxBytes, s.SessionId, s.SessionEpoch, s.RackId, s.MirrorReplicaInfo.MirrorName = 5, 1, 99, 4, 2, "r", "m"
		if r.IntN(2) == 0 {
			p.ClusterID, s.MirrorReplicaInfo.ClusterId = "destination", "destination"
		}
		var targets []wire.FetchTarget
		var reports []wire.Report
		for i := range r.IntN(4) {
			id := [16]byte{byte(i)}
			ft := stock.FetchRequestFetchTopic{TopicId: id}
			mt := stock.FetchRequestMirroredTopics{Topic: "t", TopicId: id}
			for j := range 1 + r.IntN(3) {
				var fp stock.FetchRequestFetchPartition
				fp.Default()
				fp.Partition, fp.FetchOffset, fp.HighWatermark = int32(j), r.Int64(), r.Int64()
				ft.Partitions = append(ft.Partitions, fp)
				targets = append(targets, wire.FetchTarget{TopicID: id, Partition: int32(j), CurrentLeaderEpoch: -1, FetchOffset: fp.FetchOffset, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: fp.HighWatermark})
				var mp stock.FetchRequestMirroredTopicPartition
				mp.Default()
				w := wire.Report{Topic: "t", TopicID: id, Partition: int32(j), MinISR: 2, ISR: make([]int32, r.IntN(150))}
				mp.Partition, mp.MinISR, mp.ISR = int32(j), 2, w.ISR
				for k := range r.IntN(4) {
					w.Replicas = append(w.Replicas, wire.ReplicaOffset{ID: int32(k), Offset: 7})
					mp.ReplicaLastOffsets = append(mp.ReplicaLastOffsets, stock.FetchRequestReplicaLastOffsets{ReplicaId: int32(k), LastFetchOffset: 7})
				}
				if r.IntN(2) == 0 {
					w.Fenced, w.RegistrationEpoch, w.LeaderEpoch, w.Sequence, w.SourceLeaderEpoch, w.PartitionCount = true, 1, 2, 3, 4, 5
					mp.Fence = stock.FetchRequestFence{RegistrationEpoch: 1, LeaderEpoch: 2, Sequence: 3, SourceLeaderEpoch: 4, PartitionCount: 5}
				}
				mt.Partitions = append(mt.Partitions, mp)
				reports = append(reports, w)
			}
			s.Topics = append(s.Topics, ft)
			s.MirrorReplicaInfo.Topics = append(s.MirrorReplicaInfo.Topics, mt)
		}
		if ours, want := wire.AppendFetchRequest(nil, 20, &p, targets, reports), s.AppendTo(nil); !bytes.Equal(ours, want) {
			t.Fatalf("seed %d:\nours   %x\nschema %x", seed, ours, want)
		}
	}
}

func TestPidResetAgreesWithSchema(t *testing.T) {
	b := wire.Batch(wire.MirrorPidReset(nil, "source", 1))
	it := wire.Records(b.Payload())
	var m msg.MirrorPidResetRecord
	if !it.Next() || m.ReadFrom(it.Record().Value) != nil || m.FieldVersion != 0 || m.SourceClusterId != "source" {
		t.Fatalf("%+v", m)
	}
}

func TestMirrorKeysAgreeWithMessages(t *testing.T) {
	for _, a := range wire.APIs() {
		if a.Key < wire.KeyAddTopicsToMirror {
			continue
		}
		for _, m := range []msg.Message{msg.NewRequest(a.Key), msg.NewResponse(a.Key)} {
			if m == nil || m.MinVersion() != a.Min || m.MaxVersion() != a.Max || m.IsFlexible() != a.Flexible(0) {
				t.Errorf("%s: %v", a.Name, m)
			}
		}
	}
}
