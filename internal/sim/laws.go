package sim

import (
	"fmt"
	"runtime/debug"
	"strings"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/status"
)

// model is what must be true.
type model struct {
	parts   []*part
	applied uint64 // Engine.Applied before this event
}

// part is what is known of one partition from outside.
type part struct {
	topic    string
	id       [16]byte
	index    int32
	at       map[int64]uint64     // offset → record, as anybody saw it
	known    map[int64]seenRecord // the same with its key
	gone     map[int64]uint8      // whose cleaner has taken it; a crash may bring it back
	where    map[uint64]int64     // and back
	acked    map[int64]bool       // offsets acknowledged to acks=all
	gated    int64                // the highest watermark the laws have agreed to
	seen                          // at the source
	copy     seen                 // at the second broker
	held     int64                // the longest log there since the source's life began
	flushed  int64                // the broker has said that everything below is durable
	safe     int64                // the source's mark has passed it while the second broker was registered and had all below
	gen      int                  // topics of this name before this one
	created  uint64               // index of the View that has it
	deleted  bool
	mayStart int64 // what operators and retention allow
	appended bool  // flush.ack was appended once
	owes     bool  // ... and something acknowledged then is not flushed yet
	resume   int64 // the mark at a clean stop
	retained bool  // retention was ever configured
}

// seen is where a broker's marks were when they were last looked at.
type seen struct {
	high, end, start int64
	life             int
}

// observe notes that a record lies at an offset, as told by an answer, a read
// or the disk.
//
// PrefixEqualBelowWatermark: all who look at an offset see the same record.
// OnceInTheLog: a record lies at one offset, however often it was sent.
func (w *World) observe(p *part, offset int64, id uint64, by string) {
	if old, known := p.at[offset]; known {
		w.check(old == id, "PrefixEqualBelowWatermark", p.topic, p.index, " offset ", offset, ": record ", old, " before, now ", id, " by ", by)
	}
	if old, known := p.where[id]; known {
		w.check(old == offset, "OnceInTheLog", p.topic, p.index, ": record ", id, " at ", old, " and at ", offset, " by ", by)
	}
	p.at[offset], p.where[id] = id, offset
}

// laws are checked after every event.
func (w *World) laws() {
	n := w.src
	for _, p := range w.model.parts {
		st, ok := n.eng.Status(p.id, p.index)
		if !ok {
			continue
		}
		if p.life != n.life {
			p.life, p.high, p.end, p.start, p.resume = n.life, p.resume, 0, 0, 0
			p.owes = p.appended // the mark of a checkpoint may be of that time
		}
		w.check(st.High >= p.high && st.High <= st.End, "MonotonicWatermark", p.topic, p.index, ": ", p.high, " then ", st.High, ", end ", st.End)
		w.check(st.End >= p.end && st.Durable <= st.End, "MonotonicWatermark", p.topic, p.index, ": end ", p.end, " then ", st.End)
		p.appended = p.appended || !st.DurableAck
		p.owes = p.owes || !st.DurableAck && st.High > st.Durable
		p.owes = p.owes && st.High > st.Durable // until what was acknowledged from the page cache is flushed
		w.check(!st.DurableAck || p.owes || st.High <= max(st.Durable, st.Start), "MonotonicWatermark", p.topic, p.index, ": mark ", st.High, " above what is durable ", st.Durable)
		w.check(st.Start >= p.start && st.Start <= p.mayStart, "LogStartIsAllowed", p.topic, p.index, ": start ", p.start, " then ", st.Start, ", allowed ", p.mayStart)
		p.start = st.Start
		p.high, p.end, p.flushed = st.High, st.End, max(p.flushed, st.Durable)
		if st.High > p.gated {
			w.gate(p, st)
			p.gated = st.High
		}
	}
	w.pairLaws()
	for _, n := range w.nodes {
		for _, k := range n.kernels {
			w.check(k.core.Pool().InUse() <= max(w.cfg.Memory, largestFrame), "LimitsHold", k.core.Pool().InUse(), " bytes of frames")
		}
	}
	w.model.applied = n.eng.Applied()
}

// gate is AckedIsOnEveryRegisteredISR: the mark has risen to high, so every
// mirror whose registration is in force has said, to this leadership and under
// this registration, that its replicas hold everything below. In force is what
// stands in each View from the one that every shard had finished to the newest.
// ReleasedNeverGates is the other half, see settle.
func (w *World) gate(p *part, st status.Partition) {
	n, high := w.src, st.High
	epochs := map[int32]bool{}
	for i := w.model.applied; i <= n.latest.Index(); i++ {
		if t := n.history[i].TopicByID(p.id); t != nil {
			epochs[t.Partitions[p.index].LeaderEpoch] = true
		}
	}
	for _, reg := range w.inForce(p.id, w.model.applied) {
		said := int64(0)
		if reg.Mirror == pairName {
			said = p.held
			p.safe = max(p.safe, min(high, p.copy.end))
		}
		for _, m := range w.mirrors {
			if m.name == reg.Mirror && m.cluster == reg.ClusterID {
				for e := range epochs {
					said = max(said, m.said[claim{p, reg.Epoch, e}])
				}
			}
		}
		w.check(said >= high, "AckedIsOnEveryRegisteredISR", p.topic, p.index, ": mark ", high, ", but mirror ", reg.Mirror, " (epoch ", reg.Epoch, ") has said ", said,
			"; applied ", w.model.applied, " of ", n.latest.Index(), ", the gate has ", st.Mirrors)
	}
}

