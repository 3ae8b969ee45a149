package dataplane

import (
	"lockstep/internal/wire"
)

// produce is a produce request from its first batch to its answer.
type produce struct {
	timer
	ans     *answer
	f       *frame
	version int16
	corr    int32
	acks    int16
	it      wire.ProduceIter
	topics  int
	begun   int64 // ns
	gen     uint32
	left    int // partitions without a result
	parts   []producePart
	names   []byte
	waiting bool // all partitions are appended or refused
	next    *produce
	stalled *Partition
}

// producePart is one partition's share of a request.
type producePart struct {
	p       *Partition
	newTop  int // partitions in the topic that begins here, 0 = goes on
	nameAt  int
	nameLen int
	id      [16]byte
	index   int32
	done    bool
	code    wire.ErrorCode
	message string
	base    int64
	target  int64 // the mark that answers it
	stamp   int64 // log append time, -1
}

// waiter is a partition's share that waits for a mark.
type waiter struct {
	pk     *produce
	gen    uint32
	part   int32
	target int64
}

func (c *Core) newProduce() *produce {
	pk := c.produces
	if pk == nil {
		pk = &produce{}
	} else {
		c.produces, pk.next = pk.next, nil
	}
	pk.owner = pk
	return pk
}

func (c *Core) freeProduce(pk *produce) {
	c.timers.disarm(&pk.timer)
	for i := range pk.parts {
		pk.parts[i].p = nil
		pk.parts[i].message = ""
	}
	*pk = produce{gen: pk.gen + 1, parts: pk.parts[:0], names: pk.names[:0], next: c.produces, timer: timer{owner: pk}}
	c.produces = pk
}

// produce begins a produce request.
func (c *Core) produce(r *request) {
	var req wire.ProduceRequest
	if err := req.Parse(r.h.Version, r.body); err != nil {
		c.refuseRequest(r.cn, r.h, "malformed produce request")
		return
	}
	c.m.produces.Add(1)
	pk := c.newProduce()
	pk.f, pk.version, pk.corr, pk.acks, pk.begun = r.f, r.h.Version, r.h.Correlation, req.Acks, c.now
	pk.it, pk.topics = req.Iter(), req.NumTopics
	pk.ans = c.reserve(r.cn)
	pk.f.hold()
	pk.at = c.now + int64(max(req.TimeoutMs, 0))*1e6
	c.runProduce(pk, r.cn)
}

// runProduce appends partition after partition. Where the log has no room yet
// it stops: the connection is not parsed further until the step is there.
func (c *Core) runProduce(pk *produce, cn *conn) {
	for pk.stalled != nil || pk.it.Next() {
		p := pk.stalled
		if p == nil {
			p = c.nextPart(pk)
		} else {
			pk.stalled = nil
		}
		i := len(pk.parts) - 1
		if p != nil && c.appendPart(pk, i, p) {
			pk.stalled = p
			cn.muted = true
			w := c.waitsOf(p)
			w.stalled = append(w.stalled, stall{pk, pk.gen, cn, cn.gen})
			return
		}
	}
	pk.f.Release()
	pk.f = nil
	c.parkProduce(pk)
}

// nextPart notes the iterator's partition and finds it; nil when that already
// failed.
func (c *Core) nextPart(pk *produce) *Partition {
	byID := pk.version >= 13
	x := producePart{index: pk.it.Partition(), base: -1, stamp: -1}
	if pk.it.NewTopic() {
		x.newTop = pk.it.TopicPartitions()
		if byID {
			x.id = pk.it.TopicID()
		} else {
			x.nameAt, x.nameLen = len(pk.names), len(pk.it.Topic())
			pk.names = append(pk.names, pk.it.Topic()...)
		}
	}
	pk.parts = append(pk.parts, x)
	pk.left++
	i := len(pk.parts) - 1
	var name []byte
	var id [16]byte
	if byID {
		id = pk.it.TopicID()
	} else {
		name = pk.it.Topic()
	}
	if pk.acks != -1 && pk.acks != 0 && pk.acks != 1 {
		pk.fail(i, wire.ErrInvalidRequiredAcks, "acks must be -1, 0 or 1")
		return nil
	}
	p, code := c.topics.find(name, id, byID, pk.it.Partition())
	if code != wire.ErrNone {
		pk.fail(i, code, "")
		return nil
	}
	pk.parts[i].p = p
	return p
}

func (pk *produce) fail(i int, code wire.ErrorCode, message string) {
	x := &pk.parts[i]
	if x.done {
		return
	}
	x.done, x.code, x.message = true, code, message
	pk.left--
}

