package dataplane

import (
	"lockstep/internal/mirror"
	"lockstep/internal/wire"
	"lockstep/segment"
)

func requestRoom(targets []wire.FetchTarget, reports []wire.Report, l *lane) int {
	n := 128 + len(l.key.mirror) + len(l.cluster)
	for i := range targets {
		n += 96 + len(targets[i].Topic)
	}
	for i := range reports {
		n += 128 + len(reports[i].Topic) + 16*len(reports[i].Replicas) + 4*len(reports[i].ISR)
	}
	return n
}

// buildReport draws a report under the lock that its numbers are read under:
// one sequence for both lanes. [L]
func (c *Core) buildReport(p *Partition, r *role) bool {
	d := p.down
	if d == nil || !d.sync || d.alignedEpoch < 0 || !r.leader {
		return false
	}
	x := &c.lanes
	from, isrFrom := len(x.offsets), len(x.isr)
	low := int64(-1)
	for _, m := range p.local.ISR {
		x.offsets = append(x.offsets, wire.ReplicaOffset{ID: m.ID, Offset: m.LEO})
		x.isr = append(x.isr, m.ID)
		if low < 0 || m.LEO < low {
			low = m.LEO
		}
	}
	d.sequence++
	d.reportedLEO = max(d.reportedLEO, low)
	x.reports = append(x.reports, wire.Report{Topic: p.topic, TopicID: p.id, Partition: p.index,
		Replicas: x.offsets[from:len(x.offsets):len(x.offsets)], ISR: x.isr[isrFrom:len(x.isr):len(x.isr)],
		MinISR: r.settings.MinISR, Fenced: true, RegistrationEpoch: d.registration, LeaderEpoch: d.leaderEpoch,
		Sequence: d.sequence, SourceLeaderEpoch: d.alignedEpoch, PartitionCount: d.partitions})
	return true
}

// sendReports says the newest of every partition that has something to say.
func (c *Core) sendReports(l *lane) {
	if len(l.dirty) == 0 || l.inFlight >= reportsInFlight {
		return
	}
	x := &c.lanes
	x.reports, x.offsets, x.isr = x.reports[:0], x.offsets[:0], x.isr[:0]
	for _, p := range l.dirty {
		if s := x.sessions[p]; s != nil {
			s.reportQueued = false
		}
		p.lock()
		c.buildReport(p, p.role.Load())
		p.unlock()
	}
	clear(l.dirty)
	l.dirty = l.dirty[:0]
	if len(x.reports) == 0 {
		return
	}
	params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, SessionEpoch: -1, MirrorName: l.key.mirror, ClusterID: l.cluster}
	c.sendOn(l, wire.KeyFetch, l.version, requestRoom(nil, x.reports, l), func(b []byte) []byte {
		return wire.AppendFetchRequest(b, l.version, &params, nil, x.reports)
	})
}

// dirty notes that a partition has something to report.
func (x *lanes) dirty(c *Core, p *Partition) {
	s := x.sessions[p]
	if s == nil || s.reportLane == nil || s.reportQueued {
		return
	}
	s.reportQueued = true
	s.reportLane.dirty = append(s.reportLane.dirty, p)
	c.wantLane(s.reportLane)
}

// repeatReports says again what the source has not accepted yet (R5).
func (c *Core) repeatReports(l *lane) {
	for _, data := range c.lanes.list { // not by the map: its order is chance
		for _, s := range data.sessions {
			if s.reportLane != l {
				continue
			}
			s.p.lock()
			d := s.p.down
			again := d != nil && d.sync && (d.acked < d.sequence || d.sequence == 0)
			s.p.unlock()
			if again {
				c.lanes.dirty(c, s.p)
			}
		}
	}
	c.timers.arm(&l.timer, c.now+max(reportRepeat, int64(mirror.LookEvery(l.users))))
}

// wantReport is called wherever a mirrored partition's log end has moved. [L]
func (e *Engine) wantReport(c *Core, p *Partition) {
	if home := e.home(p.role.Load().mirror); home == c {
		c.lanes.dirty(c, p)
	} else {
		home.inbox.put(note{kind: noteReport, part: p})
	}
}

// takeAnswers handles the source's answers to reports, on either lane.
func (c *Core) takeAnswers(l *lane, res *wire.FetchResponse) {
	for it := res.Answers(); it.Next(); {
		p, code := c.topics.find(nil, it.TopicID, true, it.Partition)
		if code != wire.ErrNone {
			continue
		}
		p.lock()
		wake := c.takeAnswer(p, &it.ReportAnswer)
		p.unlock()
		c.wake(p, wake)
	}
}

