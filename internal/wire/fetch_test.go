package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// randFetch returns the same request for kmsg and for our own encoder. Topic
// names and ids of neighbours differ, so grouping gives the topics back.
func randFetch(r *rand.Rand, v int16) (*kmsg.FetchRequest, FetchParams, []FetchTarget) {
	k := kmsg.NewPtrFetchRequest()
	k.Version = v
	p := FetchParams{int32(randInt64(r)), randInt64(r), int32(randInt64(r)), int32(randInt64(r)), int32(randInt64(r)), int8(r.IntN(2)), int32(randInt64(r)), int32(randInt64(r)), randString(r), nil, "", "", 0}
	if r.IntN(2) == 0 {
		p.ReplicaID, p.ReplicaEpoch = -1, -1
	}
	k.ReplicaID, k.ReplicaState.ID, k.ReplicaState.Epoch = -1, -1, -1
	if v <= 14 {
		k.ReplicaID = p.ReplicaID
	} else {
		k.ReplicaState.ID, k.ReplicaState.Epoch = p.ReplicaID, p.ReplicaEpoch
	}
	k.MaxWaitMillis, k.MinBytes, k.MaxBytes, k.IsolationLevel, k.SessionID, k.SessionEpoch, k.Rack = p.MaxWaitMs, p.MinBytes, p.MaxBytes, p.Isolation, p.SessionID, p.SessionEpoch, p.RackID
	if v >= 12 && r.IntN(2) == 0 {
		p.Taken = 1 + r.Int32N(1000)
		k.UnknownTags.Set(64, AppendInt32(nil, p.Taken))
	}
	var targets []FetchTarget
	for i := range r.IntN(4) {
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = randString(r)+string(rune('0'+i)), randID(r)
		for range 1 + r.IntN(3) {
			f := FetchTarget{topic.Topic, topic.TopicID, int32(randInt64(r)), int32(randInt64(r)), randInt64(r), int32(randInt64(r)), randInt64(r), int32(randInt64(r)), randInt64(r) & math.MaxInt64, 0, 0}
			kp := kmsg.NewFetchRequestTopicPartition()
			kp.Partition, kp.CurrentLeaderEpoch, kp.FetchOffset, kp.LastFetchedEpoch, kp.LogStartOffset, kp.PartitionMaxBytes = f.Partition, f.CurrentLeaderEpoch, f.FetchOffset, f.LastFetchedEpoch, f.LogStartOffset, f.MaxBytes
			if v >= 12 && r.IntN(2) == 0 {
				f.DurableEnd, f.Generation = 1+r.Int64N(1000), 1+r.Int32N(1000)
				kp.UnknownTags.Set(64, AppendInt64(nil, f.DurableEnd))
				kp.UnknownTags.Set(65, AppendInt32(nil, f.Generation))
			}
			if f.HighWatermark = -1; v >= 18 && r.IntN(2) == 0 {
				f.HighWatermark = r.Int64N(1000)
				kp.HighWatermark = f.HighWatermark
			}
			topic.Partitions = append(topic.Partitions, kp)
			targets = append(targets, f)
		}
		k.Topics = append(k.Topics, topic)
	}
	for i := range r.IntN(3) * bit(v >= 7) {
		topic := kmsg.NewFetchRequestForgottenTopic()
		topic.Topic, topic.TopicID = randString(r)+string(rune('0'+i)), randID(r)
		for range 1 + r.IntN(3) {
			f := ForgottenPartition{topic.Topic, topic.TopicID, int32(randInt64(r))}
			topic.Partitions = append(topic.Partitions, f.Partition)
			p.Forgotten = append(p.Forgotten, f)
		}
		k.ForgottenTopics = append(k.ForgottenTopics, topic)
	}
	return k, p, targets
}

func TestFetchRequestAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	for v := int16(4); v <= 19; v++ { // kmsg knows 18; 19 adds a tag only
		for range 60 {
			k, p, targets := randFetch(r, v)
			body := AppendFetchRequest(nil, v, &p, targets, nil)
			if want := k.AppendTo(nil); !bytes.Equal(body, want) {
				t.Fatalf("v%d:\nours %x\nkmsg %x", v, body, want)
			}
			if v >= 12 { // what others send and we read over
				k.ClusterID = new("c")
				for i := range k.Topics {
					k.Topics[i].Partitions[0].UnknownTags.Set(2, []byte{0, 0, 0, 1})
					k.Topics[i].Partitions[0].ReplicaDirectoryID[0] = byte(bit(v >= 17))
				}
			}
			body = k.AppendTo(nil)
			checkFetchRequest(t, v, &p, targets, body)
			if len(body) < 400 {
				damage(t, body, func(b []byte) error { var f FetchRequest; return f.Parse(v, b) })
			}
		}
	}
}

