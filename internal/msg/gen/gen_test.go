package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
	"lockstep/internal/msg/gen/testdata/stock"
	"lockstep/internal/wire"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random contents; 0 = by the clock")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (go test -args -seed=%d)", seed, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// fill sets every field but Version to random contents.
func fill(r *rand.Rand, v reflect.Value, tags bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Version" || (name == "UnknownTags" && !tags) {
				continue
			}
			if name == "UnknownTags" {
				for range r.IntN(3) {
					v.Field(i).Set(reflect.Append(v.Field(i), reflect.ValueOf(wire.Tag{Key: 100 + r.Uint32N(1e6), Value: make([]byte, r.IntN(200))})))
				}
				continue
			}
			fill(r, v.Field(i), tags)
		}
	case reflect.Slice:
		n := r.IntN(4)
		if n == 3 && r.IntN(4) == 0 {
			n = 80 // longer than what is reserved ahead and than one size byte
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i), tags)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i), tags)
		}
	case reflect.Pointer:
		if v.SetZero(); r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), tags)
		}
	case reflect.String:
		v.SetString(strings.Repeat("a", r.IntN(2)*r.IntN(200)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(r.Uint64() >> r.IntN(64) & 0xff)
	default:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
		if r.IntN(4) == 0 {
			v.SetInt(-1)
		}
	}
}

func name(m any) string { return reflect.TypeOf(m).Elem().Name() }

func TestAgreesWithKmsg(t *testing.T) {
	r := newRand(t)
	cases := 0
	for _, m := range stock.All() {
		var other kmsg.Request = kmsg.RequestForKey(m.APIKey())
		oracle := any(other)
		if strings.HasSuffix(name(m), "Response") {
			oracle = other.ResponseKind()
		}
		k := oracle.(interface {
			SetVersion(int16)
			AppendTo([]byte) []byte
			ReadFrom([]byte) error
			IsFlexible() bool
			MaxVersion() int16
		})
		for v := m.MinVersion(); v <= min(m.MaxVersion(), k.MaxVersion()); v++ {
			m.SetVersion(v)
			k.SetVersion(v)
			if m.IsFlexible() != k.IsFlexible() {
				t.Fatalf("%s v%d: flexible is %v", name(m), v, m.IsFlexible())
			}
			for range 100 {
				m.Default()
				fill(r, reflect.ValueOf(m).Elem(), false)
				ours := m.AppendTo(nil)
				reflect.ValueOf(k).Elem().SetZero() // kmsg keeps a nullable struct it does not read
				k.SetVersion(v)
				if err := k.ReadFrom(ours); err != nil {
					t.Fatalf("%s v%d: kmsg: %v", name(m), v, err)
				}
				if theirs := k.AppendTo(nil); !bytes.Equal(ours, theirs) {
					t.Fatalf("%s v%d:\nours %x\nkmsg %x", name(m), v, ours, theirs)
				}
				if err := m.ReadFrom(ours); err != nil {
					t.Fatalf("%s v%d: %v", name(m), v, err)
				}
				if again := m.AppendTo(nil); !bytes.Equal(ours, again) {
					t.Fatalf("%s v%d: read back\nwas %x\nis  %x", name(m), v, ours, again)
				}
				cases++
			}
		}
	}
	if cases < 3000 {
		t.Fatalf("only %d cases", cases)
	}
}

// everything is one of each generated message, ours and the copies.
func everything() []msg.Message {
	out := msg.All()
	for _, m := range stock.All() {
		out = append(out, m)
	}
	return out
}

func TestRoundTripAndTruncation(t *testing.T) {
	r := newRand(t)
	for _, m := range everything() {
		for v := m.MinVersion(); v <= m.MaxVersion(); v++ {
			m.SetVersion(v)
			for range 10 {
				m.Default()
				fill(r, reflect.ValueOf(m).Elem(), true)
				b := m.AppendTo(nil)
				if err := m.ReadFrom(b); err != nil {
					t.Fatalf("%s v%d: %v", name(m), v, err)
				}
				if again := m.AppendTo(nil); !bytes.Equal(b, again) {
					t.Fatalf("%s v%d:\nwas %x\nis  %x", name(m), v, b, again)
				}
				if m.ReadFrom(append(b, 0)) == nil {
					t.Fatalf("%s v%d: a trailing byte was accepted", name(m), v)
				}
				for n := 0; n < len(b); n += 1 + len(b)/200 {
					if m.ReadFrom(b[:n:n]) == nil {
						t.Fatalf("%s v%d: %d of %d bytes were accepted", name(m), v, n, len(b))
					}
				}
			}
		}
	}
}

