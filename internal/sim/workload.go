package sim

import (
	"slices"

	"lockstep/internal/wire"
)

// batch is what a producer sends until it is answered well.
type batch struct {
	ids     []uint64
	seq     int32
	bytes   []byte
	retry   bool // sent before: new ones wait, or it could leave the broker's window
	offline bool // the directory was known dead when it was sent
	gen     int  // of the topic, as it was known when this was sent
}

// producer writes to one partition. With a producer id it resends until it
// succeeds; without, it sends each record once.
type producer struct {
	link
	p       *part
	acks    int16
	version int16
	pid     int64 // -1 plain
	seq     int32
	max     int // in flight
	flight  []*batch
	again   []*batch
	failed  bool // a batch of this round has failed: wait for the rest of it
	first   bool // the next answer is to the first batch of a round
	// known: the broker has our sequence. One that does not takes any first
	// sequence, as Kafka does, so until then one batch at a time.
	known bool
	gen   int
	stale bool // heard that the topic is gone
}

func (c *producer) owed() int { return len(c.flight) + len(c.again) }

func (c *producer) cut(lost bool) {
	c.drop()
	c.retreat()
	if lost && c.pid >= 0 {
		// Records are gone, and with them the sequence: begin as a new producer.
		c.again = nil
		c.pid, c.seq = c.w.nextPID, 0
		c.w.nextPID++
	}
}

func (c *producer) quit() { c.drop() }

// retreat gives up a connection's batches, or keeps them for the next.
func (c *producer) retreat() {
	if c.pid >= 0 {
		c.again = append(c.again, c.flight...)
		slices.SortFunc(c.again, func(a, b *batch) int { return int(a.seq - b.seq) })
	}
	c.flight, c.failed, c.first, c.known = nil, false, true, false
}

func (c *producer) act() bool {
	if !c.up() {
		if c.w.calm && len(c.again) == 0 {
			return false
		}
		c.open()
		c.first = true
		return true
	}
	moved := c.pump()
	if a, body, ok := c.next(); ok {
		c.answered(a, body)
		return true
	}
	if c.dead() {
		c.drop()
		c.retreat()
		return true
	}
	if c.gen != c.p.gen { // another topic of the same name: begin as a new producer
		if c.stale || c.w.calm || c.w.rnd.IntN(20) == 0 {
			c.gen, c.stale, c.again = c.p.gen, false, nil
			c.cut(true)
			c.again = nil
			return true
		}
		return moved
	}
	if c.failed && len(c.flight) == 0 {
		c.retreat()
	}
	if c.failed || len(c.flight) >= c.max || c.pid >= 0 && !c.known && len(c.flight) > 0 || len(c.out) > 0 {
		return moved
	}
	if len(c.again) > 0 {
		b := c.again[0]
		c.again = c.again[1:]
		b.retry = true
		c.produce(b)
		return true
	}
	if c.w.calm || slices.ContainsFunc(c.flight, func(b *batch) bool { return b.retry }) || c.w.rnd.IntN(3) == 0 {
		return moved
	}
	c.produce(c.batch())
	return true
}

// batch makes new records.
func (c *producer) batch() *batch {
	w := c.w
	b := &batch{seq: c.seq}
	var recs []wire.Record
	for range 1 + w.rnd.IntN(3) {
		w.nextID++
		size := 8 + w.rnd.IntN(200)
		if w.rnd.IntN(20) == 0 {
			size = 8 + w.rnd.IntN(messageBytes/4)
		}
		b.ids = append(b.ids, w.nextID)
		recs = append(recs, w.record(c.p, w.nextID, size))
	}
	params := wire.PlainParams(w.wall())
	if c.pid >= 0 {
		params.ProducerID, params.ProducerEpoch, params.BaseSequence = c.pid, 0, c.seq
		c.seq += int32(len(recs))
	}
	b.bytes = wire.BuildBatch(nil, params, recs...)
	if w.rnd.IntN(8) == 0 {
		b.bytes = w.pack(b.bytes)
	}
	return b
}

