package sim

import (
	"fmt"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/plugins/sdk"
)

const pairName = "pair"

// pair is the control of a second broker that mirrors everything in step: a
// real data plane at both ends, and the steps of control in between. What policies
// decide in a broker, they decide here; see slot.
type pair struct {
	w           *World
	known       map[*part]int32 // source epochs the broker was told
	life        int
	coordinator *slot
	promotion   *slot
	retries     map[*part]int64    // FAILED may retry then, mono
	tries       map[meta.UUID]try  // when a topic may register again
	asked       map[meta.UUID]int  // a Register is at the source, in this life of it
	said        map[meta.UUID]word // and what it was answered
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
	if w.cfg.Compact && w.rnd.IntN(4) > 0 { // configs are not mirrored: an operator may compact the copy, too
		n.compactTopic(w.of(compacted)[0].topic)
	}
	c := &pair{w: w, coordinator: w.newSlot(n, sdk.Coordinator, meta.FenceCoordinator), promotion: w.newSlot(n, sdk.Promotion, meta.FencePromotion)}
	c.begin()
	w.pair = c
	w.clients = append(w.clients, c, c, c)
	for _, p := range w.model.parts {
		w.clients = append(w.clients, &consumer{link: link{w: w, n: n}, p: p, version: 13})
	}
}

// begin forgets what only memory had.
func (c *pair) begin() {
	c.life, c.known, c.retries, c.tries = c.w.dst.life, map[*part]int32{}, map[*part]int64{}, map[meta.UUID]try{}
	c.asked, c.said = map[meta.UUID]int{}, map[meta.UUID]word{}
}

func (c *pair) owed() int { return 0 }
func (c *pair) cut(bool)  {}
func (c *pair) quit()     {}

// act does one step of control for a random partition, in the order in which a
// real one would find them due.
func (c *pair) act() bool {
	w := c.w
	if c.life != w.dst.life {
		c.begin()
	}
	parts := w.model.parts
	if !w.calm {
		i := w.rnd.IntN(len(parts))
		parts = parts[i : i+1]
	}
	before := w.src.latest.Index() + w.dst.latest.Index()
	moved := false
	for _, p := range parts {
		c.lifecycle(p)
		if !w.failed {
			moved = c.addresses(p) || moved
			c.promote(p)
		}
	}
	return moved || before != w.src.latest.Index()+w.dst.latest.Index()
}

// lifecycle asks the coordinator what is next for a partition, as
// control.lookPartitions does.
func (c *pair) lifecycle(p *part) {
	w, n := c.w, c.w.dst
	t := n.latest.TopicByID(p.id)
	mp := t.Partitions[p.index]
	st, ok := n.eng.Status(p.id, p.index)
	if !ok || mp.Leader < 0 || mp.State == mirror.Stopping || mp.State == mirror.Stopped {
		return
	}
	epoch, known := c.known[p]
	f := sdk.Facts{State: int8(mp.State), Desired: int8(t.Mirror.Desired), RetryAttempt: int32(mp.RetryAttempt), Aligned: true, LeaderKnown: known,
		EpochBehind: known && epoch > mp.LeaderEpoch || st.Mirror != nil && st.Mirror.EpochBehind, RetryDueMS: w.wallAt(c.retries[p])}
	if st.Offline {
		f.Failed = "the log directory has failed"
	}
	if f.EpochBehind && mp.State == mirror.EpochFencing {
		low := max(epoch, mp.LeaderEpoch)
		if st.Mirror != nil {
			low = max(low, st.Mirror.MaxSourceEpoch)
		}
		n.apply(&msg.BumpLeaderEpochsCommand{Partitions: []msg.BumpLeaderEpochsCommandPartition{{TopicId: p.id, Partition: p.index, MinLeaderEpoch: low}}})
		return
	}
	if mp.State == mirror.Mirroring && t.Mirror.Desired == mirror.Mirroring && !f.EpochBehind && f.Failed == "" {
		return
	}
	subject := sdk.Subject{Mirror: pairName, Topic: p.topic, TopicID: p.id, Partition: p.index}
	now := w.wall()
	c.coordinator.ask(sdk.Event{Type: sdk.PartitionLook, Subject: subject, Facts: f}, func(fence int64, d sdk.Decision, _ error) {
		c.stepPartition(p, t, subject, f, now, fence, d)
	})
}

