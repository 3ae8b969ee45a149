package dataplane

import (
	"slices"

	"lockstep/internal/wire"
	"lockstep/segment"
)

// fetch is a fetch request that may have to wait. What it asks for is copied
// out of its frame at once, so that it can be parked as it is.
type fetch struct {
	timer
	ans      *answer
	gen      uint32
	version  int16
	corr     int32
	maxBytes int32
	minBytes int32
	mirror   bool // names a mirror: reports were counted, partitions of it are read to the log end
	session  *fetchSession
	wait     int64 // ns it may wait for data
	deadline int64
	reports  []wire.ReportAnswer
	parts    []fetchPart // the session's own, when there is one
	names    []byte      // of topics, below version 13
	cold     int         // populates it waits for
	warmed   bool        // cold ranges were populated once: do not ask again
	next     *fetch
}

// fetchPart is one partition: what is asked, and what an evaluation has found.
type fetchPart struct {
	p        *Partition
	code     wire.ErrorCode // why there is no p
	name     []byte         // version 12 and below
	id       [16]byte
	index    int32
	epoch    int32 // leader epoch the client knows, -1 none
	last     int32 // epoch of the last record fetched, -1 none
	maxBytes int32
	offset   int64
	ahead    bool // may read above the watermark: its mirror reports

	out   wire.FetchPartition
	slice segment.Slice

	gen     int32 // pipelined session: of the cursor, as the destination named it
	stopped bool  // pipelined session: an error was told; nothing is read before a new generation
	seen    int64 // pipelined session: the mark it waits for, before the last evaluation
	more    bool  // pipelined session: there may be more than the last answer had room for
	hot     bool  // pipelined session: in its list of those that may have something new

	sentHigh, sentStart int64 // session: what the client was told last
}

// fetchWait is a parked fetch in a partition's list.
type fetchWait struct {
	f   *fetch
	gen uint32
}

func (c *Core) newFetch() *fetch {
	f := c.fetches
	if f == nil {
		f = &fetch{}
	} else {
		c.fetches, f.next = f.next, nil
	}
	f.owner = f
	return f
}

func (c *Core) freeFetch(f *fetch) {
	c.timers.disarm(&f.timer)
	f.drop()
	if f.session != nil {
		f.session.busy = false
		if i := slices.Index(f.session.queue, f); i >= 0 {
			f.session.queue = slices.Delete(f.session.queue, i, i+1)
		}
		f.parts = nil // they are the session's
	}
	clear(f.parts)
	*f = fetch{gen: f.gen + 1, parts: f.parts[:0], names: f.names[:0], reports: f.reports[:0], next: c.fetches, timer: timer{owner: f}}
	c.fetches = f
}

// drop lets go of what an evaluation has read.
func (f *fetch) drop() {
	for k := range f.count() {
		f.part(k).slice.Release()
	}
}

// count is how many partitions an evaluation looks at: all, or in a pipelined
// session those that may have something new.
func (f *fetch) count() int {
	if s := f.session; s != nil && s.pipelined {
		return len(s.hot)
	}
	return len(f.parts)
}

// asksNothing tells whether there is nothing to wait for.
func (f *fetch) asksNothing() bool {
	return len(f.parts) == 0 || f.session != nil && len(f.session.at) == 0
}

// part is the k-th of them.
func (f *fetch) part(k int) *fetchPart {
	if s := f.session; s != nil && s.pipelined {
		return &s.parts[s.hot[k]]
	}
	return &f.parts[k]
}

// fetch begins a fetch request.
func (c *Core) fetch(r *request) {
	var req wire.FetchRequest
	if err := req.Parse(r.h.Version, r.body); err != nil {
		c.refuseRequest(r.cn, r.h, "malformed fetch request")
		return
	}
	c.m.fetchRequests.Add(1)
	if req.ReplicaID >= 0 {
		// Followers come with clusters of several brokers.
		c.refuseRequest(r.cn, r.h, "follower fetch to a broker without followers")
		return
	}
	f := c.newFetch()
	f.version, f.corr, f.maxBytes, f.minBytes = req.Version, r.h.Correlation, req.MaxBytes, req.MinBytes
	f.ans = c.reserve(r.cn)
	f.ans.parked = f
	f.wait = int64(max(req.MaxWaitMs, 0)) * 1e6
	f.deadline = c.now + f.wait
	if f.mirror = req.Mirror.Present(); f.mirror {
		// Reports move marks of producers that wait: they are counted before
		// anything of this request can be parked.
		f.reports = c.takeReports(&req, f.reports[:0])
	}
	if code := c.enterSession(r.cn, f, &req); code != wire.ErrNone {
		c.refuseSession(f, code)
		return
	}
	if f.session == nil {
		c.takeParts(f, &req)
	}
	if f.mirror {
		c.markAhead(f, &req)
	}
	if f.session != nil && f.session.pipelined {
		c.queueFetch(f, &req)
		return
	}
	if !c.tryFetch(f) {
		c.parkFetch(f)
	}
}

