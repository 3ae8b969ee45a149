package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func randProduceRequest(r *rand.Rand, v int16) *kmsg.ProduceRequest {
	k := kmsg.NewPtrProduceRequest()
	k.Version, k.Acks, k.TimeoutMillis = v, int16(r.IntN(3)-1), int32(randInt64(r))
	if r.IntN(2) == 0 {
		k.TransactionID = new(randString(r))
	}
	for range r.IntN(4) {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = randString(r), randID(r)
		for range r.IntN(4) {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = int32(randInt64(r)), randBytes(r)
			if v >= 9 && r.IntN(3) == 0 {
				p.UnknownTags.Set(5, []byte("x"))
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		if v >= 9 && r.IntN(3) == 0 {
			topic.UnknownTags.Set(0, []byte("yy"))
		}
		k.Topics = append(k.Topics, topic)
	}
	return k
}

func TestProduceRequestAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	for v := int16(3); v <= 14; v++ {
		for range 60 {
			k := randProduceRequest(r, v)
			body := k.AppendTo(nil)
			var p ProduceRequest
			if err := p.Parse(v, body); err != nil {
				t.Fatalf("v%d: %v: %x", v, err, body)
			}
			if p.Acks != k.Acks || p.TimeoutMs != k.TimeoutMillis || (k.TransactionID == nil) != (p.TransactionalID == nil) ||
				(k.TransactionID != nil && *k.TransactionID != string(p.TransactionalID)) {
				t.Fatalf("v%d: %+v, want %+v", v, p, k)
			}
			it, topics, partitions := p.Iter(), 0, 0
			for i := range k.Topics {
				topics += bit(len(k.Topics[i].Partitions) > 0)
				for j, want := range k.Topics[i].Partitions {
					partitions++
					if !it.Next() || it.Partition() != want.Partition || !sameNil(it.Records(), want.Records) || it.NewTopic() != (j == 0) ||
						it.TopicPartitions() != len(k.Topics[i].Partitions) ||
						(v < 13 && string(it.Topic()) != k.Topics[i].Topic) || (v >= 13 && it.TopicID() != k.Topics[i].TopicID) {
						t.Fatalf("v%d: topic %d partition %d: %+v", v, i, j, it)
					}
				}
			}
			if it.Next() || p.NumTopics != topics || p.NumPartitions != partitions {
				t.Fatalf("v%d: %d topics, %d partitions, want %d, %d", v, p.NumTopics, p.NumPartitions, topics, partitions)
			}
			if len(body) < 400 {
				damage(t, body, func(b []byte) error { var p ProduceRequest; return p.Parse(v, b) })
			}
		}
	}
}

func TestProduceRefusesManyTags(t *testing.T) {
	k := randProduceRequest(newRand(t), 9)
	for i := range uint32(65) {
		if k.UnknownTags.Set(i, nil); i == 63 {
			if err := new(ProduceRequest).Parse(9, k.AppendTo(nil)); err != nil {
				t.Fatal("64 tags are refused")
			}
		}
	}
	if new(ProduceRequest).Parse(9, k.AppendTo(nil)) == nil {
		t.Fatal("65 tags are accepted")
	}
}

func TestAppendProduceRequest(t *testing.T) {
	for v := int16(3); v <= 14; v++ {
		p := ProduceParams{TransactionalID: "tx", Acks: -1, TimeoutMs: 30, Topic: "t", TopicID: [16]byte{1}, Partition: 7}
		k := kmsg.NewPtrProduceRequest()
		k.Version, k.TransactionID, k.Acks, k.TimeoutMillis = v, new("tx"), -1, 30
		k.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", TopicID: p.TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 7, Records: []byte("batch")}}}}
		if got, want := AppendProduceRequest(nil, v, &p, []byte("batch")), k.AppendTo(nil); !bytes.Equal(got, want) {
			t.Fatalf("v%d:\nours %x\nkmsg %x", v, got, want)
		}
	}
}

func randProduceResponse(r *rand.Rand, v int16) (k *kmsg.ProduceResponse, ours []byte) {
	k = kmsg.NewPtrProduceResponse()
	k.Version, k.ThrottleMillis = v, int32(randInt64(r))
	n := r.IntN(4)
	ours = AppendProduceHead(nil, v, n)
	for range n {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = randString(r), randID(r)
		m := r.IntN(4)
		ours = AppendProduceTopic(ours, v, []byte(topic.Topic), topic.TopicID, m)
		for range m {
			p := ProducePartition{int32(randInt64(r)), ErrorCode(r.IntN(160)), randInt64(r), randInt64(r), randInt64(r), "", -1, -1}
			kp := kmsg.NewProduceResponseTopicPartition()
			if r.IntN(2) == 0 {
				p.Message = randString(r)
				kp.ErrorMessage = new(p.Message)
			}
			if v >= 10 && r.IntN(2) == 0 { // kmsg writes the tag in version 9 too
				p.LeaderID, p.LeaderEpoch = int32(r.IntN(10)-1), int32(r.IntN(10)-1)
			}
			kp.Partition, kp.ErrorCode, kp.BaseOffset, kp.LogAppendTime, kp.LogStartOffset = p.Index, int16(p.Err), p.BaseOffset, p.LogAppendTime, p.LogStart
			kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = p.LeaderID, p.LeaderEpoch
			ours = AppendProducePartition(ours, v, &p)
			topic.Partitions = append(topic.Partitions, kp)
		}
		ours = AppendProduceTopicEnd(ours, v)
		k.Topics = append(k.Topics, topic)
	}
	var endpoints []NodeEndpoint
	for range r.IntN(3) * bit(v >= 10) {
		e := NodeEndpoint{int32(r.IntN(9)), randString(r), 9092, ""}
		ke := kmsg.NewProduceResponseBroker()
		ke.NodeID, ke.Host, ke.Port = e.NodeID, e.Host, e.Port
		if r.IntN(2) == 0 {
			e.Rack = "r"
			ke.Rack = new("r")
		}
		endpoints = append(endpoints, e)
		k.Brokers = append(k.Brokers, ke)
	}
	return k, AppendProduceTail(ours, v, k.ThrottleMillis, endpoints)
}

func TestProduceResponseAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	for v := int16(3); v <= 14; v++ {
		for range 60 {
			k, ours := randProduceResponse(r, v)
			if want := k.AppendTo(nil); !bytes.Equal(ours, want) {
				t.Fatalf("v%d:\nours %x\nkmsg %x", v, ours, want)
			}
			for i := range k.Topics { // what only others send
				for j := range k.Topics[i].Partitions {
					for range r.IntN(2) {
						k.Topics[i].Partitions[j].ErrorRecords = append(k.Topics[i].Partitions[j].ErrorRecords, kmsg.NewProduceResponseTopicPartitionErrorRecord())
					}
				}
			}
			body := k.AppendTo(nil)
			checkProduceResponse(t, v, k, body)
			if len(body) < 400 {
				damage(t, body, func(b []byte) error { var p ProduceResponse; return p.Parse(v, b) })
			}
		}
	}
}

