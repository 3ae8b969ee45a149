package dataplane

import (
	"testing"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// loop is a warm connection on a shard without any fake kernel beside it: one
// request in, one answer out.
type loop struct {
	r    *rig
	x    *remote
	recv ioring.Op
	evs  []ioring.Event
	n    int // answers
}

func newLoop(tb testing.TB) *loop {
	r := newRig(tb, 1, "t")
	l := &loop{r: r, x: r.dial(0), evs: make([]ioring.Event, 0, 8)}
	l.recv = l.x.armed[0]
	return l
}

// turn gives the shard a request and ends what it asks for.
func (l *loop) turn(request []byte) {
	c := l.r.core(0)
	buf := c.pool.Alloc(len(request))
	copy(buf.Data, request)
	l.evs = append(l.evs[:0], ioring.Event{Kind: l.recv.Kind, Token: l.recv.Token, Res: int32(len(request)), Buf: buf})
	for len(l.evs) > 0 || l.r.wakes[0] {
		l.r.now += 1000
		l.r.wakes[0] = false
		ops := c.Step(l.r.now, 1_700_000_000_000, l.evs)
		l.evs = l.evs[:0]
		for i := range ops {
			op := &ops[i]
			if op.Kind == ioring.Send {
				total := 0
				for _, p := range op.Pieces {
					total += len(p)
				}
				l.n++
				l.evs = append(l.evs, ioring.Event{Kind: ioring.Send, Token: op.Token, Res: int32(total)})
			}
		}
		for len(l.r.jobs) > 0 {
			job := l.r.jobs[0]
			l.r.jobs = l.r.jobs[:copy(l.r.jobs, l.r.jobs[1:])]
			job()
		}
	}
}

func (l *loop) produceBytes(acks int16, size int) []byte {
	return l.x.request(wire.KeyProduce, 9, produceBody(9, acks, 1000, "t", part{0, records(1, size)}))
}

func (l *loop) fetchBytes(at int64, wait int32) []byte {
	p, one := consume(wait, 1), target("t", 0, at)
	one.MaxBytes = 1
	return l.x.request(wire.KeyFetch, 12, func(b []byte) []byte { return wire.AppendFetchRequest(b, 12, &p, []wire.FetchTarget{one}, nil) })
}

// TestNoAllocations: warm requests allocate nothing; segment steps, one in
// hundreds of requests, do.
func TestNoAllocations(t *testing.T) {
	l := newLoop(t)
	all, one := l.produceBytes(-1, 100), l.produceBytes(1, 100)
	small := l.fetchBytes(0, 0)
	for range 3000 {
		l.turn(all)
		l.turn(one)
		l.turn(small)
	}
	for name, b := range map[string][]byte{"produce acks=all": all, "produce acks=1": one, "fetch": small} {
		before := l.n
		got := testing.AllocsPerRun(2000, func() { l.turn(b) })
		want(t, name+": answers", l.n-before, 2001)
		t.Logf("%s: %.2f allocations a request", name, got)
		if got >= 1 {
			t.Errorf("%s: %.2f allocations a request", name, got)
		}
	}
}

// BenchmarkProduce is the whole path but for the kernel: frame, checks, append
// to a file in memory, gate, answer.
func BenchmarkProduce(b *testing.B) {
	for _, c := range []struct {
		name string
		acks int16
		size int
	}{{"all/100B", -1, 100}, {"1/100B", 1, 100}, {"all/8KiB", -1, 8 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			l := newLoop(b)
			req := l.produceBytes(c.acks, c.size)
			l.turn(req)
			b.SetBytes(int64(len(req)))
			b.ReportAllocs()
			for b.Loop() {
				l.turn(req)
			}
		})
	}
}

// BenchmarkFetch reads one small batch.
func BenchmarkFetch(b *testing.B) {
	l := newLoop(b)
	l.turn(l.produceBytes(1, 100))
	req := l.fetchBytes(0, 0)
	b.ReportAllocs()
	for b.Loop() {
		l.turn(req)
	}
}

// BenchmarkInbox is a note from another thread, put and taken.
func BenchmarkInbox(b *testing.B) {
	x := inbox{wake: func() {}}
	p := &Partition{}
	b.ReportAllocs()
	for b.Loop() {
		for range 64 {
			x.put(note{kind: noteMoved, part: p})
		}
		if len(x.take()) != 64 {
			b.Fatal("notes are missing")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/note")
}
