package control

import (
	"context"
	"errors"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// stop is the fail-over of one topic in this process.
type stop struct {
	unregistered bool             // the one Unregister is over, or was before this process
	begun        map[int32]bool   // partitions this leadership has begun or resumed
	epochs       map[int32]int32  // leader epochs they were begun in
	waiting      map[int32]string // what a partition waits for, told once
}

// lookStop drives the fail-over of a topic: its partitions that are STOPPING
// each go through the steps of mirror.StopStep, one durable step at a time. It
// needs no plugin and, but for one Unregister of at most five seconds, no
// source.
func (m *Mirrors) lookStop(ctx context.Context, v *meta.View, t *meta.Topic) {
	all, stopping := true, false
	for _, p := range t.Partitions {
		all = all && (p.State == mirror.Stopping || p.State == mirror.Stopped)
		stopping = stopping || p.State == mirror.Stopping && p.Leader == m.o.NodeID
	}
	if !stopping || !all { // every partition first: the Unregister is the topic's
		if !stopping {
			delete(m.stops, t.ID)
		}
		return
	}
	s := m.stops[t.ID]
	if s == nil {
		s = &stop{begun: map[int32]bool{}, epochs: map[int32]int32{}, waiting: map[int32]string{}, unregistered: t.Mirror.UnregisterDone}
		m.stops[t.ID] = s
	}
	m.background(busyKey{t.ID, true}, func() { m.advance(ctx, t.ID, s) })
}

// advance takes every partition of a topic as far as it goes without waiting.
func (m *Mirrors) advance(ctx context.Context, id [16]byte, s *stop) {
	t := m.o.Node.View().TopicByID(id)
	if t == nil || t.Mirror == nil {
		return
	}
	if !s.unregistered {
		m.unregisterOnce(ctx, t)
		s.unregistered = true
	}
	var deltas []msg.MirrorPartitionStatesCommandPartition
	for i, p := range t.Partitions {
		if p.State != mirror.Stopping || p.Leader != m.o.NodeID || ctx.Err() != nil {
			continue
		}
		if d, ok := m.stopStep(ctx, t, p, int32(i), s); ok {
			deltas = append(deltas, d)
		}
	}
	if len(deltas) == 0 {
		sleep(ctx, 10*time.Millisecond)
		return
	}
	m.proposeStates(ctx, noFence, deltas, "stop", t.Name)
}

// unregisterOnce lets the source's producers go on before anything else. What
// comes of it changes nothing: the source may be gone.
func (m *Mirrors) unregisterOnce(ctx context.Context, t *meta.Topic) {
	p := t.Mirror.Promotion
	epoch := max(p.RegistrationEpoch, p.OwedUnregister)
	client := m.client(t.Mirror.Mirror)
	if epoch == 0 && p.Phase != mirror.Registering || client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout) // the question included
	defer cancel()
	standing, err := m.unregister(ctx, client, t, max(epoch, 0))
	if err == nil && standing > 0 {
		_, err = m.unregister(ctx, client, t, standing)
	}
	if err != nil {
		m.o.Log.Warn("source could not be told of the stop; if it is alive its producers wait until --release-sync there",
			"mirror", t.Mirror.Mirror, "topic", t.Name, "error", err)
	}
}

// stopStep does the work of a partition's recorded step. It returns the next
// step to record, or false when the work is not done yet.
func (m *Mirrors) stopStep(ctx context.Context, t *meta.Topic, p *meta.Partition, i int32, s *stop) (msg.MirrorPartitionStatesCommandPartition, bool) {
	d := stateDelta(t, p, i)
	if !s.begun[i] || s.epochs[i] != p.LeaderEpoch && p.StopStep < mirror.StopBumpEpoch {
		e := mirror.StopBegun
		if t.Mirror.UnregisterDone {
			e = mirror.StopResumed
			if m.hasLocalAppend(t, p, i) {
				e = mirror.StopResumedAppended
			}
		}
		s.begun[i], s.epochs[i] = true, p.LeaderEpoch
		if step, _ := p.StopStep.Step(e); step != p.StopStep {
			d.StopStep = int8(step)
			return d, true
		}
	}
	event, ok := m.stopWork(ctx, t, p, i, s, &d)
	if !ok {
		return d, false
	}
	step, _ := p.StopStep.Step(event)
	d.StopStep = int8(step)
	if step == mirror.StopFinished {
		d.State = int8(mirror.Stopped)
		m.o.Log.Warn("failed over: the partition is writable here; the old source must not take writes when it comes back",
			"mirror", t.Mirror.Mirror, "topic", t.Name, "partition", i)
	}
	return d, step != p.StopStep
}

// hasLocalAppend: the log has a batch of our own after the mirrored ones.
func (m *Mirrors) hasLocalAppend(t *meta.Topic, p *meta.Partition, i int32) bool {
	st, ok := m.o.Data.Status(t.ID, i)
	return ok && len(p.Lineage) > 0 && st.End > p.Lineage[len(p.Lineage)-1].FirstOffset &&
		st.LatestEpoch >= p.Lineage[len(p.Lineage)-1].FirstEpoch
}

