package wire

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestListOffsetsAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	for v := int16(1); v <= 11; v++ {
		for range 60 {
			k := kmsg.NewPtrListOffsetsRequest()
			answer := kmsg.NewPtrListOffsetsResponse()
			k.Version, k.ReplicaID, k.IsolationLevel, k.TimeoutMillis = v, int32(randInt64(r)), int8(r.IntN(2)), int32(randInt64(r))
			answer.Version, answer.ThrottleMillis = v, int32(randInt64(r))
			for range r.IntN(4) {
				topic := kmsg.NewListOffsetsRequestTopic()
				topic.Topic = randString(r)
				reply := kmsg.NewListOffsetsResponseTopic()
				reply.Topic = topic.Topic
				for range 1 + r.IntN(3) {
					p := kmsg.NewListOffsetsRequestTopicPartition()
					p.Partition, p.CurrentLeaderEpoch, p.Timestamp = int32(randInt64(r)), int32(randInt64(r)), randInt64(r)
					topic.Partitions = append(topic.Partitions, p)
					a := kmsg.NewListOffsetsResponseTopicPartition()
					a.Partition, a.ErrorCode, a.Timestamp, a.Offset, a.LeaderEpoch = p.Partition, int16(r.IntN(100)), p.Timestamp, randInt64(r), int32(randInt64(r))
					reply.Partitions = append(reply.Partitions, a)
				}
				k.Topics = append(k.Topics, topic)
				answer.Topics = append(answer.Topics, reply)
			}
			body := k.AppendTo(nil)
			checkListOffsets(t, v, k, answer, body)
			if len(body) < 400 {
				damage(t, body, func(b []byte) error { var l ListOffsetsRequest; return l.Parse(v, b) })
			}
		}
	}
}

// checkListOffsets walks the request and answers on the way, as a server does.
func checkListOffsets(t *testing.T, v int16, k *kmsg.ListOffsetsRequest, answer *kmsg.ListOffsetsResponse, body []byte) {
	t.Helper()
	var l ListOffsetsRequest
	if err := l.Parse(v, body); err != nil || l.ReplicaID != k.ReplicaID || (v >= 2 && l.Isolation != k.IsolationLevel) || (v >= 10 && l.TimeoutMs != k.TimeoutMillis) || l.NumTopics != len(k.Topics) {
		t.Fatalf("v%d: %v %+v", v, err, l)
	}
	it := l.Iter()
	b := AppendListOffsetsHead(nil, v, answer.ThrottleMillis, len(k.Topics))
	for i, topic := range k.Topics {
		b = AppendListOffsetsTopic(b, v, []byte(topic.Topic), len(topic.Partitions))
		for j, w := range topic.Partitions {
			if !it.Next() || string(it.Topic()) != topic.Topic || it.Partition != w.Partition || it.Timestamp != w.Timestamp || (v >= 4 && it.CurrentLeaderEpoch != w.CurrentLeaderEpoch) {
				t.Fatalf("v%d: %+v, want %+v", v, it, w)
			}
			a := answer.Topics[i].Partitions[j]
			b = AppendListOffsetsPartition(b, v, &ListOffsetsPartition{a.Partition, ErrorCode(a.ErrorCode), a.Timestamp, a.Offset, a.LeaderEpoch})
		}
		b = AppendListOffsetsTopicEnd(b, v)
	}
	b = AppendListOffsetsTail(b, v)
	if want := answer.AppendTo(nil); it.Next() || !bytes.Equal(b, want) {
		t.Fatalf("v%d:\nours %x\nkmsg %x", v, b, want)
	}
	p, err := ParseListOffsetsResponse(v, b)
	if (err == nil) != (len(k.Topics) > 0) {
		t.Fatalf("v%d: %v", v, err)
	}
	if len(k.Topics) > 0 && (p.Index != k.Topics[0].Partitions[0].Partition || p.Offset != answer.Topics[0].Partitions[0].Offset) {
		t.Fatalf("v%d: %+v", v, p)
	}
}

func TestAppendListOffsetsRequest(t *testing.T) {
	for v := int16(1); v <= 11; v++ {
		k := kmsg.NewPtrListOffsetsRequest()
		k.Version, k.ReplicaID, k.TimeoutMillis = v, -1, 30
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = 3, 4, -2
		k.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		want := k.AppendTo(nil)
		if got := AppendListOffsetsRequest(nil, v, "t", 3, 4, TimestampEarliest, 30); !bytes.Equal(got, want) {
			t.Fatalf("v%d:\nours %x\nkmsg %x", v, got, want)
		}
		buf := make([]byte, 0, 100)
		var l ListOffsetsRequest
		if n := testing.AllocsPerRun(100, func() {
			_ = l.Parse(v, want)
			for it := l.Iter(); it.Next(); {
				buf = AppendListOffsetsPartition(buf[:0], v, &ListOffsetsPartition{Index: it.Partition})
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
