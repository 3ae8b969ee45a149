package wire

import (
	"bytes"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestBatchAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	for range 500 {
		p := BatchParams{randInt64(r), int32(randInt64(r)), int16(r.IntN(8) * 16), randInt64(r) >> 2, randInt64(r), int16(randInt64(r)), int32(randInt64(r))}
		var recs []Record
		kr := []byte{}
		last := p.BaseTimestamp
		for i := range 1 + r.IntN(5) {
			rec := Record{TimestampDelta: randInt64(r) >> 2, Key: randBytes(r), Value: randBytes(r)}
			k := kmsg.NewRecord()
			k.TimestampDelta64, k.OffsetDelta, k.Key, k.Value = rec.TimestampDelta, int32(i), rec.Key, rec.Value
			if r.IntN(2) == 0 {
				k.Headers = []kmsg.Header{{Key: randString(r), Value: randBytes(r)}}
				rec.Headers = AppendVarint(nil, 1)
				rec.Headers = appendRecordBytes(rec.Headers, []byte(k.Headers[0].Key))
				rec.Headers = appendRecordBytes(rec.Headers, k.Headers[0].Value)
			}
			k.Length = int32(len(k.AppendTo(nil)) - 1) // the length itself is 0 and takes one byte
			kr = k.AppendTo(kr)
			recs = append(recs, rec)
			last = max(last, p.BaseTimestamp+rec.TimestampDelta)
		}
		b := Batch(BuildBatch(nil, p, recs...))
		k := kmsg.RecordBatch{FirstOffset: p.BaseOffset, Length: int32(49 + len(kr)), PartitionLeaderEpoch: p.PartitionLeaderEpoch, Magic: 2, CRC: int32(b.CRC()),
			Attributes: p.Attributes, LastOffsetDelta: int32(len(recs) - 1), FirstTimestamp: p.BaseTimestamp, MaxTimestamp: last, ProducerID: p.ProducerID,
			ProducerEpoch: p.ProducerEpoch, FirstSequence: p.BaseSequence, NumRecords: int32(len(recs)), Records: kr}
		if want := k.AppendTo(nil); !bytes.Equal(b, want) {
			t.Fatalf("ours %x\nkmsg %x", []byte(b), want)
		}
		if b.BaseOffset() != k.FirstOffset || b.Size() != len(b) || b.PartitionLeaderEpoch() != k.PartitionLeaderEpoch || b.Magic() != 2 ||
			b.Attributes() != k.Attributes || b.Transactional() != (k.Attributes&16 != 0) || b.Control() != (k.Attributes&32 != 0) ||
			b.LastOffsetDelta() != k.LastOffsetDelta || b.BaseTimestamp() != k.FirstTimestamp || b.MaxTimestamp() != last || b.ProducerID() != k.ProducerID ||
			b.ProducerEpoch() != k.ProducerEpoch || b.BaseSequence() != k.FirstSequence || b.RecordCount() != k.NumRecords || b.Codec() != 0 ||
			b.NextOffset() != k.FirstOffset+int64(k.NumRecords) || !b.CheckCRC() || !bytes.Equal(b.Payload(), kr) || b.LogAppendTime() {
			t.Fatalf("getters of %x", []byte(b))
		}
		b.SetBaseOffset(77)
		b.SetPartitionLeaderEpoch(5)
		if b.BaseOffset() != 77 || b.PartitionLeaderEpoch() != 5 || !b.CheckCRC() {
			t.Fatal("patched fields are part of the checksum")
		}
		checkIteration(t, b, recs)
		if b[len(b)-1] ^= 1; b.CheckCRC() {
			t.Fatal("damage is not seen")
		}
	}
}

func checkIteration(t *testing.T, b Batch, recs []Record) {
	t.Helper()
	if !CheckRecords(b.Payload(), b.RecordCount()) || CheckRecords(b.Payload(), b.RecordCount()-1) || CheckRecords(b.Payload(), b.RecordCount()+1) {
		t.Fatalf("count of %x", []byte(b))
	}
	for n := range len(b.Payload()) {
		if CheckRecords(b.Payload()[:n], b.RecordCount()) {
			t.Fatalf("%d bytes of %x are accepted", n, []byte(b))
		}
	}
	it := Records(b.Payload())
	for i := range recs {
		if !it.Next() {
			t.Fatal("early end")
		}
		got := it.Record()
		if got.OffsetDelta != int32(i) || got.TimestampDelta != recs[i].TimestampDelta || !sameNil(got.Key, recs[i].Key) || !sameNil(got.Value, recs[i].Value) ||
			(recs[i].Headers != nil && !bytes.Equal(got.Headers, recs[i].Headers)) {
			t.Fatalf("record %d: %+v, want %+v", i, got, recs[i])
		}
	}
	if it.Next() || it.Err() != nil {
		t.Fatal("late end")
	}
}

func TestNextBatch(t *testing.T) {
	one := BuildBatch(nil, PlainParams(1), Record{Value: []byte("a")})
	two := BuildBatch(bytes.Clone(one), PlainParams(2), Record{Value: []byte("bb")})
	b, rest, ok := NextBatch(two)
	if !ok || !bytes.Equal(b, one) || !bytes.Equal(rest, two[len(one):]) || cap(b) != len(b) {
		t.Fatal("first")
	}
	for n := range len(one) {
		if _, rest, ok := NextBatch(one[:n]); ok || len(rest) != n {
			t.Fatalf("%d bytes", n)
		}
	}
	for _, size := range []uint32{0, 48, 1 << 31, 0xffffffff, 0x7fffffff} {
		bad := bytes.Clone(one)
		copy(bad[8:], AppendUint32(nil, size))
		if _, _, ok := NextBatch(bad); ok {
			t.Fatalf("size %d", size)
		}
	}
}