// takeParts copies the partitions of a request without a session.
func (c *Core) takeParts(f *fetch, req *wire.FetchRequest) {
	for it := req.Partitions(); it.Next(); {
		if it.NewTopic() && f.version < 13 {
			f.names = append(f.names, it.Topic()...)
		}
		x := c.fetchPart(&it, f.version)
		x.name = f.names[len(f.names)-len(it.Topic()):]
		f.parts = append(f.parts, x)
	}
}

// fetchPart finds one partition of a request.
func (c *Core) fetchPart(it *wire.FetchIter, version int16) fetchPart {
	x := fetchPart{id: it.TopicID(), index: it.Partition, epoch: it.CurrentLeaderEpoch, last: it.LastFetchedEpoch,
		maxBytes: it.MaxBytes, offset: it.FetchOffset, gen: it.Generation, sentHigh: -1, sentStart: -1}
	x.p, x.code = c.topics.find(it.Topic(), it.TopicID(), version >= 13, it.Partition)
	return x
}

// tryFetch evaluates the request and answers it if it has enough.
func (c *Core) tryFetch(f *fetch) bool {
	f.drop()
	late := f.deadline <= c.now
	if !late && c.holdsBack(f) {
		return false
	}
	budget := min(int(max(f.maxBytes, 0)), c.eng.o.FetchMaxBytes, maxResponse)
	bytes, hurry, start := 0, late || f.asksNothing(), 0
	if f.session != nil && f.session.start < f.count() {
		start = f.session.start
	}
	n := f.count()
	for k := range n { // a session begins where the last answer was full
		x := f.part((start + k) % n)
		x.out = wire.FetchPartition{Index: x.index, Err: x.code, HighWatermark: -1, LastStable: -1, LogStart: -1,
			PreferredReplica: -1, DivergingEpoch: -1, LeaderID: -1, LeaderEpoch: -1}
		x.more = false
		if x.stopped {
			continue // until the destination says from where
		}
		if x.p != nil {
			if x.ahead && f.session != nil && f.session.pipelined && !x.p.registered(f.session.mirror, f.session.cluster) {
				x.ahead, hurry = false, true
				f.reports = append(f.reports, wire.ReportAnswer{TopicID: x.id, Partition: x.index, Err: c.unknownMirror(),
					HighWatermark: -1, PartitionCount: -1}) // said at once: its next report may be a while away
			}
			c.readPart(x, budget-bytes, bytes == 0)
			x.more = len(x.slice.Bytes) > 0 || bytes >= budget
		}
		had := bytes
		if bytes += len(x.slice.Bytes); had < budget && bytes >= budget && f.session != nil {
			f.session.start = (start + k + 1) % n
		}
		hurry = hurry || x.out.Err != wire.ErrNone || x.out.DivergingEpoch >= 0
	}
	if !hurry && bytes < int(f.minBytes) {
		return false
	}
	if !f.warmed && c.populate(f) {
		return true // not answered, but no longer the caller's to park
	}
	c.answerFetch(f)
	return true
}

// readPart reads one partition, or says why not.
func (c *Core) readPart(x *fetchPart, budget int, first bool) {
	p, out := x.p, &x.out
	x.seen = p.high.Load()
	if x.ahead {
		x.seen = p.tail.Load()
	}
	r := p.role.Load()
	switch {
	case r.gone:
		out.Err = wire.ErrUnknownTopicOrPartition
		return
	case !r.leader:
		out.Err, out.LeaderID, out.LeaderEpoch = wire.ErrNotLeaderOrFollower, r.leaderID, r.epoch
		return
	}
	if out.Err = r.checkEpoch(x.epoch); out.Err != wire.ErrNone {
		out.LeaderID, out.LeaderEpoch = r.leaderID, r.epoch
		return
	}
	out.LogStart = p.log.Start()
	out.HighWatermark = p.high.Load()
	out.LastStable = out.HighWatermark
	if x.last >= 0 && x.offset >= out.LogStart {
		epoch, end := p.log.EndOffsetForEpoch(x.last)
		if epoch < x.last || end < x.offset {
			out.DivergingEpoch, out.DivergingEnd = max(epoch, 0), max(end, 0)
			return
		}
	}
	limit := out.HighWatermark
	if x.ahead {
		limit = p.log.End()
	}
	n := min(budget, int(max(x.maxBytes, 0)))
	s, err := p.log.Read(x.offset, max(n, 0), max(limit, 0), first && budget > 0)
	switch {
	case err == nil:
		x.slice = s
		out.RecordsLen = len(s.Bytes)
	case segment.IsOutOfRange(err):
		out.Err = wire.ErrOffsetOutOfRange
	default:
		out.Err = wire.ErrKafkaStorageError
	}
}

