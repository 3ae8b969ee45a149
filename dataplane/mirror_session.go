package dataplane

import "lockstep/internal/wire"

// A session is one mirrored partition on its data lane: what to fetch next and
// what an answer means. What it decides is here, without a lock or a clock;
// mirror_apply.go carries it out.

// sessionState tells whether a partition may be put in the next fetch.
type sessionState uint8

const (
	sessionReady      sessionState = iota
	sessionStalled                 // records of an answer wait for room in the log
	sessionTruncating              // the log is being cut
	sessionHeld                    // until a new View or new addresses: our epoch is too low, the source's leader moved
)

// session is the fetcher of one partition. It belongs to its lane's shard.
type session struct {
	timer
	p            *Partition
	lane         *lane
	at           int // place in the lane's sessions
	reportLane   *lane
	reportQueued bool
	epoch        int32 // source leader epoch, as last learnt; -1 unknown
	state        sessionState
	until        int64 // ns: not fetched before
	fails        int
	// records of an answer that wait for room, and the frame they lie in
	rest  []byte
	frame *frame
	// leader epoch of the answer they came in: only of that leadership do they
	// make our log a prefix
	restEpoch int32
	cutAt     int64 // sessionTruncating: where
	full      bool  // sessionTruncating: start anew at cutAt
	// pipelined lane
	generation int32 // of the cursor at the source, as we named it last
	lost       bool  // an answer of it was not taken whole: a new one must be named
	due        bool  // to be looked at before the next request
	realigned  bool  // its next look brings a report
}

// verdict is what an answer means for a session.
type verdict uint8

const (
	accept     verdict = iota // take the records and the mark
	truncate                  // the logs differ: truncate to offset
	startOver                 // the source's log begins above ours: start anew at offset
	relocate                  // another broker leads, or our idea of its epoch is old
	backOff                   // try again later
	outOfReach                // the source does not have our offset and did not say what it has
)

// answered is the part of an answer that decides.
type answered struct {
	err            wire.ErrorCode
	divergingEpoch int32
	divergingEnd   int64
	logStart       int64
	high           int64
	next           int64 // our log end
	// end of divergingEpoch, or of the greatest epoch below it, in our log
	localEpoch int32
	localEnd   int64
}

// judge decides. For a divergence the logs share at most what both have of the
// epoch the source names: the next fetch tells whether that is enough.
func judge(a answered) (verdict, int64) {
	switch a.err {
	case wire.ErrNone:
		if a.divergingEpoch < 0 {
			return accept, 0
		}
		to := a.divergingEnd
		if a.localEpoch != a.divergingEpoch {
			// We never had that epoch: back to the end of the one before it.
			to = min(to, max(a.localEnd, 0))
		} else {
			to = min(to, a.localEnd)
		}
		return truncate, min(to, a.next)
	case wire.ErrOffsetOutOfRange:
		switch {
		case a.logStart >= 0 && a.next < a.logStart:
			return startOver, a.logStart
		case a.high >= 0 && a.logStart >= 0 && a.next > a.high:
			return truncate, a.high
		}
		return outOfReach, 0
	case wire.ErrNotLeaderOrFollower, wire.ErrFencedLeaderEpoch, wire.ErrUnknownLeaderEpoch:
		return relocate, 0
	}
	return backOff, 0
}

// target is the session's line in the next fetch. [L]
func (s *session) target(r *role, version int16) wire.FetchTarget {
	p := s.p
	t := wire.FetchTarget{Topic: p.topic, TopicID: p.id, Partition: p.index, CurrentLeaderEpoch: s.epoch,
		FetchOffset: p.log.NextOffset(), LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: mirrorPartBytes, HighWatermark: -1}
	if version >= 12 && t.FetchOffset > p.log.Start() {
		t.LastFetchedEpoch = p.log.LatestEpoch()
	}
	// The high watermark is not named: the source would answer a parked fetch
	// whenever it moves, and the record after that would find no fetch waiting.
	// The report lane's answers tell it.
	return t
}
