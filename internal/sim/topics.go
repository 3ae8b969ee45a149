package sim

import (
	"strconv"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// of is the partitions of a topic.
func (w *World) of(topic int) []*part {
	return w.model.parts[topic*partitions : (topic+1)*partitions]
}

// createTopic makes a topic, for the first time or once more: under an old name
// it is another topic, of which nothing is known.
func (w *World) createTopic(topic int) {
	w.topicsMade++
	id := [16]byte{0xaa, byte(topic + 1), byte(w.topicsMade)}
	t := msg.CreateTopicsCommandNewTopic{Name: w.of(topic)[0].topic, TopicId: id}
	for range partitions {
		t.Assignments = append(t.Assignments, msg.CreateTopicsCommandAssignment{Replicas: []int32{1}})
	}
	res := w.src.apply(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{t}})
	w.check(res.ErrorCode == 0 && res.Items[0].ErrorCode == 0, "TheWorldWorks", "create: ", res)
	if w.cfg.Compact && topic == compacted {
		w.src.compactTopic(t.Name)
	}
	for _, p := range w.of(topic) {
		*p = part{topic: p.topic, index: p.index, gen: p.gen, id: id, created: w.src.latest.Index(),
			at: map[int64]uint64{}, known: map[int64]seenRecord{}, gone: map[int64]uint8{}, where: map[uint64]int64{}, acked: map[int64]bool{}}
	}
}

func (w *World) deleteTopic(topic int) {
	res := w.src.apply(&msg.DeleteTopicsCommand{Topics: []msg.DeleteTopicsCommandTopic{{Name: w.of(topic)[0].topic}}})
	w.check(res.Items[0].ErrorCode == 0, "TheWorldWorks", "delete: ", res)
	for _, p := range w.of(topic) {
		p.gen++
		p.deleted = true
	}
	for _, m := range w.mirrors {
		m.deleted(topic)
	}
}

// administrate changes what there is, or how it is kept.
func (w *World) administrate() {
	topic := w.rnd.IntN(topics)
	p := w.of(topic)[w.rnd.IntN(partitions)]
	x := w.rnd.IntN(100)
	switch {
	case p.deleted:
		w.createTopic(topic)
	case x < 15 && !w.cfg.Pair:
		w.deleteTopic(topic)
	case x < 60:
		w.configure(topic)
	case x < 85:
		w.deleteRecords(p)
	default:
		w.look(p)
	}
}

// configure sets one config of a topic, or takes it away.
func (w *World) configure(topic int) {
	type kept struct {
		name   string
		values []string
	}
	all := []kept{
		{"min.insync.replicas", []string{"1", "1", "2"}},
		{"retention.bytes", []string{"-1", "0", "9000"}},
		{"retention.ms", []string{"-1", "0", "2000"}},
		{"segment.ms", []string{"0", "50", "500"}},
		{"message.timestamp.type", []string{"CreateTime", "LogAppendTime"}},
		{"flush.ack", []string{"appended", "durable"}},
	}
	if w.cfg.Pair {
		all = all[:len(all)-1] // two clusters that keep another promise each may rightly differ
	}
	if w.cfg.Compact && topic == compacted {
		all = append(all, kept{"cleanup.policy", []string{"compact", "compact,delete"}}, kept{"delete.retention.ms", []string{"0", "1000"}})
	}
	c := all[w.rnd.IntN(len(all))]
	w.set(topic, c.name, c.values[w.rnd.IntN(len(c.values))])
}

func (w *World) set(topic int, name, value string) {
	t := w.of(topic)[0].topic
	w.note("%s: %s=%s", t, name, value)
	res := w.src.apply(&msg.AlterConfigsCommand{Resources: []msg.AlterConfigsCommandResource{
		{Type: meta.ResourceTopic, Name: t, Ops: []msg.AlterConfigsCommandOp{{Name: name, Value: &value}}}}})
	w.check(res.Items[0].ErrorCode == 0, "TheWorldWorks", name, ": ", res)
	for _, p := range w.of(topic) {
		p.retained = p.retained || name == "retention.bytes" || name == "retention.ms"
	}
}

// mayDrop: retention is about to look, and may take what lies below the marks.
func (w *World) mayDrop() {
	for _, p := range w.model.parts {
		if st, ok := w.src.eng.Status(p.id, p.index); ok && p.retained {
			p.mayStart = max(p.mayStart, st.High)
		}
	}
}

// deleteRecords raises a log start, at both clusters: the copy's refuses.
func (w *World) deleteRecords(p *part) {
	st, ok := w.src.eng.Status(p.id, p.index)
	if !ok || w.src.eng.Applied() < p.created {
		return
	}
	before := []int64{-1, w.rnd.Int64N(st.High + 1), st.High + 1 + w.rnd.Int64N(9)}[w.rnd.IntN(3)]
	w.note("records of %s-%d below %d are deleted", p.topic, p.index, before)
	start, code := w.src.eng.DeleteRecords(p.topic, p.index, before)
	switch {
	case before > st.High:
		w.check(code == wire.ErrOffsetOutOfRange || !st.Leader, "LogStartIsAllowed", "delete below ", before, ", the mark is ", st.High, ": ", code.Name())
	case code == wire.ErrNone:
		if before < 0 {
			before = st.High
		}
		p.mayStart = max(p.mayStart, before)
		w.check(start == max(st.Start, before), "LogStartIsAllowed", p.topic, p.index, ": ", start, " after a delete below ", before)
	default:
		w.check(!st.Leader || st.Offline, "LogStartIsAllowed", "delete below ", before, ": ", code.Name())
	}
	if w.dst != nil {
		_, code := w.dst.eng.DeleteRecords(p.topic, p.index, -1)
		w.check(code != wire.ErrNone, "MirrorIsPrefixOfSource", "records of the copy of ", p.topic, p.index, " were deleted")
	}
}

// look asks what a controller asks.
func (w *World) look(p *part) {
	e := w.src.eng
	w.check(len(e.OpenTransactions(p.id, p.index)) == 0, "OnceInTheLog", p.topic, p.index, " has transactions")
	for _, st := range e.Statuses() {
		w.check(st.Start <= st.High && st.High <= st.End && st.Durable <= st.End, "MonotonicWatermark", st)
	}
	st, ok := e.Status(p.id, p.index)
	if !ok || e.Applied() < p.created {
		return
	}
	_, end, code := e.EpochEnd(p.topic, p.index, -1, int32(w.rnd.IntN(int(st.LeaderEpoch)+2)))
	w.check(code != wire.ErrNone || end <= st.End, "PrefixEqualBelowWatermark", p.topic, p.index, ": an epoch ends at ", end, ", the log at ", st.End, " ", strconv.Itoa(int(st.LeaderEpoch)))
}

// tidy ends what operators have begun.
func (w *World) tidy() {
	for topic := range topics {
		if w.of(topic)[0].deleted {
			w.createTopic(topic)
		}
		w.set(topic, "min.insync.replicas", "1")
	}
}

// generation is what a request that is sent now is about: -1 when names may
// still mean the topic before.
func (w *World) generation(p *part) int {
	if p.deleted || w.src.eng.Applied() < p.created {
		return -1
	}
	return p.gen
}
