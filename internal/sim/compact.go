package sim

import (
	"encoding/binary"
	"fmt"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/segment"
)

// compacted is the topic whose log is cleaned, in worlds that have one.
const compacted = 1

// Whose cleaner may have taken a record that is not there.
const (
	cleanedHere  uint8 = 1 << iota // the source's
	cleanedThere                   // the second broker's
)

// keyed tells whether the records of a partition have keys.
func (w *World) keyed(p *part) bool { return w.cfg.Compact && p.topic == w.of(compacted)[0].topic }

// record makes a record of a partition. Its id is in the value, and of a tombstone
// in its only header.
func (w *World) record(p *part, id uint64, size int) wire.Record {
	var v [8]byte
	binary.BigEndian.PutUint64(v[:], id)
	r := wire.Record{Value: append(v[:], make([]byte, size-8)...)}
	if w.keyed(p) {
		r.Key = fmt.Appendf(nil, "key-%d", w.rnd.IntN(keys))
		if w.rnd.IntN(6) == 0 {
			const one, name, eight = 1 << 1, 1 << 1, 8 << 1 // zigzag: a header, a byte, eight bytes
			r.Headers, r.Value = append([]byte{one, name, 'i', eight}, v[:]...), nil
		}
	}
	return r
}

// seenRecord is what identifies a record.
type seenRecord struct {
	id   uint64
	key  string
	tomb bool
}

func (w *World) identify(b wire.Batch, r *wire.Record) seenRecord {
	id := r.Value
	if r.Value == nil && len(r.Headers) >= 8 {
		id = r.Headers[len(r.Headers)-8:]
	}
	w.check(len(id) >= 8, "PrefixEqualBelowWatermark", "not a record of ours at ", b.BaseOffset())
	return seenRecord{binary.BigEndian.Uint64(id), string(r.Key), r.Value == nil}
}

// walk observes whole batches that were read from an offset on and returns where
// they end, and the epoch of the last. Batches follow each other without a gap, the
// first may begin below. A record is missing only where a cleaner took it,
// or below what the source may have given up: there it looks for no reason.
func (w *World) walk(p *part, records []byte, from int64, cleaned uint8, law, by string) (next int64, epoch int32) {
	next, epoch = from, -1
	for b, rest, ok := wire.NextBatch(records); ok; b, rest, ok = wire.NextBatch(rest) {
		w.check(b.CheckCRC(), "PrefixEqualBelowWatermark", "a batch at ", b.BaseOffset(), " has a wrong checksum")
		at := b.BaseOffset()
		w.check(at == next || at < next && next == from, law, p.topic, p.index, ": a gap, ", next, " then ", at, " for ", by)
		missing := func(to int64) {
			for ; at < to; at++ {
				w.check(p.gone[at]&cleaned != 0 || at < max(from, p.mayStart), law, p.topic, p.index, ": no record at ", at, " for ", by)
			}
		}
		for it := wire.Records(w.plain(b)); it.Next(); at++ {
			r := it.Record()
			offset := b.BaseOffset() + int64(r.OffsetDelta)
			missing(offset)
			x := w.identify(b, r)
			w.observe(p, offset, x.id, by)
			p.known[offset] = x
		}
		missing(b.NextOffset())
		if b.NextOffset() > next {
			next, epoch = b.NextOffset(), b.PartitionLeaderEpoch()
		}
	}
	return next, epoch
}

// content is a log as the disk has it.
type content struct {
	records    map[int64]seenRecord
	horizons   map[int64]int64 // of tombstones whose batch has one
	start, end int64
}

// scan reads logs of a broker's disk as it is.
func (w *World) scan(n *node, parts []*part) map[*part]content {
	dir, err := segment.OpenDir(n.disk.Died(nil), "/d", segment.DirOptions{ClusterID: n.name, NodeID: 1})
	w.must(err)
	all := map[*part]content{}
	for _, p := range parts {
		c := content{records: map[int64]seenRecord{}, horizons: map[int64]int64{}}
		c.start, c.end = w.batches(dir, p, "NoHoles", func(b wire.Batch, _ int64) {
			for it := wire.Records(w.plain(b)); it.Next(); {
				offset := b.BaseOffset() + int64(it.Record().OffsetDelta)
				c.records[offset] = w.identify(b, it.Record())
				if at, ok := b.DeleteHorizon(); ok {
					c.horizons[offset] = at
				}
			}
		})
		all[p] = c
	}
	w.must(dir.Close())
	return all
}

