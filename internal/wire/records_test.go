package wire

import (
	"math/rand/v2"
	"testing"
)

// checkByWalk and keptByWalk are CheckRecords and CheckKept by the iterator alone.
func checkByWalk(payload []byte, count int32) bool {
	it := Records(payload)
	for i := range count {
		if !it.Next() || it.rec.OffsetDelta != i {
			return false
		}
	}
	return it.r.Complete() == nil
}

func keptByWalk(payload []byte, count, last int32) bool {
	it := Records(payload)
	at := int32(-1)
	for range count {
		if !it.Next() || it.rec.OffsetDelta <= at || it.rec.OffsetDelta > last {
			return false
		}
		at = it.rec.OffsetDelta
	}
	return it.r.Complete() == nil
}

// FuzzCheckRecords holds the short way through a batch to the long one, on batches
// of usual and unusual records of which a byte or the end is another.
func FuzzCheckRecords(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint16(0), byte(0), uint16(0), int8(0))
	}
	f.Fuzz(func(t *testing.T, seed uint64, place uint16, by byte, cut uint16, more int8) {
		r := rand.New(rand.NewPCG(seed, 1))
		bytes := func(most int) []byte {
			if n := r.IntN(most + 1); n > 0 {
				return make([]byte, n-1)
			}
			return nil
		}
		var rs []Record
		for range 1 + r.IntN(6) {
			x := Record{TimestampDelta: r.Int64N(1<<r.IntN(40) + 1), Key: bytes(5), Value: bytes(1 << r.IntN(15))}
			if r.IntN(4) == 0 {
				x.Headers = []byte{1 << 1, 1 << 1, 'h', 1} // one, of one byte, null
			}
			rs = append(rs, x)
		}
		p := Batch(BuildBatch(nil, PlainParams(1), rs...)).Payload()
		if seed%4 != 0 {
			p[int(place)%len(p)] ^= by
		}
		if seed%4 == 2 {
			p = p[:len(p)-int(cut)%(len(p)+1)]
		}
		count := int32(len(rs)) + int32(more)
		if got, want := CheckRecords(p, count), checkByWalk(p, count); got != want {
			t.Fatalf("%d records of %x: %v, by the iterator %v", count, p, got, want)
		}
		if got, want := CheckKept(p, count, count), keptByWalk(p, count, count); got != want {
			t.Fatalf("%d records kept of %x: %v, by the iterator %v", count, p, got, want)
		}
	})
}

// Every byte of a batch changed by every bit, the short way and the long one.
func TestCheckRecordsAgrees(t *testing.T) {
	rs := []Record{{Value: make([]byte, 3)}, {Key: []byte("k"), Value: []byte{}}, {TimestampDelta: 1 << 20, Value: make([]byte, 200)},
		{Key: []byte{}, Headers: []byte{1 << 1, 1 << 1, 'h', 1}}, {TimestampDelta: -5, Value: make([]byte, 70)}}
	p := Batch(BuildBatch(nil, PlainParams(1), rs...)).Payload()
	count := int32(len(rs))
	if !CheckRecords(p, count) || !CheckKept(p, count, count) {
		t.Fatal("a sound batch is refused")
	}
	agree := func(p []byte, what string, at int) {
		for more := int32(-1); more <= 1; more++ {
			if CheckRecords(p, count+more) != checkByWalk(p, count+more) || CheckKept(p, count+more, count) != keptByWalk(p, count+more, count) {
				t.Fatalf("%s %d: %v, %v; by the iterator %v, %v", what, at, CheckRecords(p, count+more), CheckKept(p, count+more, count),
					checkByWalk(p, count+more), keptByWalk(p, count+more, count))
			}
		}
	}
	for at := range p {
		for by := 1; by < 256; by++ {
			p[at] ^= byte(by)
			agree(p, "a change of byte", at)
			p[at] ^= byte(by)
		}
		agree(p[:at], "cut at", at)
	}
}
