package dataplane

import (
	"net/netip"
	"testing"
)

// TestDetachForgets: a partition that leaves a lane leaves the source's fetch
// session, too. Kept there, its records or its error would end every wait.
func TestDetachForgets(t *testing.T) {
	r := newRig(t, 1, "t")
	c := r.core(0)
	p, _ := c.topics.named([]byte("t"), 0)
	q, _ := c.topics.named([]byte("t"), 1)
	l := &lane{key: laneKey{mirror: "m", addr: netip.MustParseAddrPort("10.0.0.1:1")}, sessionID: 7, sessionEpoch: 3}
	reports := &lane{users: 2}
	for _, x := range []*Partition{p, q} {
		s := &session{p: x, lane: l, reportLane: reports, told: true}
		s.owner = s
		c.lanes.sessions[x] = s
		l.sessions = append(l.sessions, s)
	}
	c.detach(p)
	want(t, "forgotten", len(l.forgotten), 1)
	want(t, "partition", l.forgotten[0].Partition, 0)
	want(t, "topic", l.forgotten[0].TopicID, topicID("t"))
	want(t, "still on the lane", len(l.sessions), 1)
}