func checkFetchRequest(t *testing.T, v int16, p *FetchParams, targets []FetchTarget, body []byte) {
	t.Helper()
	var f FetchRequest
	if err := f.Parse(v, body); err != nil {
		t.Fatalf("v%d: %v", v, err)
	}
	if f.ReplicaID != p.ReplicaID || (v >= 15 && f.ReplicaEpoch != p.ReplicaEpoch) || f.MaxWaitMs != p.MaxWaitMs || f.MinBytes != p.MinBytes ||
		f.MaxBytes != p.MaxBytes || f.Isolation != p.Isolation || (v >= 7 && (f.SessionID != p.SessionID || f.SessionEpoch != p.SessionEpoch)) || f.Taken != p.Taken ||
		(v >= 11 && string(f.RackID) != p.RackID) || f.NumPartitions != len(targets) || f.NumForgotten != len(p.Forgotten) {
		t.Fatalf("v%d: %+v, want %+v", v, f, p)
	}
	ifNot := func(since int16, n int64) int64 {
		if v < since {
			return -1
		}
		return n
	}
	it := f.Partitions()
	for i, w := range targets {
		newTopic := i == 0 || targets[i-1].TopicID != w.TopicID
		if !it.Next() || it.Partition != w.Partition || int64(it.CurrentLeaderEpoch) != ifNot(9, int64(w.CurrentLeaderEpoch)) || it.FetchOffset != w.FetchOffset ||
			int64(it.LastFetchedEpoch) != ifNot(12, int64(w.LastFetchedEpoch)) || it.LogStartOffset != ifNot(5, w.LogStartOffset) || it.MaxBytes != w.MaxBytes ||
			it.HighWatermark != w.HighWatermark || it.DurableEnd != w.DurableEnd || it.Generation != w.Generation || it.NewTopic() != newTopic || (v < 13 && string(it.Topic()) != w.Topic) || (v >= 13 && it.TopicID() != w.TopicID) {
			t.Fatalf("v%d: %+v, want %+v", v, it, w)
		}
	}
	gone := f.Forgotten()
	for _, w := range p.Forgotten {
		if !gone.Next() || gone.Partition != w.Partition || (v < 13 && string(gone.Topic()) != w.Topic) || (v >= 13 && gone.TopicID() != w.TopicID) {
			t.Fatalf("v%d: %+v, want %+v", v, gone, w)
		}
	}
	if it.Next() || gone.Next() {
		t.Fatal("late end")
	}
}

func randReports(r *rand.Rand) (out []Report) {
	for i := range r.IntN(4) {
		topic, id := randString(r)+string(rune('0'+i)), randID(r)
		for range 1 + r.IntN(3) {
			p := Report{Topic: topic, TopicID: id, Partition: int32(randInt64(r)), MinISR: int32(randInt64(r)), Fenced: r.IntN(2) == 0,
				RegistrationEpoch: -1, LeaderEpoch: -1, Sequence: -1, SourceLeaderEpoch: -1, PartitionCount: -1}
			for range r.IntN(4) {
				p.Replicas = append(p.Replicas, ReplicaOffset{int32(randInt64(r)), randInt64(r)})
				p.ISR = append(p.ISR, int32(randInt64(r)))
			}
			if p.Fenced {
				p.RegistrationEpoch, p.LeaderEpoch, p.Sequence, p.SourceLeaderEpoch, p.PartitionCount = randInt64(r), int32(randInt64(r)), randInt64(r), int32(randInt64(r)), int32(randInt64(r))
			}
			out = append(out, p)
		}
	}
	return out
}

