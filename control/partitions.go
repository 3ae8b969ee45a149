package control

import (
	"context"
	"slices"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/plugins/sdk"
)

func raiseFence(kind meta.FenceKind) meta.Message { return &msg.RaiseFenceCommand{Kind: int8(kind)} }

// lookPartitions drives the partitions of one mirrored topic that this broker
// leads. It tells whether a leader at the source has moved.
func (m *Mirrors) lookPartitions(ctx context.Context, v *meta.View, t *meta.Topic) (moved bool) {
	type wish struct {
		deltas []msg.MirrorPartitionStatesCommandPartition
		dues   []due
	}
	wished := map[int64]*wish{} // by the fence of who wished them
	bumps := &msg.BumpLeaderEpochsCommand{}
	for i, p := range t.Partitions {
		if p.Leader != m.o.NodeID || p.State == mirror.Stopping {
			continue
		}
		st, ok := m.o.Data.Status(t.ID, int32(i))
		if !ok {
			continue
		}
		facts := m.partitionFacts(t, p, int32(i), &st)
		moved = moved || !facts.LeaderKnown || st.Mirror != nil && st.Mirror.Moved
		if st.Mirror != nil && st.Mirror.OutOfReach {
			m.restart(ctx, t, int32(i))
		}
		if facts.EpochBehind {
			if e, ok := m.sourceEpoch(t.Mirror.Mirror, t.Name, int32(i)); ok || st.Mirror != nil {
				low := max(e, p.LeaderEpoch)
				if st.Mirror != nil {
					low = max(low, st.Mirror.MaxSourceEpoch)
				}
				if p.State == mirror.EpochFencing {
					bumps.Partitions = append(bumps.Partitions, msg.BumpLeaderEpochsCommandPartition{
						TopicId: t.ID, Partition: int32(i), MinLeaderEpoch: low + epochHeadroom})
				}
			}
		}
		var said due
		d, fence, ok := m.stepPartition(ctx, t, p, int32(i), facts, &said)
		if !ok {
			said.settle("")
			continue
		}
		if wished[fence] == nil {
			wished[fence] = &wish{}
		}
		wished[fence].deltas, wished[fence].dues = append(wished[fence].deltas, d), append(wished[fence].dues, said)
	}
	if len(bumps.Partitions) > 0 {
		m.propose(ctx, bumps, "raise leader epochs", t.Name)
	}
	for fence, w := range wished {
		for k, lost := range m.proposeStates(ctx, fence, w.deltas, "mirror partition states", t.Name) {
			w.dues[k].settle(lost)
		}
	}
	return moved
}

// proposeStates proposes changes of state, in as many commands as they need. For
// each it tells why it is not made, "" if it is.
func (m *Mirrors) proposeStates(ctx context.Context, fence int64, deltas []msg.MirrorPartitionStatesCommandPartition, what, topic string) (lost []string) {
	for some := range slices.Chunk(deltas, meta.MaxStateDeltas) {
		res, ok := m.propose(ctx, &msg.MirrorPartitionStatesCommand{BrokerId: m.o.NodeID, Fence: fence, Partitions: some}, what, topic)
		for k := range some {
			why := ""
			switch {
			case !ok && text(res.ErrorMessage) != "":
				why = text(res.ErrorMessage)
			case !ok || k >= len(res.Items):
				why = "not made durable"
			case res.Items[k].ErrorCode != 0:
				why = "not made durable: " + text(res.Items[k].ErrorMessage)
			}
			lost = append(lost, why)
		}
	}
	return lost
}

