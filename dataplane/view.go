package dataplane

import (
	"slices"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/watermark"
	"lockstep/segment"
)

// viewDelta is what one step of Views changes in the shards' directories. The
// partitions themselves are shared and were changed before it is sent.
type viewDelta struct {
	index  uint64
	remove []*topic
	add    []*topic
}

// ViewChanged tells the engine that Views has a newer View. Shard 0 takes the
// difference: it changes roles and gates under each partition's lock, then
// tells the other shards what is new in the directories. A shard names the
// index once it has nothing older in use.
func (e *Engine) ViewChanged() {
	e.cores[0].inbox.put(note{kind: noteCall, fn: applyView})
}

func applyView(c *Core) {
	e := c.eng
	next := e.o.Views.View()
	if next.Index() <= e.view.Index() && next != e.view && next.Index() != 0 {
		return
	}
	d := &viewDelta{index: next.Index()}
	changes := meta.Diff(e.view, next)
	for _, change := range changes.Topics {
		e.applyTopic(c, change, next.BrokerConfig(), d)
	}
	if changes.Configs { // defaults of every topic may have changed
		for t := range next.Topics() {
			if t.Index > e.view.Index() {
				continue // done above; a second time would make new partitions anew, two objects over one log
			}
			e.applyTopic(c, meta.TopicChange{Old: t, New: t}, next.BrokerConfig(), d)
		}
	}
	e.mu.Lock()
	e.view = next
	e.mu.Unlock()
	e.spread(c, d)
	e.assignChanged(d)
	e.sweep()
}

// spread brings all directories up to a delta: ours now, the other shards' when
// they come to it.
func (e *Engine) spread(c *Core, d *viewDelta) {
	e.mu.Lock()
	e.all.apply(d)
	e.mu.Unlock()
	c.takeDelta(d)
	for _, other := range e.cores[1:] {
		other.inbox.put(note{kind: noteView, delta: d})
	}
}

// takeDelta brings this shard's directory up to the View.
func (c *Core) takeDelta(d *viewDelta) {
	c.topics.apply(d)
	for _, t := range d.remove {
		for _, p := range t.parts {
			if p != nil && p.waits[c.id] != nil {
				c.movedOn(p)
			}
		}
	}
	c.finished.Store(d.index)
}

func (d *directory) apply(x *viewDelta) {
	for _, t := range x.remove {
		delete(d.byID, t.id)
		if d.byName[t.name] == t {
			delete(d.byName, t.name)
		}
	}
	for _, t := range x.add {
		if old := d.byName[t.name]; old != nil && old.id != t.id {
			delete(d.byID, old.id)
		}
		d.byName[t.name], d.byID[t.id] = t, t
	}
}

// applyTopic changes the partitions of one topic.
func (e *Engine) applyTopic(c *Core, change meta.TopicChange, cluster map[string]string, d *viewDelta) {
	var had *topic
	if change.Old != nil {
		had = e.all.byID[change.Old.ID]
	}
	if had != nil && (change.New == nil || change.New.ID != had.id) {
		d.remove = append(d.remove, had)
		e.removeTopic(c, had)
		had = nil
	}
	if change.New == nil {
		return
	}
	t := change.New
	settings := e.o.Settings(t.Configs, cluster)
	now := &topic{name: t.Name, id: t.ID, parts: make([]*Partition, len(t.Partitions))}
	for i, mp := range t.Partitions {
		if had != nil && i < len(had.parts) {
			now.parts[i] = had.parts[i]
		}
		if now.parts[i] == nil && slices.Contains(mp.Replicas, e.o.NodeID) {
			now.parts[i] = e.addPartition(t, int32(i), settings)
		}
		if now.parts[i] != nil {
			wake, report := e.applyPartition(now.parts[i], t, mp, settings)
			c.wake(now.parts[i], wake)
			if report {
				e.wantReport(c, now.parts[i])
			}
		}
	}
	d.add = append(d.add, now)
}

// addPartition makes the partition of a new replica, or finds the log that was
// recovered for it at start.
func (e *Engine) addPartition(t *meta.Topic, index int32, settings TopicSettings) *Partition {
	id := segment.LogID{Topic: t.Name, Partition: index, TopicID: t.ID}
	e.mu.Lock()
	defer e.mu.Unlock()
	log := e.logs[id]
	if log == nil {
		var err error
		if log, _, err = e.pickDir().OpenLog(id, settings.Segment, e.wall()); err != nil {
			e.o.Log.Error("log cannot be opened; the partition stays offline", "topic", t.Name, "partition", index, "error", err)
			return nil
		}
		e.logs[id] = log
	}
	p := &Partition{topic: t.Name, id: t.ID, index: index, waits: make([]*waits, len(e.cores)), log: log}
	p.high.Reset(min(max(e.checkpointed(id), log.Start()), log.End()))
	p.end.Reset(log.End())
	p.tail.Reset(log.End())
	p.role.Store(&role{leaderID: -1, epoch: -1, settings: settings})
	e.parts = append(e.parts, p)
	return p
}

// removeTopic ends the partitions of a topic that is gone, then the files go.
func (e *Engine) removeTopic(c *Core, t *topic) {
	gone := &removal{name: t.name}
	for _, p := range t.parts {
		if p != nil {
			e.removePartition(c, p)
			gone.parts = append(gone.parts, p)
		}
	}
	if len(gone.parts) > 0 {
		gone.owner = gone
		gone.expired(c)
	}
}

