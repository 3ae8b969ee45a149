package sim

import (
	"lockstep/internal/wire"
)

// claim names what a report can stand for.
type claim struct {
	p            *part
	registration int64
	epoch        int32 // of the source's leader, as the destination has aligned with it
}

// copyOf is a partition at the destination: two replicas and its leadership.
type copyOf struct {
	p         *part
	leo       [2]int64
	joined    bool // the second replica is in the ISR
	elected   int64
	promised  int64 // highest min-ISR LEO it has put in a report
	epoch     int32
	sequence  int64
	acked     int64 // highest sequence that was answered well, of reports under heard
	heard     claim
	begun     int64 // first sequence under heard
	aligned   int32 // source epoch of the last accepted fetch, -1 none
	source    int32 // source epoch it believes in
	lastEpoch int32 // of its last batch
	minISR    int32
}

// mirrorModel plays a destination cluster: a data lane, a report lane, and now
// and then reports that must not count.
type mirrorModel struct {
	w       *World
	name    string
	cluster string
	data    link
	report  link
	parts   []*copyOf
	said    map[claim]int64
	sent    []sentTarget // of the data lane's fetch
	applied uint64       // when it was sent
}

type sentTarget struct {
	c     *copyOf
	at    int64
	epoch int32
	id    [16]byte
}

// deleted: of what the destination has of a topic nothing is left.
func (m *mirrorModel) deleted(topic int) {
	for _, c := range m.parts[topic*partitions : (topic+1)*partitions] {
		*c = copyOf{p: c.p, joined: true, aligned: -1, lastEpoch: -1, minISR: c.minISR}
	}
}

func (m *mirrorModel) owed() int { return len(m.data.wait) + len(m.report.wait) }
func (m *mirrorModel) quit()     { m.data.drop(); m.report.drop() }

func (m *mirrorModel) cut(bool) {
	m.quit()
	m.sent = nil
	for _, c := range m.parts {
		c.aligned = -1
	}
}

func (m *mirrorModel) act() bool {
	if !m.w.calm && m.w.rnd.IntN(4) == 0 {
		m.evolve(m.parts[m.w.rnd.IntN(len(m.parts))])
	}
	if m.w.rnd.IntN(2) == 0 {
		return m.lane(&m.data, m.tookData, m.fetch) || m.lane(&m.report, m.tookReports, m.tell)
	}
	return m.lane(&m.report, m.tookReports, m.tell) || m.lane(&m.data, m.tookData, m.fetch)
}

func (m *mirrorModel) lane(l *link, took func(asked, []byte), ask func()) bool {
	if !l.up() {
		if m.w.calm {
			return false
		}
		l.open()
		return true
	}
	moved := l.pump()
	if a, body, ok := l.next(); ok {
		took(a, body)
		return true
	}
	if l.dead() {
		l.drop()
		return true
	}
	if m.w.calm || len(l.out) > 0 || l == &m.data && len(l.wait) > 0 || len(l.wait) > 8 {
		return moved
	}
	ask()
	return true
}

// evolve lets something happen inside the destination.
func (m *mirrorModel) evolve(c *copyOf) {
	switch x := m.w.rnd.IntN(100); {
	case x < 60: // the follower fetches
		if c.leo[1] < c.leo[0] {
			c.leo[1] += 1 + m.w.rnd.Int64N(c.leo[0]-c.leo[1])
		}
	case x < 75:
		c.joined = false
	case x < 95: // R1: the floor
		c.joined = c.joined || c.leo[1] >= max(c.promised, c.elected)
	case x < 98 && c.joined: // the follower takes over
		c.leo[0], c.leo[1] = c.leo[1], min(c.leo[0], c.leo[1])
		c.epoch++
		c.sequence, c.acked, c.aligned, c.elected = 0, 0, -1, c.leo[0]
	}
}

func (c *copyOf) low() int64 {
	if c.joined {
		return min(c.leo[0], c.leo[1])
	}
	return c.leo[0]
}

