package meta

import "slices"

// without returns ids less one id, in a new slice.
func without(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}

// setISR moves p to a new ISR. While it is under minISR the members that leave
// keep everything below the high watermark, which then stands still: they are
// eligible leader replicas. At minISR and above nobody else is.
func (p *Partition) setISR(isr []int32, minISR int) {
	if len(isr) >= minISR {
		p.ISR, p.ELR = isr, nil
		return
	}
	elr := slices.Concat(p.ELR, p.ISR)
	slices.Sort(elr)
	elr = slices.Compact(elr)
	p.ELR = slices.DeleteFunc(elr, func(id int32) bool { return slices.Contains(isr, id) })
	p.ISR = isr
}

// drop takes a broker out of the ISR. lossy: it may have lost records, so it is
// not eligible either.
func (p *Partition) drop(id int32, minISR int, lossy bool) {
	if slices.Contains(p.ISR, id) {
		p.setISR(without(p.ISR, id), minISR)
	}
	if lossy && slices.Contains(p.ELR, id) {
		p.ELR = without(p.ELR, id)
	}
}

// elect gives p a leader if it can: from the ISR, from the ELR, the last leader
// when both are empty, and with unclean any live replica. It prefers the order
// of the assignment.
func (p *Partition) elect(alive func(int32) bool, minISR int, unclean bool) {
	first := func(ok func(int32) bool) (int32, bool) {
		i := slices.IndexFunc(p.Replicas, func(id int32) bool { return alive(id) && ok(id) })
		if i < 0 {
			return -1, false
		}
		return p.Replicas[i], true
	}
	if id, ok := first(func(id int32) bool { return slices.Contains(p.ISR, id) }); ok {
		p.lead(id)
		return
	}
	if id, ok := first(func(id int32) bool { return slices.Contains(p.ELR, id) }); ok {
		p.setISR([]int32{id}, minISR)
		p.lead(id)
		return
	}
	hope := func(id int32) bool {
		return unclean || len(p.ISR) == 0 && len(p.ELR) == 0 && id == p.LastLeader
	}
	id, ok := first(hope)
	if ok {
		p.ISR, p.ELR = []int32{id}, nil
	}
	p.lead(id)
}

// lead makes id (-1 nobody) the leader; a change begins a new epoch.
func (p *Partition) lead(id int32) {
	if id == p.Leader {
		return
	}
	p.Leader = id
	p.LeaderEpoch++
	if id >= 0 {
		p.LastLeader = id
	}
}

func (p *Partition) has(id int32) bool {
	return p.Leader == id || slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id)
}

// loseBroker takes a broker out of every ISR and leadership.
func (x *tx) loseBroker(id int32, lossy bool) {
	x.eachPartition(func(t *Topic, i int, p *Partition) {
		if !p.has(id) {
			return
		}
		if !lossy && p.Leader != id && !slices.Contains(p.ISR, id) {
			return // eligible before and after
		}
		t = x.edit(t)
		p = editPartition(t, i)
		p.drop(id, x.minISR(t), lossy)
		if p.Leader == id || p.Leader < 0 {
			p.elect(x.alive, x.minISR(t), x.unclean(t))
		}
		p.PartitionEpoch++
	})
}

// gainBroker elects where a partition without leader can now have one.
func (x *tx) gainBroker(id int32) {
	x.eachPartition(func(t *Topic, i int, p *Partition) {
		if p.Leader < 0 && slices.Contains(p.Replicas, id) {
			x.electLeaderless(t, i)
		}
	})
}

// electLeaderless gives a partition that has no leader one, if it can.
func (x *tx) electLeaderless(t *Topic, i int) {
	try := *t.Partitions[i]
	try.elect(x.alive, x.minISR(t), x.unclean(t))
	if try.Leader >= 0 {
		try.PartitionEpoch++
		x.edit(t).Partitions[i] = &try
	}
}
