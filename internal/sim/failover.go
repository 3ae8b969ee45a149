package sim

import (
	"maps"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// failover ends a run otherwise: the source's site loses its power for good, and
// an operator stops the mirror. FailoverLosesNothing: what acks=all has
// acknowledged while the pair was registered is at the second site, in both flush
// modes, and the topics can be written from there on.
func (w *World) failover() {
	w.failed = true
	w.note("the source's site is gone")
	w.src.crash(true)
	w.nodes = []*node{w.dst}
	var left []client
	for _, c := range w.clients {
		if x, ok := c.(*consumer); ok && x.n == w.dst || c == client(w.pair) {
			left = append(left, c)
		} else {
			c.cut(true)
		}
	}
	w.clients = left
	w.calm = true
	w.dst.disk.SetFault(nil)
	w.dst.disk.SetShort(nil)
	if w.dst.broken || w.rnd.IntN(3) == 0 {
		w.restart(w.dst, false)
	}
	for _, p := range w.model.parts {
		gone, mayStart := maps.Clone(p.gone), p.mayStart // what was cleaned may be missing there still
		p.forget(p.safe)                                 // above that the source may have written anew what the second site has as it was
		p.gone, p.mayStart = gone, mayStart
	}
	stop := &msg.StopMirrorTopicsCommand{Mirror: pairName}
	for topic := range topics {
		stop.Topics = append(stop.Topics, w.of(topic)[0].topic)
	}
	res := w.dst.apply(stop)
	w.check(res.ErrorCode == 0, "TheWorldWorks", "stop: ", res)
	for _, p := range w.model.parts {
		w.stop(p)
	}
	for _, p := range w.model.parts {
		w.writable(p)
	}
	w.compare(w.dst.disk)
}

// until lets the second site go on until something is so.
func (w *World) until(what string, p *part, done func() bool) {
	for deadline := w.mono + patience; !done(); {
		w.quietStep()
		st, _ := w.dst.eng.Status(p.id, p.index)
		w.check(w.mono < deadline, "EveryRequestIsAnswered", p.topic, p.index, ": ", what, "; ", st, st.Mirror)
	}
}

// stop takes a partition through the steps of control: fetchers off, the last
// offset that is the source's, an epoch above all of its, writable.
func (w *World) stop(p *part) {
	n := w.dst
	state := func(to mirror.PartitionState, lme int64) {
		mp := n.latest.TopicByID(p.id).Partitions[p.index]
		r := msg.MirrorPartitionStatesCommandPartition{TopicId: p.id, Partition: p.index, LeaderEpoch: mp.LeaderEpoch, StateEpoch: mp.StateEpoch,
			State: int8(to), Previous: -1, LmeEpoch: -1, LmeOffset: -1}
		if lme >= 0 {
			r.LmeEpoch, r.LmeOffset = mp.LeaderEpoch, lme
		}
		res := n.apply(&msg.MirrorPartitionStatesCommand{BrokerId: 1, Fence: noFence, Partitions: []msg.MirrorPartitionStatesCommandPartition{r}})
		w.check(res.Items[0].ErrorCode == 0, "TheWorldWorks", "state ", mp.State, " to ", to, ": ", res.Items[0].ErrorCode)
	}
	w.until("not there", p, func() bool { st, ok := n.eng.Status(p.id, p.index); return ok && st.Leader })
	w.until("not stopping", p, func() bool { return n.latest.TopicByID(p.id).Partitions[p.index].State == mirror.Stopping })
	w.until("not drained", p, func() bool {
		st, _ := n.eng.Status(p.id, p.index)
		return n.eng.Applied() == n.latest.Index() && (st.Mirror == nil || st.Mirror.Drained || !st.Mirror.Fetching)
	})
	st, _ := n.eng.Status(p.id, p.index)
	w.check(st.End >= p.safe || p.safe <= p.start || st.Start == st.End, "FailoverLosesNothing", p.topic, p.index, ": everything below ", p.safe,
		" could be acknowledged, the second site's log ends at ", st.End)
	n.apply(&msg.BumpLeaderEpochsCommand{Partitions: []msg.BumpLeaderEpochsCommandPartition{
		{TopicId: p.id, Partition: p.index, MinLeaderEpoch: max(st.LatestEpoch, st.LeaderEpoch)}}})
	state(mirror.Stopped, st.End)
	w.until("not writable, or the mark below the log end", p, func() bool {
		now, _ := n.eng.Status(p.id, p.index)
		w.check(now.End == st.End, "FailoverLosesNothing", p.topic, p.index, ": the log ended at ", st.End, ", once stopped at ", now.End)
		return n.eng.Applied() == n.latest.Index() && now.High == now.End
	})
	p.forget(st.End) // what the source had beyond is gone with it
}

// writable writes a record at the second site.
func (w *World) writable(p *part) {
	st, _ := w.dst.eng.Status(p.id, p.index)
	l := link{w: w, n: w.dst}
	l.open()
	w.nextID++
	params := wire.ProduceParams{Acks: -1, TimeoutMs: 60 * produceWaitMS, Topic: p.topic, TopicID: p.id, Partition: p.index}
	b := wire.BuildBatch(nil, wire.PlainParams(w.wall()), w.record(p, w.nextID, 8))
	l.send(wire.KeyProduce, 9, true, func(o []byte) []byte { return wire.AppendProduceRequest(o, 9, &params, b) })
	w.until("a produce is not answered", p, func() bool {
		l.pump()
		a, body, ok := l.next()
		if !ok {
			return false
		}
		var res wire.ProduceResponse
		err := res.Parse(a.version, body)
		it := res.Iter()
		w.check(err == nil && it.Next() && it.Err == wire.ErrNone && it.BaseOffset == st.End, "FailoverLosesNothing", p.topic, p.index,
			": a produce after the stop: ", it.Err.Name(), " at ", it.BaseOffset, " of ", st.End)
		w.observe(p, it.BaseOffset, w.nextID, "an acknowledgement of the second site")
		return true
	})
}
