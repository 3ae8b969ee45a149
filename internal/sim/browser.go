package sim

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"lockstep/internal/compress"
	"lockstep/internal/wire"
)

// browser fetches in every shape there is: several partitions and some that do not
// exist, other epochs, offsets outside of the log, no room for a byte, sessions
// that are not there.
type browser struct {
	link
	asks []browsed
	err  wire.ErrorCode // of the whole answer, as the session it named deserves
}

// browsed is one partition of a request.
type browsed struct {
	p   *part // nil: there is no such partition
	id  [16]byte
	gen int
	at  int64
}

func (c *browser) owed() int { return len(c.wait) }
func (c *browser) cut(bool)  { c.drop(); c.asks = nil }
func (c *browser) quit()     { c.drop() }

func (c *browser) act() bool {
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
		c.cut(false)
		return true
	}
	if len(c.wait) > 0 || c.w.calm || len(c.out) > 0 || c.w.rnd.IntN(3) > 0 {
		return moved
	}
	c.ask()
	return true
}

func (c *browser) ask() {
	w := c.w
	version := []int16{4, 5, 7, 9, 11, 12, 13, 15, 17, 18}[w.rnd.IntN(10)]
	params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: int32(w.rnd.IntN(100)), MinBytes: int32(w.rnd.IntN(2000)),
		MaxBytes: []int32{0, 1, 500, 1 << 20}[w.rnd.IntN(4)], Isolation: int8(w.rnd.IntN(2)), SessionEpoch: int32(w.rnd.IntN(2)) - 1}
	c.err = wire.ErrNone
	if version >= 7 && w.rnd.IntN(10) == 0 {
		params.SessionID, params.SessionEpoch, c.err = int32(w.rnd.IntN(2)), 3, wire.ErrFetchSessionIdNotFound
	}
	c.asks = nil
	var targets []wire.FetchTarget
	for topic := range topics {
		parts := slices.Clone(w.of(topic))
		w.rnd.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		for _, p := range parts[:w.rnd.IntN(len(parts)+1)] {
			q, t := c.one(p)
			c.asks, targets = append(c.asks, q), append(targets, t)
		}
		if w.rnd.IntN(4) == 0 {
			p := w.of(topic)[0]
			c.asks = append(c.asks, browsed{id: p.id})
			targets = append(targets, wire.FetchTarget{Topic: p.topic, TopicID: p.id, Partition: 77, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: -1})
		}
	}
	c.send(wire.KeyFetch, version, true, func(b []byte) []byte { return wire.AppendFetchRequest(b, version, &params, targets, nil) })
}

// one asks for a partition, as often as not for something that it has not.
func (c *browser) one(p *part) (browsed, wire.FetchTarget) {
	w := c.w
	st, _ := w.src.eng.Status(p.id, p.index)
	q := browsed{p: p, id: p.id, gen: w.generation(p), at: st.Start}
	if st.High > st.Start {
		q.at += w.rnd.Int64N(st.High - st.Start + 1)
	}
	t := wire.FetchTarget{Topic: p.topic, TopicID: p.id, Partition: p.index, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1,
		MaxBytes: []int32{0, 1, 300, 60_000}[w.rnd.IntN(4)], HighWatermark: -1}
	switch w.rnd.IntN(8) {
	case 0:
		q.at = st.End + 1 + w.rnd.Int64N(9)
	case 1:
		q.at = st.Start - 1
	case 2:
		t.CurrentLeaderEpoch = st.LeaderEpoch + int32(w.rnd.IntN(3)) - 1
	case 3:
		t.LastFetchedEpoch = int32(w.rnd.IntN(int(max(st.LatestEpoch, 0)) + 2))
	}
	t.FetchOffset = q.at
	return q, t
}