func (c *producer) produce(b *batch) {
	st, _ := c.w.src.eng.Status(c.p.id, c.p.index)
	b.offline, b.gen = st.Offline, c.w.generation(c.p)
	c.w.note("%s-%d acks=%d pid=%d seq=%d sent, again %v", c.p.topic, c.p.index, c.acks, c.pid, b.seq, b.retry)
	params := wire.ProduceParams{Acks: c.acks, TimeoutMs: []int32{100, produceWaitMS, 20 * produceWaitMS}[c.w.rnd.IntN(3)], Topic: c.p.topic, TopicID: c.p.id, Partition: c.p.index}
	c.send(wire.KeyProduce, c.version, c.acks != 0, func(o []byte) []byte {
		return wire.AppendProduceRequest(o, c.version, &params, b.bytes)
	})
	if c.acks != 0 {
		c.flight = append(c.flight, b)
	}
}

func (c *producer) answered(a asked, body []byte) {
	w := c.w
	b := c.flight[0]
	c.flight = c.flight[1:]
	var res wire.ProduceResponse
	err := res.Parse(a.version, body)
	it := res.Iter()
	w.check(err == nil && it.Next() && it.Partition == c.p.index, "AnswersInOrder", "produce answer: ", err)
	first := c.first
	c.first = false
	w.note("%s-%d acks=%d pid=%d seq=%d: %s base %d", c.p.topic, c.p.index, c.acks, c.pid, b.seq, it.Err.Name(), it.BaseOffset)
	if b.gen != c.p.gen || c.gen != c.p.gen { // which topic this is about nobody can tell
		c.failed, c.stale = true, true
		if c.pid >= 0 {
			c.again = append(c.again, b)
		}
		return
	}
	switch {
	case it.Err == wire.ErrNone:
		c.known = true
		w.check(!b.offline, "FailedDirIsDead", c.p.topic, c.p.index, ": produce answered well")
		for i, id := range b.ids {
			w.observe(c.p, it.BaseOffset+int64(i), id, "an acknowledgement")
			if c.acks == -1 {
				w.acked(c.p, it.BaseOffset+int64(i))
			}
		}
	case c.pid < 0:
	case it.Err == wire.ErrOutOfOrderSequenceNumber && first && !c.failed:
		w.check(false, "OnceInTheLog", c.p.topic, c.p.index, ": producer ", c.pid, " is refused its next sequence ", b.seq)
	default:
		c.failed = true
		c.again = append(c.again, b)
	}
}

// consumer reads one partition from its beginning to the mark.
type consumer struct {
	link
	p       *part
	version int16
	at      int64
	offline bool
	patient bool // waits as long as it takes for one byte
	gen     int  // of the topic, as it was known when it asked
	id      [16]byte
	reads   int // the topic whose offset at is
}

// owed: a patient one is owed an answer as soon as there is something to read.
func (c *consumer) owed() int {
	if st, _ := c.node().eng.Status(c.p.id, c.p.index); c.patient && st.High <= c.at {
		return 0
	}
	return len(c.wait)
}

func (c *consumer) cut(lost bool) {
	c.drop()
	if lost {
		c.at = 0
	}
}
func (c *consumer) quit() { c.drop() }

func (c *consumer) act() bool {
	if !c.up() {
		if c.w.calm {
			return false
		}
		c.open()
		return true
	}
	moved := c.pump()
	if a, body, ok := c.next(); ok {
		c.answered(a, body)
		return true
	}
	if c.dead() {
		c.drop()
		return true
	}
	if len(c.wait) > 0 || c.w.calm || len(c.out) > 0 {
		return moved
	}
	st, _ := c.node().eng.Status(c.p.id, c.p.index)
	c.offline, c.gen, c.id = st.Offline, c.w.generation(c.p), c.p.id
	if c.reads != c.p.gen {
		c.reads, c.at = c.p.gen, 0
	}
	params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: int32(c.w.rnd.IntN(800)), MinBytes: int32(c.w.rnd.IntN(3000)),
		MaxBytes: 1 << 20, SessionEpoch: -1}
	if c.patient = c.w.rnd.IntN(3) == 0; c.patient {
		params.MaxWaitMs, params.MinBytes = 600_000, 1
	}
	t := wire.FetchTarget{Topic: c.p.topic, TopicID: c.p.id, Partition: c.p.index, CurrentLeaderEpoch: -1, FetchOffset: c.at,
		LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: int32(100 + c.w.rnd.IntN(60_000)), HighWatermark: -1}
	c.send(wire.KeyFetch, c.version, true, func(o []byte) []byte {
		return wire.AppendFetchRequest(o, c.version, &params, []wire.FetchTarget{t}, nil)
	})
	return true
}