func (m *Mirrors) propose(ctx context.Context, cmd meta.Message, what, topic string) (meta.Result, bool) {
	res, err := m.o.Node.Propose(ctx, cmd)
	if err != nil {
		m.o.Log.Debug("command not accepted; looked at again", "what", what, "topic", topic, "error", err)
		return res, false
	}
	for _, it := range res.Items {
		if it.ErrorCode != 0 {
			m.o.Log.Debug("command refused; looked at again", "what", what, "topic", topic, "partition", it.Partition,
				"code", it.ErrorCode, "why", text(it.ErrorMessage))
		}
	}
	return res, res.ErrorCode == 0
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (m *Mirrors) partitionFacts(t *meta.Topic, p *meta.Partition, i int32, st *status.Partition) sdk.Facts {
	f := sdk.Facts{State: int8(p.State), Desired: int8(t.Mirror.Desired), RetryAttempt: int32(p.RetryAttempt), Aligned: true}
	epoch, known := m.sourceEpoch(t.Mirror.Mirror, t.Name, i)
	f.LeaderKnown = known
	// The invariant: our leader epoch is at or above every mirrored batch's.
	f.EpochBehind = known && epoch > p.LeaderEpoch-epochMargin || st.Mirror != nil && st.Mirror.EpochBehind
	if p.State == mirror.EpochFencing && known && epoch <= p.LeaderEpoch-epochMargin {
		f.EpochBehind = st.Mirror != nil && st.Mirror.MaxSourceEpoch > p.LeaderEpoch
	}
	f.Failed = m.notTheSources(t.Mirror.Mirror, t.Name)
	if st.Offline {
		f.Failed = "the log directory has failed"
	}
	m.mu.Lock()
	if at, ok := m.retries[partitionKey{t.ID, i}]; ok {
		f.RetryDueMS = at.UnixMilli()
	}
	m.mu.Unlock()
	return f
}

// stepPartition asks the coordinator policy for the next event of a partition
// and turns it into a change of the stored state.
func (m *Mirrors) stepPartition(ctx context.Context, t *meta.Topic, p *meta.Partition, i int32, f sdk.Facts, said *due) (d msg.MirrorPartitionStatesCommandPartition, fence int64, ok bool) {
	quiet := p.State == mirror.Mirroring && t.Mirror.Desired == mirror.Mirroring && !f.EpochBehind && f.Failed == ""
	if quiet || p.State == mirror.Stopped && t.Mirror.Desired == mirror.Stopped {
		return d, 0, false
	}
	subject := sdk.Subject{Mirror: t.Mirror.Mirror, Topic: t.Name, TopicID: t.ID, Partition: i}
	now := m.o.Now().UnixMilli()
	asked, err := m.o.Coordinator.Handle(ctx, sdk.Event{NowMS: now, Type: sdk.PartitionLook, Subject: subject, Facts: f})
	is := mirror.Partition{State: p.State, Previous: p.Previous, NonRetryable: p.NonRetryable}
	fence = asked.Fence
	if err == nil {
		said.asked = asked
	}
	for _, w := range asked.Wishes {
		why := allowStep(w, subject, t, f, now)
		next := is
		switch {
		case why != "":
		case ok:
			why = "one step at a time"
		default:
			if next, _ = is.Step(mirror.PartitionEvent(w.Step)); next.State == p.State {
				why = "changes nothing"
			}
		}
		said.verdicts = append(said.verdicts, m.verdict(w, why))
		if why == "" {
			d, said.done = m.delta(t, p, i, next, w.Reason)
			ok = true
		}
	}
	if !ok && t.Mirror.Desired == mirror.Stopped { // a stop never waits for a plugin, silent or wrong
		if next, _ := is.Step(mirror.WantStopped); next.State != p.State {
			fence, ok = noFence, true
			d, said.done = m.delta(t, p, i, next, "built-in rule")
		}
	}
	return d, fence, ok
}

// allowStep is the guard for a coordinator's wish: the event must be true by
// the broker's own measure.
func allowStep(w sdk.Wish, s sdk.Subject, t *meta.Topic, f sdk.Facts, now int64) string {
	if w.Do != sdk.StepPartition || w.Subject != s {
		return "not about this partition"
	}
	return mirror.AllowStep(mirror.PartitionEvent(w.Step), mirror.StepEvidence{Desired: t.Mirror.Desired, EpochBehind: f.EpochBehind,
		Aligned: f.Aligned, Failed: f.Failed != "", RetryDue: now >= f.RetryDueMS})
}

func (m *Mirrors) delta(t *meta.Topic, p *meta.Partition, i int32, next mirror.Partition, reason string) (d msg.MirrorPartitionStatesCommandPartition, done func()) {
	d = stateDelta(t, p, i)
	d.State, d.Previous, d.NonRetryable = int8(next.State), int8(next.Previous), next.NonRetryable
	if next.State == mirror.Failed {
		d.RetryAttempt = p.RetryAttempt + 1
		d.Error = &reason
		wait := min(retryInitial<<min(p.RetryAttempt, 9), retryMax)
		m.mu.Lock()
		m.retries[partitionKey{t.ID, i}] = m.o.Now().Add(wait)
		m.mu.Unlock()
	}
	return d, func() {
		m.o.Log.Info("mirror partition", "mirror", t.Mirror.Mirror, "topic", t.Name, "partition", i,
			"from", p.State.String(), "to", next.State.String(), "reason", reason)
	}
}

// stateDelta is a change that keeps everything as it is.
func stateDelta(t *meta.Topic, p *meta.Partition, i int32) msg.MirrorPartitionStatesCommandPartition {
	return msg.MirrorPartitionStatesCommandPartition{TopicId: t.ID, Partition: i, LeaderEpoch: p.LeaderEpoch, StateEpoch: p.StateEpoch,
		State: int8(p.State), Previous: int8(p.Previous), StopStep: int8(p.StopStep), RetryAttempt: p.RetryAttempt,
		NonRetryable: p.NonRetryable, LmeEpoch: -1, LmeOffset: -1}
}

// restart asks where the source's log starts when it no longer has our offset,
// and lets the partition begin there: what lies between is gone at the source.
func (m *Mirrors) restart(ctx context.Context, t *meta.Topic, i int32) {
	client := m.client(t.Mirror.Mirror)
	if client == nil {
		return
	}
	m.background(busyKey{id: t.ID}, func() {
		c, cancel := context.WithTimeout(ctx, sourceTimeout)
		defer cancel()
		start, err := client.EarliestOffset(c, t.Name, i)
		if err != nil {
			m.o.Log.Warn("source does not have our offset and does not tell what it has", "topic", t.Name, "partition", i, "error", err)
			sleep(ctx, time.Second)
			return
		}
		m.o.Log.Warn("source's log starts above ours; mirroring starts anew there", "topic", t.Name, "partition", i, "offset", start)
		m.o.Data.RestartAt(t.ID, i, start)
	})
}
