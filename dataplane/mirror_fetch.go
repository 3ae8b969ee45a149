package dataplane

import (
	"lockstep/internal/wire"
)

// A data lane keeps a fetch session with its source where the source gives one:
// a request names what has changed since the last one, so thousands of idle
// partitions cost nothing. What the source's session holds is known here as
// told; a lost session, or a source without sessions, makes all of it untold.

// sendFetch asks for everything that may be fetched on a data lane.
func (c *Core) sendFetch(l *lane) {
	if l.inFlight > 0 {
		return
	}
	x := &c.lanes
	x.targets, x.reports, x.offsets, x.isr = x.targets[:0], x.reports[:0], x.offsets[:0], x.isr[:0]
	soonest, wait, wanted := int64(0), int32(mirrorWaitMS), 0
	for _, s := range l.sessions {
		if s.until > c.now && (soonest == 0 || s.until < soonest) {
			soonest = s.until
		}
		want, sync := c.wantTarget(l, s)
		if !want {
			l.forget(s)
			continue
		}
		wanted++
		if !sync {
			wait = mirrorWaitSoonMS
		}
	}
	if wanted == 0 {
		c.timers.arm(&l.timer, max(soonest, c.now+sessionBackoff))
		return
	}
	params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: wait, MinBytes: 1,
		MaxBytes: mirrorFetchBytes, SessionID: l.sessionID, SessionEpoch: l.sessionEpoch}
	if l.version >= 20 {
		params.MirrorName, params.ClusterID = l.key.mirror, l.cluster
	}
	if l.sessionID != 0 {
		params.Forgotten = l.forgotten
	}
	room := requestRoom(x.targets, x.reports, l) + 32*len(params.Forgotten)
	c.sendOn(l, wire.KeyFetch, l.version, room, func(b []byte) []byte {
		return wire.AppendFetchRequest(b, l.version, &params, x.targets, x.reports)
	})
	l.forgotten = l.forgotten[:0]
}

// wantTarget tells whether a partition is to be fetched now, and lists it where
// the source does not know yet from where.
func (c *Core) wantTarget(l *lane, s *session) (want, sync bool) {
	if s.state != sessionReady || s.until > c.now {
		return false, false
	}
	p := s.p
	p.lock()
	defer p.unlock()
	r := p.role.Load()
	if !r.tracking || p.down == nil || p.down.owner != s || !p.down.run {
		return false, false
	}
	t := s.target(r, l.version)
	if !s.told || t.FetchOffset != s.sent.FetchOffset || t.LastFetchedEpoch != s.sent.LastFetchedEpoch || t.CurrentLeaderEpoch != s.sent.CurrentLeaderEpoch ||
		p.down.sync != s.sentSync {
		c.lanes.targets = append(c.lanes.targets, t)
		s.sent, s.told, s.sentSync = t, l.sessionEpoch >= 0, p.down.sync
	}
	// A report goes with every fetch: it is what lets the source read ahead.
	if sync = p.down.sync && l.version >= 20; sync {
		c.buildReport(p, r)
	}
	return true, sync
}

// forget takes a partition out of the source's session.
func (l *lane) forget(s *session) {
	if s.told && l.sessionID != 0 {
		l.forgotten = append(l.forgotten, wire.ForgottenPartition{Topic: s.p.topic, TopicID: s.p.id, Partition: s.p.index})
	}
	s.told = false
}

// beginSession asks for a new session with the next fetch.
func (l *lane) beginSession() {
	l.sessionID, l.sessionEpoch = 0, 0
	l.forgotten = l.forgotten[:0]
	for _, s := range l.sessions {
		s.told = false
	}
}

// sessionAnswered follows the session over an answer; false means that the
// source has lost it and the answer says nothing else.
func (l *lane) sessionAnswered(res *wire.FetchResponse) bool {
	switch {
	case res.Err == wire.ErrFetchSessionIdNotFound || res.Err == wire.ErrInvalidFetchSessionEpoch:
		l.beginSession()
		return false
	case res.SessionID == 0 || res.Version < sessionVersion:
		l.beginSession() // none given: whole requests
	case res.SessionID == l.sessionID:
		l.sessionEpoch = max(1, (l.sessionEpoch+1)&(1<<31-1))
	default:
		l.sessionID, l.sessionEpoch = res.SessionID, 1
	}
	return true
}
