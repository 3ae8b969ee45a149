package wire

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random contents; 0 = by the clock")

func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (go test -args -seed=%d)", seed, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestTableAgreesWithKmsg(t *testing.T) {
	last := int16(-1)
	for _, a := range APIs() {
		if a.Key <= last || Lookup(a.Key).Name != a.Name || a.ServedMin < a.Min || a.Max < a.ServedMin {
			t.Errorf("row %+v", a)
		}
		last = a.Key
		k := kmsg.RequestForKey(a.Key)
		if k == nil || a.Key >= KeyAddTopicsToMirror {
			continue
		}
		if kmsg.NameForKey(a.Key) != a.Name && a.Key != KeyInitProducerId {
			t.Errorf("%d is %s, kmsg %s", a.Key, a.Name, kmsg.NameForKey(a.Key))
		}
		for v := a.Min; v <= a.Max; v++ {
			if k.SetVersion(v); k.IsFlexible() != a.Flexible(v) {
				t.Errorf("%s v%d: flexible %v", a.Name, v, a.Flexible(v))
			}
		}
		if a.Max > k.MaxVersion() && a.Key != KeyProduce && a.Key != KeyFetch {
			t.Errorf("%s: max %d, kmsg %d", a.Name, a.Max, k.MaxVersion())
		}
	}
	for _, key := range []int16{-1, 8, 10, 17, 100, 127, 128, 32767, -32768} {
		if Lookup(key) != nil {
			t.Errorf("key %d is in the table", key)
		}
	}
	if p := Lookup(KeyProduce); p.Serves(2) || !p.Serves(3) || !p.Serves(14) || p.Serves(15) || p.Min != 0 {
		t.Errorf("Produce %+v", p)
	}
}

func TestErrorsAgreeWithKerr(t *testing.T) {
	for code, e := range errorTable {
		k := kerr.TypedErrorForCode(int16(code))
		if code == ErrNone || k == nil {
			if k == nil && code != ErrNone && code < ErrReadOnlyTopic {
				t.Errorf("%d is not known to kerr", code)
			}
			continue
		}
		name, retriable := k.Message, k.Retriable
		switch code { // what kerr has from older Kafkas
		case ErrNotLeaderOrFollower:
			name = "NOT_LEADER_OR_FOLLOWER"
		case ErrBrokerNotAvailable:
			retriable = false
		case ErrConcurrentTransactions, ErrShareSessionNotFound, ErrInvalidShareSessionEpoch:
			retriable = true // RetriableException in Kafka
		}
		if code < ErrReadOnlyTopic && (e.name != name || code.Retriable() != retriable || e.message == "") {
			t.Errorf("%d: %+v, kerr %+v", code, e, k)
		}
	}
	for code := int16(-1); code <= 136; code++ {
		if _, ok := errorTable[ErrorCode(code)]; !ok {
			t.Errorf("code %d is missing", code)
		}
	}
	if ErrMirrorSyncVersionMismatch != 155 || ErrorCode(9999).Name() != "UNKNOWN_SERVER_ERROR" || ErrNone.Name() != "NONE" {
		t.Error("names")
	}
}

func TestDownMap(t *testing.T) {
	for v := int16(0); v <= 20; v++ {
		for c := ErrorCode(-1); c < 200; c++ {
			want := c
			switch {
			case (c == 150 || c == 151) && v <= 13:
				want = 20
			case c == 137 && v <= 13:
				want = 44
			case c == 120 && v <= 10:
				want = 48
			case c == 56 && v <= 3:
				want = 6
			}
			if got := DownMapProduce(c, v); got != want {
				t.Errorf("Produce v%d: %d becomes %d, want %d", v, c, got, want)
			}
			if want = c; c == 56 && v <= 5 {
				want = 6
			}
			if got := DownMapFetch(c, v); got != want {
				t.Errorf("Fetch v%d: %d becomes %d, want %d", v, c, got, want)
			}
		}
	}
}