// takeAnswer handles one answer. [L]
func (c *Core) takeAnswer(p *Partition, a *wire.ReportAnswer) uint64 {
	d := p.down
	r := p.role.Load()
	if d == nil || !r.tracking || !d.sync || a.Sequence > d.sequence {
		return 0
	}
	// Answers come on two lanes, and one may be overtaken. What the source says
	// unasked, without a sequence, is newer than all that it has answered.
	if a.Sequence > 0 && a.Sequence < d.answered {
		return 0
	}
	if d.answered = a.Sequence; a.Sequence == 0 {
		d.answered = d.sequence + 1
	}
	switch a.Err {
	case wire.ErrNone:
		d.acked = max(d.acked, a.Sequence)
		d.failingSince, d.failReason = 0, 0
		d.contact = c.wall
		d.tracked = max(d.tracked, a.HighWatermark)
		d.sourceHigh = max(d.sourceHigh, a.HighWatermark)
		return p.regate(r)
	case wire.ErrNotLeaderOrFollower, wire.ErrFencedLeaderEpoch:
		d.moved = true
	default:
		c.notCounted(p, r, a.Err)
	}
	return 0
}

// notCounted: the source has answered, and what it acknowledges does not wait
// for us: whatever its reason, SYNC does not hold. Silence is another matter: a
// source that is out of reach cannot acknowledge without us. [L]
func (c *Core) notCounted(p *Partition, r *role, why wire.ErrorCode) {
	d := p.down
	if d.failingSince == 0 {
		d.failingSince = c.wall
		c.eng.o.Log.Warn("source does not count our reports", "mirror", r.mirror, "topic", p.topic, "partition", p.index, "reason", why.Name())
	}
	switch why {
	case wire.ErrMirrorRegistrationPropagating:
		d.failPropagating++
	case wire.ErrInvalidSyncRegistration, wire.ErrClusterAuthorizationFailed:
		d.failInvalid++
	default:
		d.lastError = "report: " + why.Name()
	}
	d.failReason = why
}

// takeFetched handles the partitions of a fetch answer. Where all of it was
// taken, a pipelined session goes on as it is.
func (c *Core) takeFetched(l *lane, res *wire.FetchResponse, f *frame) {
	for it := res.Partitions(); it.Next(); {
		p, code := c.topics.find(it.Topic(), it.TopicID(), l.version >= 13, it.Partition)
		if code != wire.ErrNone {
			continue
		}
		s := c.lanes.sessions[p]
		if s == nil || s.lane != l || l.window > 0 && it.Generation != s.generation {
			continue // of an older question
		}
		if s.state != sessionReady || !c.fetched(s, &it, f) {
			s.lost = true
			c.changed(s)
		}
	}
}

// fetched handles one partition's answer. False: not all of it was taken.
func (c *Core) fetched(s *session, it *wire.FetchResponseIter, f *frame) bool {
	p := s.p
	epoch, end := p.log.EndOffsetForEpoch(it.DivergingEpoch)
	p.lock()
	r, d := p.role.Load(), p.down
	if d == nil || d.owner != s || !r.tracking || !s.lane.asked(s, it) {
		p.unlock()
		return false
	}
	v, at := judge(answered{err: it.Err, divergingEpoch: it.DivergingEpoch, divergingEnd: it.DivergingEnd,
		logStart: it.LogStart, high: it.HighWatermark, next: p.log.NextOffset(), localEpoch: epoch, localEnd: end})
	if v != accept {
		d.lastError = it.Err.Name()
		switch it.Err {
		case wire.ErrNone:
			d.lastError = "log differs from the source's"
		case wire.ErrUnknownTopicId, wire.ErrUnknownTopicOrPartition:
			d.moved = true // the topic is no more, or another one by its name: look it up
			if d.sync {
				c.notCounted(p, r, it.Err)
			}
		}
	}
	switch v {
	case accept:
		d.heard = true
		p.unlock()
		s.fails = 0
		return c.mirrorRecords(s, it.Records, f, it.HighWatermark, it.LogStart)
	case truncate, startOver:
		s.state, s.cutAt, s.full = sessionTruncating, at, v == startOver
	case relocate:
		d.moved, d.alignedEpoch = true, -1
		if it.LeaderEpoch > s.epoch && it.Err == wire.ErrFencedLeaderEpoch {
			s.epoch = it.LeaderEpoch // the same broker leads, by a newer epoch
		} else {
			s.delay(c)
		}
	case outOfReach:
		d.outOfReach = true
		s.state = sessionHeld
	case backOff:
		s.delay(c)
	}
	p.unlock()
	if s.state == sessionTruncating {
		c.cutLog(s)
	}
	return false
}

