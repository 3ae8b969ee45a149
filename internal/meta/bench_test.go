package meta

import (
	"fmt"
	"testing"

	"lockstep/internal/msg"
)

// large is 1,000 topics of 100 partitions.
func large(t testing.TB) *View {
	v := prepared(t)
	for i := range 1000 {
		c := &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: fmt.Sprintf("topic-%04d", i), NumPartitions: 100, ReplicationFactor: 3}}}
		v, _ = Apply(v, v.index+1, Encode(c))
	}
	if v.NumPartitions() != 100_000 {
		t.Fatal(v.NumPartitions())
	}
	return v
}

func BenchmarkAlterPartition(b *testing.B) {
	v := large(b)
	t := v.TopicByName("topic-0500")
	c := &msg.AlterPartitionCommand{Partitions: []msg.AlterPartitionCommandPartition{{TopicId: t.ID, Partition: 50}}}
	b.ReportAllocs()
	for b.Loop() {
		p := v.TopicByID(t.ID).Partitions[50]
		c.BrokerId, c.BrokerEpoch = p.Leader, v.Broker(p.Leader).Epoch
		r := &c.Partitions[0]
		r.LeaderEpoch, r.PartitionEpoch, r.ISR = p.LeaderEpoch, p.PartitionEpoch, p.Replicas
		if len(p.ISR) == 3 {
			r.ISR = []int32{p.Leader}
		}
		next, res := Apply(v, v.index+1, Encode(c))
		if res.Items[0].ErrorCode != 0 {
			b.Fatal(*res.Items[0].ErrorMessage)
		}
		v = next
	}
}

func BenchmarkDiff(b *testing.B) {
	v := large(b)
	c := &msg.AllocateProducerIdsCommand{BrokerId: 1, BrokerEpoch: v.Broker(1).Epoch}
	next, _ := Apply(v, v.index+1, Encode(c))
	b.Run("recent", func(b *testing.B) {
		for b.Loop() {
			Diff(v, next)
		}
	})
	scan := withoutRecent(next)
	scan.topics = scan.topics.Set("x", &Topic{Name: "x"})
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			Diff(v, scan)
		}
	})
}

func BenchmarkFenceBroker(b *testing.B) {
	v := large(b)
	c := &msg.FenceBrokerCommand{BrokerId: 1, BrokerEpoch: v.Broker(1).Epoch}
	cmd := Encode(c)
	for b.Loop() {
		Apply(v, v.index+1, cmd)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	v := large(b)
	var snap []byte
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			snap = AppendSnapshot(snap[:0], v)
		}
		b.ReportMetric(float64(len(snap))/1e6, "MB")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := ReadSnapshot(snap); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestOneCommandAllocatesItsOwnSize: at 100,000 partitions one command copies
// one topic and a path of the tree, not the View.
func TestOneCommandAllocatesItsOwnSize(t *testing.T) {
	v := large(t)
	topic := v.TopicByName("topic-0500")
	p := topic.Partitions[50]
	cmd := Encode(&msg.AlterPartitionCommand{BrokerId: p.Leader, BrokerEpoch: v.Broker(p.Leader).Epoch,
		Partitions: []msg.AlterPartitionCommandPartition{{TopicId: topic.ID, Partition: 50, ISR: []int32{p.Leader}}}})
	if n := testing.AllocsPerRun(100, func() { Apply(v, v.index+1, cmd) }); n > 40 {
		t.Fatalf("%v allocations", n)
	}
}
