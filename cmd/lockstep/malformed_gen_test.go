package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/compress"
	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// attack is what one turn sends.
type attack struct {
	class string
	known bool   // mutated from a valid request, and its header still says a key and version we speak
	bytes []byte // what goes out: one frame, several, or none
	corr  []int32
	// How it goes out and what is awaited.
	single, half, waits bool // byte for byte; the write side closed behind it; it promises more than it brings
}

// attacker makes attacks from a seed.
type attacker struct {
	*rand.Rand
	corr  int32
	malID [16]byte // a topic that is fair game
	bigID [16]byte // one of max.message.bytes=8388608
	bombs [][]byte
	spare bool // the request may not name the topics the others need
}

// greedy tells whether a frame soundly asks for thousands of partitions. Such a
// request takes the memory it asks for: a matter of quotas, not of this test.
func greedy(frame []byte) bool {
	h, body, err := wire.ParseHeader(frame[4:])
	if err != nil {
		return false
	}
	many := func(n int32) bool { return n > 1000 && n <= meta.MaxPartitionsPerTopic }
	switch h.Key {
	case wire.KeyCreateTopics:
		r := kmsg.NewPtrCreateTopicsRequest()
		r.SetVersion(h.Version)
		return r.ReadFrom(body) == nil && slices.ContainsFunc(r.Topics, func(x kmsg.CreateTopicsRequestTopic) bool { return many(x.NumPartitions) })
	case wire.KeyCreatePartitions:
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.SetVersion(h.Version)
		return r.ReadFrom(body) == nil && slices.ContainsFunc(r.Topics, func(x kmsg.CreatePartitionsRequestTopic) bool { return many(x.Count) })
	}
	return false
}

// request makes the frame of a valid request: any key and version of the
// table, its fields filled.
func (a *attacker) request() (frame []byte, bodyAt int, flex bool) {
	for {
		if frame, bodyAt, flex = a.anyRequest(); !greedy(frame) {
			return frame, bodyAt, flex
		}
	}
}

func (a *attacker) anyRequest() (frame []byte, bodyAt int, flex bool) {
	apis := wire.APIs()
	row := &apis[a.IntN(len(apis))]
	if a.IntN(3) == 0 { // the hot keys more often
		row = wire.Lookup([]int16{wire.KeyProduce, wire.KeyFetch, wire.KeyListOffsets}[a.IntN(3)])
	}
	v := row.ServedMin + int16(a.IntN(int(row.Max-row.ServedMin)+1))
	flex = v >= row.FlexibleFrom
	a.corr++
	b := wire.BeginRequest(nil, row.Key, v, a.corr, "adversary")
	bodyAt = len(b)
	switch {
	case row.Key == wire.KeyProduce:
		b = a.produce(b, v, a.batch())
	case row.Key == wire.KeyFetch:
		b = a.fetch(b, v)
	case row.Key == wire.KeyListOffsets && v > kmsg.NewPtrListOffsetsRequest().MaxVersion():
		b = wire.AppendListOffsetsRequest(b, v, "mal", int32(a.IntN(3)), -1, int64(-a.IntN(6)), 10)
	default:
		m := requestOf(row.Key)
		a.spare = row.Key == wire.KeyDeleteTopics
		m.SetVersion(v)
		a.fill(reflect.ValueOf(m).Elem(), "")
		m.SetVersion(v)
		b = m.AppendTo(b)
	}
	wire.EndRequest(b, 0)
	return b, bodyAt, flex
}

// body is a request of kmsg or of internal/msg.
type body interface {
	SetVersion(int16)
	AppendTo([]byte) []byte
}

func requestOf(key int16) body {
	for _, m := range msg.All() {
		if m.APIKey() == key && strings.HasSuffix(reflect.TypeOf(m).Elem().Name(), "Request") {
			return m
		}
	}
	return kmsg.RequestForKey(key)
}