// TestLyingCounts damages bytes, most of all to large counts, and looks only for
// panics and for memory that the input cannot justify.
func TestLyingCounts(t *testing.T) {
	r := newRand(t)
	var before, after runtime.MemStats
	for _, m := range everything() {
		m.SetVersion(m.MaxVersion())
		m.Default()
		fill(r, reflect.ValueOf(m).Elem(), true)
		b := m.AppendTo(nil)
		b = append(b, make([]byte, 64)...)
		runtime.ReadMemStats(&before)
		n := 0
		for i := 0; i < len(b); i += 1 + len(b)/150 {
			for _, lie := range []string{"\xff\xff\xff\xff\x0f", "\x7f\xff\xff\xff", "\xff\xff\x03", "\x80"} {
				c := bytes.Clone(b)
				copy(c[i:], lie)
				_ = m.ReadFrom(c)
				n++
			}
		}
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / uint64(n); per > 1<<16+200*uint64(len(b)) {
			t.Fatalf("%s: %d bytes allocated per %d bytes of input", name(m), per, len(b))
		}
	}
}

func TestDefaults(t *testing.T) {
	var m msg.DescribeClusterMirrorsResponse
	var topic msg.DescribeClusterMirrorsResponseDescribedPartition
	topic.Default()
	m.Default()
	if topic.SourceOffset != -1 || topic.LastContactMs != -1 || topic.LostAckedRecords {
		t.Fatalf("defaults %+v", topic)
	}
	if m := msg.NewMetadataRecord(31); m == nil || name(m) != "MirrorTopicTypeChangeRecord" || m.APIKey() != 31 {
		t.Fatalf("record 31 is %v", m)
	}
	if msg.NewRequest(107) == nil || msg.NewResponse(107) == nil || msg.NewRequest(3) != nil || msg.NewMetadataRecord(-5) != nil {
		t.Fatal("factories")
	}
}

func TestGeneratedFilesAreFresh(t *testing.T) {
	for _, d := range []struct{ schema, out, pkg string }{
		{"../schema", "..", "msg"}, {"testdata/schema", "testdata/stock", "stock"},
	} {
		want, err := generate(d.schema, d.pkg)
		if err != nil {
			t.Fatal(err)
		}
		have, err := filepath.Glob(filepath.Join(d.out, "*.gen.go"))
		if err != nil || len(have) != len(want) {
			t.Errorf("%s: %d generated files, want %d (%v)", d.out, len(have), len(want), err)
		}
		for file, src := range want {
			if got, err := os.ReadFile(filepath.Join(d.out, file)); err != nil || !bytes.Equal(got, src) {
				t.Errorf("%s/%s is stale: run go generate (%v)", d.out, file, err)
			}
		}
	}
}

func TestSchemaFaults(t *testing.T) {
	const frame = `{"apiKey":1,"type":"request","name":"X","validVersions":"0-1","flexibleVersions":"1+","fields":[%s]}`
	for fields, want := range map[string]string{
		`{"name":"A","type":"int33","versions":"0+"}`:                                                                                                       "unknown type",
		`{"name":"A","type":"int32","versions":"0+","oops":1}`:                                                                                              "unknown field",
		`{"name":"A","type":"int32","versions":"0+"},{"name":"a","type":"int8","versions":"0+"}`:                                                            "taken",
		`{"name":"A","type":"int32","versions":"0+","tag":0}`:                                                                                               "go together",
		`{"name":"A","type":"int32","versions":"0+","tag":0,"taggedVersions":"0+"}`:                                                                         "not flexible",
		`{"name":"A","type":"string","versions":"1+","nullableVersions":"1+","tag":0,"taggedVersions":"1+"}`:                                                "default",
		`{"name":"A","type":"int8","versions":"1+","tag":0,"taggedVersions":"1+"},{"name":"B","type":"int8","versions":"1+","tag":0,"taggedVersions":"1+"}`: "tag 0",
		`{"name":"APIKey","type":"int32","versions":"0+"}`:                                                                                                  "taken",
		`{"name":"A","type":"int32","versions":"x"}`:                                                                                                        "versions",
	} {
		_, err := parseMessage([]byte(fmt.Sprintf(frame, fields)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", fields, err, want)
		}
	}
	if _, err := parseMessage([]byte("// a comment\n" + fmt.Sprintf(frame, `{"name":"A","type":"int32","versions":"0+"} // and one more
`))); err != nil {
		t.Error(err)
	}
}
