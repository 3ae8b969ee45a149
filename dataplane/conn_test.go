package dataplane

import (
	"bytes"
	"testing"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// TestSplitEverywhere: requests cut at every byte give the same answers.
func TestSplitEverywhere(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.produce(x, 9, -1, 1000, "t", part{0, records(1, 50)})
	r.produced(x, 9)
	talk := func(x *remote) []byte {
		x.corr = 0
		b := x.request(wire.KeyApiVersions, 3, func(b []byte) []byte { return append(b, 1, 1, 0) })
		p := consume(0, 0)
		b = append(b, x.request(wire.KeyFetch, 12, func(b []byte) []byte {
			return wire.AppendFetchRequest(b, 12, &p, []wire.FetchTarget{target("t", 0, 0)}, nil)
		})...)
		return append(b, x.request(wire.KeyMetadata, 4, func(b []byte) []byte { return b })...)
	}
	whole := r.dial(0)
	b := talk(whole)
	r.give(whole, b)
	if len(whole.sent) < 100 {
		t.Fatal("hardly an answer")
	}
	for cut := 1; cut < len(b); cut++ {
		x := r.dial(0)
		talk(x)
		r.give2(x, b, cut)
		if !bytes.Equal(x.sent, whole.sent) {
			t.Fatalf("cut at %d of %d: %d bytes came back, not %d", cut, len(b), len(x.sent), len(whole.sent))
		}
		r.eof(x)
		if !x.closed {
			t.Fatal("not closed after the end of the stream")
		}
	}
	want(t, "connections", r.core(0).open, 2)
}

// give2 hands bytes over in two pieces; the second may be asked for whole.
func (r *rig) give2(x *remote, b []byte, cut int) {
	r.t.Helper()
	r.give(x, b[:cut])
	if op := x.armed[0]; op.Kind == ioring.RecvInto {
		n := len(op.Bytes)
		r.give(x, b[cut:cut+n])
		cut += n
	}
	r.give(x, b[cut:])
}

// TestLargeFrame: a length in two pieces, then more than a piece.
func TestLargeFrame(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	batch := records(3, 40_000)
	b := x.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, batch}))
	r.give(x, b[:3]) // not even a length
	r.give(x, b[3:ioring.ProvidedSize])
	want(t, "asks for", len(x.armed[0].Bytes), len(b)-ioring.ProvidedSize)
	r.give(x, b[ioring.ProvidedSize:])
	want(t, "base", r.produced(x, 9)[0].base, 0)
}

// TestLargeFramesWhole follows what the kernel does: the rest goes into the
// frame's own buffer.
func TestLargeFramesWhole(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	var sum int64
	for _, size := range []int{1, 16_000, 16_300, 16_384, 40_000, 250_000} {
		b := x.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(3, size)}))
		if len(b) <= ioring.ProvidedSize {
			r.give(x, b)
		} else {
			r.give(x, b[:ioring.ProvidedSize])
			op := x.armed[0]
			want(t, "kind", op.Kind, ioring.RecvInto)
			want(t, "rest", len(op.Bytes), len(b)-ioring.ProvidedSize)
			r.give(x, b[ioring.ProvidedSize:])
		}
		want(t, "base", r.produced(x, 9)[0].base, sum)
		sum += 3
	}
	want(t, "frames held", r.core(0).pool.InUse(), 0)
}