func checkProduceResponse(t *testing.T, v int16, k *kmsg.ProduceResponse, body []byte) {
	t.Helper()
	var p ProduceResponse
	if err := p.Parse(v, body); err != nil || p.ThrottleMs != k.ThrottleMillis {
		t.Fatalf("v%d: %v", v, err)
	}
	it := p.Iter()
	for _, topic := range k.Topics {
		for _, kp := range topic.Partitions {
			want := [4]int64{int64(kp.Partition), int64(kp.ErrorCode), kp.BaseOffset, kp.LogAppendTime}
			if !it.Next() || [4]int64{int64(it.Partition), int64(it.Err), it.BaseOffset, it.LogAppendTime} != want ||
				(v < 13 && string(it.Topic()) != topic.Topic) || (v >= 13 && it.TopicID() != topic.TopicID) ||
				(v >= 5 && it.LogStart != kp.LogStartOffset) || (v >= 8 && (it.Message == nil) != (kp.ErrorMessage == nil)) ||
				(v >= 10 && (it.LeaderID != kp.CurrentLeader.LeaderID || it.LeaderEpoch != kp.CurrentLeader.LeaderEpoch)) {
				t.Fatalf("v%d: %+v, want %+v", v, it, kp)
			}
		}
	}
	e := p.Endpoints()
	for i := 0; v >= 10 && i < len(k.Brokers); i++ {
		if !e.Next() || e.NodeID != k.Brokers[i].NodeID || string(e.Host) != k.Brokers[i].Host || e.Port != 9092 || (e.Rack == nil) != (k.Brokers[i].Rack == nil) {
			t.Fatalf("v%d: endpoint %+v", v, e)
		}
	}
	if it.Next() || e.Next() {
		t.Fatal("late end")
	}
}

func TestProduceAllocations(t *testing.T) {
	r := newRand(t)
	endpoints := []NodeEndpoint{{1, "h", 9092, ""}}
	buf := make([]byte, 0, 1<<16)
	for _, v := range []int16{3, 9, 14} {
		body := randProduceRequest(r, v).AppendTo(nil)
		var p ProduceRequest
		n := testing.AllocsPerRun(100, func() {
			if p.Parse(v, body) != nil {
				t.Fatal("refused")
			}
			buf = AppendProduceHead(buf[:0], v, p.NumTopics)
			for it := p.Iter(); it.Next(); {
				if it.NewTopic() {
					buf = AppendProduceTopic(buf, v, it.Topic(), it.TopicID(), it.TopicPartitions())
				}
				buf = AppendProducePartition(buf, v, &ProducePartition{Index: it.Partition(), LeaderID: -1, LeaderEpoch: 3})
			}
			buf = AppendProduceTail(AppendProduceTopicEnd(buf, v), v, 0, endpoints)
		})
		if n != 0 {
			t.Errorf("v%d: %v allocations", v, n)
		}
	}
}

func FuzzProduce(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for v := int16(3); v <= 14; v++ {
		f.Add(v, randProduceRequest(r, v).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if v < 3 || v > 14 {
			return
		}
		var p ProduceRequest
		ours := p.Parse(v, body)
		n := 0
		for it := p.Iter(); ours == nil && it.Next(); {
			n++
		}
		k := kmsg.NewPtrProduceRequest()
		k.Version = v
		if ours == nil && (n != p.NumPartitions || k.ReadFrom(body) != nil) {
			t.Fatalf("v%d: accepted, kmsg refuses: %x", v, body)
		}
		_ = new(ProduceResponse).Parse(v, body)
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 1, 0, 12, 0, 0, 0, 5, 0, 1, 'a', 0, 9})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if len(body) > len(frame) || (err == nil && Lookup(h.Key) == nil) {
			t.Fatal("header")
		}
		_, _, _ = ParseResponseHeader(frame, KeyFetch, 12)
	})
}