// appendPart checks and queues one partition's batch. True means that there is
// no room yet and nothing has happened.
func (c *Core) appendPart(pk *produce, i int, p *Partition) (stalled bool) {
	r := p.role.Load()
	if code, message := r.writable(pk.version); code != wire.ErrNone {
		pk.fail(i, code, message)
		return false
	}
	b, code, message := c.checkBatch(pk.it.Records(), pk.version, r)
	if code != wire.ErrNone {
		pk.fail(i, code, message)
		return false
	}
	if r.settings.LogAppendTime {
		b.SetLogAppendTime(c.wall)
		pk.parts[i].stamp = c.wall
	}
	p.lock()
	defer p.unlock()
	if now := p.role.Load(); now != r { // a View came between: judge by the new role
		if code, message := now.writable(pk.version); code != wire.ErrNone {
			pk.fail(i, code, message)
			return false
		}
		r = now
	}
	return c.queuePart(pk, i, p, r, b)
}

// queuePart assigns offsets and queues the batch. [L]
func (c *Core) queuePart(pk *produce, i int, p *Partition, r *role, b wire.Batch) (stalled bool) {
	x := &pk.parts[i]
	if p.log.Failed() { // before duplicates are looked for: a dead directory vouches for nothing
		pk.fail(i, wire.ErrKafkaStorageError, "")
		return false
	}
	if pk.acks == -1 && p.local.InSync < r.settings.MinISR {
		pk.fail(i, wire.ErrNotEnoughReplicas, "")
		return false
	}
	if b.ProducerID() >= 0 {
		v := p.log.Producers().Check(b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.RecordCount())
		if v.Code != wire.ErrNone {
			pk.fail(i, v.Code, "")
			return false
		}
		if v.Duplicate { // answered like the first time, when its offset is
			x.base, x.target = v.BaseOffset, v.LastOffset+1
			return false
		}
	}
	switch p.log.Room(len(b), c.wall) {
	case roomGrow:
		p.stalled |= 1 << c.id
		c.touch(p)
		return true
	case roomFailed:
		pk.fail(i, wire.ErrKafkaStorageError, "")
		return false
	}
	base := p.log.NextOffset()
	b.SetBaseOffset(base)
	b.SetPartitionLeaderEpoch(r.epoch)
	pk.f.hold()
	p.log.Queue(b, pk.f)
	x.base, x.target = base, b.NextOffset()
	c.m.recordsIn.Add(int64(b.RecordCount()))
	c.touch(p)
	return false
}

// writable tells why a client may not write here.
func (r *role) writable(version int16) (wire.ErrorCode, string) {
	switch {
	case r.gone:
		return wire.ErrUnknownTopicOrPartition, ""
	case !r.leader:
		return wire.ErrNotLeaderOrFollower, ""
	case r.readOnly && version >= 14:
		return wire.ErrReadOnlyTopic, "the topic is read-only: it is mirrored by " + r.mirror
	case r.readOnly:
		return wire.ErrPolicyViolation, "the topic is read-only: it is mirrored by " + r.mirror
	}
	return wire.ErrNone, ""
}

// checkBatch validates the records of one partition once, at the leader.
func (c *Core) checkBatch(records []byte, version int16, r *role) (wire.Batch, wire.ErrorCode, string) {
	b, rest, ok := wire.NextBatch(records)
	switch {
	case len(records) == 0:
		return nil, wire.ErrInvalidRecord, "no records"
	case !ok:
		return nil, wire.ErrCorruptMessage, "the record batch does not have the length it claims"
	case len(rest) > 0:
		return nil, wire.ErrInvalidRecord, "more than one record batch for a partition"
	}
	if code := wire.ValidateProduce(b, version, r.settings.MaxMessageBytes); code != wire.ErrNone {
		return nil, code, ""
	}
	if b.Transactional() {
		return nil, wire.ErrInvalidTxnState, "transactions are not supported yet"
	}
	payload := b.Payload()
	if b.Codec() != 0 {
		most := r.settings.MaxMessageBytes
		limit := min(max(inflateMax, 2*most), max(inflateSmall, most*inflateRatio))
		x := inflation{e: c.eng, gate: &c.eng.inflateHot, small: c.inflateRoom()}
		defer x.done()
		plain, err := x.inflate(int8(b.Codec()), payload, limit)
		if err != nil {
			return nil, wire.ErrCorruptMessage, "the compressed records do not inflate: " + err.Error()
		}
		payload = plain
	}
	if !wire.CheckRecords(payload, b.RecordCount()) {
		return nil, wire.ErrInvalidRecord, "the records do not match their count or lengths"
	}
	if r.settings.Compact && !wire.KeysPresent(payload) {
		return nil, wire.ErrInvalidRecord, "a compacted topic takes no record without a key"
	}
	if s, ts := &r.settings, b.MaxTimestamp(); !s.LogAppendTime && ts >= 0 && (ts-c.wall > s.TimestampAfter || c.wall-ts > s.TimestampBefore) {
		return nil, wire.ErrInvalidTimestamp, "the timestamp is outside message.timestamp.before/after.max.ms"
	}
	return b, wire.ErrNone, ""
}
