package meta

import "slices"

// place assigns replicas round-robin: leaders over the brokers in turn, the
// followers shifted by one more with each round, so that the load of a lost
// broker spreads over all others. start varies the first broker. It needs
// 1 ≤ replicas ≤ len(brokers).
func place(brokers []int32, first, partitions, replicas, start int) [][]int32 {
	n := len(brokers)
	out := make([][]int32, partitions)
	for i := range out {
		p := first + i
		lead := (start + p) % n
		shift := (start + p/n) % max(1, n-1)
		set := make([]int32, 0, replicas)
		set = append(set, brokers[lead])
		for j := 0; j < replicas-1; j++ {
			set = append(set, brokers[(lead+1+(shift+j)%(n-1))%n])
		}
		out[i] = set
	}
	return out
}

// assignment returns the replicas of new partitions: the given ones checked,
// or placed ones.
func (x *tx) assignment(given [][]int32, first, count, replicas int) ([][]int32, *refusal) {
	if len(given) > 0 {
		return given, x.checkAssignment(given)
	}
	var live []int32
	for _, b := range x.v.brokers {
		if b.Alive() {
			live = append(live, b.ID)
		}
	}
	if replicas < 1 || replicas > len(live) || replicas > MaxReplicationFactor {
		return nil, refuse(invalidReplicationFactor, "replication factor must be between 1 and the number of live brokers")
	}
	return place(live, first, count, replicas, int(uint64(x.index)%uint64(len(live)))), nil
}

func (x *tx) checkAssignment(given [][]int32) *refusal {
	for _, set := range given {
		if len(set) == 0 || len(set) > MaxReplicationFactor || len(set) != len(given[0]) {
			return refuse(invalidReplicaAssignment, "partitions need the same number of replicas, at least one")
		}
		for i, id := range set {
			if x.v.Broker(id) == nil {
				return refuse(invalidReplicaAssignment, "assignment names an unknown broker")
			}
			if slices.Contains(set[:i], id) {
				return refuse(invalidReplicaAssignment, "assignment names a broker twice")
			}
		}
		if !slices.ContainsFunc(set, x.alive) {
			return refuse(invalidReplicaAssignment, "assignment has no live broker")
		}
	}
	return nil
}

// newPartition starts with its live replicas in sync: all of them are empty.
func (x *tx) newPartition(replicas []int32) *Partition {
	p := &Partition{Replicas: replicas, Leader: -1, LastLeader: -1, State: -1, Previous: -1, LMEEpoch: -1, LMEOffset: -1}
	for _, id := range replicas {
		if x.alive(id) {
			p.ISR = append(p.ISR, id)
		}
	}
	p.Leader, p.LastLeader = p.ISR[0], p.ISR[0]
	return p
}