var (
	someNames  = []string{"mal", "mal", "mal", "big", "m0", "m1", "m2", "mir", "mir", "1", "", "retention.ms", "cleanup.policy", "compact", "127.0.0.1:1", "\x00\xff", strings.Repeat("n", 300)}
	someInts   = []int64{0, 0, 0, 1, 1, 2, 3, -1, -1, 4, 64, math.MaxInt8, math.MinInt8, math.MaxInt16, math.MinInt16, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	someTimes  = []int64{0, 1, 10, -1}
	tagsOfKmsg = reflect.TypeFor[kmsg.Tags]()
)

// fill sets every field of a request: names from a small pool that never holds
// "good", numbers from the ends of their ranges.
func (a *attacker) fill(v reflect.Value, name string) {
	if v.Type() == tagsOfKmsg {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type().Field(i).Name != "Version" {
				a.fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	case reflect.Pointer:
		if a.IntN(5) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			a.fill(v.Elem(), name)
		}
	case reflect.Slice:
		n := a.IntN(3)
		if a.IntN(20) == 0 {
			n = 200
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			a.fill(v.Index(i), name)
		}
	case reflect.Array:
		id := [][16]byte{{}, {1, 2, 3}, a.malID, a.malID}[a.IntN(4)]
		if a.spare {
			id = [16]byte{9}
		}
		reflect.Copy(v, reflect.ValueOf(id))
	case reflect.String:
		name := someNames[a.IntN(len(someNames))]
		if a.spare && (name == "mal" || name == "big") {
			name = "m0"
		}
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(a.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat([]float64{0, -1, math.Inf(1), math.NaN()}[a.IntN(4)])
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(a.Uint32()))
	default:
		pool := someInts
		if strings.Contains(name, "Timeout") || strings.Contains(name, "Wait") {
			pool = someTimes
		}
		v.SetInt(pool[a.IntN(len(pool))])
	}
}

func (a *attacker) produce(b []byte, v int16, batch []byte) []byte {
	p := &wire.ProduceParams{Acks: int16(a.IntN(3) - 1), TimeoutMs: int32(a.IntN(20)), Topic: "mal", TopicID: a.malID, Partition: int32(a.IntN(3))}
	if a.IntN(10) == 0 {
		p.Acks, p.TransactionalID = int16(a.Uint32()), "t"
	}
	return wire.AppendProduceRequest(b, v, p, batch)
}

func (a *attacker) batch() []byte {
	p := wire.PlainParams(1_800_000_000_000 + int64(a.IntN(1000)))
	if a.IntN(3) == 0 {
		p.ProducerID, p.ProducerEpoch, p.BaseSequence = int64(a.IntN(5)), int16(a.IntN(2)), int32(a.IntN(5))
	}
	records := make([]wire.Record, 1+a.IntN(4))
	for i := range records {
		records[i] = wire.Record{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), a.IntN(200))}
	}
	return wire.BuildBatch(nil, p, records...)
}

func (a *attacker) fetch(b []byte, v int16) []byte {
	p := &wire.FetchParams{ReplicaID: -1, ReplicaEpoch: -1, MaxWaitMs: int32(a.IntN(10)), MinBytes: int32(a.IntN(2)), MaxBytes: 1 << 20, SessionEpoch: -1}
	var targets []wire.FetchTarget
	for i := range 1 + a.IntN(3) {
		targets = append(targets, wire.FetchTarget{Topic: "mal", TopicID: a.malID, Partition: int32(i), CurrentLeaderEpoch: int32(a.IntN(3) - 1), FetchOffset: int64(a.IntN(4)),
			LastFetchedEpoch: -1, MaxBytes: int32(a.IntN(1 << 20)), HighWatermark: -1})
	}
	var reports []wire.Report
	if v >= 20 && a.IntN(2) == 0 {
		p.MirrorName, p.ClusterID = "theirs", "c"
		for i := range 1 + a.IntN(3) {
			reports = append(reports, wire.Report{Topic: "mal", TopicID: a.malID, Partition: int32(i), ISR: []int32{1, 2}, MinISR: 1, Fenced: true, RegistrationEpoch: int64(a.IntN(9)),
				Sequence: int64(a.IntN(99)), PartitionCount: 2, Replicas: []wire.ReplicaOffset{{ID: 1, Offset: int64(a.IntN(9))}, {ID: 2, Offset: math.MaxInt64}}})
		}
	}
	return wire.AppendFetchRequest(b, v, p, targets, reports)
}

// lies are lengths and counts, fixed and as varints, that cannot be true.
var lies = [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0xff, 0xff, 0xff, 0xfe}, {0, 0xff, 0xff, 0xff}, {0x7f, 0xff}, {0xff, 0xfe},
	{0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, {0xff, 0xff, 0x03}}