func TestApiVersions(t *testing.T) {
	a := ApiVersionsAnswer{ThrottleMs: 7, FinalizedEpoch: 99, Unstable: true,
		Supported: []Feature{{"mirror.sync.version", 0, 1}, {"metadata.version", 1, 25}},
		Finalized: []FinalizedFeature{{"mirror.sync.version", 1, 1}}}
	for v := int16(0); v <= 4; v++ {
		for _, a.Unstable = range []bool{true, false} {
			k := kmsg.NewPtrApiVersionsResponse()
			k.Version = v
			b := AppendApiVersions(nil, v, &a)
			if err := k.ReadFrom(b); err != nil {
				t.Fatal(v, err)
			}
			if again := k.AppendTo(nil); !bytes.Equal(b, again) {
				t.Fatalf("v%d:\nours %x\nkmsg %x", v, b, again)
			}
			want := map[int16]int16{}
			for _, r := range APIs() {
				want[r.Key] = r.Max
			}
			if !a.Unstable {
				want[KeyProduce], want[KeyFetch] = 13, 18
				for key := int16(107); key <= 109; key++ {
					delete(want, key)
				}
			}
			got := map[int16]int16{}
			for _, r := range k.ApiKeys {
				if got[r.ApiKey] = r.MaxVersion; r.MinVersion != Lookup(r.ApiKey).Min {
					t.Errorf("key %d from %d", r.ApiKey, r.MinVersion)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("v%d: ranges %v, want %v", v, got, want)
			}
			supported := []int{0, 0, 0, 1, 2}[v]
			if len(k.SupportedFeatures) != supported || (v >= 3 && (k.FinalizedFeaturesEpoch != 99 || len(k.FinalizedFeatures) != 1)) {
				t.Errorf("v%d: features %+v", v, k)
			}
		}
	}
	k := kmsg.NewPtrApiVersionsResponse()
	if err := k.ReadFrom(AppendApiVersionsUnsupported(nil)); err != nil || k.ErrorCode != 35 || k.ApiKeys[0].MaxVersion != 4 {
		t.Errorf("%+v %v", k, err)
	}
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = AppendApiVersions(buf[:0], 4, &a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFrame(t *testing.T) {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("me"))
	for _, a := range APIs() {
		k := kmsg.RequestForKey(a.Key)
		if k == nil || a.Key >= KeyAddTopicsToMirror {
			continue
		}
		for v := a.Min; v <= a.Max; v++ {
			k.SetVersion(v)
			frame := f.AppendRequest(nil, k, 77)
			h, body, err := ParseHeader(frame[4:])
			if err != nil || h.Key != a.Key || h.Version != v || h.Correlation != 77 || string(h.ClientID) != "me" || !bytes.Equal(body, k.AppendTo(nil)) {
				t.Fatalf("%s v%d: %+v %v", a.Name, v, h, err)
			}
			ours := BeginRequest([]byte("x"), a.Key, v, 77, "me")
			ours = k.AppendTo(ours)
			EndRequest(ours, 1)
			if !bytes.Equal(ours[1:], frame) {
				t.Fatalf("%s v%d:\nours %x\nkmsg %x", a.Name, v, ours[1:], frame)
			}
			b := append(BeginResponse([]byte("yy"), a.Key, v, 78), "body"...)
			EndResponse(b, 2, 1000)
			want := 4 + 4 + bit(k.IsFlexible() && a.Key != 18)
			corr, body, err := ParseResponseHeader(b[6:], a.Key, v)
			if r := NewReader(b[2:]); int(r.Int32()) != want+1000 || corr != 78 || string(body) != "body" || err != nil {
				t.Fatalf("%s v%d: response %x", a.Name, v, b)
			}
		}
	}
	h, body, err := ParseHeader([]byte{0, 77, 0, 1, 0, 0, 0, 5, 0xff, 0xff, 9})
	if err != ErrUnknownKey || h.Key != 77 || h.ClientID != nil || !bytes.Equal(body, []byte{9}) {
		t.Fatalf("%+v %v %v", h, body, err)
	}
	if _, _, err := ParseHeader([]byte{0, 0, 0, 9, 0, 0, 0, 5, 0, 3, 'a'}); err != ErrMalformed {
		t.Fatal(err)
	}
}

func TestReaderReadsWhatAppendWrote(t *testing.T) {
	r := newRand(t)
	for range 2000 {
		flex := r.IntN(2) == 0
		i := int64(r.Uint64()) >> r.IntN(64)
		s := bytes.Repeat([]byte("s"), r.IntN(300))
		var id [16]byte
		id[3] = byte(i)
		b := AppendInt8(nil, int8(i))
		b = AppendBool(b, i&1 == 0)
		b = AppendInt16(b, int16(i))
		b = AppendUint16(b, uint16(i))
		b = AppendInt32(b, int32(i))
		b = AppendUint32(b, uint32(i))
		b = AppendInt64(b, i)
		b = AppendFloat64(b, float64(i))
		b = AppendUUID(b, id)
		b = AppendUvarint(b, uint32(i))
		b = AppendVarint(b, int32(i))
		b = AppendVarlong(b, i)
		b = AppendString(b, string(s), flex)
		b = AppendNullableString(b, nil, flex)
		b = AppendStringBytes(b, s, flex)
		b = AppendBytes(b, s, flex)
		b = AppendBytes(b, nil, flex)
		b = AppendArrayLen(b, -1, flex)
		b = append(b, 2)
		b = AppendTag(b, 3, s)
		b = BeginTag(b, 9)
		start := len(b)
		b = EndTag(append(b, s...), start)
		rd := NewReader(b)
		ok := rd.Int8() == int8(i) && rd.Bool() == (i&1 == 0) && rd.Int16() == int16(i) && rd.Uint16() == uint16(i) &&
			rd.Int32() == int32(i) && rd.Uint32() == uint32(i) && rd.Int64() == i && rd.Float64() == float64(i) && rd.UUID() == id &&
			rd.Uvarint() == uint32(i) && rd.Varint() == int32(i) && rd.Varlong() == i && rd.String(flex) == string(s) &&
			rd.NullableString(flex) == nil && bytes.Equal(rd.NullableStringBytes(flex), s) && bytes.Equal(rd.Bytes(flex), s) &&
			rd.Bytes(flex) == nil && rd.ArrayLen(flex, 1) == -1 && rd.TagCount() == 2
		for _, key := range []uint32{3, 9} {
			k, v := rd.Tag()
			ok = ok && k == key && bytes.Equal(v, s)
		}
		if !ok || rd.Complete() != nil {
			t.Fatalf("i=%d flex=%v len=%d: %x", i, flex, len(s), b)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for name, read := range map[string]func(*Reader){
		"\xff\xff\xff\xff\x1f":                     func(r *Reader) { r.Uvarint() },
		"\x80\x80\x80\x80\x80\x01":                 func(r *Reader) { r.Uvarint() },
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02": func(r *Reader) { r.Varlong() },
		"\xff\xfe\x00":                             func(r *Reader) { r.StringBytes(false) },
		"\x00":                                     func(r *Reader) { r.String(true) },
		"\x00\x01":                                 func(r *Reader) { r.StringBytes(true) },
		"\xff\xff\x01":                             func(r *Reader) { r.StringBytes(false) },
		"\x00\x00\x00\x02\x01\x02\x03":             func(r *Reader) { r.ArrayLen(false, 2) },
		"\x41":                                     func(r *Reader) { r.SkipTags() },
		"":                                         func(r *Reader) { r.Int8() },
	} {
		r := NewReader([]byte(name))
		read(&r)
		if r.Ok() || r.Err() == nil || r.Remaining() != 0 || r.Int64() != 0 || r.Span(0) != nil {
			t.Errorf("%x was accepted", name)
		}
	}
}