func TestMirrorReports(t *testing.T) {
	r := newRand(t)
	for range 200 {
		_, p, targets := randFetch(r, 20)
		reports := randReports(r)
		p.MirrorName, p.ClusterID = "m"+randString(r), []string{"", "dest"}[r.IntN(2)]
		body := AppendFetchRequest(nil, 20, &p, targets, reports)
		checkFetchRequest(t, 20, &p, targets, body)
		var f FetchRequest
		if err := f.Parse(20, body); err != nil || !f.Mirror.Present() || string(f.Mirror.MirrorName) != p.MirrorName || string(f.Mirror.ClusterID) != p.ClusterID || f.Mirror.NumReports != len(reports) {
			t.Fatalf("%v %+v", err, f.Mirror)
		}
		it := f.Mirror.Reports()
		for _, w := range reports {
			if !it.Next() || string(it.Topic) != w.Topic || it.TopicID != w.TopicID || it.Partition != w.Partition || it.MinISR != w.MinISR || it.Malformed ||
				it.NumReplicas() != len(w.Replicas) || it.NumISR() != len(w.ISR) || it.Fenced != w.Fenced || it.RegistrationEpoch != w.RegistrationEpoch ||
				it.LeaderEpoch != w.LeaderEpoch || it.Sequence != w.Sequence || it.SourceLeaderEpoch != w.SourceLeaderEpoch || it.PartitionCount != w.PartitionCount {
				t.Fatalf("%+v, want %+v", it, w)
			}
			for i := range w.Replicas {
				if id, offset := it.Replica(i); id != w.Replicas[i].ID || offset != w.Replicas[i].Offset || it.ISR(i) != w.ISR[i] {
					t.Fatalf("replica %d of %+v", i, w)
				}
			}
		}
		if it.Next() {
			t.Fatal("late end")
		}
		if len(body) < 500 {
			damage(t, body, func(b []byte) error { var f FetchRequest; return f.Parse(20, b) })
		}
	}
	// A plain fetch of version 20 carries an empty struct: no mirror is present.
	var f FetchRequest
	if err := f.Parse(20, AppendFetchRequest(nil, 20, &FetchParams{ReplicaID: -1, ReplicaEpoch: -1}, nil, nil)); err != nil || f.Mirror.Present() {
		t.Fatal("an absent mirror is present")
	}
}

func TestReportWithTooManyReplicas(t *testing.T) {
	big := Report{Topic: "t", Replicas: make([]ReplicaOffset, MaxReportReplicas+1), ISR: []int32{1}}
	isr := Report{Topic: "t", Replicas: make([]ReplicaOffset, MaxReportReplicas), ISR: make([]int32, 500)}
	good := Report{Topic: "t", Partition: 2, ISR: []int32{7}, Replicas: []ReplicaOffset{{7, 9}}}
	var f FetchRequest
	if err := f.Parse(20, AppendFetchRequest(nil, 20, &FetchParams{MirrorName: "m"}, nil, []Report{big, isr, good})); err != nil {
		t.Fatal(err)
	}
	it := f.Mirror.Reports()
	if !it.Next() || !it.Malformed || it.NumReplicas() != MaxReportReplicas || !it.Next() || !it.Malformed || it.NumISR() != MaxReportReplicas {
		t.Fatal("not flagged")
	}
	if !it.Next() || it.Malformed || it.NumISR() != 1 || it.ISR(0) != 7 || it.Next() {
		t.Fatal("the neighbour suffers")
	}
}