func TestValidateProduce(t *testing.T) {
	good := func() Batch {
		return BuildBatch(nil, PlainParams(9), Record{Value: []byte("a")}, Record{Value: []byte("b")})
	}
	seal := func(b Batch) { copy(b[17:], AppendUint32(nil, crc32.Checksum(b[21:], castagnoli))) }
	patch := func(at int, bytes ...byte) func(Batch) Batch {
		return func(b Batch) Batch { copy(b[at:], bytes); seal(b); return b }
	}
	for _, c := range []struct {
		name    string
		change  func(Batch) Batch
		version int16
		max     int
		want    ErrorCode
	}{
		{"good", func(b Batch) Batch { return b }, 3, 1000, ErrNone},
		{"empty", func(Batch) Batch { return nil }, 9, 1000, ErrInvalidRecord},
		{"short", func(b Batch) Batch { return b[:60] }, 9, 1000, ErrCorruptMessage},
		{"cut", func(b Batch) Batch { return b[:len(b)-1] }, 9, 1000, ErrCorruptMessage},
		{"two batches", func(b Batch) Batch { return append(b, b...) }, 9, 1000, ErrInvalidRecord},
		{"tail", func(b Batch) Batch { return append(b, 0) }, 9, 1000, ErrInvalidRecord},
		{"small size", patch(8, 0, 0, 0, 1), 9, 1000, ErrCorruptMessage},
		{"negative size", patch(8, 0xff), 9, 1000, ErrCorruptMessage},
		{"magic 1", patch(16, 1), 9, 1000, ErrInvalidRecord},
		{"magic 3", patch(16, 3), 9, 1000, ErrCorruptMessage},
		{"crc", func(b Batch) Batch { b[65] ^= 1; return b }, 9, 1000, ErrCorruptMessage},
		{"too large", func(b Batch) Batch { return b }, 9, 70, ErrMessageTooLarge},
		{"exact", func(b Batch) Batch { return b }, 9, len(good()), ErrNone},
		{"base offset", patch(7, 1), 9, 1000, ErrInvalidRecord},
		{"no records", patch(57, 0, 0, 0, 0), 9, 1000, ErrInvalidRecord},
		{"negative count", patch(57, 0xff, 0xff, 0xff, 0xff), 9, 1000, ErrInvalidRecord},
		{"overflowing delta", func(b Batch) Batch { copy(b[57:], "\x80\x00\x00\x00"); return patch(23, 0x7f, 0xff, 0xff, 0xff)(b) }, 9, 1000, ErrInvalidRecord},
		{"count", patch(60, 3), 9, 1000, ErrInvalidRecord},
		{"control", patch(22, AttrControl), 9, 1000, ErrInvalidRecord},
		{"no sequence", patch(43, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0), 9, 1000, ErrInvalidRecord},
		{"sequence", patch(43, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0), 9, 1000, ErrNone},
		{"log append time", patch(22, AttrLogAppendTime), 9, 1000, ErrInvalidTimestamp},
		{"old zstd", patch(22, CodecZstd), 6, 1000, ErrUnsupportedCompressionType},
		{"zstd", patch(22, CodecZstd), 7, 1000, ErrNone},
		{"codec 5", patch(22, 5), 14, 1000, ErrUnsupportedCompressionType},
	} {
		if got := ValidateProduce(c.change(good()), c.version, c.max); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestControlBatches(t *testing.T) {
	b := Batch(AbortMarker(nil, 7, 3, 11, 1234))
	var k kmsg.EndTxnMarker
	it := Records(b.Payload())
	if !it.Next() || !b.Control() || !b.Transactional() || b.ProducerID() != 7 || b.ProducerEpoch() != 3 || b.BaseSequence() != -1 || b.MaxTimestamp() != 1234 || !b.CheckCRC() {
		t.Fatalf("%x", []byte(b))
	}
	if typ, ok := ControlType(it.Record().Key); typ != ControlAbort || !ok || k.ReadFrom(it.Record().Value) != nil || k.CoordinatorEpoch != 11 {
		t.Fatalf("%+v", it.Record())
	}
	b = MirrorPidReset(nil, "cluster-a", 5)
	it = Records(b.Payload())
	if !it.Next() || !b.Control() || b.Transactional() || b.ProducerID() != -1 {
		t.Fatalf("%x", []byte(b))
	}
	if typ, _ := ControlType(it.Record().Key); typ != 7 || string(it.Record().Value) != "\x00\x00\x0acluster-a\x00" {
		t.Fatalf("%+v", it.Record())
	}
	if _, ok := ControlType([]byte{0, 0, 0}); ok {
		t.Fatal("short key")
	}
}

func TestBatchAllocations(t *testing.T) {
	b := Batch(BuildBatch(nil, PlainParams(9), Record{Value: []byte("a")}, Record{Key: []byte("k")}))
	if n := testing.AllocsPerRun(100, func() {
		if ValidateProduce(b, 9, 1000) != ErrNone || !CheckRecords(b.Payload(), 2) {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(BuildBatch(nil, PlainParams(9), Record{Value: []byte("a")}, Record{Key: []byte("k")}))
	f.Add(AbortMarker(nil, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, rest, ok := NextBatch(in)
		if len(b)+len(rest) != len(in) || ok != (b != nil) {
			t.Fatal("bytes were lost")
		}
		ValidateProduce(in, 9, 1<<20)
		if !ok {
			return
		}
		it, n := Records(b.Payload()), int32(0)
		for it.Next() {
			n++
		}
		if CheckRecords(b.Payload(), n) && it.Err() != nil {
			t.Fatal("check and walk disagree")
		}
	})
}
