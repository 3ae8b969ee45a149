package control

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/msg"
)

func member(incarnation byte, applied func() uint64) Member {
	return Member{NodeID: 1, Incarnation: [16]byte{incarnation}, Host: "h", Port: 9092, Rack: "r", NewCluster: "c",
		Features: map[string]int16{"mirror.sync.version": 1}, Applied: applied}
}

func TestJoin(t *testing.T) {
	n := openNode(t, NodeOptions{NodeID: 1, Dir: t.TempDir()})
	defer closeNode(t, n)
	all := func() uint64 { return n.View().Index() }
	first, err := n.Join(within(t, 5*time.Second), member(1, all))
	if err != nil {
		t.Fatal(err)
	}
	if b := n.View().Broker(1); n.View().ClusterID() != "c" || b == nil || b.Epoch != first || !b.Alive() || b.Rack != "r" || b.Port != 9092 || n.View().Feature("mirror.sync.version") != 1 {
		t.Fatalf("%+v", n.View().Broker(1))
	}
	propose(t, n, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "t", TopicId: [16]byte{5},
		Assignments: []msg.CreateTopicsCommandAssignment{{Replicas: []int32{1}}}}}})
	p := n.View().TopicByName("t").Partitions[0]
	if p.Leader != 1 {
		t.Fatalf("%+v", p)
	}
	// The same again is the same broker; a new incarnation is a new one, and its
	// leaderships are new too.
	if again, err := n.Join(within(t, 5*time.Second), member(1, all)); err != nil || again != first {
		t.Fatal(again, err)
	}
	if e := n.View().TopicByName("t").Partitions[0].LeaderEpoch; e != p.LeaderEpoch {
		t.Errorf("leader epoch %d after the same registration, was %d", e, p.LeaderEpoch)
	}
	second, err := n.Join(within(t, 5*time.Second), member(2, all))
	if err != nil || second <= first {
		t.Fatal(second, err)
	}
	q := n.View().TopicByName("t").Partitions[0]
	if q.Leader != 1 || q.LeaderEpoch <= p.LeaderEpoch || n.View().ClusterID() != "c" {
		t.Errorf("after a new incarnation: %+v, before %+v", q, p)
	}
	if err := n.Leave(within(t, time.Second), 1, first); err == nil || !strings.Contains(err.Error(), "STALE_BROKER_EPOCH") {
		t.Errorf("leave with an old epoch: %v", err)
	}
	if err := n.Leave(within(t, time.Second), 1, second); err != nil || n.View().Broker(1).Alive() {
		t.Errorf("leave: %v", err)
	}
}

// A broker leads nothing before its data plane has applied its registration.
func TestJoinWaitsForTheDataPlane(t *testing.T) {
	n := openNode(t, NodeOptions{NodeID: 1, Dir: t.TempDir()})
	defer closeNode(t, n)
	if _, err := n.Join(within(t, 5*time.Second), member(1, n.Committed)); err != nil {
		t.Fatal(err)
	}
	propose(t, n, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "t", TopicId: [16]byte{5},
		Assignments: []msg.CreateTopicsCommandAssignment{{Replicas: []int32{1}}}}}})
	var applied atomic.Uint64
	applied.Store(n.View().Index())
	done := make(chan error, 1)
	go func() { _, err := n.Join(within(t, 5*time.Second), member(2, applied.Load)); done <- err }()
	wait(t, "registered", func() bool { return n.View().Broker(1).Incarnation == [16]byte{2} })
	registered := n.View().Index()
	applied.Store(registered - 1)
	time.Sleep(50 * time.Millisecond)
	if b := n.View().Broker(1); b.Alive() || n.View().TopicByName("t").Partitions[0].Leader == 1 {
		t.Fatalf("it leads before the data plane knows: %+v", b)
	}
	applied.Store(registered)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !n.View().Broker(1).Alive() || n.View().TopicByName("t").Partitions[0].Leader != 1 {
		t.Error("it does not lead afterwards")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Join(ctx, member(3, applied.Load)); err == nil || !strings.Contains(err.Error(), "data plane") {
		t.Errorf("a data plane that does not follow: %v", err)
	}
}
