package control

import (
	"fmt"
	"testing"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
)

func turnTopic(i, partitions int, index uint64, state mirror.PartitionState) *meta.Topic {
	t := &meta.Topic{Name: fmt.Sprint(i), Index: index, Mirror: &meta.TopicMirror{Desired: mirror.Mirroring}}
	t.ID[0], t.ID[1] = byte(i), byte(i>>8)
	t.Mirror.Promotion.Phase = mirror.InSync
	for range partitions {
		t.Partitions = append(t.Partitions, &meta.Partition{State: state})
	}
	return t
}

// Every settled topic has its turn within as many ticks as it takes, one that
// changes or is under way has every turn, and few topics have all of them.
func TestTurns(t *testing.T) {
	for _, n := range []int{1, 9, 10, 11, 95, 200} {
		var topics []*meta.Topic
		for i := range n {
			topics = append(topics, turnTopic(i, 100, 1, mirror.Mirroring))
		}
		topics = append(topics, turnTopic(n, 100, 1, mirror.LogTruncation))
		u := turn{}
		looked := make([]int, n+1)
		rounds := 3
		ticks := (n*100 + settledPerTick - 1) / settledPerTick
		u.begin(meta.Empty())
		for _, x := range topics {
			u.has(x)
		}
		u.index = 1
		for range rounds * ticks {
			u.begin(meta.Empty())
			u.index = 1 // the View is the same
			most := 0
			for i, x := range topics {
				if u.has(x) {
					looked[i]++
					most += len(x.Partitions)
				}
			}
			if most > settledPerTick+200 {
				t.Fatalf("%d topics: %d partitions in one tick", n, most)
			}
		}
		for i, k := range looked[:n] {
			if k < rounds-1 {
				t.Fatalf("%d topics: topic %d had %d turns in %d rounds of %d ticks", n, i, k, rounds, ticks)
			}
		}
		if looked[n] != rounds*ticks {
			t.Fatalf("%d topics: the one under way had %d turns of %d", n, looked[n], rounds*ticks)
		}
		changed := turnTopic(0, 100, 7, mirror.Mirroring)
		if !u.has(changed) {
			t.Fatal("a topic that has changed waits for its turn")
		}
	}
}
