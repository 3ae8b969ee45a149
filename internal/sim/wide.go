package sim

import (
	"lockstep/internal/wire"
)

// wide is a plain producer that writes to every partition in one request, and
// at times to one that does not exist.
type wide struct {
	link
	acks   int16
	flight []wideRequest
}

// wideRequest is what was sent; ids is by partition of the model, 0 for the one
// that does not exist.
type wideRequest struct {
	parts []*part // nil: no such partition
	gens  []int
	ids   []uint64
}

const wideVersion = 9

func (c *wide) owed() int { return len(c.flight) }
func (c *wide) cut(bool)  { c.drop(); c.flight = nil }
func (c *wide) quit()     { c.cut(false) }

func (c *wide) act() bool {
	if !c.up() {
		if c.w.calm {
			return false
		}
		c.open()
		return true
	}
	moved := c.pump()
	if _, body, ok := c.next(); ok {
		c.answered(body)
		return true
	}
	if c.dead() {
		c.cut(false)
		return true
	}
	if c.w.calm || len(c.flight) > 3 || len(c.out) > 0 || c.w.rnd.IntN(4) > 0 {
		return moved
	}
	c.produce()
	return true
}

func (c *wide) produce() {
	w := c.w
	var q wideRequest
	timeout := []int32{50, produceWaitMS, 20 * produceWaitMS}[w.rnd.IntN(3)]
	c.send(wire.KeyProduce, wideVersion, true, func(b []byte) []byte {
		b = append(b, 0)
		b = wire.AppendInt32(wire.AppendInt16(b, c.acks), timeout)
		b = wire.AppendArrayLen(b, 2, true)
		for t := range 2 {
			parts := w.model.parts[t*partitions : (t+1)*partitions]
			missing := w.rnd.IntN(3) == 0
			b = wire.AppendString(b, parts[0].topic, true)
			n := partitions
			if missing {
				n++
			}
			b = wire.AppendArrayLen(b, n, true)
			for i := range n {
				var p *part
				index := int32(99)
				if i < partitions {
					p, index = parts[i], parts[i].index
				}
				w.nextID++
				q.parts, q.ids = append(q.parts, p), append(q.ids, w.nextID)
				gen := -1
				if p != nil {
					gen = w.generation(p)
				}
				q.gens = append(q.gens, gen)
				b = wire.AppendInt32(b, index)
				b = wire.AppendBytes(b, wire.BuildBatch(nil, wire.PlainParams(w.wall()), w.record(parts[0], w.nextID, 8)), true)
				b = append(b, 0)
			}
			b = append(b, 0)
		}
		return append(b, 0)
	})
	c.flight = append(c.flight, q)
}

func (c *wide) answered(body []byte) {
	w := c.w
	q := c.flight[0]
	c.flight = c.flight[1:]
	var res wire.ProduceResponse
	err := res.Parse(wideVersion, body)
	w.check(err == nil && res.NumPartitions == len(q.parts), "AnswersInOrder", "answer of ", res.NumPartitions, " partitions to ", len(q.parts), ": ", err)
	it := res.Iter()
	for i := 0; it.Next(); i++ {
		p := q.parts[i]
		if p == nil {
			w.check(it.Err == wire.ErrUnknownTopicOrPartition && it.Partition == 99, "AnswersInOrder", "a partition that does not exist: ", it.Err.Name())
			continue
		}
		w.check(it.Partition == p.index && string(it.Topic()) == p.topic, "AnswersInOrder", "partition ", it.Partition, " where ", p.index, " is due")
		if it.Err != wire.ErrNone || q.gens[i] != p.gen {
			continue
		}
		w.observe(p, it.BaseOffset, q.ids[i], "an acknowledgement")
		if c.acks == -1 {
			w.acked(p, it.BaseOffset)
		}
	}
}
