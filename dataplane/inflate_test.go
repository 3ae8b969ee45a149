package dataplane

import (
	"errors"
	"testing"
)

// counted is memory that knows what it gave.
type counted struct {
	heapMemory
	mapped, given int
}

func (m *counted) Map(n int) ([]byte, error) {
	m.mapped += n
	m.given++
	return m.heapMemory.Map(n)
}

func (m *counted) Unmap(b []byte) error {
	m.mapped -= len(b)
	return nil
}

// What is small costs no mapping. What is large gets one, behind the gate, that
// is given back, also when it was too large after all.
func TestLargeInflationsGoOneByOne(t *testing.T) {
	mem := &counted{}
	errTooLarge := errors.New("too large")
	grows := 0 // what each batch becomes
	var seen []int
	e := &Engine{o: Options{Memory: mem, Inflate: func(dst []byte, _ int8, src []byte, limit int) ([]byte, error) {
		seen = append(seen, cap(dst))
		if grows > limit {
			return nil, errTooLarge
		}
		return src, nil
	}}}
	room := make([]byte, inflateSmall+inflateSlack)
	const limit = 16 << 20
	for _, c := range []struct {
		grows, given int
		err          error
	}{{inflateSmall, 0, nil}, {inflateSmall + 1, 1, nil}, {limit + 1, 1, errTooLarge}} {
		grows, mem.given, seen = c.grows, 0, nil
		x := inflation{e: e, gate: &e.inflateHot, small: room}
		_, err := x.inflate(1, []byte("x"), limit)
		want(t, "error", err, c.err)
		want(t, "mappings", mem.given, c.given)
		if free := e.inflateHot.TryLock(); free {
			e.inflateHot.Unlock()
			want(t, "gate", free, c.given == 0)
		}
		_, _ = x.inflate(1, []byte("y"), limit) // a second batch of the same request uses the same memory
		want(t, "mappings", mem.given, c.given)
		if c.given > 0 && seen[len(seen)-1] < limit+inflateSlack {
			t.Errorf("room for %d bytes, %d may come", seen[len(seen)-1], limit)
		}
		x.done()
		want(t, "bytes kept", mem.mapped, 0)
		if !e.inflateHot.TryLock() {
			t.Fatal("the gate stayed shut")
		}
		e.inflateHot.Unlock()
	}
}