// TestImpossibleFrames close the connection and nothing else.
func TestImpossibleFrames(t *testing.T) {
	r := newRig(t, 1, "t")
	for name, b := range map[string][]byte{
		"too large":   {0x7f, 0xff, 0xff, 0xff},
		"over max":    {0, 0x10, 0, 1},
		"negative":    {0xff, 0xff, 0xff, 0xff},
		"too short":   {0, 0, 0, 7},
		"http":        []byte("GET / HTTP/1.1\r\n"),
		"unknown key": {0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"version":     {0, 0, 0, 10, 0, 0, 0, 99, 0, 0, 0, 1, 0xff, 0xff},
	} {
		x := r.dial(0)
		r.give(x, b)
		if !x.closed {
			t.Errorf("%s: the connection is open", name)
		}
	}
	want(t, "connections", r.core(0).open, 0)
	want(t, "frames held", r.core(0).pool.InUse(), 0)
}

// TestOrder: a parked produce, a parked fetch, a cold request and a quick one
// are answered in the order they were asked.
func TestOrder(t *testing.T) {
	r := newRig(t, 1, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, m := r.dial(0), r.dial(0)
	r.produce(x, 14, -1, 60_000, "t", part{0, records(1, 10)})
	r.fetch(x, 12, consume(60_000, 1), nil, target("t", 1, 0))
	asleep := r.cold
	r.cold = func(q *ColdRequest) []byte {
		if len(x.armed) > 0 {
			t.Error("parsing goes on beside a cold request")
		}
		return asleep(q)
	}
	r.give(x, x.request(wire.KeyMetadata, 4, func(b []byte) []byte { return b }))
	r.none(x, "the first waits")
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)})
	want(t, "first", r.produced(x, 14)[0].code, wire.ErrNone)
	r.none(x, "the fetch waits")
	r.pass(60e9)
	corr, _ := r.answer(x, wire.KeyFetch, 12)
	want(t, "second", corr, 2)
	corr, _ = r.answer(x, wire.KeyMetadata, 4)
	want(t, "third", corr, 3)
	r.give(x, x.request(wire.KeyApiVersions, 0, func(b []byte) []byte { return b }))
	corr, _ = r.answer(x, wire.KeyApiVersions, 0)
	want(t, "and on", corr, 4)
}

// TestSlowReader: answers wait for the socket, up to a bound; then nothing more
// is read from the connection. More slices than one send takes go in several.
func TestSlowReader(t *testing.T) {
	r := newRig(t, 1, "t")
	x, k := r.dial(0), r.dial(0)
	for range 100 {
		r.produce(x, 9, -1, 1000, "t", part{0, records(1, 6000)})
		r.produced(x, 9)
	}
	var targets []wire.FetchTarget
	for i := range 50 {
		one := target("t", 0, int64(i))
		one.MaxBytes = 7000 // one batch, gathered
		targets = append(targets, one)
	}
	p := consume(0, 1)
	k.stuck = true
	r.fetch(k, 12, p, nil, targets...)
	want(t, "sends in flight", k.sends, 1)
	if n := len(k.held[0].Pieces); n > ioring.MaxPieces {
		t.Fatalf("a send of %d pieces", n)
	}
	asked := 1
	for ; len(k.armed) > 0 && asked < 10*maxAnswers; asked++ {
		r.fetch(k, 12, p, nil, targets[0])
	}
	if asked > maxAnswers+2 {
		t.Fatalf("%d requests were taken from a reader that reads nothing", asked)
	}
	k.stuck = false
	for _, op := range k.held {
		r.do(0, op)
	}
	r.settle()
	res, got := r.fetched(k, 12)
	want(t, "partitions", res.NumPartitions, 50)
	for i, f := range got {
		want(t, "batch", f.next, int64(i+1))
	}
	for range asked - 1 {
		r.fetched(k, 12)
	}
	r.none(k, "all is said")
	if len(k.armed) == 0 {
		t.Error("the connection is not read again")
	}
}

// TestGoneWhileParked: a connection that ends takes its parked requests along.
func TestGoneWhileParked(t *testing.T) {
	r := newRig(t, 1, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, k, cold, m := r.dial(0), r.dial(0), r.dial(0), r.dial(0)
	r.produce(x, 14, -1, 60_000, "t", part{0, records(1, 10)})
	r.fetch(k, 12, consume(60_000, 1), nil, target("t", 1, 0))
	r.eof(x)
	r.eof(k)
	inUse := 0
	r.cold = func(*ColdRequest) []byte { inUse++; return nil }
	r.give(cold, cold.request(wire.KeyMetadata, 4, func(b []byte) []byte { return b }))
	want(t, "cold requests", inUse, 1)
	if !cold.closed {
		t.Error("a cold handler without an answer closes")
	}
	r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, 1, 1)})
	r.pass(120e9)
	m.sent = nil
	r.eof(m)
	want(t, "connections", r.core(0).open, 0)
	want(t, "answers held", r.core(0).AnswerBytes(), 0)
	want(t, "frames held", r.core(0).pool.InUse(), 0)
}