// removePartition ends a partition whose topic is gone: waiters hear it.
func (e *Engine) removePartition(c *Core, p *Partition) {
	p.lock()
	r := *p.role.Load()
	r.leader, r.gone, r.tracking = false, true, false
	p.role.Store(&r)
	p.trouble.Store(true)
	mask := p.interest()
	stalled := p.stalled
	p.stalled = 0
	p.unlock()
	c.wake(p, mask)
	e.noteGrown(p, stalled, nil)
}

// applyPartition changes one partition's role and gate. It returns the shards
// to wake, and whether a source must hear of us at once: we are in SYNC now.
func (e *Engine) applyPartition(p *Partition, t *meta.Topic, mp *meta.Partition, settings TopicSettings) (wake uint64, report bool) {
	p.lock()
	defer p.unlock()
	old := p.role.Load()
	mirrored := t.Mirror != nil && mp.State != mirror.Stopped
	r := &role{leader: mp.Leader == e.o.NodeID, leaderID: mp.Leader, epoch: mp.LeaderEpoch, settings: settings,
		readOnly: mirrored, stopping: mirrored && mp.State == mirror.Stopping,
		tracking: mirrored && mp.State != mirror.Stopping, electionEnd: old.electionEnd}
	if t.Mirror != nil {
		r.mirror = t.Mirror.Mirror
	}
	p.log.SetConfig(settings.Segment)
	if r.leader && (!old.leader || old.epoch != r.epoch) {
		p.elected(r)
	}
	p.setLocal(mp, settings.MinISR, r.leaderID)
	ended := p.setMirrors(t.Registrations)
	report = p.setDownstream(t, mp, mirrored)
	p.role.Store(r)
	e.keepFlushing(p)
	if old.leader && !r.leader {
		p.trouble.Store(true)
		return p.interest(), false
	}
	wake = p.regate(r)
	if ended { // who reads ahead by it hears of it at once
		wake |= p.interest()
	}
	e.follow(p) // what a crash left unflushed counts for a durable topic once it is flushed
	if old.settings.Durable != settings.Durable || old.readOnly != r.readOnly {
		wake |= p.high.Interest()
	}
	return wake, report
}

// elected begins a leadership. The leader's own epoch starts at its log end,
// but for a mirror leader: its log carries the source's epochs until it stops.
// Reports were made to the leadership before and count no more. [L]
func (p *Partition) elected(r *role) {
	r.electionEnd = p.log.NextOffset()
	if !r.tracking {
		p.log.AssignEpoch(r.epoch, r.electionEnd)
	}
	for i := range p.mirrors {
		p.mirrors[i].Report = watermark.Report{}
	}
	p.verdict = watermark.Verdict{Mark: p.high.Load(), Slowest: -1}
}

// setLocal takes the ISR of the View; what is known of a member's log end
// stays. [L]
func (p *Partition) setLocal(mp *meta.Partition, minISR, self int32) {
	old := p.local.ISR
	isr := make([]watermark.Replica, 0, len(mp.ISR))
	for _, id := range mp.ISR {
		leo := int64(0)
		for _, r := range old {
			if r.ID == id {
				leo = r.LEO
			}
		}
		isr = append(isr, watermark.Replica{ID: id, LEO: leo})
	}
	p.local = watermark.Local{ISR: isr, InSync: int32(len(isr)), MinISR: minISR}
}

// setMirrors takes the registrations that gate. A report stays while its
// registration does. It tells whether one has ended. [L]
func (p *Partition) setMirrors(list []meta.Registration) (ended bool) {
	stay := 0
	var mirrors []watermark.Mirror
	var fences []fence
	for _, reg := range list {
		if !reg.Gates() {
			continue
		}
		m := watermark.Mirror{Name: reg.Mirror}
		f := fence{clusterID: reg.ClusterID, epoch: reg.Epoch}
		if i := p.mirrorIndex(reg.Mirror); i >= 0 && p.fences[i].epoch == reg.Epoch {
			m.Report, f.reported = p.mirrors[i].Report, p.fences[i].reported
			stay++
		}
		mirrors, fences = append(mirrors, m), append(fences, f)
	}
	ended = stay < len(p.mirrors)
	p.mirrors, p.fences = mirrors, fences
	return ended
}

// setDownstream begins, changes or ends the destination side. It tells whether
// reports begin, or name another registration than before. [L]
func (p *Partition) setDownstream(t *meta.Topic, mp *meta.Partition, mirrored bool) (report bool) {
	if !mirrored {
		p.down = nil
		return false
	}
	d := p.down
	if d == nil {
		d = &downstream{tracked: -1, alignedEpoch: -1, sourceHigh: -1, leaderEpoch: -1}
		p.down = d
	}
	if d.leaderEpoch != mp.LeaderEpoch {
		// A new leadership: its own sequence, and nothing is known of the source.
		d.leaderEpoch, d.sequence, d.acked, d.answered = mp.LeaderEpoch, 0, 0, 0
		d.leoAtElection, d.reportedLEO = p.log.NextOffset(), 0
	}
	sync := t.Mirror.EffectiveType() == mirror.Sync
	if report = sync && (!d.sync || d.registration != t.Mirror.RegistrationEpoch); report {
		d.failingSince, d.failReason, d.acked, d.answered = 0, 0, 0, d.sequence+1 // answers to what named another are of the past
	}
	if !sync {
		d.failingSince, d.failReason = 0, 0
	}
	d.sync, d.registration = sync, t.Mirror.RegistrationEpoch
	d.partitions = int32(len(t.Partitions))
	d.epochBehind = d.epochBehind && d.maxSourceEpoch > mp.LeaderEpoch
	d.run = mp.State == mirror.Mirroring && mp.Leader >= 0
	return report
}
