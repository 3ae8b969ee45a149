package sim

import (
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
)

const pairName = "pair"

// pair is the control of a second broker that mirrors everything in step: a
// real data plane at both ends, and the steps of control in between.
type pair struct {
	w     *World
	known map[*part]int32 // source epochs the broker was told
	life  int
}

func (w *World) buildPair() {
	n := newNode(w, "dst", 9093)
	w.dst = n
	w.nodes = append(w.nodes, n)
	n.start()
	ok := func(res meta.Result) {
		w.check(res.ErrorCode == 0, "TheWorldWorks", res.ErrorCode)
		for _, item := range res.Items {
			w.check(item.ErrorCode == 0, "TheWorldWorks", item.Name, item.ErrorCode)
		}
	}
	ok(n.apply(&msg.CreateMirrorCommand{Mirror: pairName, Configs: []msg.CreateMirrorCommandConfig{
		{Name: "bootstrap.servers", Value: "src"}, {Name: "mirror.source.cluster.id", Value: "src"}}}))
	for t := range w.src.latest.Topics() {
		ok(n.apply(&msg.AddTopicsToMirrorCommand{Mirror: pairName, Topics: []msg.AddTopicsToMirrorCommandTopic{
			{TopicId: t.ID, Name: t.Name, NumPartitions: partitions, ReplicationFactor: 1, MirrorType: int8(mirror.Sync)}}}))
	}
	c := &pair{w: w, known: map[*part]int32{}}
	w.clients = append(w.clients, c, c)
	for _, p := range w.model.parts {
		w.clients = append(w.clients, &consumer{link: link{w: w, n: n}, p: p, version: 13})
	}
}

func (c *pair) owed() int { return 0 }
func (c *pair) cut(bool)  {}
func (c *pair) quit()     {}

// act does one step of control for a random partition, in the order in which a
// real one would find them due.
func (c *pair) act() bool {
	w := c.w
	p := w.model.parts[w.rnd.IntN(len(w.model.parts))]
	if w.calm {
		moved := false
		for _, p := range w.model.parts {
			moved = c.lifecycle(p) || c.addresses(p) || moved
		}
		return moved
	}
	return c.lifecycle(p) || c.addresses(p) || c.promote(p)
}

// lifecycle brings a partition to MIRRORING and keeps our epoch above the source's.
func (c *pair) lifecycle(p *part) bool {
	n := c.w.dst
	mp := n.latest.TopicByID(p.id).Partitions[p.index]
	if mp.Leader < 0 {
		return false
	}
	if st, ok := n.eng.Status(p.id, p.index); ok && st.Mirror != nil && st.Mirror.EpochBehind && mp.LeaderEpoch < st.Mirror.MaxSourceEpoch {
		n.apply(&msg.BumpLeaderEpochsCommand{Partitions: []msg.BumpLeaderEpochsCommandPartition{
			{TopicId: p.id, Partition: p.index, MinLeaderEpoch: st.Mirror.MaxSourceEpoch}}})
		return true
	}
	to := mirror.Mirroring
	switch {
	case mp.State == mirror.Mirroring:
		return false
	case !mirror.Allowed(mp.State, to):
		to = mirror.LogTruncation
	}
	res := n.apply(&msg.MirrorPartitionStatesCommand{BrokerId: 1, Partitions: []msg.MirrorPartitionStatesCommandPartition{
		{TopicId: p.id, Partition: p.index, LeaderEpoch: mp.LeaderEpoch, StateEpoch: mp.StateEpoch, State: int8(to), Previous: -1, LmeEpoch: -1, LmeOffset: -1}}})
	c.w.check(res.Items[0].ErrorCode == 0, "TheWorldWorks", "state ", mp.State, " to ", to, ": ", res.Items[0].ErrorCode)
	return true
}

// addresses tells the broker who leads at the source, when it does not know.
func (c *pair) addresses(p *part) bool {
	w := c.w
	epoch := w.src.latest.TopicByID(p.id).Partitions[p.index].LeaderEpoch
	old, told := c.known[p]
	st, _ := w.dst.eng.Status(p.id, p.index)
	moved := st.Mirror != nil && st.Mirror.Moved && w.rnd.IntN(4) == 0 && !w.calm
	if c.life == w.dst.life && told && old == epoch && !moved {
		return false
	}
	topics := map[string][]status.SourceLeader{}
	for _, q := range w.model.parts {
		e := w.src.latest.TopicByID(q.id).Partitions[q.index].LeaderEpoch
		c.known[q] = e
		topics[q.topic] = append(topics[q.topic], status.SourceLeader{Addr: w.src.addr, Epoch: e})
	}
	c.life = w.dst.life
	w.dst.eng.SetSources(pairName, topics)
	w.note("dst is told the source's addresses")
	return true
}

