package dataplane

import (
	"lockstep/internal/wire"
)

// waits is what one shard has parked on one partition.
type waits struct {
	all      []waiter // acks=all: on the high watermark, in the order of their targets
	one      []waiter // acks=1: on the log end offset
	fetches  []fetchWait
	sessions []*fetchSession // pipelined ones that read the partition
	stalled  []stall         // produces that wait for room
	listed   bool            // in Core.moved
	dirty    bool            // in Core.dirty
}

// stall is a produce that waits for room in a log, and its connection.
type stall struct {
	pk  *produce
	gen uint32
	cn  *conn
	cg  uint32
}

// parkProduce lets a request wait for its marks once everything is queued.
func (c *Core) parkProduce(pk *produce) {
	pk.waiting = true
	if pk.acks == 0 {
		c.finishUnanswered(pk)
		return
	}
	for i := range pk.parts {
		x := &pk.parts[i]
		if x.done {
			continue
		}
		w := c.waitsOf(x.p)
		e := waiter{pk, pk.gen, int32(i), x.target}
		if pk.acks == 1 {
			w.one = append(w.one, e)
			x.p.end.Wait(c.id, x.target)
		} else {
			w.all = append(w.all, e)
			x.p.high.Wait(c.id, x.target)
		}
		// The mark may have passed it already (a duplicate), or be frozen: the
		// look at the end of the turn tells. Appends are written before it.
		c.movedOn(x.p)
	}
	if pk.left == 0 {
		c.finishProduce(pk)
		return
	}
	c.timers.arm(&pk.timer, pk.at)
}

// finishUnanswered ends an acks=0 request: no answer, and on an error the
// connection is closed, the only way the client can hear of it.
func (c *Core) finishUnanswered(pk *produce) {
	failed := false
	for i := range pk.parts {
		failed = failed || pk.parts[i].code != wire.ErrNone
	}
	a := pk.ans
	c.freeProduce(pk)
	if failed {
		c.hangUp(a)
		return
	}
	c.done(a)
}

// wakeWaiters completes what the marks of p have reached, or what cannot be
// reached any more.
func (c *Core) wakeWaiters(p *Partition) {
	w := c.waitsOf(p)
	r := p.role.Load()
	if len(w.one) > 0 {
		w.one = c.completeUpTo(p, w.one, p.end.Load(), r)
		if len(w.one) > 0 {
			p.end.Wait(c.id, w.one[0].target)
			if p.log.Failed() {
				w.one = c.troubled(p, w.one)
			}
		}
	}
	if len(w.all) > 0 {
		before := len(w.all)
		w.all = c.completeUpTo(p, w.all, p.high.Load(), r)
		if done := before - len(w.all); done > 0 && c.finished.Load() < c.eng.answer.Load() {
			c.eng.m.ungated.Add(int64(done))
		}
		if len(w.all) > 0 {
			if p.high.Wait(c.id, w.all[0].target) {
				c.movedOn(p)
			}
			if p.trouble.Load() || !r.leader {
				w.all = c.troubled(p, w.all)
			}
		}
	}
	if len(w.sessions) > 0 {
		c.wakeSessions(p, w)
	}
	if len(w.fetches) > 0 {
		c.retryFetches(p, w)
	}
}

// completeUpTo answers waiters whose target the mark has reached. Targets rise
// along the list, but for duplicates, which are few: those wait a little
// longer than they must, never too short.
func (c *Core) completeUpTo(p *Partition, list []waiter, mark int64, r *role) []waiter {
	n := 0
	for n < len(list) && (list[n].target <= mark || list[n].pk.gen != list[n].gen) {
		e := &list[n]
		n++
		if e.pk.gen == e.gen {
			c.completePart(e.pk, int(e.part), wire.ErrNone, "")
		}
	}
	if !r.leader {
		for ; n < len(list); n++ {
			if e := &list[n]; e.pk.gen == e.gen {
				c.completePart(e.pk, int(e.part), wire.ErrNotLeaderOrFollower, "")
			}
		}
	}
	return dropFront(list, n)
}

func dropFront(list []waiter, n int) []waiter {
	rest := copy(list, list[n:])
	clear(list[rest:])
	return list[:rest]
}

// troubled answers waiters of a partition whose mark is frozen by a side under
// its minimum: they hear it at once.
func (c *Core) troubled(p *Partition, list []waiter) []waiter {
	kept := list[:0]
	for _, e := range list {
		if e.pk.gen != e.gen {
			continue
		}
		if p.log.Failed() {
			c.completePart(e.pk, int(e.part), wire.ErrKafkaStorageError, "")
			continue
		}
		p.lock()
		code, culprit, done := p.ack(p.role.Load(), e.target, false)
		p.unlock()
		if !done {
			kept = append(kept, e)
			continue
		}
		c.completePart(e.pk, int(e.part), code, c.blame(p, code, culprit))
	}
	clear(list[len(kept):])
	return kept
}

