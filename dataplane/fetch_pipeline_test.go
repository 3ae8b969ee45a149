package dataplane

import (
	"testing"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// piped is a destination with a pipelined session on t-0.
type piped struct {
	r    *rig
	x    *remote
	p    wire.FetchParams
	reg  int64
	prod *remote
}

// cursor is one partition of an answer on such a session.
type cursor struct {
	generation int32
	from, next int64 // -1 without records
	code       wire.ErrorCode
}

func openPiped(t *testing.T) *piped {
	t.Helper()
	r := newRig(t, 1, "t")
	d := &piped{r: r, reg: r.facts.register(t, "m", "t"), p: mirrorParams()}
	r.publish()
	d.x, d.prod = r.dial(0), r.dial(0)
	d.p.SessionEpoch, d.p.MinBytes = 0, 1
	d.ask(1, 0)
	res, got := d.answer(t)
	want(t, "window", res.Window, mirrorWindow)
	want(t, "opening", got[0], cursor{1, 0, -1, wire.ErrNone})
	d.p.SessionID, d.p.SessionEpoch, d.p.MaxWaitMs = res.SessionID, 1, 10_000
	return d
}

// ask sends a request; with a generation it names t-0.
func (d *piped) ask(generation int32, offset int64) {
	var targets []wire.FetchTarget
	var reports []wire.Report
	if generation > 0 {
		at := target("t", 0, offset)
		at.Generation = generation
		targets, reports = []wire.FetchTarget{at}, []wire.Report{report("t", 0, d.reg, int64(generation), 0)}
	}
	d.r.fetch(d.x, 20, d.p, reports, targets...)
	if d.p.SessionID != 0 {
		d.p.SessionEpoch++
	}
}

func (d *piped) answer(t *testing.T) (res wire.FetchResponse, out []cursor) {
	t.Helper()
	_, body := d.r.answer(d.x, wire.KeyFetch, 20)
	if err := res.Parse(20, body); err != nil {
		t.Fatal(err)
	}
	for it := res.Partitions(); it.Next(); {
		c := cursor{it.Generation, it.Cursor, -1, it.Err}
		for b, rest, ok := wire.NextBatch(it.Records); ok; b, rest, ok = wire.NextBatch(rest) {
			c.next = b.NextOffset()
		}
		out = append(out, c)
	}
	return res, out
}

func (d *piped) one(t *testing.T, what string, w cursor) {
	t.Helper()
	_, got := d.answer(t)
	if len(got) != 1 || got[0] != w {
		t.Fatalf("%s: got %+v, want %+v", what, got, w)
	}
}

func (d *piped) write(t *testing.T) {
	t.Helper()
	d.r.produce(d.prod, 14, 1, 1000, "t", part{0, records(1, 100)})
	want(t, "written", d.r.produced(d.prod, 14)[0].code, wire.ErrNone)
}

// The cursor moves with each answer, past what was sent and no further, and
// each answer says from where and of which generation it is.
func TestCursorMovesPastWhatWasSent(t *testing.T) {
	d := openPiped(t)
	for range 4 {
		d.ask(0, 0)
	}
	d.r.none(d.x, "nothing is there")
	for i := range int64(3) {
		d.write(t)
		d.one(t, "a record", cursor{1, i, i + 1, wire.ErrNone})
		d.r.none(d.x, "one answer for one record")
	}
	d.ask(2, 1) // the destination has lost the last two
	d.one(t, "a new generation, by the request that waited", cursor{2, 1, 3, wire.ErrNone})
	d.write(t)
	d.one(t, "and on", cursor{2, 3, 4, wire.ErrNone})
}

// An error is told once and stops the partition until a new generation.
func TestErrorStopsTheCursor(t *testing.T) {
	d := openPiped(t)
	for range 4 {
		d.ask(0, 0)
	}
	d.ask(2, 99)
	d.one(t, "out of range", cursor{2, 99, -1, wire.ErrOffsetOutOfRange})
	d.write(t)
	d.r.none(d.x, "it stands still")
	d.ask(3, 0)
	d.one(t, "named anew", cursor{3, 0, 1, wire.ErrNone})
}

// What a destination may read above the mark ends with its registration, in the
// middle of a session too.
func TestReleasedCursorReadsToTheMark(t *testing.T) {
	d := openPiped(t)
	for range 4 {
		d.ask(0, 0)
	}
	other := d.r.facts.register(t, "n", "t") // another mirror holds the mark where it is
	if other == 0 {
		t.Fatal("not registered")
	}
	d.r.publish()
	d.write(t)
	d.one(t, "registered", cursor{1, 0, 1, wire.ErrNone})
	d.r.facts.apply(t, &msg.ReleaseSyncCommand{Mirror: "m", Fence: -1, RegistrationEpoch: -1})
	d.r.publish()
	for len(d.x.sent) > 0 { // the release may have woken it
		if _, got := d.answer(t); len(got) > 0 && got[0].next >= 0 {
			t.Fatal("read ahead without a registration")
		}
	}
	d.write(t)
	for len(d.x.sent) > 0 {
		if _, got := d.answer(t); len(got) > 0 && got[0].next >= 0 {
			t.Fatal("read ahead without a registration")
		}
	}
}

// No more answers are made than leave: the rest is in the next one.
func TestSlowLineHoldsAnswers(t *testing.T) {
	d := openPiped(t)
	for range 10 {
		d.ask(0, 0)
	}
	d.x.stuck = true
	for range 6 {
		d.write(t)
	}
	if s := d.session(); len(s.queue) != 10-unsentAnswers || s.unsent != unsentAnswers {
		t.Fatalf("%d wait, %d unsent", len(s.queue), s.unsent)
	}
	d.x.stuck = false
	held := d.x.held
	d.x.held = nil
	for _, op := range held {
		d.r.do(0, op)
	}
	d.r.settle()
	d.r.pass(0)
	var last cursor
	n := 0
	for len(d.x.sent) > 0 {
		_, got := d.answer(t)
		if n++; got[0].from != max(0, last.next) {
			t.Fatalf("answer %d begins at %d, the one before ended at %d", n, got[0].from, last.next)
		}
		last = got[0]
	}
	want(t, "all of it", last.next, 6)
	if n != unsentAnswers+1 {
		t.Errorf("%d answers for what two and a rest could carry", n)
	}
}

func (d *piped) session() *fetchSession {
	for _, cn := range d.r.core(0).conns {
		if cn.session != nil && cn.session.pipelined {
			return cn.session
		}
	}
	return nil
}

// With less than half of the window left, answers keep the pace at which it is
// renewed: a burst does not use it up and then wait a whole round trip.
func TestWindowIsPaced(t *testing.T) {
	d := openPiped(t)
	const rtt = 64e6
	for range mirrorWindow - 1 {
		d.ask(0, 0)
	}
	d.write(t)
	d.one(t, "first", cursor{1, 0, 1, wire.ErrNone})
	d.r.pass(rtt)
	d.p.Taken = 2 // the opening one and this
	d.ask(0, 0)
	d.p.Taken = 0
	want(t, "round trip", d.session().rtt, rtt)
	answers := 0
	for range 2 * mirrorWindow { // many records in no time at all
		d.write(t)
		for len(d.x.sent) > 0 {
			d.answer(t)
			answers++
		}
	}
	if answers < mirrorWindow/2-2 || answers > mirrorWindow/2+2 {
		t.Fatalf("%d answers at once, of a window of %d", answers, mirrorWindow)
	}
	for range 8 {
		d.write(t)
		d.r.pass(rtt / mirrorWindow)
		for len(d.x.sent) > 0 {
			d.answer(t)
			answers++
		}
	}
	if n := answers - mirrorWindow/2; n < 6 || n > 10 {
		t.Errorf("%d answers in 8 paces", n)
	}
}

// A peer that names no generation is answered as any: the cursor is its own.
func TestOthersKeepTheirCursor(t *testing.T) {
	r := newRig(t, 1, "t")
	epoch := r.facts.register(t, "m", "t")
	r.publish()
	x, prod := r.dial(0), r.dial(0)
	p := mirrorParams()
	p.SessionEpoch = 0
	r.fetch(x, 20, p, []wire.Report{report("t", 0, epoch, 1, 0)}, target("t", 0, 0))
	res, _ := r.fetched(x, 20)
	want(t, "window", res.Window, 0)
	p.SessionID, p.SessionEpoch, p.MaxWaitMs, p.MinBytes = res.SessionID, 1, 10_000, 1
	r.fetch(x, 20, p, []wire.Report{report("t", 0, epoch, 2, 0)})
	p.SessionEpoch = 2
	r.fetch(x, 20, p, nil)
	r.produce(prod, 14, 1, 1000, "t", part{0, records(1, 10)})
	res, got := r.fetched(x, 20)
	want(t, "the one under way", got[0].next, 1)
	res, _ = r.fetched(x, 20)
	want(t, "a second one", res.Err, wire.ErrInvalidFetchSessionEpoch)
}

// A connection that goes takes its queue along.
func TestQueueGoesWithItsConnection(t *testing.T) {
	d := openPiped(t)
	for range 10 {
		d.ask(0, 0)
	}
	d.r.eof(d.x)
	d.r.settle()
	d.write(t)
	want(t, "answers held", d.r.core(0).owed, 0)
	if n := len(d.r.core(0).timers.heap); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}