func randFetchResponse(r *rand.Rand, v int16) (*kmsg.FetchResponse, []byte) {
	k := kmsg.NewPtrFetchResponse()
	k.Version, k.ThrottleMillis, k.ErrorCode, k.SessionID = v, int32(randInt64(r)), int16(r.IntN(100)), int32(randInt64(r))
	n := r.IntN(4)
	b := AppendFetchHead(nil, v, k.ThrottleMillis, ErrorCode(k.ErrorCode), k.SessionID, n)
	for range n {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = randString(r), randID(r)
		m := r.IntN(4)
		b = AppendFetchTopic(b, v, []byte(topic.Topic), topic.TopicID, m)
		for range m {
			records := append([]byte{}, randBytes(r)...)
			p := FetchPartition{int32(randInt64(r)), ErrorCode(r.IntN(160)), randInt64(r), randInt64(r), randInt64(r), nil, int32(randInt64(r)), len(records), -1, randInt64(r), -1, -1, 0, 0}
			kp := kmsg.NewFetchResponseTopicPartition()
			if r.IntN(2) == 0 {
				p.Aborted = []AbortedTransaction{}
				kp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				for range r.IntN(3) {
					a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
					a.ProducerID, a.FirstOffset = randInt64(r), randInt64(r)
					kp.AbortedTransactions = append(kp.AbortedTransactions, a)
					p.Aborted = append(p.Aborted, AbortedTransaction{a.ProducerID, a.FirstOffset})
				}
			}
			if v >= 12 && r.IntN(2) == 0 {
				p.DivergingEpoch = int32(r.IntN(9))
				kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = p.DivergingEpoch, p.DivergingEnd
			}
			if v >= 12 && r.IntN(2) == 0 {
				p.LeaderID, p.LeaderEpoch = int32(r.IntN(9)), int32(r.IntN(9))
				kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = p.LeaderID, p.LeaderEpoch
			}
			if v >= 12 && r.IntN(2) == 0 {
				p.Generation, p.Cursor = 1+r.Int32N(1000), r.Int64N(1000)
				kp.UnknownTags.Set(65, AppendInt32(nil, p.Generation))
				kp.UnknownTags.Set(66, AppendInt64(nil, p.Cursor))
			}
			kp.Partition, kp.ErrorCode, kp.HighWatermark, kp.LastStableOffset, kp.LogStartOffset, kp.PreferredReadReplica, kp.RecordBatches = p.Index, int16(p.Err), p.HighWatermark, p.LastStable, p.LogStart, p.PreferredReplica, records
			b = AppendFetchPartition(b, v, &p)
			b = append(b, records...)
			b = AppendFetchPartitionTail(b, v, &p)
			topic.Partitions = append(topic.Partitions, kp)
		}
		b = AppendFetchTopicEnd(b, v)
		k.Topics = append(k.Topics, topic)
	}
	var endpoints []NodeEndpoint
	for range r.IntN(3) * bit(v >= 16) {
		e := kmsg.NewFetchResponseBroker()
		e.NodeID, e.Host, e.Port = int32(r.IntN(9)), randString(r), 9092
		endpoints = append(endpoints, NodeEndpoint{e.NodeID, e.Host, e.Port, ""})
		k.Brokers = append(k.Brokers, e)
	}
	return k, AppendFetchTail(b, v, endpoints, nil, 0)
}

func TestFetchResponseAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	for v := int16(4); v <= 20; v++ { // the layouts of 19 and 20 are that of 18
		for range 60 {
			k, body := randFetchResponse(r, v)
			if want := k.AppendTo(nil); !bytes.Equal(body, want) {
				t.Fatalf("v%d:\nours %x\nkmsg %x", v, body, want)
			}
			checkFetchResponse(t, v, k, body)
			if len(body) < 400 {
				damage(t, body, func(b []byte) error { var f FetchResponse; return f.Parse(v, b) })
			}
		}
	}
}

func checkFetchResponse(t *testing.T, v int16, k *kmsg.FetchResponse, body []byte) {
	t.Helper()
	var f FetchResponse
	if err := f.Parse(v, body); err != nil || f.ThrottleMs != k.ThrottleMillis || (v >= 7 && (int16(f.Err) != k.ErrorCode || f.SessionID != k.SessionID)) {
		t.Fatalf("v%d: %v %+v", v, err, f)
	}
	it, n := f.Partitions(), 0
	for _, topic := range k.Topics {
		for _, w := range topic.Partitions {
			n++
			generation, cursor := int32(0), int64(-1)
			w.UnknownTags.Each(func(key uint32, val []byte) {
				if in := NewReader(val); key == 65 {
					generation = in.Int32()
				} else {
					cursor = in.Int64()
				}
			})
			ok := it.Next() && it.Partition == w.Partition && int16(it.Err) == w.ErrorCode && it.HighWatermark == w.HighWatermark && it.LastStable == w.LastStableOffset &&
				bytes.Equal(it.Records, w.RecordBatches) && (v < 5 || it.LogStart == w.LogStartOffset) && (v < 11 || it.PreferredReplica == w.PreferredReadReplica) &&
				it.LeaderID == w.CurrentLeader.LeaderID && it.LeaderEpoch == w.CurrentLeader.LeaderEpoch && it.DivergingEpoch == w.DivergingEpoch.Epoch && it.DivergingEnd == w.DivergingEpoch.EndOffset && it.Generation == generation && it.Cursor == cursor
			if !ok || (v < 13 && string(it.Topic()) != topic.Topic) || (v >= 13 && it.TopicID() != topic.TopicID) {
				t.Fatalf("v%d: %+v, want %+v", v, it, w)
			}
		}
	}
	e := f.Endpoints()
	for _, w := range k.Brokers {
		if !e.Next() || e.NodeID != w.NodeID || string(e.Host) != w.Host {
			t.Fatalf("endpoint %+v", e)
		}
	}
	if it.Next() || e.Next() || n != f.NumPartitions || f.NumAnswers != 0 {
		t.Fatal("late end")
	}
}