// badTags are tag sections: too many, the same twice, unknown, cut off, and
// known ones of a wrong size.
var badTags = [][]byte{{0xff, 0xff, 0xff, 0xff, 0x0f}, {2, 5, 1, 9, 5, 1, 9}, {2, 1, 1, 9, 0, 1, 9}, {1, 0x7f, 2, 1, 2}, {1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
	{1, 5, 0xff, 0xff, 3}, {1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, {1, 0, 1, 0xff}, {1, 1, 3, 0xff, 0xff, 0xff}, {65, 1, 0}, {3, 0, 0, 1, 0, 2, 0}}

// mutate returns a valid request with one thing wrong in its body.
func (a *attacker) mutate() attack {
	frame, at, flex := a.request()
	body := frame[at:]
	x := attack{known: true, corr: []int32{a.corr}}
	switch a.IntN(10) {
	case 0, 1:
		x.class = "lying count or length"
		if len(body) > 0 {
			lie := lies[a.IntN(len(lies))]
			from := a.IntN(len(body))
			to := min(len(body), from+[]int{0, 1, len(lie)}[a.IntN(3)])
			body = bytes.Join([][]byte{body[:from], lie, body[to:]}, nil)
		}
	case 2, 3:
		x.class = "tagged fields"
		if !flex {
			x.class = "bytes behind the end"
		}
		from := len(body)
		if zeros := zerosOf(body); flex && len(zeros) > 0 && a.IntN(2) == 0 {
			from = zeros[a.IntN(len(zeros))]
		} else if flex && from > 0 {
			from--
		}
		body = bytes.Join([][]byte{body[:from], badTags[a.IntN(len(badTags))], body[min(len(body), from+1):]}, nil)
	case 4, 5:
		x.class = "truncated"
		body = body[:a.IntN(len(body)+1)]
	case 6, 7:
		x.class = "flipped bits"
		for range 1 + a.IntN(8) {
			if len(body) > 0 {
				body[a.IntN(len(body))] ^= 1 << a.IntN(8)
			}
		}
	default:
		return a.records()
	}
	x.bytes = append(frame[:at:at], body...)
	wire.EndRequest(x.bytes, 0)
	if greedy(x.bytes) {
		return a.mutate()
	}
	return x
}

func zerosOf(b []byte) (at []int) {
	for i, c := range b {
		if c == 0 {
			at = append(at, i)
		}
	}
	return at
}

// records is a sound Produce request around a batch that lies or a bomb.
func (a *attacker) records() attack {
	x := attack{known: true, class: "lying record batch"}
	batch := a.batch()
	v := int16(3 + a.IntN(12))
	if a.IntN(25) == 0 {
		x.class = "decompression bomb"
		batch, v = a.bombs[a.IntN(len(a.bombs))], int16(7+a.IntN(8))
	} else {
		a.lieInBatch(batch)
	}
	a.corr++
	x.corr = []int32{a.corr}
	b := wire.BeginRequest(nil, wire.KeyProduce, v, a.corr, "adversary")
	p := &wire.ProduceParams{Acks: -1, TimeoutMs: 10, Topic: "mal", TopicID: a.malID}
	if len(batch) > 1<<20 {
		p.Topic, p.TopicID = "big", a.bigID
	}
	x.bytes = wire.AppendProduceRequest(b, v, p, batch)
	wire.EndRequest(x.bytes, 0)
	return x
}

// lieInBatch changes fields of a batch's header; mostly the checksum is right
// again, so that the lie itself is met.
func (a *attacker) lieInBatch(b []byte) {
	at := []int{0, 7, 8, 11, 12, 16, 16, 16, 17, 21, 22, 22, 22, 23, 26, 27, 35, 43, 51, 53, 57, 60}
	for range 1 + a.IntN(2) {
		i := at[a.IntN(len(at))]
		switch {
		case i == 16:
			b[i] = []byte{0, 1, 3, 0xff}[a.IntN(4)]
		case i+4 <= len(b) && a.IntN(2) == 0:
			copy(b[i:], lies[a.IntN(7)])
		default:
			b[i] ^= byte(1 + a.IntN(255))
		}
	}
	if a.IntN(3) == 0 && len(b) > wire.BatchHeaderSize {
		b[wire.BatchHeaderSize+a.IntN(len(b)-wire.BatchHeaderSize)] = byte(a.Uint32())
	}
	if a.IntN(5) > 0 {
		seal(b)
	}
}

func seal(b []byte) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

// next is one attack: three in four are mutated from valid requests.
func (a *attacker) next() attack {
	switch a.IntN(40) {
	case 0, 1, 2:
		x := a.mutate()
		for range 1 + a.IntN(4) {
			y := a.mutate()
			x.bytes, x.corr = append(x.bytes, y.bytes...), append(x.corr, y.corr...)
		}
		x.class = "several in one write"
		return x
	case 3:
		if x := a.mutate(); len(x.bytes) < 200 {
			x.class, x.single = "single bytes", true
			return x
		}
	case 4:
		x := a.mutate()
		x.class, x.half = "half-closed", true
		return x
	case 5, 6, 7, 8, 9, 10:
		return a.rubbish()
	case 11:
		frame, _, _ := a.request()
		return attack{class: "valid", known: false, bytes: frame, corr: []int32{a.corr}}
	}
	return a.mutate()
}

// rubbish is what no header comes out of.
func (a *attacker) rubbish() attack {
	switch a.IntN(7) {
	case 0:
		b := make([]byte, 1+a.IntN(400))
		for i := range b {
			b[i] = byte(a.Uint32())
		}
		return attack{class: "random bytes", bytes: b, waits: true}
	case 1:
		return attack{class: "HTTP", bytes: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), waits: true}
	case 2:
		return attack{class: "TLS hello", bytes: append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 512)...), waits: true}
	case 3:
		size := []uint32{0, 1, 7, 100<<20 + 1, math.MaxInt32, 1 << 31, math.MaxUint32}[a.IntN(7)]
		return attack{class: "impossible frame length", bytes: append(binary.BigEndian.AppendUint32(nil, size), make([]byte, 20)...), waits: true}
	case 4:
		size := []uint32{9, 1 << 10, 1 << 20, 100 << 20}[a.IntN(4)]
		return attack{class: "promises more than it brings", bytes: append(binary.BigEndian.AppendUint32(nil, size), make([]byte, a.IntN(9))...), waits: true, half: a.IntN(2) == 0}
	case 5:
		frame, at, _ := a.request()
		return attack{class: "truncated header", bytes: binary.BigEndian.AppendUint32(nil, 0), waits: true}.with(frame[4 : 4+a.IntN(at-4)])
	}
	frame, _, _ := a.request()
	b := append([]byte(nil), frame[4:]...)
	switch a.IntN(4) {
	case 0: // a key or version nobody speaks
		binary.BigEndian.PutUint16(b[2*a.IntN(2):], []uint16{97, 128, 999, 0x7fff, 0x8000, 0xffff}[a.IntN(6)])
	case 1: // a lying client id
		binary.BigEndian.PutUint16(b[8:], []uint16{0x7fff, 0x8000, 0xfffe, 1000}[a.IntN(4)])
	default:
		b[a.IntN(min(len(b), 20))] ^= byte(1 + a.IntN(255))
	}
	return attack{class: "bad header", waits: true}.with(b)
}