func (c *browser) answered(a asked, body []byte) {
	w := c.w
	var res wire.FetchResponse
	err := res.Parse(a.version, body)
	w.check(err == nil && res.Err == c.err, "AnswersInOrder", "answer to a fetch: ", err, " ", res.Err.Name(), " where ", c.err.Name(), " is due")
	if c.err != wire.ErrNone {
		return
	}
	w.check(res.NumPartitions == len(c.asks), "AnswersInOrder", "answer of ", res.NumPartitions, " partitions to ", len(c.asks))
	for it, i := res.Partitions(), 0; it.Next(); i++ {
		q := c.asks[i]
		if q.p == nil {
			w.check(it.Err != wire.ErrNone && it.Partition == 77, "AnswersInOrder", "a partition that does not exist: ", it.Err.Name())
			continue
		}
		w.check(it.Partition == q.p.index && (a.version < 13 || it.TopicID() == q.id), "AnswersInOrder", "partition ", it.Partition, " where ", q.p.index, " is due")
		if q.gen != q.p.gen || it.Err != wire.ErrNone || it.DivergingEpoch >= 0 {
			w.check(len(it.Records) == 0 || it.Err == wire.ErrNone && it.DivergingEpoch < 0 || q.gen != q.p.gen, "NoReadAboveWatermark", "records beside ", it.Err.Name())
			continue
		}
		next, _ := w.walk(q.p, it.Records, q.at, cleanedHere, "PrefixEqualBelowWatermark", "a browser")
		if next > q.at {
			w.read(w.src, q.p, next, it.HighWatermark)
		}
	}
}

// garbage is a request of which some bytes are others than they were, or gone. It
// may be a good one still: its record is not one that anybody waits for.
func (w *World) garbage(p *part, corr int32) (frame []byte, key, version int16) {
	key, version = wire.KeyProduce, int16(3+w.rnd.IntN(11))
	if w.rnd.IntN(2) == 0 {
		key, version = wire.KeyFetch, int16(4+w.rnd.IntN(15))
	}
	b := wire.BeginRequest(nil, key, version, corr, "sim")
	head := len(b)
	if key == wire.KeyProduce {
		w.nextID++
		params := wire.ProduceParams{Acks: 1, TimeoutMs: 100, Topic: p.topic, TopicID: p.id, Partition: p.index}
		v := make([]byte, 8+w.rnd.IntN(300))
		binary.BigEndian.PutUint64(v, w.nextID)
		b = wire.AppendProduceRequest(b, version, &params, wire.BuildBatch(nil, wire.PlainParams(w.wall()), wire.Record{Value: v}))
	} else {
		params := wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxBytes: 1 << 20, SessionEpoch: -1}
		b = wire.AppendFetchRequest(b, version, &params, []wire.FetchTarget{{Topic: p.topic, TopicID: p.id, Partition: p.index,
			CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: 1000, HighWatermark: -1}}, nil)
	}
	if w.rnd.IntN(4) == 0 {
		b = b[:head+w.rnd.IntN(len(b)-head)]
	} else {
		for range 1 + w.rnd.IntN(4) {
			b[head+w.rnd.IntN(len(b)-head)] = byte(w.rnd.IntN(256))
		}
	}
	wire.EndRequest(b, 0)
	return b, key, version
}

// pack compresses the records of a batch.
func (w *World) pack(b []byte) []byte {
	codec := int8(1 + w.rnd.IntN(3)) // an old version may not write zstd
	const header = 61
	packed, err := compress.Compress(codec, b[header:])
	w.must(err)
	b = append(b[:header:header], packed...)
	be := binary.BigEndian
	be.PutUint16(b[21:], be.Uint16(b[21:])|uint16(codec))
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// plain is the records of a batch as they were before that.
func (w *World) plain(b wire.Batch) []byte {
	out, err := compress.Decompress(int8(b.Codec()), b.Payload(), 1<<20)
	w.check(err == nil, "PrefixEqualBelowWatermark", "a batch at ", b.BaseOffset(), " does not inflate: ", err)
	return out
}