func (s *session) delay(c *Core) {
	s.fails++
	s.until = c.now + min(sessionBackoff<<min(s.fails-1, 5), laneBackoffMax)
}

// mirrorRecords appends the records of an answer, byte for byte. What has no
// room yet waits, and with it the partition. True: all of them are queued.
func (c *Core) mirrorRecords(s *session, records []byte, f *frame, high, start int64) (all bool) {
	rest, bad := records, false
	for b, after, ok := wire.NextBatch(rest); ok; b, after, ok = wire.NextBatch(rest) {
		if b.Magic() != 2 || !b.CheckCRC() {
			bad = true
			break
		}
		rest = after
	}
	whole := records[:len(records)-len(rest)] // without a torn or a bad tail
	p := s.p
	p.lock()
	d, r := p.down, p.role.Load()
	if d == nil || d.owner != s || !r.tracking {
		p.unlock()
		return false
	}
	d.sourceHigh, d.sourceStart = high, start // also for what waits: resumed, it must not be in step with an unknown mark
	d.contact, d.lastError = c.wall, ""
	left, stalled := c.queueMirrored(p, r, whole, f)
	if base, ok := beginsInside(p, left); ok {
		// The source's log begins inside a batch, and ours, empty, where its does.
		// Only the whole batch can be had: start anew where it begins, then take it.
		f.hold()
		s.state, s.rest, s.frame, s.restEpoch, s.cutAt, s.full = sessionTruncating, left, f, s.epoch, base, true
		p.unlock()
		c.cutLog(s)
		return false
	}
	if all = !stalled && len(left)+len(rest) == 0; all {
		s.lane.cursorMoved(p)
	}
	if bad {
		d.lastError = "a batch of the source is corrupt on arrival"
		s.delay(c)
	}
	if d.alignedEpoch != s.epoch && s.epoch >= 0 {
		d.alignedEpoch = s.epoch
		d.realigned = true
	}
	d.tracked = max(d.tracked, high)
	if d.epochBehind {
		s.state = sessionHeld
	}
	wake := p.regate(r)
	report := d.sync && d.realigned
	d.realigned = false
	p.unlock()
	c.m.mirrorBytes.Add(int64(len(whole) - len(left)))
	if stalled {
		c.m.mirrorStalls.Add(1)
		f.hold()
		s.state, s.rest, s.frame, s.restEpoch = sessionStalled, left, f, s.epoch
	}
	c.wake(p, wake)
	c.touch(p)
	if report {
		c.lanes.dirty(c, p)
		s.realigned = true // the source may let us read ahead now
		c.changed(s)
	}
	return all
}

// queueMirrored queues whole batches until there is no room or our leader epoch
// would fall behind the source's (the leader epoch invariant). [L]
func (c *Core) queueMirrored(p *Partition, r *role, whole []byte, f *frame) (left []byte, stalled bool) {
	left = whole
	for {
		b, after, ok := wire.NextBatch(left)
		if !ok {
			return left, false
		}
		next := p.log.NextOffset()
		if b.NextOffset() <= next {
			left = after
			continue
		}
		if b.BaseOffset() < next && !b.IsEmpty() {
			p.down.lastError = "the source's batch overlaps our log end"
			return left, false
		}
		if e := b.PartitionLeaderEpoch(); e > r.epoch {
			p.down.epochBehind, p.down.maxSourceEpoch = true, max(p.down.maxSourceEpoch, e)
			return left, false
		}
		var owner segment.Releaser = f
		switch {
		case b.BaseOffset() < next: // the source has made one empty batch of several, where our log ends between two of them
			b, owner = wire.EmptyBatch(nil, next, b.NextOffset(), b.PartitionLeaderEpoch()), unowned{}
		case b.BaseOffset() > next: // the source's log is compacted: ours stays dense
			end := min(b.BaseOffset(), next+wire.MaxEmptySpan)
			b, after, owner = wire.EmptyBatch(nil, next, end, b.PartitionLeaderEpoch()), left, unowned{}
		}
		switch p.log.Room(len(b), c.wall) {
		case roomGrow:
			p.stalled |= 1 << c.id
			return left, true
		case roomFailed:
			p.down.lastError = "our log directory has failed"
			return left, false
		}
		if owner == f {
			f.hold()
		}
		p.log.Queue(b, owner)
		left = after
	}
}

