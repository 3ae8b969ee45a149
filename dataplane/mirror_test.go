package dataplane

import (
	"testing"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// TestLaneFrames: socket.request.max.bytes bounds requests, not the answers of a
// mirror's source.
func TestLaneFrames(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	c := r.core(0)
	c.conns[0].lane = &lane{cn: c.conns[0], state: laneReady}
	r.give(x, []byte{0, 0x20, 0, 0, 0, 0, 0, 0}) // 2 MiB, twice what a request may have here
	if x.closed || len(x.armed) != 1 || x.armed[0].Kind != ioring.RecvInto {
		t.Fatalf("closed %v, armed %v", x.closed, x.armed)
	}
	want(t, "rest", len(x.armed[0].Bytes), 2<<20-4)
}

// Records that waited for room while the source's leader changed are not taken,
// and nothing is reported of them to the new one: its log may have others there.
func TestRestOfAnOlderLeadershipIsDropped(t *testing.T) {
	for _, epoch := range []int32{8, 10} {
		r := newRig(t, 1, "t")
		p, c := r.partition("t"), r.core(0)
		s := &session{p: p, lane: &lane{toldAt: map[*Partition]int{}}, epoch: 8, restEpoch: 8, state: sessionStalled, frame: c.newFrame(nil)}
		b := wire.Batch(records(2, 10))
		b.SetBaseOffset(0)
		b.SetPartitionLeaderEpoch(0)
		s.rest = b
		role := *p.role.Load()
		role.tracking = true
		p.role.Store(&role)
		p.down = &downstream{owner: s, alignedEpoch: -1, sourceHigh: -1, tracked: -1}
		c.lanes.sessions[p] = s
		s.frame.hold()
		for grown := false; !grown; r.settle() { // a first step of the file
			p.lock()
			grown = p.log.Room(len(b), c.wall) != roomGrow
			p.unlock()
			c.touch(p)
			r.step(0)
		}
		s.epoch = epoch
		c.lanes.roomFor(c, p)
		aligned, next := int32(8), int64(2)
		if epoch != 8 {
			aligned, next = -1, 0
		}
		want(t, "aligned with", p.down.alignedEpoch, aligned)
		want(t, "log end", p.log.NextOffset(), next)
		want(t, "named anew", s.lost, epoch != 8)
	}
}
