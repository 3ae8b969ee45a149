package dataplane

import (
	"encoding/binary"
	"net/netip"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// laneKey names a connection of a mirror to one source broker. The data lane
// fetches, one request at a time; the report lane says at once what our
// replicas hold, without waiting behind a parked fetch (R5).
type laneKey struct {
	mirror string
	addr   netip.AddrPort
	report bool
}

// lane is one such connection. It lives on the shard of its mirror.
type lane struct {
	timer
	key       laneKey
	cluster   string // our cluster id, named with reports
	cn        *conn
	state     laneState
	version   int16 // of Fetch, negotiated
	corr      int32
	inFlight  int
	backoff   int64
	sentAt    int64
	answeredC int32 // correlation id expected next
	sessions  []*session
	dirty     []*Partition // report lane: something to say
	queued    bool         // in lanes.flushing
	dropped   bool

	sessionID, sessionEpoch int32              // data lane: fetch session with the source
	told                    []told             // what is to be fetched now
	toldAt                  map[*Partition]int // place in told
	syncs                   int                // how many of them are in SYNC
	forgotten               []wire.ForgottenPartition

	// Between clusters of our own kind many fetches are under way (R6).
	window     int32        // as the source allows; 0 = one at a time
	opened     int32        // correlation id of the request that asked for the session
	generation int32        // last one named to the source, of any partition
	wait       int32        // ms that a fetch may wait there
	full       bool         // all partitions may be other than the source was told
	due        []*Partition // those may
	waiting    []*Partition // those back off ...
	soonest    int64        // ... until then, at the earliest; 0 none does
	scanAt     int64        // when to look at a share of all of them
	phase      int          // which share repeats its report next

	users int // report lane: sessions that speak on it
}

type laneState uint8

const (
	laneIdle laneState = iota // waits for its back-off
	laneConnecting
	laneGreeting // ApiVersions sent
	laneReady
)

// lanes are one shard's connections to sources.
type lanes struct {
	byKey    map[laneKey]*lane
	sessions map[*Partition]*session
	list     []*lane // by slot, for tokens of connects
	flushing []*lane
	targets  []wire.FetchTarget
	reports  []wire.Report
	offsets  []wire.ReplicaOffset
	isr      []int32
}

func (l *lanes) init() {
	l.byKey = map[laneKey]*lane{}
	l.sessions = map[*Partition]*session{}
}

func (l *lanes) pending() bool { return len(l.flushing) > 0 }

// lane returns the lane of a key, made and connecting if it is new.
func (c *Core) lane(key laneKey, cluster string) *lane {
	l := c.lanes.byKey[key]
	if l == nil {
		l = &lane{key: key, cluster: cluster, toldAt: map[*Partition]int{}}
		l.owner = l
		c.lanes.byKey[key] = l
		c.lanes.place(l)
		c.connect(l)
	}
	return l
}

// place gives a lane a slot: that of a dropped one with nothing under way, if
// there is one.
func (l *lanes) place(x *lane) {
	for i, old := range l.list {
		if old.dropped && old.cn == nil && old.state != laneConnecting {
			l.list[i] = x
			return
		}
	}
	l.list = append(l.list, x)
}

func (c *Core) connect(l *lane) {
	for i, x := range c.lanes.list {
		if x == l {
			l.state = laneConnecting
			c.op(ioring.Op{Kind: ioring.Connect, Addr: l.key.addr, Token: tokenSpecial | uint64(i)})
			c.timers.arm(&l.timer, c.now+laneTimeout)
			return
		}
	}
}

// connected begins the greeting on a new connection.
func (l *lanes) connected(c *Core, ev *ioring.Event) {
	x := l.list[uint32(ev.Token)]
	if ev.Res < 0 {
		if x.state == laneConnecting {
			c.laneClosed(x) // a dropped one stays so, idle now
		}
		return
	}
	if x.state != laneConnecting || x.dropped || c.stopping {
		x.state = laneIdle
		c.op(ioring.Op{Kind: ioring.Close, FD: ev.Res, Token: tokenSpecial})
		return
	}
	c.load.Add(1)
	x.cn = c.adopt(ev.Res)
	x.cn.lane = x
	x.state = laneGreeting
	x.corr, x.inFlight, x.answeredC, x.opened = 0, 0, 0, 0
	x.beginSession()
	c.sendOn(x, wire.KeyApiVersions, 0, 64, func(b []byte) []byte { return b })
}

// sendOn sends one request on a lane.
func (c *Core) sendOn(l *lane, key, version int16, room int, body func([]byte) []byte) {
	a := c.reserve(l.cn)
	b := c.room(a, room+64)
	b = wire.BeginRequest(b, key, version, l.corr, "lockstep-mirror")
	b = body(b)
	wire.EndRequest(b, 0)
	a.fill(b)
	l.corr++
	l.inFlight++
	if l.inFlight == 1 {
		l.sentAt = c.now
	}
	c.done(a)
}

// laneClosed is called when a lane's connection has ended or could not be made:
// it connects again after a while.
func (c *Core) laneClosed(l *lane) {
	l.cn = nil
	l.inFlight = 0
	l.state = laneIdle
	if l.dropped {
		return
	}
	c.m.mirrorErrors.Add(1)
	l.backoff = min(max(l.backoff*2, laneBackoff), laneBackoffMax)
	c.timers.arm(&l.timer, c.now+l.backoff)
	for _, s := range l.sessions {
		c.sessionLost(s)
	}
}

// expired: a lane's timer has several uses, told apart by its state.
func (l *lane) expired(c *Core) {
	switch {
	case l.dropped:
	case l.state == laneIdle:
		c.connect(l)
	case l.inFlight > 0 && c.now-l.sentAt > laneTimeout, l.state == laneConnecting:
		if l.cn != nil {
			c.close(l.cn)
		} else {
			c.laneClosed(l)
		}
	case l.state == laneReady && l.key.report:
		c.repeatReports(l)
	default:
		c.wantLane(l)
		c.timers.arm(&l.timer, c.now+reportRepeat)
	}
}

// wantLane puts a lane on this turn's list of those with something to send.
func (c *Core) wantLane(l *lane) {
	if !l.queued {
		l.queued = true
		c.lanes.flushing = append(c.lanes.flushing, l)
	}
}

// flush sends what lanes have to say this turn.
func (x *lanes) flush(c *Core) {
	list := x.flushing
	x.flushing = x.flushing[len(list):]
	for _, l := range list {
		l.queued = false
		switch {
		case l.state != laneReady:
		case l.key.report:
			c.sendReports(l)
		default:
			c.sendFetch(l)
		}
	}
	if len(x.flushing) == 0 {
		x.flushing = list[:0]
	}
}

// frame handles a response on a lane.
func (x *lanes) frame(c *Core, l *lane, frame []byte, f *frame) {
	if len(frame) < 4 || int32(binary.BigEndian.Uint32(frame)) != l.answeredC || l.inFlight == 0 {
		c.eng.o.Log.Warn("mirror source answers out of order; connecting anew", "mirror", l.key.mirror, "source", l.key.addr.String())
		c.close(l.cn)
		return
	}
	l.answeredC++
	l.inFlight--
	l.sentAt = c.now
	if l.state == laneGreeting {
		c.greeted(l, frame[4:])
		return
	}
	_, body, err := wire.ParseResponseHeader(frame, wire.KeyFetch, l.version)
	var res wire.FetchResponse
	if err == nil {
		err = res.Parse(l.version, body)
	}
	if err != nil {
		c.eng.o.Log.Warn("malformed fetch response from a mirror's source; connecting anew", "mirror", l.key.mirror, "source", l.key.addr.String())
		c.close(l.cn)
		return
	}
	c.takeAnswers(l, &res)
	if !l.key.report {
		c.m.mirrorFetches.Add(1)
		if l.sessionAnswered(&res, c.eng.mostFetches()) {
			c.takeFetched(l, &res, f)
		}
		c.wantLane(l)
	} else if len(l.dirty) > 0 {
		c.wantLane(l)
	}
}

// greeted takes the source's version ranges and chooses ours.
func (c *Core) greeted(l *lane, body []byte) {
	r := wire.NewReader(body)
	code, lo, hi := wire.ErrorCode(r.Int16()), int16(-1), int16(-1)
	for n := r.ArrayLen(false, 6); n > 0 && r.Ok(); n-- {
		key, low, high := r.Int16(), r.Int16(), r.Int16()
		if key == wire.KeyFetch {
			lo, hi = low, high
		}
	}
	api := wire.Lookup(wire.KeyFetch)
	l.version = min(api.MaxVersion(c.eng.o.Unstable), hi)
	if l.version == 19 {
		l.version = 18 // nothing of 19 is ours
	}
	if !r.Ok() || code != wire.ErrNone || l.version < max(lo, api.ServedMin) || l.key.report && l.version < 20 {
		if !l.key.report {
			c.eng.o.Log.Warn("mirror source speaks no version of Fetch that we do", "mirror", l.key.mirror,
				"source", l.key.addr.String(), "its_max", hi)
		}
		l.backoff = laneBackoffMax
		c.close(l.cn)
		return
	}
	l.state, l.backoff = laneReady, 0
	c.timers.arm(&l.timer, c.now+reportRepeat)
	for _, s := range l.sessions {
		s.until = 0
	}
	c.wantLane(l)
	if l.key.report {
		c.repeatReports(l)
	}
}
