package dataplane

import (
	"slices"

	"lockstep/internal/wire"
)

// fetchSession is an incremental fetch session (KIP-227) of a mirror: the
// request names what has changed, the answer what is new. It lives on its
// connection and ends with it, so it needs no table and no eviction. Clients
// get none: they are answered id 0 and send whole requests.
type fetchSession struct {
	id    int32
	epoch int32 // expected next
	start int   // where the next answer begins to read
	busy  bool  // a request of it is parked
	parts []fetchPart
	at    map[sessionKey]int // place in parts
	empty []int32            // places in parts that nobody has
	pipeline
}

type sessionKey struct {
	id    [16]byte
	index int32
}

// sessionVersion is the first version whose sessions we keep: by topic id.
const sessionVersion = 13

// enterSession makes, continues or ends a session by what the request says.
func (c *Core) enterSession(cn *conn, f *fetch, req *wire.FetchRequest) wire.ErrorCode {
	switch {
	case req.SessionID == 0 && req.SessionEpoch > 0:
		return wire.ErrFetchSessionIdNotFound
	case req.SessionID == 0:
		if !f.mirror || f.version < sessionVersion || req.SessionEpoch < 0 || req.NumPartitions == 0 {
			return wire.ErrNone
		}
		if cn.session.inUse() {
			return wire.ErrInvalidFetchSessionEpoch
		}
		c.endSession(cn.session)
		c.sessions++
		cn.session = &fetchSession{id: c.sessions & (1<<31 - 1), epoch: 1, at: map[sessionKey]int{}, pipeline: pipelineFor(req)}
	case cn.session == nil || cn.session.id != req.SessionID:
		return wire.ErrFetchSessionIdNotFound
	case req.SessionEpoch < 0:
		if cn.session.inUse() {
			return wire.ErrInvalidFetchSessionEpoch
		}
		c.endSession(cn.session)
		cn.session = nil
		return wire.ErrNone
	case cn.session.busy || len(cn.session.queue) == mirrorWindow || cn.session.epoch != req.SessionEpoch:
		return wire.ErrInvalidFetchSessionEpoch
	default:
		cn.session.epoch = max(1, (cn.session.epoch+1)&(1<<31-1))
	}
	s := cn.session
	if len(s.queue) > 0 && req.NumPartitions+req.NumForgotten > 0 {
		s.queue[0].drop() // what it may be reading is of the old parts
	}
	s.forget(req)
	for it := req.Partitions(); it.Next(); {
		c.follow(s, s.put(c.fetchPart(&it, f.version)))
	}
	f.session = s
	if !s.pipelined {
		s.busy, f.parts = true, s.parts
	}
	return wire.ErrNone
}

// inUse tells whether a request of a session waits for its answer.
func (s *fetchSession) inUse() bool { return s != nil && (s.busy || len(s.queue) > 0) }

// put adds a partition or moves it. One that a request names is told of in its
// answer, whether or not there is anything new.
func (s *fetchSession) put(x fetchPart) (at int) {
	key := sessionKey{x.id, x.index}
	i, known := s.at[key]
	if n := len(s.empty); !known && n > 0 {
		i = int(s.empty[n-1])
		s.empty = s.empty[:n-1]
	} else if !known {
		i = len(s.parts)
		s.parts = append(s.parts, fetchPart{})
	}
	s.at[key] = i
	x.hot = s.parts[i].hot
	s.parts[i] = x
	return i
}

// endSession: nothing wakes it any more.
func (c *Core) endSession(s *fetchSession) {
	if s == nil || !s.pipelined {
		return
	}
	s.over = true
	for i := range s.parts {
		if p := s.parts[i].p; p != nil {
			w := c.waitsOf(p)
			w.sessions = slices.DeleteFunc(w.sessions, func(x *fetchSession) bool { return x == s })
		}
	}
}

// follow lets the partition's marks wake a pipelined session.
func (c *Core) follow(s *fetchSession, i int) {
	if !s.pipelined {
		return
	}
	s.heat(i)
	if p := s.parts[i].p; p != nil {
		if w := c.waitsOf(p); !slices.Contains(w.sessions, s) {
			w.sessions = append(w.sessions, s)
		}
	}
}

// forget takes partitions out. The places of the others stay: were they moved,
// each change would have all of them looked at.
func (s *fetchSession) forget(req *wire.FetchRequest) {
	for it := req.Forgotten(); it.Next(); {
		key := sessionKey{it.TopicID(), it.Partition}
		i, known := s.at[key]
		if !known {
			continue
		}
		s.parts[i] = fetchPart{stopped: true, hot: s.parts[i].hot}
		s.empty = append(s.empty, int32(i))
		delete(s.at, key)
	}
}

// refuseSession answers a request of a session that is not there, or not at
// this epoch: the peer begins anew.
func (c *Core) refuseSession(f *fetch, code wire.ErrorCode) {
	v, a := f.version, f.ans
	b := wire.BeginResponse(c.room(a, 128+48*len(f.reports)), wire.KeyFetch, v, f.corr)
	b = wire.AppendFetchHead(b, v, 0, code, 0, 0)
	b = wire.AppendFetchTail(b, v, nil, f.reports, 0)
	wire.EndResponse(b, 0, 0)
	a.fill(b)
	a.parked = nil
	c.freeFetch(f)
	c.done(a)
}