// stepPartition makes the first wish that is allowed durable. A stop waits for no
// plugin: the built-in rule takes the step.
func (c *pair) stepPartition(p *part, t *meta.Topic, subject sdk.Subject, f sdk.Facts, now, fence int64, d sdk.Decision) {
	mp := t.Partitions[p.index]
	is := mirror.Partition{State: mp.State, Previous: mp.Previous, NonRetryable: mp.NonRetryable}
	e := mirror.StepEvidence{Desired: t.Mirror.Desired, EpochBehind: f.EpochBehind, Aligned: f.Aligned, Failed: f.Failed != "", RetryDue: now >= f.RetryDueMS}
	for _, w := range d.Wishes {
		event := mirror.PartitionEvent(w.Step)
		if w.Do != sdk.StepPartition || w.Subject != subject || mirror.AllowStep(event, e) != "" {
			continue
		}
		if next, _ := is.Step(event); next.State != mp.State {
			c.setState(p, t, next, fence)
			return
		}
	}
	if t.Mirror.Desired == mirror.Stopped {
		if next, _ := is.Step(mirror.WantStopped); next.State != mp.State {
			c.setState(p, t, next, noFence)
		}
	}
}

func (c *pair) setState(p *part, t *meta.Topic, next mirror.Partition, fence int64) {
	w, mp := c.w, t.Partitions[p.index]
	r := msg.MirrorPartitionStatesCommandPartition{TopicId: p.id, Partition: p.index, LeaderEpoch: mp.LeaderEpoch, StateEpoch: mp.StateEpoch,
		State: int8(next.State), Previous: int8(next.Previous), NonRetryable: next.NonRetryable, RetryAttempt: mp.RetryAttempt, LmeEpoch: -1, LmeOffset: -1}
	if next.State == mirror.Failed {
		r.RetryAttempt++
		c.retries[p] = w.mono + int64(1e9)
	}
	res := c.coordinator.apply(p.id, fence, &msg.MirrorPartitionStatesCommand{BrokerId: 1, Fence: fence, Partitions: []msg.MirrorPartitionStatesCommandPartition{r}})
	w.note("copy of %s-%d: %s to %s under fence %d: %d", p.topic, p.index, mp.State, next.State, fence, res.ErrorCode)
}

// addresses tells the broker who leads at the source, when it does not know.
func (c *pair) addresses(p *part) bool {
	w := c.w
	epoch := w.src.latest.TopicByID(p.id).Partitions[p.index].LeaderEpoch
	old, told := c.known[p]
	st, _ := w.dst.eng.Status(p.id, p.index)
	moved := st.Mirror != nil && st.Mirror.Moved && w.rnd.IntN(4) == 0 && !w.calm
	if told && old == epoch && !moved {
		return false
	}
	topics := map[string][]status.SourceLeader{}
	for _, q := range w.model.parts {
		e := w.src.latest.TopicByID(q.id).Partitions[q.index].LeaderEpoch
		c.known[q] = e
		topics[q.topic] = append(topics[q.topic], status.SourceLeader{Addr: w.src.addr, Epoch: e})
	}
	w.dst.eng.SetSources(pairName, topics)
	w.note("dst is told the source's addresses")
	return true
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

// stand tells where the promotion of every topic and the plugins are.
func (c *pair) stand() (s string) {
	for topic := range topics {
		p := c.w.of(topic)[0]
		t := c.w.dst.latest.TopicByID(p.id)
		s += fmt.Sprintf(" %s %s owed %d attempts %d states", p.topic, t.Mirror.Phase, t.Mirror.OwedUnregister, t.Mirror.Attempts)
		for _, mp := range t.Partitions {
			s += " " + mp.State.String()
		}
	}
	for _, x := range c.w.slots {
		s += fmt.Sprintf("; %s %s, swap %q", x.kind, x.life.Phase, x.life.Swap)
	}
	return s + ";"
}