func (c *consumer) answered(a asked, body []byte) {
	w := c.w
	var res wire.FetchResponse
	err := res.Parse(a.version, body)
	it := res.Partitions()
	w.check(err == nil && it.Next(), "AnswersInOrder", "fetch answer: ", err)
	w.check(it.Partition == c.p.index && (a.version >= 13 && it.TopicID() == c.id || a.version < 13 && string(it.Topic()) == c.p.topic),
		"AnswersInOrder", "the answer to somebody else's fetch: ", string(it.Topic()), it.TopicID(), it.Partition)
	if c.gen != c.p.gen {
		return // which topic this is about nobody can tell
	}
	if st, _ := c.node().eng.Status(c.p.id, c.p.index); it.Err == wire.ErrOffsetOutOfRange && c.at < st.Start {
		c.at = st.Start
		return
	}
	if it.Err != wire.ErrNone {
		// A new leadership may know a lower mark, never a shorter log.
		w.check(it.Err == wire.ErrNotLeaderOrFollower || it.Err == wire.ErrKafkaStorageError ||
			c.n != nil && (it.Err == wire.ErrOffsetOutOfRange || it.Err == wire.ErrUnknownTopicId), "PrefixEqualBelowWatermark",
			c.p.topic, c.p.index, ": read at ", c.at, ": ", it.Err.Name())
		return
	}
	w.check(!c.offline, "FailedDirIsDead", c.p.topic, c.p.index, ": fetch answered well")
	cleaned := cleanedHere
	if c.node() != w.src {
		cleaned |= cleanedThere
	}
	next, _ := w.walk(c.p, it.Records, c.at, cleaned, "PrefixEqualBelowWatermark", "a consumer of "+c.node().name)
	if next > c.at {
		w.read(c.node(), c.p, next, it.HighWatermark)
	}
	c.at = next
}

// talker asks small things of every kind on one connection without waiting, and
// now and then says something that no server can read.
type talker struct {
	link
	p   *part
	bad bool
}

func (c *talker) owed() int { return len(c.wait) }
func (c *talker) cut(bool)  { c.drop(); c.bad = false }
func (c *talker) quit()     { c.drop() }

func (c *talker) act() bool {
	if !c.up() {
		if c.w.calm {
			return false
		}
		c.open()
		c.bad = false
		return true
	}
	moved := c.pump()
	if a, body, ok := c.next(); ok {
		if a.key == wire.KeyMetadata {
			c.w.check(len(body) == 2, "AnswersInOrder", "not the cold answer: ", len(body), " bytes")
		}
		return true
	}
	if c.dead() {
		c.drop()
		return true
	}
	if c.w.calm && c.bad {
		c.drop() // owed nothing after what it said
		return true
	}
	if c.w.calm || c.bad || len(c.wait) > 20 {
		return moved
	}
	c.say()
	return true
}

func (c *talker) say() {
	switch x := c.w.rnd.IntN(100); {
	case x < 30:
		c.send(wire.KeyApiVersions, int16(c.w.rnd.IntN(3)), true, func(b []byte) []byte { return b })
	case x < 60:
		c.send(wire.KeyMetadata, 4, true, func(b []byte) []byte { return wire.AppendInt32(b, -1) })
	case x < 85:
		at := []int64{-1, -2, -3, c.w.wall() - 1000}[c.w.rnd.IntN(4)]
		c.send(wire.KeyListOffsets, 1, true, func(b []byte) []byte {
			b = wire.AppendInt32(b, -1)
			b = wire.AppendInt32(b, 1)
			b = wire.AppendString(b, c.p.topic, false)
			b = wire.AppendInt32(b, 1)
			b = wire.AppendInt32(b, c.p.index)
			return wire.AppendInt64(b, at)
		})
	case x < 96:
		c.bad = true
		frame, key, version := c.w.garbage(c.p, c.corr+1)
		c.corr++
		c.out = append(c.out, frame...)
		c.wait = append(c.wait, asked{c.corr, key, version})
	case x < 98:
		c.bad = true
		c.out = append(c.out, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3)
	default:
		c.bad = true
		c.send(999, 0, true, func(b []byte) []byte { return b })
	}
}
