package dataplane

import (
	"lockstep/internal/wire"
	"lockstep/ioring"
	"lockstep/segment"
)

// fetch is a fetch request that may have to wait. Its frame is copied only if
// it does.
type fetch struct {
	timer
	ans     *answer
	gen     uint32
	corr    int32
	req     wire.FetchRequest
	raw     []byte         // the request's body
	body    *ioring.Buffer // its copy while it is parked, nil while it is in its frame
	replica bool           // a mirror that reports, reading to the log end
	session int32
	reports []wire.ReportAnswer
	parts   []fetchPart
	touched []int32 // slots of partitions it waits on, for its partitions' order
	cold    int     // populates it waits for
	warmed  bool    // cold ranges were populated once: do not ask again
	next    *fetch
}

// fetchPart is what one partition contributes to an answer.
type fetchPart struct {
	p     *Partition
	out   wire.FetchPartition
	slice segment.Slice
	topic []byte
	id    [16]byte
	first bool
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
	if f.body != nil {
		c.answers.Free(f.body)
	}
	*f = fetch{gen: f.gen + 1, parts: f.parts[:0], reports: f.reports[:0], touched: f.touched[:0], next: c.fetches, timer: timer{owner: f}}
	c.fetches = f
}

// drop lets go of what an evaluation has read.
func (f *fetch) drop() {
	for i := range f.parts {
		f.parts[i].slice.Release()
		f.parts[i] = fetchPart{}
	}
	f.parts = f.parts[:0]
}

// fetch begins a fetch request.
func (c *Core) fetch(r *request) {
	f := c.newFetch()
	if err := f.req.Parse(r.h.Version, r.body); err != nil {
		c.freeFetch(f)
		c.refuseRequest(r.cn, r.h, "malformed fetch request")
		return
	}
	c.m.fetchRequests.Add(1)
	if f.req.ReplicaID >= 0 {
		// Followers come with clusters of several brokers.
		c.freeFetch(f)
		c.refuseRequest(r.cn, r.h, "follower fetch to a broker without followers")
		return
	}
	f.raw, f.corr = r.body, r.h.Correlation
	f.ans = c.reserve(r.cn)
	if f.req.SessionEpoch > 0 {
		c.refuseSession(f)
		return
	}
	f.at = c.now + int64(max(f.req.MaxWaitMs, 0))*1e6
	if f.req.Mirror.Present() {
		// Reports move marks of producers that wait: they are counted before
		// anything of this request can be parked.
		f.replica = true
		f.reports = c.takeReports(&f.req, f.reports[:0])
	}
	if !c.tryFetch(f) {
		c.parkFetch(f)
	}
}

// refuseSession answers a request of a session that another broker or another
// life of this one has given out: the client begins anew without.
func (c *Core) refuseSession(f *fetch) {
	v, a := f.req.Version, f.ans
	b := wire.BeginResponse(c.room(a, 128), wire.KeyFetch, v, f.corr)
	b = wire.AppendFetchHead(b, v, 0, wire.ErrFetchSessionIdNotFound, 0, 0)
	b = wire.AppendFetchTail(b, v, nil, nil)
	wire.EndResponse(b, 0, 0)
	a.fill(b)
	c.freeFetch(f)
	c.done(a)
}

// tryFetch evaluates the request and answers it if it has enough.
func (c *Core) tryFetch(f *fetch) bool {
	f.drop()
	late := f.at <= c.now
	budget := c.fetchBudget(f)
	bytes, hurry := 0, late || f.req.NumPartitions == 0
	for it := f.req.Partitions(); it.Next(); {
		x := fetchPart{topic: it.Topic(), id: it.TopicID(), first: it.NewTopic()}
		x.out = wire.FetchPartition{Index: it.Partition, HighWatermark: -1, LastStable: -1, LogStart: -1,
			PreferredReplica: -1, DivergingEpoch: -1, LeaderID: -1, LeaderEpoch: -1}
		c.readPart(f, &it, &x, budget-bytes, bytes == 0)
		bytes += len(x.slice.Bytes)
		hurry = hurry || x.out.Err != wire.ErrNone || x.out.DivergingEpoch >= 0 ||
			f.replica && x.out.HighWatermark > it.HighWatermark && it.HighWatermark >= 0
		f.parts = append(f.parts, x)
	}
	if !hurry && bytes < int(f.req.MinBytes) {
		return false
	}
	if !f.warmed && c.populate(f) {
		return true // not answered, but no longer the caller's to park
	}
	c.answerFetch(f)
	return true
}

func (c *Core) fetchBudget(f *fetch) int {
	return min(int(max(f.req.MaxBytes, 0)), c.eng.o.FetchMaxBytes, maxResponse)
}

