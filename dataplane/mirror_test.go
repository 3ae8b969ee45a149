package dataplane

import (
	"testing"

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