// registration is the epoch under which this mirror is registered, as the
// newest View has it.
func (m *mirrorModel) registration(p *part) int64 {
	if t := m.w.src.latest.TopicByID(p.id); t != nil {
		for _, r := range t.Registrations {
			if r.Gates() && r.Mirror == m.name && r.ClusterID == m.cluster {
				return r.Epoch
			}
		}
	}
	return 0
}

// honest makes a report of what the destination holds.
func (m *mirrorModel) honest(c *copyOf) (wire.Report, bool) {
	reg := m.registration(c.p)
	if c.aligned < 0 || reg == 0 {
		return wire.Report{}, false
	}
	c.sequence++
	r := wire.Report{Topic: c.p.topic, TopicID: c.p.id, Partition: c.p.index, MinISR: c.minISR, Fenced: true, RegistrationEpoch: reg,
		Replicas: []wire.ReplicaOffset{{ID: 7, Offset: c.leo[0]}, {ID: 8, Offset: c.leo[1]}}, ISR: []int32{7},
		LeaderEpoch: c.epoch, Sequence: c.sequence, SourceLeaderEpoch: c.aligned, PartitionCount: partitions}
	if c.joined {
		r.ISR = append(r.ISR, 8)
	}
	c.promised = max(c.promised, c.low())
	k := claim{c.p, reg, c.aligned}
	if c.heard != k { // to a new registration or leadership all is new
		c.heard, c.acked, c.begun = k, 0, c.sequence
	}
	m.said[k] = max(m.said[k], c.low())
	return r, true
}

func (m *mirrorModel) params() wire.FetchParams {
	return wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, SessionEpoch: -1, MirrorName: m.name, ClusterID: m.cluster}
}

// fetch asks for everything on the data lane, with reports.
func (m *mirrorModel) fetch() {
	params := m.params()
	params.MaxWaitMs, params.MinBytes, params.MaxBytes = 500, 1, 1<<20
	m.sent, m.applied = m.sent[:0], m.w.src.eng.Applied()
	var targets []wire.FetchTarget
	var reports []wire.Report
	for _, c := range m.parts {
		last := c.lastEpoch
		if c.leo[0] == 0 {
			last = -1
		}
		m.sent = append(m.sent, sentTarget{c, c.leo[0], c.source, c.p.id})
		targets = append(targets, wire.FetchTarget{TopicID: c.p.id, Partition: c.p.index, CurrentLeaderEpoch: c.source, FetchOffset: c.leo[0],
			LastFetchedEpoch: last, LogStartOffset: -1, MaxBytes: 1 << 20, HighWatermark: -1})
		if r, ok := m.honest(c); ok {
			reports = append(reports, r)
		}
	}
	m.data.send(wire.KeyFetch, 20, true, func(b []byte) []byte { return wire.AppendFetchRequest(b, 20, &params, targets, reports) })
}

func (m *mirrorModel) tookData(a asked, body []byte) {
	w := m.w
	var res wire.FetchResponse
	err := res.Parse(a.version, body)
	w.check(err == nil, "AnswersInOrder", "mirror fetch: ", err)
	m.answers(&res)
	for it, i := res.Partitions(), 0; it.Next(); i++ {
		s := m.sent[i]
		c := s.c
		w.check(it.TopicID() == s.id && it.Partition == c.p.index, "AnswersInOrder", "partitions of a fetch")
		if c.leo[0] != s.at || s.id != c.p.id || c.p.deleted {
			continue // another leader, or topic, since
		}
		switch {
		case it.Err == wire.ErrFencedLeaderEpoch, it.Err == wire.ErrUnknownLeaderEpoch, it.Err == wire.ErrNotLeaderOrFollower:
			c.aligned = -1
			c.source = w.src.latest.TopicByID(c.p.id).Partitions[c.p.index].LeaderEpoch
		case it.Err == wire.ErrOffsetOutOfRange: // the source lost what was not durable
			if st, _ := w.src.eng.Status(c.p.id, c.p.index); c.leo[0] < st.Start { // or gave it up
				m.truncate(c, st.Start)
				c.leo, c.lastEpoch = [2]int64{st.Start, st.Start}, -1
				break
			}
			m.truncate(c, min(c.leo[0], c.p.end))
		case it.Err != wire.ErrNone:
			c.aligned = -1
		case it.DivergingEpoch >= 0:
			m.truncate(c, min(it.DivergingEnd, c.leo[0]))
			c.lastEpoch = it.DivergingEpoch
		default:
			m.take(c, &it, s.epoch)
		}
	}
}

