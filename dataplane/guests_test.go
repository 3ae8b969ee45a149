package dataplane

import (
	"testing"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// TestStormKeepsTheLimit: connections that their shard has not heard of yet
// count, and so does each that has gone.
func TestStormKeepsTheLimit(t *testing.T) {
	r := newRig(t, 3, "t")
	r.e.o.MaxConnections = 10
	c := r.core(0)
	closes := func() (n int) {
		for _, op := range c.ops {
			if op.Kind == ioring.Close && op.Token == tokenSpecial {
				n++
			}
		}
		return n
	}
	c.ops = c.ops[:0]
	for i := range 25 { // no turn of the other shards between
		r.ends[int32(100+i)] = &remote{fd: int32(100 + i)}
		r.e.deal(c, int32(100+i), 0)
	}
	want(t, "refused", closes(), 15)
	want(t, "counted as refused", r.e.Metrics().Refused, 15)
	want(t, "connections", r.e.Metrics().Connections, 10)
	for i := range r.wakes {
		r.wakes[i] = true
	}
	c.ops = c.ops[:0]
	for i := range 3 { // each has the same share, give or take one
		if n := r.core(i).load.Load(); n < 3 || n > 4 {
			t.Errorf("shard %d has %d", i, n)
		}
	}
	r.settle()
	for _, x := range r.e.cores {
		for _, cn := range x.conns {
			x.ops = x.ops[:0]
			x.close(cn)
		}
		want(t, "left", x.load.Load(), 0)
	}
	r.e.deal(c, 200, 0)
	want(t, "after they have gone", r.e.Metrics().Connections, 1)
}

// TestSilentConnections: who says nothing is ended, who waits for us is not.
func TestSilentConnections(t *testing.T) {
	r := newRig(t, 1, "t")
	r.e.o.IdleMS = 1000
	silent, talks, parked, half, large, deaf := r.dial(0), r.dial(0), r.dial(0), r.dial(0), r.dial(0), r.dial(0)
	hello := func(x *remote) []byte {
		return x.request(wire.KeyApiVersions, 3, func(b []byte) []byte { return append(b, 1, 1, 0) })
	}
	r.fetch(parked, 12, consume(60_000, 1), nil, target("t", 1, 0))
	r.give(half, hello(half)[:6])
	r.give(large, large.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(1, 100_000)}))[:ioring.ProvidedSize])
	deaf.stuck = true
	r.give(deaf, hello(deaf))
	for range 12 {
		r.pass(90e6)
		r.give(talks, hello(talks))
	}
	for name, x := range map[string]*remote{"silent": silent, "half a frame": half, "half of a large frame": large, "not reading": deaf} {
		if !x.closed {
			t.Errorf("%s: still there", name)
		}
	}
	if talks.closed || parked.closed {
		t.Errorf("ended: one that talks %v, one that waits for records %v", talks.closed, parked.closed)
	}
	want(t, "counted", r.e.Metrics().Idled, 4)
	want(t, "connections", r.core(0).open, 2)
	want(t, "frames held", r.core(0).pool.InUse(), 0)
	r.pass(60e9) // the fetch is answered, and then nobody says anything
	r.pass(2e9)
	want(t, "connections in the end", r.core(0).open, 0)
	if at := r.core(0).Wait(r.now); at > 0 {
		r.pass(at)
	}
	want(t, "a shard without connections sleeps", r.core(0).Wait(r.now), int64(-1))
	r.dial(0)
	r.pass(2e9)
	want(t, "and wakes with the next", r.core(0).open, 0)
}

// TestNobodyIsSilent: without a limit nobody is ended.
func TestNobodyIsSilent(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.pass(int64(1e15))
	if x.closed {
		t.Error("ended")
	}
}

// TestManySilentConnections: more than are looked at in a turn.
func TestManySilentConnections(t *testing.T) {
	r := newRig(t, 1, "t")
	r.e.o.IdleMS = 1000
	for range 2*idleBatch + 5 {
		r.core(0).load.Add(1)
		fd := int32(100 + len(r.ends))
		r.ends[fd] = &remote{fd: fd}
		r.core(0).inbox.put(note{kind: noteConn, fd: fd})
	}
	r.settle()
	r.wakes[0] = true
	r.settle()
	want(t, "connections", r.core(0).open, 2*idleBatch+5)
	for range 40 {
		r.pass(50e6)
	}
	want(t, "connections", r.core(0).open, 0)
}
