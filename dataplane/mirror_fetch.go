package dataplane

import (
	"lockstep/internal/mirror"
	"lockstep/internal/wire"
)

// A data lane keeps a fetch session with its source where the source gives one:
// a request names what has changed since the last one, so thousands of idle
// partitions cost nothing. told is what the source's session holds, or what the
// last whole request named: by partition, not by our sessions, which come and go
// while a request is under way.

// told is one partition as the source was last told of it: what is fetched now.
type told struct {
	p    *Partition
	at   wire.FetchTarget
	sync bool
}

// sendFetch asks for everything that may be fetched on a data lane: with one
// request, or with as many as the source lets be under way.
func (c *Core) sendFetch(l *lane) {
	if l.inFlight >= int(max(l.window, 1)) {
		return
	}
	if l.window == 0 || l.full || len(l.due) > 0 || c.now >= l.scanAt || l.soonest > 0 && c.now >= l.soonest {
		c.sendChanges(l)
	}
	c.lanes.targets, c.lanes.reports = c.lanes.targets[:0], c.lanes.reports[:0]
	for len(l.told) > 0 && l.inFlight < int(l.window)-1 { // one is left for changes
		c.sendOne(l, mirrorPipeBytes)
	}
}

// sendChanges says what the source does not know: of a pipelined session by a
// look at what has changed, else by one at every partition.
func (c *Core) sendChanges(l *lane) {
	x := &c.lanes
	x.targets, x.reports, x.offsets, x.isr = x.targets[:0], x.reports[:0], x.offsets[:0], x.isr[:0]
	due := c.now >= l.scanAt
	if l.window == 0 || l.full {
		c.lookAtAll(l)
	} else {
		c.lookAtDue(l, due)
	}
	synced := l.synced()
	l.wait = int32(mirror.LookEvery(len(l.sessions)).Milliseconds())
	if len(l.told) > synced && l.wait <= mirrorWaitMS {
		l.wait = mirrorWaitSoonMS
	}
	if due { // not at each change: those bring no report about again
		l.phase++
		l.scanAt = c.now + int64(l.wait)*1e6
	}
	l.scanAt = min(l.scanAt, c.now+int64(l.wait)*1e6)
	if len(l.told) == 0 && l.window == 0 {
		c.timers.arm(&l.timer, max(l.soonest, c.now+sessionBackoff))
		return
	}
	if l.window == 0 || len(x.targets)+len(l.forgotten)+len(x.reports) > 0 {
		c.sendOne(l, mirrorFetchBytes)
	}
	next := l.scanAt
	if l.window == 0 {
		next = 0 // its answer is the next occasion
	}
	if l.soonest > 0 { // a partition that waits is not forgotten over those that do not
		if soon := min(max(l.soonest, c.now), c.now+reportRepeat); next == 0 || soon < next {
			next = soon
		}
	}
	if next > 0 {
		c.timers.arm(&l.timer, next)
	}
}

// lookAtAll looks at every partition of a lane, and at those it once had.
func (c *Core) lookAtAll(l *lane) {
	l.full, l.due, l.waiting, l.soonest = false, l.due[:0], l.waiting[:0], 0
	for _, s := range l.sessions {
		c.compare(l, s.p, false)
	}
	for i := len(l.told) - 1; i >= 0; i-- {
		if s := c.lanes.sessions[l.told[i].p]; s == nil || s.lane != l {
			l.untell(l.told[i].p)
		}
	}
}

// lookAtDue looks at partitions that may be other than the source knows them,
// and, when it is time, at a share of the others: those repeat their reports.
func (c *Core) lookAtDue(l *lane, share bool) {
	if l.soonest > 0 && c.now >= l.soonest {
		l.due = append(l.due, l.waiting...)
		l.waiting, l.soonest = l.waiting[:0], 0
	}
	for _, p := range l.due {
		c.compare(l, p, false)
	}
	clear(l.due)
	l.due = l.due[:0]
	if !share {
		return
	}
	phases := mirror.ReportPhases(l.synced())
	for i := l.phase % phases; i < len(l.sessions); i += phases {
		c.compare(l, l.sessions[i].p, true)
	}
}

// changed: a partition may be to be fetched otherwise than the source was told.
func (c *Core) changed(s *session) {
	if !s.due {
		s.due = true
		c.noteDue(s.lane, s.p)
	}
	c.wantLane(s.lane)
}

// noteDue has a partition looked at before the next request. Where all of them
// will be, there is no list.
func (c *Core) noteDue(l *lane, p *Partition) {
	if l.window == 0 {
		l.full = true
		return
	}
	l.due = append(l.due, p)
}

// compare holds a partition against what the source was told of it.
func (c *Core) compare(l *lane, p *Partition, repeat bool) {
	s := c.lanes.sessions[p]
	if s == nil || s.lane != l {
		l.untell(p)
		return
	}
	s.due = false
	if s.until > c.now && s.state == sessionReady {
		l.waiting = append(l.waiting, p)
		// Those that wait are looked at together, and not at every instant that
		// one of them is due.
		if at := max(s.until, c.now+sessionBackoff/5); l.soonest == 0 || at < l.soonest {
			l.soonest = at
		}
	}
	if !c.wantTarget(l, s, repeat) {
		l.untell(p)
	}
}