func (m *mirrorModel) truncate(c *copyOf, to int64) {
	c.leo[0], c.leo[1] = to, min(c.leo[1], to)
	c.promised, c.elected, c.aligned = min(c.promised, to), min(c.elected, to), -1
}

// take appends what was read. Without a registration a mirror reads to the
// mark, like a consumer.
func (m *mirrorModel) take(c *copyOf, it *wire.FetchResponseIter, epoch int32) {
	w := m.w
	next, last := w.walk(c.p, it.Records, c.leo[0], cleanedHere, "PrefixEqualBelowWatermark", "mirror "+m.name)
	if last >= 0 {
		c.lastEpoch = last
	}
	if next > c.leo[0] && !w.everGated(c.p.id, m.name, m.applied) {
		w.read(w.src, c.p, next, it.HighWatermark)
	}
	c.leo[0], c.aligned = next, epoch
}

func (m *mirrorModel) answers(res *wire.FetchResponse) {
	for it := res.Answers(); it.Next(); {
		for _, c := range m.parts {
			if c.p.id == it.TopicID && c.p.index == it.Partition && it.Err == wire.ErrNone && it.Sequence <= c.sequence && it.Sequence >= c.begun {
				c.acked = max(c.acked, it.Sequence)
			}
		}
	}
}

// tell sends reports without a fetch: true ones, or one that must not count.
func (m *mirrorModel) tell() {
	params := m.params()
	var reports []wire.Report
	if m.w.rnd.IntN(3) == 0 {
		r, cluster, ok := m.lie(m.parts[m.w.rnd.IntN(len(m.parts))])
		if !ok {
			return
		}
		params.ClusterID = cluster
		reports = append(reports, r)
	} else {
		for _, c := range m.parts {
			if m.w.rnd.IntN(2) == 0 {
				if r, ok := m.honest(c); ok {
					reports = append(reports, r)
				}
			}
		}
	}
	if len(reports) == 0 {
		return
	}
	m.report.send(wire.KeyFetch, 20, true, func(b []byte) []byte { return wire.AppendFetchRequest(b, 20, &params, nil, reports) })
}

// lie makes a report that claims the whole log and must be refused.
func (m *mirrorModel) lie(c *copyOf) (r wire.Report, cluster string, ok bool) {
	if c.p.deleted {
		return r, "", false
	}
	r = wire.Report{Topic: c.p.topic, TopicID: c.p.id, Partition: c.p.index, MinISR: 1, Fenced: true, RegistrationEpoch: m.registration(c.p),
		Replicas: []wire.ReplicaOffset{{ID: 7, Offset: c.p.end + 100}}, ISR: []int32{7}, LeaderEpoch: c.epoch, Sequence: c.sequence + 1000,
		SourceLeaderEpoch: c.aligned, PartitionCount: partitions}
	cluster = m.cluster
	switch m.w.rnd.IntN(8) {
	case 0:
		cluster = "somebody-else"
	case 1:
		r.RegistrationEpoch--
	case 2:
		r.SourceLeaderEpoch = m.w.src.latest.TopicByID(c.p.id).Partitions[c.p.index].LeaderEpoch + 1000
	case 3:
		r.Sequence = c.acked // heard before
		ok = c.acked > 0 && c.heard == claim{c.p, r.RegistrationEpoch, c.aligned}
		return r, cluster, ok
	case 4:
		r.ISR = nil
	case 5:
		r.ISR = []int32{7, 9}
	case 6:
		r.MinISR = 0
	case 7:
		r.Fenced = false // and no fetch beside it that would pass the checks
	}
	return r, cluster, true
}

func (m *mirrorModel) tookReports(a asked, body []byte) {
	var res wire.FetchResponse
	err := res.Parse(a.version, body)
	m.w.check(err == nil, "AnswersInOrder", "report answer: ", err)
	m.answers(&res)
}
