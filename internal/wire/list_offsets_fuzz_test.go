package wire

import (
	"bytes"
	"testing"
)

// FuzzListOffsets: what Parse lets through, the iterator walks, to the count
// that Parse gave; a response is refused or read.
func FuzzListOffsets(f *testing.F) {
	for v := int16(1); v <= 11; v++ {
		f.Add(uint8(v), AppendListOffsetsRequest(nil, v, "topic", 3, 4, TimestampMax, 100))
	}
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		v := 1 + int16(version)%11
		before := bytes.Clone(body)
		var l ListOffsetsRequest
		if err := l.Parse(v, body); err == nil {
			topics, partitions := 0, 0
			it := l.Iter()
			for it.Next() {
				partitions++
				topics += bit(it.NewTopic())
				if len(it.Topic()) > len(body) {
					t.Fatal("a topic longer than the body")
				}
			}
			if topics != l.NumTopics || partitions != l.NumPartitions {
				t.Fatalf("walked %d/%d, parsed %d/%d", topics, partitions, l.NumTopics, l.NumPartitions)
			}
		}
		if p, err := ParseListOffsetsResponse(v, body); err == nil && v < 4 && p.LeaderEpoch != -1 {
			t.Fatalf("an epoch in version %d: %+v", v, p)
		}
		_, _, _ = ParseResponseHeader(body, KeyListOffsets, v)
		if !bytes.Equal(body, before) {
			t.Fatal("a parser wrote into its input")
		}
	})
}

// FuzzRecords: the walks over records agree, and what they read can be written
// again.
func FuzzRecords(f *testing.F) {
	f.Add(BuildBatch(nil, PlainParams(9), Record{Key: []byte("k"), Value: []byte("v")}, Record{Value: []byte("w"), Headers: []byte{2, 2, 'h', 1}})[BatchHeaderSize:])
	f.Add([]byte{0x0e, 0, 0, 0, 1, 1, 0, 0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var list []Record
		it := Records(payload)
		for it.Next() {
			list = append(list, *it.Record())
		}
		if it.Err() != nil || len(list) == 0 || len(list) > 1000 {
			return
		}
		keys := true
		for i := range list {
			keys = keys && list[i].Key != nil
		}
		if KeysPresent(payload) != keys {
			t.Fatal("keys are seen otherwise")
		}
		if !CheckRecords(payload, int32(len(list))) {
			return // deltas that do not count up
		}
		again := BuildBatch(nil, PlainParams(0), list...)[BatchHeaderSize:]
		if !CheckRecords(again, int32(len(list))) {
			t.Fatalf("% x written again as % x", payload, again)
		}
		it = Records(again)
		for i := 0; it.Next(); i++ {
			r := it.Record()
			if !bytes.Equal(r.Key, list[i].Key) || (r.Key == nil) != (list[i].Key == nil) || !bytes.Equal(r.Value, list[i].Value) || r.TimestampDelta != list[i].TimestampDelta {
				t.Fatalf("record %d: %+v, was %+v", i, r, list[i])
			}
		}
	})
}