// stopWork does one step's work and says which event it amounts to.
func (m *Mirrors) stopWork(ctx context.Context, t *meta.Topic, p *meta.Partition, i int32, s *stop, d *msg.MirrorPartitionStatesCommandPartition) (mirror.StopEvent, bool) {
	st, ok := m.o.Data.Status(t.ID, i)
	if !ok {
		return 0, false
	}
	switch p.StopStep {
	case mirror.StopUnregister:
		return mirror.UnregisterOver, true
	case mirror.StopFetchersOff:
		return mirror.FetchersDrained, st.Mirror != nil && st.Mirror.Drained
	case mirror.StopLineage:
		first := max(st.LatestEpoch, p.LeaderEpoch) + 1
		d.LmeEpoch, d.LmeOffset = st.LatestEpoch, st.End
		d.Lineage = m.lineage(t, p, first, st.End)
		return mirror.LineageStored, true
	case mirror.StopBumpEpoch:
		return mirror.EpochBumped, m.bumpForStop(ctx, t, p, i, st.LeaderEpoch)
	case mirror.StopAbortMarkers:
		return mirror.MarkersWritten, m.abortAll(ctx, t, i, s)
	case mirror.StopPIDReset:
		source := t.Mirror.SourceClusterID
		now := m.o.Now().UnixMilli()
		err := m.append(ctx, t, i, func() []byte { return wire.MirrorPidReset(nil, source, now) })
		return mirror.PIDResetWritten, m.waited(t, i, s, err)
	case mirror.StopClearTypes:
		return mirror.TypesCleared, true
	}
	return 0, false
}

// lineage is the partition's history with our own entry at its end: the writer
// of everything from the log end on, by epochs from first on (R14). It is
// written before any local append.
func (m *Mirrors) lineage(t *meta.Topic, p *meta.Partition, first int32, end int64) []msg.MirrorPartitionStatesCommandLineageEntry {
	ours := m.o.Node.View().ClusterID()
	var out []msg.MirrorPartitionStatesCommandLineageEntry
	for k, e := range p.Lineage {
		if k == len(p.Lineage)-1 && e.ClusterID == ours && e.FirstOffset >= end {
			break // this stop's own entry of an earlier leadership
		}
		out = append(out, msg.MirrorPartitionStatesCommandLineageEntry{ClusterId: e.ClusterID, TopicId: e.TopicID,
			FirstEpoch: e.FirstEpoch, FirstOffset: e.FirstOffset})
	}
	if len(out) == 0 {
		out = append(out, msg.MirrorPartitionStatesCommandLineageEntry{ClusterId: t.Mirror.SourceClusterID, TopicId: t.ID})
	}
	return append(out, msg.MirrorPartitionStatesCommandLineageEntry{ClusterId: ours, TopicId: t.ID, FirstEpoch: first, FirstOffset: end})
}

// bumpForStop raises the leader epoch to the one the lineage names, and waits
// until the data plane leads by it.
func (m *Mirrors) bumpForStop(ctx context.Context, t *meta.Topic, p *meta.Partition, i, leads int32) bool {
	if len(p.Lineage) == 0 {
		return false
	}
	first := p.Lineage[len(p.Lineage)-1].FirstEpoch
	if p.LeaderEpoch < first {
		m.propose(ctx, &msg.BumpLeaderEpochsCommand{Partitions: []msg.BumpLeaderEpochsCommandPartition{{
			TopicId: t.ID, Partition: i, MinLeaderEpoch: first - 1}}}, "raise the leader epoch", t.Name)
		return false
	}
	return leads >= first
}

// abortAll ends the transactions that the source left open.
func (m *Mirrors) abortAll(ctx context.Context, t *meta.Topic, i int32, s *stop) bool {
	now := m.o.Now().UnixMilli()
	for _, txn := range m.o.Data.OpenTransactions(t.ID, i) {
		err := m.append(ctx, t, i, func() []byte { return wire.AbortMarker(nil, txn.ProducerID, txn.ProducerEpoch, 0, now) })
		if !m.waited(t, i, s, err) {
			return false
		}
	}
	return true
}

func (m *Mirrors) append(ctx context.Context, t *meta.Topic, i int32, build func() []byte) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	return m.o.Data.AppendControl(ctx, t.ID, i, build)
}

// waited tells whether an append has succeeded, and says once what it waits for.
func (m *Mirrors) waited(t *meta.Topic, i int32, s *stop, err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return err == nil
	}
	if s.waiting[i] != err.Error() {
		s.waiting[i] = err.Error()
		m.o.Log.Warn("fail-over waits", "mirror", t.Mirror.Mirror, "topic", t.Name, "partition", i, "for", err)
	}
	return false
}
