package segment

import (
	"bytes"
	"math"
	"testing"

	"lockstep/internal/wire"
)

func idempotent(base int64, pid int64, epoch int16, seq int32, count int) wire.Batch {
	s := plain(base, count, 1)
	s.pid, s.pepoch, s.seq = pid, epoch, seq
	return build(s)
}

func TestSequences(t *testing.T) {
	const fenced, gap = wire.ErrInvalidProducerEpoch, wire.ErrOutOfOrderSequenceNumber
	type step struct {
		epoch     int16
		seq       int32
		count     int32
		code      wire.ErrorCode
		duplicate int64 // base offset of the duplicate, -1 if it is none
	}
	add := func(seq, count int32) step { return step{0, seq, count, wire.ErrNone, -1} }
	cases := map[string][]step{
		"unknown producer, any first sequence": {add(17, 2), add(19, 1)},
		"gap":                                  {add(0, 2), {0, 3, 1, gap, -1}},
		"repeat":                               {add(0, 2), add(2, 3), {0, 0, 2, 0, 0}, {0, 2, 3, 0, 2}},
		"repeat, other length":                 {add(0, 2), {0, 0, 1, gap, -1}},
		"wrap between batches":                 {add(math.MaxInt32-1, 2), add(0, 1), {0, math.MaxInt32 - 1, 2, 0, 0}},
		"wrap inside a batch":                  {add(math.MaxInt32-1, 4), add(2, 1), {0, math.MaxInt32 - 1, 4, 0, 0}},
		"window of five": {add(0, 1), add(1, 1), add(2, 1), add(3, 1), add(4, 1), {0, 0, 1, 0, 0}, add(5, 1),
			{0, 0, 1, gap, -1}, {0, 1, 1, 0, 1}},
		"old epoch":                   {{3, 0, 1, 0, -1}, {2, 1, 1, fenced, -1}, {3, 1, 1, 0, -1}},
		"new epoch begins at zero":    {add(0, 5), {1, 5, 1, gap, -1}, {1, 0, 1, 0, -1}, {0, 5, 1, fenced, -1}},
		"new epoch repeats no old":    {add(0, 5), {1, 0, 5, 0, -1}, {1, 0, 5, 0, 5}},
		"no producer id is no matter": {},
	}
	for name, steps := range cases {
		p, next := newProducers(), int64(0)
		for i, s := range steps {
			v := p.Check(9, s.epoch, s.seq, s.count)
			if v.Code != s.code || v.Duplicate != (s.duplicate >= 0) || v.Duplicate && v.BaseOffset != s.duplicate {
				t.Errorf("%s, step %d: %+v", name, i, v)
			}
			if v.Code == wire.ErrNone && !v.Duplicate {
				p.Add(idempotent(next, 9, s.epoch, s.seq, int(s.count)), 0)
				next += int64(s.count)
			}
		}
	}
	if v := newProducers().Check(-1, -1, -1, 5); v != (SequenceVerdict{}) {
		t.Error(v)
	}
}

func control(base, pid int64, epoch int16, typ byte) wire.Batch {
	s := plain(base, 1, 4)
	s.pid, s.pepoch, s.seq, s.attrs, s.key = pid, epoch, -1, 32, []byte{0, 0, 0, typ}
	if pid >= 0 {
		s.attrs |= 16
	}
	return build(s)
}

func transactional(base, pid int64, seq int32) wire.Batch {
	s := plain(base, 2, 1)
	s.pid, s.pepoch, s.seq, s.attrs = pid, 0, seq, 16
	return build(s)
}

func TestLastStable(t *testing.T) {
	p := newProducers()
	expect := func(hw, want int64) {
		t.Helper()
		if got := p.LastStable(hw); got != want {
			t.Fatalf("LastStable(%d) = %d, want %d", hw, got, want)
		}
	}
	p.Add(idempotent(0, 1, 0, 0, 2), 0)
	expect(2, 2)
	p.Add(transactional(2, 5, 0), 0)
	p.Add(transactional(4, 6, 0), 0)
	expect(6, 2)
	if o := p.Ongoing(); len(o) != 2 || o[0] != (OpenTransaction{5, 0, 2}) || o[1].FirstOffset != 4 {
		t.Fatalf("%v", o)
	}
	p.Add(control(6, 5, 0, controlCommit), 0)
	expect(6, 2) // the marker itself is not below the mark
	expect(7, 4)
	p.Add(control(7, 6, 0, controlAbort), 0)
	expect(8, 8)
	if v := p.Check(5, 0, 2, 1); v.Code != wire.ErrNone {
		t.Fatalf("after a marker the sequence goes on: %+v", v)
	}
	p.Add(transactional(8, 5, 2), 0)
	p.Add(control(10, -1, -1, controlPidReset), 0)
	expect(11, 11)
	if p.Len() != 0 || len(p.Ongoing()) != 0 {
		t.Fatal("producers after a reset")
	}
}

func TestExpireKeepsOpenTransactions(t *testing.T) {
	p := newProducers()
	p.Add(idempotent(0, 1, 0, 0, 1), 100)
	p.Add(idempotent(1, 2, 0, 0, 1), 150)
	p.Add(transactional(2, 3, 0), 100)
	if n := p.Expire(200, 60); n != 1 || p.Len() != 2 || p.byID[1] != nil {
		t.Fatalf("expired %d, %d left", n, p.Len())
	}
}

func TestSnapshotIsReplay(t *testing.T) {
	r := seed(t)
	_, _, l := memLog(t, smallConfig)
	bs := fill(t, l, r, 200)
	want := l.producers.encode(l.End())
	p, off, ok := decodeProducers(want)
	if !ok || off != l.End() || !bytes.Equal(p.encode(off), want) {
		t.Fatal("decoded something else")
	}
	sameProducers(t, p, replay(bs, l.End()))
	for n := range want {
		if _, _, ok := decodeProducers(want[:n]); ok {
			t.Fatalf("decoded a snapshot cut at %d", n)
		}
	}
}