// readPart reads one partition, or says why not.
func (c *Core) readPart(f *fetch, it *wire.FetchIter, x *fetchPart, budget int, first bool) {
	p, code := c.topics.find(it.Topic(), it.TopicID(), f.req.Version >= 13, it.Partition)
	if code != wire.ErrNone {
		x.out.Err = code
		return
	}
	x.p = p
	r := p.role.Load()
	switch {
	case r.gone:
		x.out.Err = wire.ErrUnknownTopicOrPartition
		return
	case !r.leader:
		x.out.Err, x.out.LeaderID, x.out.LeaderEpoch = wire.ErrNotLeaderOrFollower, r.leaderID, r.epoch
		return
	}
	if x.out.Err = r.checkEpoch(it.CurrentLeaderEpoch); x.out.Err != wire.ErrNone {
		x.out.LeaderID, x.out.LeaderEpoch = r.leaderID, r.epoch
		return
	}
	x.out.LogStart = p.log.Start()
	x.out.HighWatermark = p.high.Load()
	x.out.LastStable = x.out.HighWatermark
	if it.LastFetchedEpoch >= 0 && it.FetchOffset >= x.out.LogStart {
		epoch, end := p.log.EndOffsetForEpoch(it.LastFetchedEpoch)
		if epoch < it.LastFetchedEpoch || end < it.FetchOffset {
			x.out.DivergingEpoch, x.out.DivergingEnd = max(epoch, 0), max(end, 0)
			return
		}
	}
	limit := x.out.HighWatermark
	if f.replica && c.mayReadAhead(f, p) {
		limit = p.log.End()
	}
	n := min(budget, int(max(it.MaxBytes, 0)))
	s, err := p.log.Read(it.FetchOffset, max(n, 0), max(limit, 0), first && budget > 0)
	switch {
	case err == nil:
		x.slice = s
		x.out.RecordsLen = len(s.Bytes)
	case segment.IsOutOfRange(err):
		x.out.Err = wire.ErrOffsetOutOfRange
	default:
		x.out.Err = wire.ErrKafkaStorageError
	}
}