// TestFrameMemory: large frames wait for memory, and get it from any thread.
func TestFrameMemory(t *testing.T) {
	r := newRig(t, 1, "t")
	r.hold = true // no room in the log yet: frames stay
	var all []*remote
	for range 12 {
		x := r.dial(0)
		all = append(all, x)
		b := x.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(1, 500_000)}))
		r.give(x, b[:ioring.ProvidedSize])
		if len(x.armed) > 0 {
			r.give(x, b[ioring.ProvidedSize:])
		}
		if n := r.core(0).pool.InUse(); n > 4<<20 {
			t.Fatalf("%d bytes of frames", n)
		}
	}
	hungry := len(r.core(0).hungry)
	if hungry == 0 {
		t.Fatal("nobody is short of memory: the test shows nothing")
	}
	r.hold = false
	for range 100 {
		r.settle()
		for _, x := range all {
			if len(x.armed) > 0 && x.armed[0].Kind == ioring.RecvInto {
				b := x.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(1, 500_000)}))
				r.give(x, b[ioring.ProvidedSize:])
			}
		}
	}
	for i, x := range all {
		if len(x.sent) == 0 {
			t.Fatalf("connection %d of %d has no answer; %d are hungry", i, len(all), len(r.core(0).hungry))
		}
		want(t, "code", r.produced(x, 9)[0].code, wire.ErrNone)
	}
}

// TestPieceIsNotWaitedFor: a frame that leaves no room beside the piece it began
// with does not wait for that piece.
func TestPieceIsNotWaitedFor(t *testing.T) {
	r := newRig(t, 1, "t")
	c := r.core(0)
	c.pool = ioring.NewPool(&r.mem, 1<<20) // the frame is of this class
	x := r.dial(0)
	b := x.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(1, 700_000)}))
	r.give(x, b[:ioring.ProvidedSize])
	if len(x.armed) == 0 || x.armed[0].Kind != ioring.RecvInto {
		t.Fatalf("it waits with %d bytes in use, all of them its own", c.pool.InUse())
	}
	want(t, "in use", c.pool.InUse(), 1<<20)
	r.give(x, b[ioring.ProvidedSize:])
	r.settle()
	want(t, "code", r.produced(x, 9)[0].code, wire.ErrNone)
	want(t, "in use at the end", c.pool.InUse(), 0)
}

// TestHungryAndHome: a frame that another thread lets go between this shard's
// look at what came home and its word that it starves wakes nobody, so the shard
// looks again.
func TestHungryAndHome(t *testing.T) {
	r := newRig(t, 1, "t")
	c := r.core(0)
	hog, filler := c.newFrame(c.pool.Alloc(2<<20)), c.pool.Alloc(1<<20)
	if c.pool.Alloc(300_000) == nil { // with the two pieces below all but half a MiB of the budget
		t.Fatal("the budget is not what this test takes it for")
	}
	c.now, c.ops = r.now, c.ops[:0]
	for _, size := range []int{500_000, 700_000} {
		x := r.dial(0)
		b := x.request(wire.KeyProduce, 9, produceBody(9, -1, 1000, "t", part{0, records(1, size)}))
		buf := c.pool.Alloc(ioring.ProvidedSize)
		copy(buf.Data, b)
		c.event(&ioring.Event{Kind: ioring.Recv, Token: x.armed[0].Token, Res: ioring.ProvidedSize, Buf: buf})
	}
	want(t, "hungry", len(c.hungry), 2)
	c.hungry[0].in.hold() // somebody still reads the piece: it does not come home, and nothing with it
	c.pool.Free(filler)
	r.mem.onMap = func() { // the first is fed with new memory
		r.mem.onMap = nil
		hog.Release()
	}
	c.endTurn()
	if r.mem.onMap != nil {
		t.Fatal("no memory was mapped: the test shows nothing")
	}
	if len(c.hungry) > 0 {
		t.Fatal("memory is there, nobody wakes the shard, and a connection waits for it")
	}
}

// TestBuriedWhileListed: a connection that ends in the turn in which it has
// something to send is not touched again; its place is given away once.
func TestBuriedWhileListed(t *testing.T) {
	r := newRig(t, 1, "t")
	c := r.core(0)
	x := r.dial(0)
	cn := c.conns[0]
	token, fd := x.armed[0].Token, x.fd
	c.now, c.ops = r.now, c.ops[:0]
	c.wantSend(cn)
	c.close(cn)
	c.event(&ioring.Event{Kind: ioring.Recv, Token: token, Res: -125})
	c.event(&ioring.Event{Kind: ioring.Close, Token: token})
	c.settle()
	for _, op := range c.ops {
		if op.Kind != ioring.Close || op.FD != fd {
			t.Errorf("an operation on a buried connection: %v of %d", op.Kind, op.FD)
		}
	}
	want(t, "free places", len(c.freeConns), 1)
}
