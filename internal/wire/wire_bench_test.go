package wire

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func BenchmarkProduceParse(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		k := kmsg.NewPtrProduceRequest()
		k.Version = 13
		topic := kmsg.NewProduceRequestTopic()
		for i := range n {
			topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(i), Records: make([]byte, 1024)})
		}
		k.Topics = append(k.Topics, topic)
		body := k.AppendTo(nil)
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			var p ProduceRequest
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Parse(13, body)
				for it := p.Iter(); it.Next(); {
					_ = it.Records()
				}
			}
		})
	}
}

func BenchmarkFetchParse(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		body := AppendFetchRequest(nil, 18, &FetchParams{ReplicaID: -1, ReplicaEpoch: -1}, make([]FetchTarget, n), nil)
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			var f FetchRequest
			b.ReportAllocs()
			for b.Loop() {
				_ = f.Parse(18, body)
				for it := f.Partitions(); it.Next(); {
					_ = it.FetchOffset
				}
			}
		})
	}
}

func BenchmarkFetchResponse(b *testing.B) {
	buf := make([]byte, 0, 1<<16)
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendFetchHead(buf[:0], 16, 0, ErrNone, 0, 1)
				buf = AppendFetchTopic(buf, 16, nil, [16]byte{1}, n)
				for i := range n {
					p := FetchPartition{Index: int32(i), RecordsLen: 1 << 20, DivergingEpoch: -1, LeaderID: -1, LeaderEpoch: -1, PreferredReplica: -1}
					buf = AppendFetchPartition(buf, 16, &p)
					buf = AppendFetchPartitionTail(buf, 16, &p)
				}
				buf = AppendFetchTail(AppendFetchTopicEnd(buf, 16), 16, nil, nil, 0)
			}
		})
	}
}

func BenchmarkValidateProduce(b *testing.B) {
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		batch := Batch(BuildBatch(nil, PlainParams(1), Record{Value: make([]byte, n)}))
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if ValidateProduce(batch, 13, 2<<20) != ErrNone {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkCheckRecords(b *testing.B) {
	for _, n := range []int{20, 100, 1024} {
		var rs []Record
		for range 16 << 10 / n {
			rs = append(rs, Record{TimestampDelta: 3, Value: make([]byte, n)})
		}
		batch := Batch(BuildBatch(nil, PlainParams(1), rs...))
		walk := func(count int32) bool { return checkByWalk(batch.Payload(), count) }
		check := func(count int32) bool { return CheckRecords(batch.Payload(), count) }
		for name, f := range map[string]func(int32) bool{"check": check, "walk": walk} {
			b.Run(fmt.Sprintf("bytes=%d/%s", n, name), func(b *testing.B) {
				for b.Loop() {
					if !f(batch.RecordCount()) {
						b.Fatal("refused")
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rs)), "ns/record")
			})
		}
	}
}