// batches calls fn for every batch of a log, the first of which may begin below its
// start.
func (w *World) batches(dir *segment.Dir, p *part, law string, fn func(b wire.Batch, start int64)) (start, end int64) {
	l, _, err := dir.OpenLog(segment.LogID{Topic: p.topic, Partition: p.index, TopicID: p.id}, w.src.settings(nil, nil).Segment, w.wall())
	w.check(err == nil, law, p.topic, p.index, ": recovery: ", err)
	defer l.Close()
	for at := l.Start(); at < l.End(); {
		s, err := l.Read(at, 1<<20, l.End(), true)
		w.check(err == nil && len(s.Bytes) > 0, "NoHoles", p.topic, p.index, ": cannot read at ", at, ": ", err)
		for b, rest, ok := wire.NextBatch(s.Bytes); ok; b, rest, ok = wire.NextBatch(rest) {
			fn(b, l.Start())
		}
		at = s.Next
		s.Release()
	}
	return l.Start(), l.End()
}

// clean runs a broker's cleaner, with the disk at hand before and after: what is
// gone must have been superseded. At times the disk fails at some step of it, which
// is where a crash would be.
//
// NothingCleanedAboveTheMark: by a record below the gated mark, which every
// registered destination has. LatestOfEveryKeySurvives: or it was a tombstone whose
// time was over.
func (n *node) clean() {
	w := n.w
	var parts []*part
	marks := map[*part]int64{}
	for _, p := range w.of(compacted) {
		st, ok := n.eng.Status(p.id, p.index)
		if marks[p] = st.High; ok && !p.deleted && !st.Offline && st.End > 0 {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 || n.dir.Failed() != nil {
		return
	}
	before := w.scan(n, parts)
	if w.cfg.Faults && w.rnd.IntN(6) == 0 {
		left := w.rnd.IntN(12)
		n.disk.SetFault(func(string, string) error {
			if left--; left < 0 {
				n.broken, n.gaveUp = true, true
				return errFault
			}
			return nil
		})
	}
	n.eng.Clean()
	if n.dir.Failed() != nil {
		n.broken = true
	}
	n.disk.SetFault(nil)
	after := w.scan(n, parts)
	for _, p := range parts {
		w.cleaned(n, p, marks[p], before[p], after[p])
	}
}

func (w *World) cleaned(n *node, p *part, mark int64, was, is content) {
	bit, went := cleanedHere, 0
	if n != w.src {
		bit = cleanedThere
	}
	w.check(was.start == is.start && was.end == is.end, "NoHoles", p.topic, p.index, ": cleaned, from ", was.start, "-", was.end, " to ", is.start, "-", is.end)
	for offset, r := range was.records {
		if offset < mark { // what lies above may go with a crash, and another record come there
			w.observe(p, offset, r.id, "the disk of "+n.name+", before it was cleaned") // nobody may see it any more
			p.known[offset] = r
		}
		if x, there := is.records[offset]; there {
			w.check(x == r, "PrefixEqualBelowWatermark", p.topic, p.index, " offset ", offset, ": ", r, " before it was cleaned, now ", x)
			continue
		}
		below, above := false, false
		for o, x := range was.records {
			if x.key == r.key && o > offset {
				below, above = below || o < mark, above || o >= mark
			}
		}
		horizon, set := was.horizons[offset]
		over := r.tomb && set && w.wall() > horizon && offset < mark
		w.check(below || over || !above, "NothingCleanedAboveTheMark", p.topic, p.index, " at ", n.name, ": ", r, " at ", offset,
			" went for one at or above the mark ", mark)
		w.check(below || over, "LatestOfEveryKeySurvives", p.topic, p.index, " at ", n.name, ": ", r, " at ", offset, " was the last of its key")
		p.gone[offset] |= bit
		went++
	}
	w.note("%s cleaned %s-%d: %d of %d records went", n.name, p.topic, p.index, went, len(was.records))
}

// latest is LatestOfEveryKeySurvives for a whole log: of every key that anybody has
// seen the last record is there, unless it says that the key is no more.
func (w *World) latest(p *part, there map[int64]bool, start, end int64, by string) {
	last := map[string]int64{}
	for offset, r := range p.known {
		if offset >= max(start, p.mayStart) && offset < end {
			last[r.key] = max(last[r.key], offset)
		}
	}
	for key, offset := range last {
		w.check(there[offset] || p.known[offset].tomb, "LatestOfEveryKeySurvives", p.topic, p.index, ": ", key, " was last written at ", offset,
			", which is not in ", by)
	}
}

// compactTopic makes a topic a compacted one.
func (n *node) compactTopic(name string) {
	policy := "compact"
	res := n.apply(&msg.AlterConfigsCommand{Resources: []msg.AlterConfigsCommandResource{
		{Type: meta.ResourceTopic, Name: name, Ops: []msg.AlterConfigsCommandOp{{Name: "cleanup.policy", Value: &policy}}}}})
	n.w.check(res.Items[0].ErrorCode == 0, "TheWorldWorks", "compact: ", res)
}
