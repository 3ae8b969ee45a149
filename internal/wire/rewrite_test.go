package wire

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEmptyBatch(t *testing.T) {
	for _, span := range []int64{1, 5, MaxEmptySpan} {
		b := Batch(EmptyBatch(nil, 1<<40, 1<<40+span, 7))
		var k kmsg.RecordBatch
		if err := k.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		if !b.CheckCRC() || !b.IsEmpty() || b.NextOffset() != 1<<40+span || b.PartitionLeaderEpoch() != 7 ||
			k.NumRecords != 0 || int64(k.LastOffsetDelta) != span-1 || len(k.Records) != 0 {
			t.Fatalf("%+v of span %d", k, span)
		}
	}
}

func TestRewriteKeepsOffsetsAndTimes(t *testing.T) {
	p := PlainParams(1000)
	p.BaseOffset, p.PartitionLeaderEpoch, p.ProducerID, p.ProducerEpoch, p.BaseSequence = 50, 3, 9, 1, 4
	var records []Record
	for i := range 5 {
		records = append(records, Record{TimestampDelta: int64(10 * i), Key: []byte{byte(i)}, Value: []byte("v"), Headers: []byte{0}})
	}
	b := Batch(BuildBatch(nil, p, records...))
	for _, horizon := range []int64{-1, 5000} {
		out, kept, err := b.Rewrite(nil, b.Payload(), Filter{Horizon: horizon, Keep: func(r *Record) bool { return r.Key[0]%2 == 1 }})
		if err != nil || kept != 2 {
			t.Fatal(kept, err)
		}
		n := Batch(out)
		if !n.CheckCRC() || n.BaseOffset() != 50 || n.NextOffset() != 55 || n.MaxTimestamp() != 1030 || n.BaseSequence() != 4 || n.PartitionLeaderEpoch() != 3 {
			t.Fatalf("header % x", out[:BatchHeaderSize])
		}
		if at, ok := n.DeleteHorizon(); ok != (horizon >= 0) || ok && at != horizon {
			t.Fatalf("horizon %d %v", at, ok)
		}
		i := 1
		it := Records(n.Payload())
		for ; it.Next(); i += 2 {
			if r := it.Record(); r.OffsetDelta != int32(i) || r.Key[0] != byte(i) || n.BaseTimestamp()+r.TimestampDelta != 1000+int64(10*i) {
				t.Fatalf("record %+v", r)
			}
		}
		if it.Err() != nil || !CheckKept(n.Payload(), 2, n.LastOffsetDelta()) || CheckKept(n.Payload(), 2, 2) || CheckKept(n.Payload(), 1, 4) || CheckRecords(n.Payload(), 2) {
			t.Fatal("records do not check", it.Err())
		}
	}
	if _, _, err := b.Rewrite(nil, b.Payload()[:20], Filter{Horizon: -1, Keep: func(*Record) bool { return true }}); err == nil {
		t.Fatal("damaged records were rewritten")
	}
}