// inForce lists the registrations of a topic that gate in every View from an
// index on.
func (w *World) inForce(topic meta.UUID, from uint64) (out []meta.Registration) {
	n := w.src
	t := n.latest.TopicByID(topic)
	if t == nil {
		return nil
	}
	for _, reg := range t.Registrations {
		if reg.Gates() && !w.missing(topic, reg, from) {
			out = append(out, reg)
		}
	}
	return out
}

func (w *World) missing(topic meta.UUID, reg mirror.Registration, from uint64) bool {
	for i := from; i <= w.src.latest.Index(); i++ {
		found := false
		if t := w.src.history[i].TopicByID(topic); t != nil {
			for _, r := range t.Registrations {
				found = found || r.Gates() && r.Mirror == reg.Mirror && r.Epoch == reg.Epoch
			}
		}
		if !found {
			return true
		}
	}
	return false
}

// everGated tells whether a mirror gated a topic in any View from an index on.
func (w *World) everGated(topic meta.UUID, name string, from uint64) bool {
	for i := from; i <= w.src.latest.Index(); i++ {
		if t := w.src.history[i].TopicByID(topic); t != nil {
			for _, r := range t.Registrations {
				if r.Gates() && r.Mirror == name {
					return true
				}
			}
		}
	}
	return false
}

// acked is told of each record that acks=all has acknowledged.
func (w *World) acked(p *part, offset int64) {
	st, _ := w.src.eng.Status(p.id, p.index)
	w.check(st.High > offset, "AckedIsOnEveryRegisteredISR", p.topic, p.index, ": ", offset, " acknowledged with the mark at ", st.High)
	p.acked[offset] = true
}

// read is told of each range that a reader without a right to more has read.
// NoReadAboveWatermark.
func (w *World) read(n *node, p *part, next, told int64) {
	st, _ := n.eng.Status(p.id, p.index)
	w.check(told <= st.High, "NoReadAboveWatermark", p.topic, p.index, ": told ", told, ", the mark is ", st.High)
	w.check(next <= told, "NoReadAboveWatermark", p.topic, p.index, ": read up to ", next, " with the mark at ", told)
}

// caughtUp is ReleasedNeverGates: with all mirrors released the mark reaches
// the log end.
func (w *World) caughtUp() bool {
	for _, p := range w.model.parts {
		if st, ok := w.src.eng.Status(p.id, p.index); !ok || st.High != st.End || !w.mirrored(p, st.End) {
			return false
		}
	}
	return true
}

// where tells where every partition's marks stand.
func (w *World) where() (s string) {
	for _, p := range w.model.parts {
		st, ok := w.src.eng.Status(p.id, p.index)
		s += fmt.Sprintf(" %s-%d %v start %d high %d end %d durable %d %s leader %v;", p.topic, p.index, ok, st.Start, st.High, st.End, st.Durable, st.Frozen, st.Leader)
		if w.dst != nil {
			c, _ := w.dst.eng.Status(p.id, p.index)
			s += fmt.Sprintf(" copy start %d high %d end %d durable %d %+v;", c.Start, c.High, c.End, c.Durable, c.Mirror)
		}
	}
	return s
}

// debtors tells who waits for an answer.
func (w *World) debtors() (s string) {
	for _, c := range w.clients {
		if c.owed() > 0 {
			s += fmt.Sprintf(" %T", c)
			if x, ok := c.(interface{ node() *node }); ok {
				s += " of " + x.node().name
			}
			s += fmt.Sprintf(" waits for %d;", c.owed())
		}
	}
	return s
}

// nothingLeaks: with all connections gone nothing is held for them.
func (w *World) nothingLeaks() {
	for i, k := range w.src.kernels {
		w.check(k.core.Pool().InUse() == 0, "NothingLeaks", "shard ", i, " holds ", k.core.Pool().InUse(), " bytes of frames")
		w.check(k.core.AnswerBytes() == 0, "NothingLeaks", "shard ", i, " holds ", k.core.AnswerBytes(), " bytes of answers")
		w.check(len(k.ops) <= 1, "NothingLeaks", "shard ", i, " has ", len(k.ops), " operations in flight")
	}
	w.check(w.src.eng.Metrics().Connections == 0, "NothingLeaks", w.src.eng.Metrics().Connections, " connections")
}

// stack is where a law was found broken, without the machinery.
func stack() string {
	lines := strings.Split(string(debug.Stack()), "\n")
	var out []string
	for _, l := range lines {
		if i := strings.Index(l, "lockstep/"); strings.HasPrefix(l, "\t") && i >= 0 || strings.HasPrefix(l, "\t") && strings.Contains(l, "/dataplane/") {
			out = append(out, strings.TrimSpace(l[strings.LastIndex(l, "/")+1:]))
		}
	}
	return strings.Join(out[:min(len(out), 14)], " < ")
}