// blame words why a mirror keeps a producer waiting, and counts it.
func (c *Core) blame(p *Partition, code wire.ErrorCode, culprit string) string {
	switch code {
	case wire.ErrNotEnoughRemoteReplicasAfterAppend:
		c.m.remoteUnderMin.Add(1)
		return "mirror " + culprit + " has fewer in-sync replicas than its min.insync.replicas"
	case wire.ErrMirrorSyncReplicationTimeout:
		c.m.remoteTimeouts.Add(1)
		return "mirror " + culprit + " did not have the record in time"
	}
	return ""
}

// expired ends a request whose time is over: each partition still waiting
// hears who was behind.
func (pk *produce) expired(c *Core) {
	// The last result answers the request and takes pk back.
	for i, gen := 0, pk.gen; pk.gen == gen && i < len(pk.parts); i++ {
		x := &pk.parts[i]
		if x.done {
			continue
		}
		var code wire.ErrorCode
		var culprit string
		if pk.acks == 1 {
			code = wire.ErrRequestTimedOut
		} else {
			x.p.lock()
			code, culprit, _ = x.p.ack(x.p.role.Load(), x.target, true)
			x.p.unlock()
		}
		p := x.p
		if message := c.blame(p, code, culprit); message != "" {
			c.eng.o.Log.Warn("produce not acknowledged in time", "topic", p.topic, "partition", p.index,
				"mirror", culprit, "error", code.Name(), "offset", x.target)
			c.completePart(pk, i, code, message)
		} else {
			c.completePart(pk, i, code, "")
		}
		c.purge(p)
	}
}

// purge drops waiters that were answered otherwise, so that a mark that stands
// still for hours does not pile them up.
func (c *Core) purge(p *Partition) {
	w := c.waitsOf(p)
	for _, list := range []*[]waiter{&w.all, &w.one} {
		if len(*list) < purgeAbove {
			continue
		}
		kept := (*list)[:0]
		for _, e := range *list {
			if e.pk.gen == e.gen && !e.pk.parts[e.part].done {
				kept = append(kept, e)
			}
		}
		clear((*list)[len(kept):])
		*list = kept
	}
}

// completePart gives one partition its result; the last one answers.
func (c *Core) completePart(pk *produce, i int, code wire.ErrorCode, message string) {
	x := &pk.parts[i]
	if x.done {
		return
	}
	x.done, x.code, x.message = true, code, message
	if code != wire.ErrNone {
		x.base, x.stamp = -1, -1
	}
	if pk.left--; pk.left == 0 && pk.waiting {
		c.finishProduce(pk)
	}
}

// finishProduce encodes the answer.
func (c *Core) finishProduce(pk *produce) {
	v, a := pk.version, pk.ans
	n := 64 + len(pk.names) + 24*pk.topics
	for i := range pk.parts {
		n += 96 + len(pk.parts[i].message)
	}
	b := c.room(a, n)
	b = wire.BeginResponse(b, wire.KeyProduce, v, pk.corr)
	b = wire.AppendProduceHead(b, v, pk.topics)
	for i := range pk.parts {
		x := &pk.parts[i]
		if x.newTop > 0 {
			if i > 0 {
				b = wire.AppendProduceTopicEnd(b, v)
			}
			b = wire.AppendProduceTopic(b, v, pk.names[x.nameAt:x.nameAt+x.nameLen], x.id, x.newTop)
		}
		out := wire.ProducePartition{Index: x.index, Err: wire.DownMapProduce(x.code, v), BaseOffset: x.base,
			LogAppendTime: x.stamp, LogStart: -1, Message: x.message, LeaderID: -1, LeaderEpoch: -1}
		if x.p != nil {
			r := x.p.role.Load()
			out.LogStart = x.p.log.Start()
			if x.code == wire.ErrNotLeaderOrFollower {
				out.LeaderID, out.LeaderEpoch = r.leaderID, r.epoch
			}
		}
		b = wire.AppendProducePartition(b, v, &out)
	}
	if len(pk.parts) > 0 {
		b = wire.AppendProduceTopicEnd(b, v)
	}
	b = wire.AppendProduceTail(b, v, 0, nil)
	wire.EndResponse(b, 0, 0)
	a.fill(b)
	c.m.produceLatency.observe(c.now - pk.begun)
	c.freeProduce(pk)
	c.done(a)
}

// grown goes on with the produces that waited for room. When the step failed
// they hear that the storage did, and may try again.
func (c *Core) grown(p *Partition, err error) {
	w := c.waitsOf(p)
	list := w.stalled
	w.stalled = nil
	for _, s := range list {
		if s.pk.gen != s.gen {
			continue
		}
		if err != nil {
			s.pk.stalled = nil
			s.pk.fail(len(s.pk.parts)-1, wire.ErrKafkaStorageError, "no room: "+err.Error())
		}
		c.resume(s)
	}
	c.lanes.roomFor(c, p)
}

func (c *Core) resume(s stall) {
	alive := s.cn.gen == s.cg && !s.cn.closing
	cn := s.cn
	if !alive {
		cn = &conn{closing: true} // runs to its end all the same: what is queued is queued
	}
	cn.muted = false
	c.runProduce(s.pk, cn)
	if alive && !cn.muted {
		c.parse(cn)
	}
}