// sendOne sends one fetch with the targets and reports at hand.
func (c *Core) sendOne(l *lane, maxBytes int32) {
	x := &c.lanes
	forgotten := l.forgotten
	l.forgotten = l.forgotten[:0]
	params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: l.wait, MinBytes: 1,
		MaxBytes: maxBytes, SessionID: l.sessionID, SessionEpoch: l.sessionEpoch, Forgotten: forgotten}
	switch {
	case l.sessionID != 0:
		params.Taken = l.answeredC - l.opened
		l.sessionEpoch = max(1, (l.sessionEpoch+1)&(1<<31-1))
	default:
		if l.opened == 0 { // of this connection: how many may be under way is to be known soon
			params.MaxWaitMs = 0
		}
		l.opened = l.corr
	}
	if l.version >= 20 {
		params.MirrorName, params.ClusterID = l.key.mirror, l.cluster
	}
	room := requestRoom(x.targets, x.reports, l) + 32*len(forgotten)
	c.sendOn(l, wire.KeyFetch, l.version, room, func(b []byte) []byte {
		return wire.AppendFetchRequest(b, l.version, &params, x.targets, x.reports)
	})
}

// wantTarget tells whether a partition is to be fetched now, and lists it where
// the source does not know yet from where. repeat: its report is due again.
func (c *Core) wantTarget(l *lane, s *session, repeat bool) bool {
	if s.state != sessionReady || s.until > c.now {
		return false
	}
	p := s.p
	p.lock()
	defer p.unlock()
	r := p.role.Load()
	if !r.tracking || p.down == nil || p.down.owner != s || !p.down.run {
		return false
	}
	now := told{p: p, at: s.target(r, l.version), sync: p.down.sync}
	i, known := l.toldAt[p]
	if !known {
		i = len(l.told)
		l.toldAt[p] = i
		l.told = append(l.told, told{})
	}
	named := s.lost || l.tells(&l.told[i], &now)
	if named {
		c.m.mirrorNamed.Add(1)
		if l.version >= 20 {
			l.generation++
			s.generation = l.generation
		}
		s.lost = false
		now.at.Generation = s.generation
		c.lanes.targets = append(c.lanes.targets, now.at)
	}
	l.tell(i, now)
	// A report is what lets the source read ahead. Its answer is how we hear of
	// a release, so it is repeated where nothing happens, too.
	if now.sync && l.version >= 20 && (repeat || named || s.realigned || l.window == 0) {
		c.buildReport(p, r)
	}
	s.realigned = false
	return true
}

// tells whether the source must be told where a partition is. The cursor of a
// pipelined session moves as our log does.
func (l *lane) tells(was, now *told) bool {
	return l.sessionID == 0 || was.p != now.p || was.sync != now.sync || was.at.FetchOffset != now.at.FetchOffset ||
		was.at.CurrentLeaderEpoch != now.at.CurrentLeaderEpoch || l.window == 0 && was.at.LastFetchedEpoch != now.at.LastFetchedEpoch
}

// cursorMoved: an answer was taken whole, and the source reads on from our log
// end. [L]
func (l *lane) cursorMoved(p *Partition) {
	if i, known := l.toldAt[p]; known && l.window > 0 {
		l.told[i].at.FetchOffset = p.log.NextOffset()
	}
}

// tell notes what the source is told of its i-th partition.
func (l *lane) tell(i int, now told) {
	if l.told[i].sync {
		l.syncs--
	}
	if now.sync {
		l.syncs++
	}
	l.told[i] = now
}

// untell takes a partition that is not to be fetched now out of the session.
func (l *lane) untell(p *Partition) {
	i, known := l.toldAt[p]
	if !known {
		return
	}
	l.tell(i, told{})
	last := len(l.told) - 1
	if i != last {
		l.told[i] = l.told[last]
		l.toldAt[l.told[i].p] = i
		l.told[last] = told{}
	}
	l.told = l.told[:last]
	delete(l.toldAt, p)
	if l.sessionID != 0 {
		l.forgotten = append(l.forgotten, wire.ForgottenPartition{Topic: p.topic, TopicID: p.id, Partition: p.index})
	}
}

// synced is how many partitions report.
func (l *lane) synced() int {
	if l.version < 20 {
		return 0
	}
	return l.syncs
}

// asked tells whether an answer for a partition is one to what its session
// would ask now: an answer to an older question means nothing any more.
func (l *lane) asked(s *session, it *wire.FetchResponseIter) bool {
	i, known := l.toldAt[s.p]
	next := s.p.log.NextOffset()
	return known && l.told[i].at.CurrentLeaderEpoch == s.epoch && l.told[i].at.FetchOffset == next && (l.window == 0 || it.Cursor == next)
}

// beginSession asks for a new session with the next fetch.
func (l *lane) beginSession() {
	l.sessionID, l.sessionEpoch, l.window, l.full = 0, 0, 0, true
	l.forgotten = l.forgotten[:0]
}

// sessionAnswered follows the session over an answer; false means that the
// source has lost it and the answer says nothing else. most bounds what the
// source lets be under way.
func (l *lane) sessionAnswered(res *wire.FetchResponse, most int32) bool {
	switch {
	case res.Err == wire.ErrFetchSessionIdNotFound || res.Err == wire.ErrInvalidFetchSessionEpoch:
		l.beginSession()
		return false
	case res.SessionID == 0 || res.Version < sessionVersion:
		l.beginSession() // none given: whole requests
	case l.sessionID == 0 && l.answeredC == l.opened+1:
		l.sessionID, l.sessionEpoch = res.SessionID, 1
		if l.version >= 20 {
			l.window = max(0, min(res.Window, most))
		}
	case res.SessionID != l.sessionID:
		return false // of a session that was given up
	}
	return true
}

// mostFetches is how many requests of a session we want under way: one names
// changes, the others fetch.
func (e *Engine) mostFetches() int32 {
	if n := e.o.MirrorFetches; n > 0 {
		return int32(min(n+1, mirrorWindow))
	}
	return mirrorWindow
}