// told tells whether an answer names this partition: always without a session,
// in one when there is something new.
func (f *fetch) told(x *fetchPart) bool {
	return f.session == nil || !x.stopped && (len(x.slice.Bytes) > 0 || x.out.Err != wire.ErrNone || x.out.DivergingEpoch >= 0 ||
		x.out.HighWatermark != x.sentHigh || x.out.LogStart != x.sentStart)
}

// sameTopic tells whether two partitions share a topic entry.
func (f *fetch) sameTopic(a, b *fetchPart) bool {
	return a.id == b.id && (f.version >= 13 || string(a.name) == string(b.name))
}

// answerFetch encodes what the last evaluation has read.
func (c *Core) answerFetch(f *fetch) {
	v, a, s := f.version, f.ans, f.session
	session, window := int32(0), int32(0)
	if s != nil {
		session = s.id
		if s.pipelined {
			window = mirrorWindow
		}
	}
	n, topics := f.measure()
	b := c.room(a, n)
	b = wire.BeginResponse(b, wire.KeyFetch, v, f.corr)
	b = wire.AppendFetchHead(b, v, 0, wire.ErrNone, session, topics)
	extra := 0
	var open *fetchPart
	for i := range f.count() {
		x := f.part(i)
		if !f.told(x) {
			continue
		}
		if open == nil || !f.sameTopic(open, x) {
			if open != nil {
				b = wire.AppendFetchTopicEnd(b, v)
			}
			b = wire.AppendFetchTopic(b, v, x.name, x.id, f.countTopic(i))
			open = x
		}
		x.sentHigh, x.sentStart = x.out.HighWatermark, x.out.LogStart
		x.out.Err = wire.DownMapFetch(x.out.Err, v)
		if window > 0 {
			x.moveCursor()
		}
		b = wire.AppendFetchPartition(b, v, &x.out)
		if len(x.slice.Bytes) <= copyBelow {
			b = append(b, x.slice.Bytes...)
		} else {
			a.gather(b, x.slice.Bytes)
			a.pins = append(a.pins, x.slice)
			extra += len(x.slice.Bytes)
			x.slice = segment.Slice{}
		}
		b = wire.AppendFetchPartitionTail(b, v, &x.out)
	}
	if open != nil {
		b = wire.AppendFetchTopicEnd(b, v)
	}
	b = wire.AppendFetchTail(b, v, nil, f.reports, window)
	wire.EndResponse(b, 0, extra)
	a.fill(b)
	a.parked = nil
	if window > 0 {
		c.answered(f)
		c.coolDown(s)
	}
	c.freeFetch(f)
	c.done(a)
	if window > 0 {
		c.nextFetch(s)
	}
}

// measure returns a bound of the response's own bytes and its topics.
func (f *fetch) measure() (n, topics int) {
	n = 128 + 48*len(f.reports)
	var open *fetchPart
	for i := range f.count() {
		x := f.part(i)
		if !f.told(x) {
			continue
		}
		n += 96
		if open == nil || !f.sameTopic(open, x) {
			topics++
			n += 32 + len(x.name)
			open = x
		}
		if len(x.slice.Bytes) <= copyBelow {
			n += len(x.slice.Bytes)
		}
	}
	return n, topics
}

// countTopic counts the partitions told in the topic entry that begins at i.
// Those told later must not be counted as told already: told looks at what was
// sent before this answer, which is set one by one from here on.
func (f *fetch) countTopic(i int) int {
	n := 0
	first := f.part(i)
	for ; i < f.count(); i++ {
		x := f.part(i)
		if !f.told(x) {
			continue
		}
		if !f.sameTopic(first, x) {
			break
		}
		n++
	}
	return n
}