func TestReportAnswers(t *testing.T) {
	want := []ReportAnswer{{[16]byte{1}, 2, ErrMirrorRegistrationPropagating, 3, 4, 5}, {[16]byte{6}, 7, ErrNone, 8, 9, -1}}
	for v := int16(18); v <= 20; v++ {
		body := AppendFetchTail(AppendFetchHead(nil, v, 0, 0, 0, 0), v, []NodeEndpoint{{1, "h", 2, "r"}}, want, 7)
		var f FetchResponse
		if err := f.Parse(v, body); err != nil {
			t.Fatal(err)
		}
		it, n := f.Answers(), 0
		for ; it.Next(); n++ {
			if it.ReportAnswer != want[n] {
				t.Fatalf("%+v", it)
			}
		}
		if n != f.NumAnswers || n != 2*bit(v >= 20) || f.Window != 7 {
			t.Fatalf("v%d: %d answers", v, n)
		}
		damage(t, body, func(b []byte) error { var f FetchResponse; return f.Parse(v, b) })
	}
}

func TestFetchAllocations(t *testing.T) {
	r := newRand(t)
	buf := make([]byte, 0, 1<<16)
	endpoints, answers := []NodeEndpoint{{1, "h", 2, "r"}}, []ReportAnswer{{}}
	for _, v := range []int16{4, 12, 20} {
		_, p, targets := randFetch(r, v)
		reports := randReports(r)
		request := AppendFetchRequest(nil, v, &p, targets, reports)
		_, response := randFetchResponse(r, v)
		var f FetchRequest
		var g FetchResponse
		n := testing.AllocsPerRun(100, func() {
			buf = AppendFetchRequest(buf[:0], v, &p, targets, reports)
			if f.Parse(v, request) != nil || g.Parse(v, response) != nil {
				t.Fatal("refused")
			}
			buf = AppendFetchHead(buf[:0], v, 0, 0, 0, f.NumPartitions)
			for it := f.Partitions(); it.Next(); {
				buf = AppendFetchTopic(buf, v, it.Topic(), it.TopicID(), 1)
				p := FetchPartition{Index: it.Partition, DivergingEpoch: 1}
				buf = AppendFetchPartition(buf, v, &p)
				buf = AppendFetchTopicEnd(AppendFetchPartitionTail(buf, v, &p), v)
			}
			for it := f.Mirror.Reports(); it.Next(); {
				_ = it.Malformed
			}
			for it := g.Partitions(); it.Next(); {
				_ = it.Records
			}
			buf = AppendFetchTail(buf, v, endpoints, answers, 64)
		})
		if n != 0 {
			t.Errorf("v%d: %v allocations", v, n)
		}
	}
}

func FuzzFetchRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for v := int16(4); v <= 20; v++ {
		_, p, targets := randFetch(r, v)
		p.MirrorName, p.ClusterID = "m", "c"
		f.Add(v, AppendFetchRequest(nil, v, &p, targets, randReports(r)))
	}
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if v < 4 || v > 20 {
			return
		}
		var p FetchRequest
		if p.Parse(v, body) != nil {
			return
		}
		partitions, reports := 0, 0
		for it := p.Partitions(); it.Next(); partitions++ {
		}
		for it := p.Mirror.Reports(); it.Next(); reports++ {
		}
		k := kmsg.NewPtrFetchRequest()
		k.Version = v // kmsg also reads the tags that we read over
		if partitions != p.NumPartitions || reports != p.Mirror.NumReports || (v < 12 && k.ReadFrom(body) != nil) {
			t.Fatalf("v%d: accepted: %x", v, body)
		}
	})
}

func FuzzFetchResponse(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for v := int16(4); v <= 20; v++ {
		_, b := randFetchResponse(r, v)
		f.Add(v, b)
	}
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if v < 4 || v > 20 {
			return
		}
		var p FetchResponse
		if p.Parse(v, body) != nil {
			return
		}
		n := 0
		for it := p.Partitions(); it.Next(); n++ {
		}
		if n != p.NumPartitions {
			t.Fatalf("v%d: %d of %d partitions: %x", v, n, p.NumPartitions, body)
		}
	})
}