// promote moves a topic towards SYNC in the order of R10: registering is
// durable, the source registers, every shard there has applied it, OK.
func (c *pair) promote(p *part) bool {
	w := c.w
	t := w.dst.latest.TopicByID(p.id)
	step := func(e mirror.PromotionEventKind, number int64) bool {
		res := w.dst.apply(&msg.PromotionStepCommand{Fence: -1, Topics: []msg.PromotionStepCommandTopic{
			{TopicId: p.id, ExpectedPhase: int8(t.Mirror.Phase), Event: int8(e), Number: number}}})
		return res.Items[0].ErrorCode == 0
	}
	switch t.Mirror.Phase {
	case mirror.Pending, mirror.Recovery:
		for i := range t.Partitions {
			st, ok := w.dst.eng.Status(p.id, int32(i))
			if !ok || st.Mirror == nil || !st.Mirror.InStep {
				return false
			}
		}
		return step(mirror.InStep, 0)
	case mirror.Registering:
		for _, r := range w.src.latest.TopicByID(p.id).Registrations {
			if r.Mirror == pairName && r.Gates() && r.Epoch > t.Mirror.SpentEpoch {
				return w.src.eng.Applied() >= uint64(r.Epoch) && step(mirror.RegisterOK, r.Epoch)
			}
		}
		w.src.apply(&msg.RegisterSyncCommand{Fence: -1, Mirror: pairName, ClusterId: "dst",
			Topics: []msg.RegisterSyncCommandTopic{{TopicId: p.id, Recovery: true, ReleaseNumber: -1}}})
		return true
	case mirror.InSync:
		st, ok := w.dst.eng.Status(p.id, p.index)
		if ok && st.Mirror != nil && st.Mirror.FailingSinceMS > 0 && st.Mirror.FailReason == "INVALID_SYNC_REGISTRATION" && w.rnd.IntN(10) == 0 {
			return step(mirror.AllFailing, 0)
		}
		if w.rnd.IntN(400) == 0 {
			w.src.apply(&msg.ReleaseSyncCommand{Fence: -1, RegistrationEpoch: mirror.AnyEpoch, Mirror: pairName, TopicIds: [][16]byte{p.id}})
			return true
		}
	}
	return false
}

// pairLaws: the destination's marks rise, stay within its log, and never pass
// what the source has had for its mark.
func (w *World) pairLaws() {
	if w.dst == nil {
		return
	}
	for _, p := range w.model.parts {
		st, ok := w.dst.eng.Status(p.id, p.index)
		if !ok {
			continue
		}
		if p.copy.life != w.dst.life {
			p.copy = seen{life: w.dst.life}
			p.safe = min(p.safe, st.End) // what it lost is at the source
		}
		if st.Start < p.copy.start { // empty, and started anew where a batch begins
			p.copy.high = 0
		}
		p.copy.start = st.Start
		w.check(st.High >= p.copy.high && st.High <= st.End, "MonotonicWatermark", "copy of ", p.topic, p.index, ": ", p.copy.high, " then ", st.High, ", start ", st.Start, ", end ", st.End)
		w.check(w.failed || st.High <= p.gated, "MirrorIsPrefixOfSource", "copy of ", p.topic, p.index, ": mark ", st.High, ", the source's never passed ", p.gated)
		w.check(st.Mirror == nil || st.Mirror.LostAcked == 0, "MirrorIsPrefixOfSource", p.topic, p.index, ": records below the mark were dropped")
		p.copy.high, p.copy.end = st.High, st.End
		have := st.End
		if st.DurableAck {
			have = st.Durable
		}
		p.held = max(p.held, have)
	}
}

// mirrored tells whether the second broker has all up to end.
func (w *World) mirrored(p *part, end int64) bool {
	if w.dst == nil {
		return true
	}
	st, ok := w.dst.eng.Status(p.id, p.index)
	return ok && st.End == end && st.High == end
}
