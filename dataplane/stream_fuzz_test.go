package dataplane

import (
	"testing"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// FuzzStream: any bytes on a connection, in pieces of any size, end in answers
// or in a closed connection; nothing of them is kept, and who comes after is
// served.
func FuzzStream(f *testing.F) {
	x := &remote{}
	p := consume(10, 1)
	for _, v := range []int16{3, 9, 14} {
		f.Add(x.request(wire.KeyProduce, v, produceBody(v, -1, 10, "t", part{0, records(2, 3)}, part{1, records(1, 1)})), uint16(40))
	}
	for _, v := range []int16{4, 12, 20} {
		f.Add(x.request(wire.KeyFetch, v, func(b []byte) []byte {
			return wire.AppendFetchRequest(b, v, &p, []wire.FetchTarget{target("t", 0, 0)}, nil)
		}), uint16(7))
	}
	f.Add(x.request(wire.KeyListOffsets, 11, func(b []byte) []byte {
		return wire.AppendListOffsetsRequest(b, 11, "t", 0, -1, wire.TimestampMax, 10)
	}), uint16(0))
	f.Add(append(x.request(wire.KeyApiVersions, 99, func(b []byte) []byte { return b }), x.request(wire.KeyMetadata, 12, func(b []byte) []byte { return b })...), uint16(1000))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		r := newRig(t, 1, "t")
		x := r.dial(0)
		for len(stream) > 0 && !x.closed && len(x.armed) > 0 {
			stream = stream[r.some(x, stream[:min(len(stream), 1+int(piece))]):]
		}
		for range 3 {
			r.pass(60e9)
		}
		if !x.closed && len(x.armed) > 0 {
			r.eof(x)
		}
		if !x.closed {
			return // it waits for an answer that a long deadline parks
		}
		r.pass(60e9)
		want(t, "frames held", r.core(0).pool.InUse(), 0)
		want(t, "answers held", r.core(0).AnswerBytes(), 0)
		y := r.dial(0)
		r.produce(y, 9, 1, 1000, "t", part{0, records(1, 1)})
		want(t, "who comes after", r.produced(y, 9)[0].code, wire.ErrNone)
	})
}

// some hands over what one receive takes of b.
func (r *rig) some(x *remote, b []byte) int {
	op := x.armed[0]
	ev := ioring.Event{Kind: op.Kind, Token: op.Token}
	n := min(len(b), ioring.ProvidedSize)
	if op.Kind == ioring.RecvInto {
		n = copy(op.Bytes, b)
	} else {
		ev.Buf = r.core(x.shard).pool.Alloc(n)
		copy(ev.Buf.Data, b)
	}
	ev.Res = int32(n)
	x.armed = x.armed[:0]
	r.next[x.shard] = append(r.next[x.shard], ev)
	r.settle()
	return n
}
