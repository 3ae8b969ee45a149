package dataplane

import (
	"lockstep/internal/wire"
)

// Timestamps with a meaning of their own in ListOffsets.
const (
	latestTimestamp   = -1
	earliestTimestamp = -2
	maxTimestamp      = -3
	earliestLocal     = -4
	latestTiered      = -5
)

// listOffsets answers from marks and, by timestamp, from the time index. A
// search that must read or inflate records goes to the cold pool.
func (c *Core) listOffsets(r *request) {
	var req wire.ListOffsetsRequest
	if err := req.Parse(r.h.Version, r.body); err != nil {
		c.refuseRequest(r.cn, r.h, "malformed list offsets request")
		return
	}
	for it := req.Iter(); it.Next(); {
		if it.Timestamp >= 0 || it.Timestamp == maxTimestamp {
			c.coldListOffsets(r, &req)
			return
		}
	}
	a := c.reserve(r.cn)
	b := c.room(a, listOffsetsRoom(&req))
	b = wire.BeginResponse(b, wire.KeyListOffsets, r.h.Version, r.h.Correlation)
	b = c.eng.answerListOffsets(b, &req, c.topics.named)
	wire.EndResponse(b, 0, 0)
	a.fill(b)
	c.done(a)
}

// finder finds a partition by name.
type finder func(name []byte, index int32) (*Partition, wire.ErrorCode)

func (d *directory) named(name []byte, index int32) (*Partition, wire.ErrorCode) {
	return d.find(name, [16]byte{}, false, index)
}

// coldListOffsets answers in the cold pool, from a copy of the request.
func (c *Core) coldListOffsets(r *request, _ *wire.ListOffsetsRequest) {
	v, corr := r.h.Version, r.h.Correlation
	body := append([]byte(nil), r.body...)
	a := c.reserve(r.cn)
	r.cn.muted = true
	c.eng.runCold(c, a, func() []byte {
		var req wire.ListOffsetsRequest
		if req.Parse(v, body) != nil {
			return nil
		}
		b := wire.BeginResponse(nil, wire.KeyListOffsets, v, corr)
		b = c.eng.answerListOffsets(b, &req, c.eng.named)
		wire.EndResponse(b, 0, 0)
		return b
	})
}

func listOffsetsRoom(req *wire.ListOffsetsRequest) int {
	n := 64 + 64*req.NumPartitions
	for it := req.Iter(); it.Next(); {
		if it.NewTopic() {
			n += 32 + len(it.Topic())
		}
	}
	return n
}

// answerListOffsets encodes the answers of a request. It may run on any thread.
func (e *Engine) answerListOffsets(b []byte, req *wire.ListOffsetsRequest, find finder) []byte {
	v := req.Version
	b = wire.AppendListOffsetsHead(b, v, 0, req.NumTopics)
	open := false
	for it := req.Iter(); it.Next(); {
		if it.NewTopic() {
			if open {
				b = wire.AppendListOffsetsTopicEnd(b, v)
			}
			b = wire.AppendListOffsetsTopic(b, v, it.Topic(), it.TopicPartitions())
			open = true
		}
		out := wire.ListOffsetsPartition{Index: it.Partition, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
		p, code := find(it.Topic(), it.Partition)
		if code == wire.ErrNone {
			e.listOffset(p, &it, &out)
		} else {
			out.Err = code
		}
		b = wire.AppendListOffsetsPartition(b, v, &out)
	}
	if open {
		b = wire.AppendListOffsetsTopicEnd(b, v)
	}
	return wire.AppendListOffsetsTail(b, v)
}

func (e *Engine) listOffset(p *Partition, it *wire.ListOffsetsIter, out *wire.ListOffsetsPartition) {
	r := p.role.Load()
	switch {
	case r.gone:
		out.Err = wire.ErrUnknownTopicOrPartition
	case !r.leader:
		out.Err = wire.ErrNotLeaderOrFollower
	default:
		out.Err = r.checkEpoch(it.CurrentLeaderEpoch)
	}
	if out.Err != wire.ErrNone {
		return
	}
	limit := p.high.Load()
	switch ts := it.Timestamp; {
	case ts == latestTimestamp:
		if !p.latestKnown(r) {
			out.Err = wire.ErrOffsetNotAvailable
			return
		}
		out.Offset, out.LeaderEpoch = limit, r.epoch
	case ts == earliestTimestamp || ts == earliestLocal:
		out.Offset = p.log.Start()
		out.LeaderEpoch = p.log.EpochAt(out.Offset)
	case ts == latestTiered: // no tiers: there is no such offset
	case ts == maxTimestamp:
		e.byTime(p, out, -1, limit)
	case ts >= 0:
		e.byTime(p, out, ts, limit)
	default:
		out.Err = wire.ErrUnsupportedVersion
	}
}

// byTime looks up an offset by timestamp, the largest timestamp for ts < 0.
func (e *Engine) byTime(p *Partition, out *wire.ListOffsetsPartition, ts, limit int64) {
	x := inflation{e: e, gate: &e.inflateCold}
	defer x.done()
	found, ok, err := p.log.OffsetForTimestamp(ts, limit, x.inflate)
	if ts < 0 {
		found, ok, err = p.log.MaxTimestamp(limit, x.inflate)
	}
	switch {
	case err != nil:
		out.Err = wire.ErrKafkaStorageError
	case ok:
		out.Offset, out.Timestamp, out.LeaderEpoch = found.Offset, found.Timestamp, p.log.EpochAt(found.Offset)
	}
}