// answerFetch encodes what the last evaluation has read.
func (c *Core) answerFetch(f *fetch) {
	v, a := f.req.Version, f.ans
	n := 128 + 48*len(f.reports)
	topics := 0
	for i := range f.parts {
		x := &f.parts[i]
		n += 96
		if x.first {
			topics++
			n += 32 + len(x.topic)
		}
		if len(x.slice.Bytes) <= copyBelow {
			n += len(x.slice.Bytes)
		}
	}
	b := c.room(a, n)
	b = wire.BeginResponse(b, wire.KeyFetch, v, f.corr)
	b = wire.AppendFetchHead(b, v, 0, wire.ErrNone, 0, topics)
	extra := 0
	for i := range f.parts {
		x := &f.parts[i]
		if x.first {
			if i > 0 {
				b = wire.AppendFetchTopicEnd(b, v)
			}
			b = wire.AppendFetchTopic(b, v, x.topic, x.id, countTopic(f.parts[i:]))
		}
		x.out.Err = wire.DownMapFetch(x.out.Err, v)
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
	if len(f.parts) > 0 {
		b = wire.AppendFetchTopicEnd(b, v)
	}
	b = wire.AppendFetchTail(b, v, nil, f.reports)
	wire.EndResponse(b, 0, extra)
	a.fill(b)
	c.freeFetch(f)
	c.done(a)
}

func countTopic(parts []fetchPart) int {
	n := 1
	for n < len(parts) && !parts[n].first {
		n++
	}
	return n
}

// parkFetch lets a fetch wait for more: on each partition's marks, with its
// request copied out of the frame.
func (c *Core) parkFetch(f *fetch) {
	f.drop()
	if f.body == nil {
		c.keep(f)
	}
	c.timers.arm(&f.timer, f.at)
	ready := false
	for it := f.req.Partitions(); it.Next(); {
		p, code := c.topics.find(it.Topic(), it.TopicID(), f.req.Version >= 13, it.Partition)
		if code != wire.ErrNone {
			continue
		}
		w := c.waitsOf(p)
		if len(w.fetches) >= purgeAbove {
			w.fetches = liveFetches(w.fetches)
		}
		w.fetches = append(w.fetches, fetchWait{f, f.gen})
		ready = c.interested(f, p, &it) || ready
	}
	if ready { // a mark moved between the look and the wait
		c.again(f)
	}
}

// interested registers a parked fetch with the marks it waits for and tells
// whether one has moved already.
func (c *Core) interested(f *fetch, p *Partition, it *wire.FetchIter) bool {
	if f.replica {
		end := p.end.Wait(c.id, it.FetchOffset+1)
		if it.HighWatermark >= 0 && p.high.Wait(c.id, it.HighWatermark+1) {
			return true
		}
		return end
	}
	return p.high.Wait(c.id, it.FetchOffset+1)
}

func liveFetches(list []fetchWait) []fetchWait {
	kept := list[:0]
	for _, w := range list {
		if w.f.gen == w.gen {
			kept = append(kept, w)
		}
	}
	clear(list[len(kept):])
	return kept
}

// retryFetches looks again at the fetches parked on p. One that stays parked
// registers its interest anew.
func (c *Core) retryFetches(p *Partition, w *waits) {
	list := w.fetches
	w.fetches = nil
	for _, x := range list {
		if x.f.gen == x.gen && x.f.cold == 0 {
			c.again(x.f)
		}
	}
	for _, x := range list {
		if x.f.gen == x.gen {
			w.fetches = append(w.fetches, x)
		}
	}
}

// again evaluates a parked fetch once more; one that goes on waiting asks to
// be woken by whichever of its partitions moves next.
func (c *Core) again(f *fetch) {
	for range 4 { // a mark that moves all the time ends it sooner
		if c.tryFetch(f) {
			return
		}
		f.drop()
		moved := false
		for it := f.req.Partitions(); it.Next(); {
			if p, code := c.topics.find(it.Topic(), it.TopicID(), f.req.Version >= 13, it.Partition); code == wire.ErrNone {
				// Fewer bytes than min.bytes are there: the next rise counts.
				moved = c.interestedBeyond(f, p, &it) || moved
			}
		}
		if !moved {
			return
		}
	}
}

// interestedBeyond is interested for a fetch that has seen the marks as they
// are and found them not enough.
func (c *Core) interestedBeyond(f *fetch, p *Partition, it *wire.FetchIter) bool {
	if f.replica {
		end, high := p.end.Load(), p.high.Load()
		moved := p.end.Wait(c.id, max(end, it.FetchOffset)+1)
		if it.HighWatermark >= 0 {
			moved = p.high.Wait(c.id, max(high, it.HighWatermark)+1) || moved
		}
		return moved
	}
	return p.high.Wait(c.id, max(p.high.Load(), it.FetchOffset)+1)
}

// expired answers a parked fetch with what there is.
func (f *fetch) expired(c *Core) {
	f.at = 0
	if f.cold == 0 {
		c.tryFetch(f)
	}
}

// cancel ends a parked fetch whose connection is gone.
func (f *fetch) cancel(c *Core) {
	a := f.ans
	c.freeFetch(f)
	c.free(a)
}

// populate asks for the pages of cold ranges before they are sent: a page
// fault in a send would stall the whole ring for its disk read. It returns
// false when everything is warm. The slices stay pinned until the pages are
// there; then the request is evaluated anew.
func (c *Core) populate(f *fetch) bool {
	for i := range f.parts {
		if s := &f.parts[i].slice; s.Cold && len(s.Bytes) > 0 {
			f.cold++
			c.op(ioring.Op{Kind: ioring.Populate, Token: tokenSpecial | uint64(c.populates.put(f)), Bytes: s.Bytes})
		}
	}
	if f.cold > 0 && f.body == nil {
		c.keep(f)
	}
	return f.cold > 0
}

// keep copies a request out of its frame. The copy has the same bytes, so it
// parses as the original did.
func (c *Core) keep(f *fetch) {
	f.body = c.answers.Alloc(len(f.raw))
	copy(f.body.Data, f.raw)
	f.raw = f.body.Data
	_ = f.req.Parse(f.req.Version, f.raw)
	f.ans.parked = f
}

// populated goes on with a fetch when its last cold range is in memory. An
// error of the advice changes nothing: the send will then fault or fail.
func (c *Core) populated(ev *ioring.Event) {
	f := c.populates.take(uint32(ev.Token))
	if f == nil {
		return
	}
	if f.cold--; f.cold > 0 {
		return
	}
	f.warmed = true
	if !c.tryFetch(f) {
		c.parkFetch(f)
	}
}

// populates are the fetches that wait for pages, by slot.
type populates struct {
	slots []fetchWait
	free  []uint32
}

func (t *populates) put(f *fetch) uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[i] = fetchWait{f, f.gen}
		return i
	}
	t.slots = append(t.slots, fetchWait{f, f.gen})
	return uint32(len(t.slots) - 1)
}

func (t *populates) take(i uint32) *fetch {
	x := t.slots[i]
	t.slots[i] = fetchWait{}
	t.free = append(t.free, i)
	if x.f.gen != x.gen {
		return nil
	}
	return x.f
}
