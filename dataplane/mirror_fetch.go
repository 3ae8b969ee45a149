package dataplane

import (
	"lockstep/internal/wire"
)

// A data lane keeps a fetch session with its source where the source gives one:
// a request names what has changed since the last one, so thousands of idle
// partitions cost nothing. told is what the source's session holds, or what the
// last whole request named: by partition, not by our sessions, which come and go
// while a request is under way.

// told is one partition as the source was last told of it.
type told struct {
	p      *Partition
	at     wire.FetchTarget
	sync   bool
	wanted bool // scratch of sendFetch
}

// sendFetch asks for everything that may be fetched on a data lane.
func (c *Core) sendFetch(l *lane) {
	if l.inFlight > 0 {
		return
	}
	x := &c.lanes
	x.targets, x.reports, x.offsets, x.isr = x.targets[:0], x.reports[:0], x.offsets[:0], x.isr[:0]
	for i := range l.told {
		l.told[i].wanted = false
	}
	soonest, wait, wanted := int64(0), int32(mirrorWaitMS), 0
	for _, s := range l.sessions {
		if s.until > c.now && (soonest == 0 || s.until < soonest) {
			soonest = s.until
		}
		want, sync := c.wantTarget(l, s)
		if want {
			wanted++
		}
		if want && !sync {
			wait = mirrorWaitSoonMS
		}
	}
	if wanted == 0 {
		c.timers.arm(&l.timer, max(soonest, c.now+sessionBackoff))
		return
	}
	params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: wait, MinBytes: 1,
		MaxBytes: mirrorFetchBytes, SessionID: l.sessionID, SessionEpoch: l.sessionEpoch, Forgotten: l.forgetUnwanted()}
	if l.version >= 20 {
		params.MirrorName, params.ClusterID = l.key.mirror, l.cluster
	}
	room := requestRoom(x.targets, x.reports, l) + 32*len(params.Forgotten)
	c.sendOn(l, wire.KeyFetch, l.version, room, func(b []byte) []byte {
		return wire.AppendFetchRequest(b, l.version, &params, x.targets, x.reports)
	})
	if soonest > 0 { // a partition that waits is not forgotten over those that do not
		c.timers.arm(&l.timer, min(max(soonest, c.now), c.now+reportRepeat))
	}
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
	now := told{p: p, at: s.target(r, l.version), sync: p.down.sync, wanted: true}
	i, known := l.toldAt[p]
	if !known {
		i = len(l.told)
		l.toldAt[p] = i
		l.told = append(l.told, told{})
	}
	if was := &l.told[i]; l.sessionID == 0 || was.sync != now.sync || was.at.FetchOffset != now.at.FetchOffset ||
		was.at.LastFetchedEpoch != now.at.LastFetchedEpoch || was.at.CurrentLeaderEpoch != now.at.CurrentLeaderEpoch || was.p != p {
		c.lanes.targets = append(c.lanes.targets, now.at)
	}
	l.told[i] = now
	// A report goes with every fetch: it is what lets the source read ahead.
	if sync = now.sync && l.version >= 20; sync {
		c.buildReport(p, r)
	}
	return true, sync
}

// forgetUnwanted takes what is not to be fetched now out of the session.
func (l *lane) forgetUnwanted() []wire.ForgottenPartition {
	l.forgotten = l.forgotten[:0]
	kept := l.told[:0]
	for _, t := range l.told {
		if t.wanted {
			l.toldAt[t.p] = len(kept)
			kept = append(kept, t)
			continue
		}
		delete(l.toldAt, t.p)
		if l.sessionID != 0 {
			l.forgotten = append(l.forgotten, wire.ForgottenPartition{Topic: t.p.topic, TopicID: t.p.id, Partition: t.p.index})
		}
	}
	clear(l.told[len(kept):])
	l.told = kept
	return l.forgotten
}

// asked tells whether an answer for a partition is one to what its session
// would ask now: an answer to an older question means nothing any more.
func (l *lane) asked(s *session) bool {
	i, known := l.toldAt[s.p]
	return known && l.told[i].at.CurrentLeaderEpoch == s.epoch && l.told[i].at.FetchOffset == s.p.log.NextOffset()
}

// beginSession asks for a new session with the next fetch.
func (l *lane) beginSession() {
	l.sessionID, l.sessionEpoch = 0, 0
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
