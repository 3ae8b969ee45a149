package meta

import (
	"bytes"
	"math/rand"
	"reflect"
	"testing"
)

// FuzzApply: any bytes, two replicas, same facts; and the snapshot comes back.
func FuzzApply(f *testing.F) {
	v := prepared(f)
	r := &randomizer{Rand: rand.New(rand.NewSource(1)), v: v}
	for _, m := range commands() {
		r.fill(reflect.ValueOf(m).Elem(), "")
		f.Add(Encode(m))
	}
	again, err := ReadSnapshot(AppendSnapshot(nil, v))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, cmd []byte) {
		a, _ := Apply(v, v.index+1, cmd)
		b, _ := Apply(again, again.index+1, cmd)
		sa := AppendSnapshot(nil, a)
		if !bytes.Equal(sa, AppendSnapshot(nil, b)) {
			t.Fatal("replicas differ")
		}
		c, err := ReadSnapshot(sa)
		if err != nil || !bytes.Equal(sa, AppendSnapshot(nil, c)) {
			t.Fatalf("snapshot does not come back: %v", err)
		}
	})
}

// FuzzReadSnapshot: any bytes are a View or an error.
func FuzzReadSnapshot(f *testing.F) {
	f.Add(AppendSnapshot(nil, prepared(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ReadSnapshot(b); err == nil {
			AppendSnapshot(nil, v)
			AppendDump(nil, v)
		}
	})
}