// with makes a frame of b, whose length is told as it is.
func (x attack) with(b []byte) attack {
	x.bytes = append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	return x
}

// bombs are batches of every codec that inflate to 1 GiB and more, as far as
// max.message.bytes lets a codec's densest form go: zstd in 32 KiB, gzip in
// 1 MiB, lz4 in 4 MiB (260 MiB in 1 MiB). Snappy gives 64 bytes for 3, so it
// has a lie, 1 GiB claimed by six bytes, and 21 MiB that are true. The last two
// are sound and stay just under what a batch may become: they are stored, and
// inflate again when an offset is looked for by time.
func bombs() [][]byte {
	zeros := make([]byte, 64<<20)
	var zip, lz bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zip, gzip.BestCompression)
	_, _ = w.Write(zeros)
	_ = w.Close()
	l := lz4.NewWriter(&lz)
	_ = l.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(false))
	for range 16 {
		_, _ = l.Write(zeros)
	}
	_ = l.Close()
	small := lz.Bytes()[:1_000_000] // cut off long after the limit
	zst := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x38}
	for i := range 8200 { // RLE blocks of 128 KiB
		h := uint32(128<<10)<<3 | 1<<1
		if i == 8199 {
			h |= 1
		}
		zst = append(zst, byte(h), byte(h>>8), byte(h>>16), 0)
	}
	block := []byte{0x80, 0x80, 0x04, 0x00, 0} // 64 KiB: a zero byte, then copies of 64 from one back
	for range (64 << 10) / 64 {
		block = append(block, 0xfe, 1, 0)
	}
	snap := []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}
	for len(snap) < 1_000_000 {
		snap = append(binary.BigEndian.AppendUint32(snap, uint32(len(block))), block...)
	}
	liar := append(binary.AppendUvarint(nil, 1<<30), 0)
	sound := wire.BuildBatch(nil, wire.PlainParams(0), wire.Record{Value: zeros[:63<<20]})[wire.BatchHeaderSize:]
	soundZip, _ := compress.Compress(compress.Gzip, sound)
	soundZst, _ := compress.Compress(compress.Zstd, sound)
	return [][]byte{
		packed(wire.CodecGzip, bytes.Repeat(zip.Bytes(), 16)), packed(wire.CodecZstd, zst),
		packed(wire.CodecLz4, lz.Bytes()), packed(wire.CodecLz4, small), packed(wire.CodecSnappy, snap), packed(wire.CodecSnappy, liar),
		packed(wire.CodecGzip, soundZip), packed(wire.CodecZstd, soundZst),
	}
}

// packed is a batch of one record whose records are taken from b as they are.
func packed(codec int8, b []byte) []byte {
	batch := wire.BuildBatch(nil, wire.PlainParams(1_800_000_000_000), wire.Record{})[:wire.BatchHeaderSize]
	batch = append(batch, b...)
	batch[22] |= byte(codec)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	seal(batch)
	return batch
}