// unowned bytes belong to nobody who waits for them.
type unowned struct{}

// Release does nothing.
func (unowned) Release() {}

// beginsInside tells whether our log is empty and begins inside the first of the
// batches that are left, and where that one begins. [L]
func beginsInside(p *Partition, left []byte) (base int64, ok bool) {
	b, _, whole := wire.NextBatch(left)
	if !whole || p.log.Start() != p.log.NextOffset() {
		return 0, false
	}
	return b.BaseOffset(), b.BaseOffset() < p.log.Start()
}

// roomFor goes on with a partition whose log has grown.
func (x *lanes) roomFor(c *Core, p *Partition) {
	s := x.sessions[p]
	if s == nil || s.state != sessionStalled {
		return
	}
	rest, f := s.rest, s.frame
	s.state, s.rest, s.frame = sessionReady, nil, nil
	if s.restEpoch != s.epoch { // the source has another leader now, whose log they may not be of
		f.Release()
		s.lost = true
		c.changed(s)
		return
	}
	p.lock()
	high, start := int64(-1), int64(-1)
	if p.down != nil {
		high, start = p.down.sourceHigh, p.down.sourceStart
	}
	p.unlock()
	c.mirrorRecords(s, rest, f, high, start)
	f.Release()
	c.changed(s)
}

// sessionLost: the lane's connection is gone; what was learnt from it is old.
func (c *Core) sessionLost(s *session) {
	s.p.lock()
	if d := s.p.down; d != nil {
		d.moved, d.heard = true, false
		d.lastError = "no connection to the source"
	}
	s.p.unlock()
}

// attach begins to mirror a partition from a source broker, or moves it there.
func (c *Core) attach(p *Partition, key laneKey, cluster string, epoch int32) {
	s := c.lanes.sessions[p]
	if s != nil && s.lane.key == key && s.epoch >= epoch && s.state != sessionHeld {
		c.changed(s) // its role may be another
		return
	}
	if s != nil && (s.state == sessionTruncating || s.state == sessionStalled) {
		s.epoch = max(s.epoch, epoch)
		return
	}
	c.detach(p)
	report := key
	report.report = true
	s = &session{p: p, epoch: epoch, lane: c.lane(key, cluster), reportLane: c.lane(report, cluster), lost: true} // nothing named yet
	s.owner = s
	c.lanes.sessions[p] = s
	s.at = len(s.lane.sessions)
	s.lane.sessions = append(s.lane.sessions, s)
	s.reportLane.users++
	p.lock()
	if d := p.down; d != nil {
		d.owner, d.alignedEpoch, d.sourceHigh, d.heard, d.moved, d.fetching, d.drained, d.epochBehind, d.outOfReach = s, -1, -1, false, false, true, false, false, false
	}
	p.unlock()
	c.changed(s)
}

// detach ends a partition's session; its late answers find no owner.
func (c *Core) detach(p *Partition) {
	s := c.lanes.sessions[p]
	if s == nil {
		return
	}
	delete(c.lanes.sessions, p)
	c.timers.disarm(&s.timer)
	l := s.lane
	last := len(l.sessions) - 1
	l.sessions[s.at] = l.sessions[last]
	l.sessions[s.at].at = s.at
	l.sessions[last] = nil
	l.sessions = l.sessions[:last]
	c.noteDue(l, p)
	c.wantLane(l)
	if s.frame != nil {
		s.frame.Release()
		s.frame, s.rest = nil, nil
	}
	if len(l.sessions) == 0 {
		c.dropLane(l)
	}
	if s.reportLane.users--; s.reportLane.users == 0 {
		c.dropLane(s.reportLane)
	}
	p.lock()
	if d := p.down; d != nil && d.owner == s {
		d.owner, d.fetching, d.alignedEpoch, d.sourceHigh, d.heard = nil, false, -1, -1, false
	}
	p.unlock()
}

func (c *Core) dropLane(l *lane) {
	l.dropped = true
	delete(c.lanes.byKey, l.key)
	c.timers.disarm(&l.timer)
	if l.cn != nil {
		c.close(l.cn)
	}
}
