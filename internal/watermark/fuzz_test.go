package watermark

import (
	"encoding/binary"
	"testing"
)

// numbers reads small signed numbers, and now and then a whole one, from bytes.
type numbers []byte

func (n *numbers) next() int64 {
	b := *n
	if len(b) == 0 {
		return 0
	}
	if b[0] == 0x7f && len(b) >= 9 {
		*n = b[9:]
		return int64(binary.BigEndian.Uint64(b[1:]))
	}
	*n = b[1:]
	return int64(int8(b[0]))
}

func (n *numbers) yes() bool { return n.next()&1 != 0 }

func (n *numbers) replicas() (r []Replica) {
	for range n.next() & 7 {
		r = append(r, Replica{int32(n.next()), n.next()})
	}
	return r
}

// FuzzAdmit: whatever comes, a report counts only when all its fences hold, it
// is newer than what counts, and it never says more than our own log end; one
// that does not count changes nothing.
func FuzzAdmit(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 1, 5, 2, 1, 4, 1, 5, 2, 3, 9, 2, 1, 7, 2, 6, 2, 1, 2, 1, 1, 4, 1, 9, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := numbers(data)
		prev := Report{Valid: n.yes(), Unfenced: n.yes(), LeaderEpoch: int32(n.next()), ISRSize: int32(n.next()), MinISR: int32(n.next()),
			RegistrationEpoch: n.next(), Sequence: n.next(), MinLEO: n.next()}
		in := Incoming{Fenced: n.yes(), RegistrationEpoch: n.next(), LeaderEpoch: int32(n.next()), Sequence: n.next(), SourceLeaderEpoch: int32(n.next()), MinISR: int32(n.next())}
		fence := Fence{RegistrationEpoch: n.next(), ClusterMatches: n.yes(), SourceLeaderEpoch: int32(n.next()), End: n.next()}
		in.Replicas = n.replicas()
		for range n.next() & 7 {
			in.ISR = append(in.ISR, int32(n.next()))
		}
		got, code := Admit(prev, in, fence)
		if code != Counted {
			if got != prev {
				t.Fatalf("%v changed %+v to %+v", code, prev, got)
			}
			return
		}
		newer := !prev.Valid || prev.Unfenced || prev.RegistrationEpoch != fence.RegistrationEpoch ||
			in.LeaderEpoch > prev.LeaderEpoch || in.LeaderEpoch == prev.LeaderEpoch && in.Sequence > prev.Sequence
		switch {
		case !got.Valid || !fence.ClusterMatches || got.RegistrationEpoch != fence.RegistrationEpoch:
			t.Fatal("counted for another cluster or registration")
		case in.Fenced && (in.RegistrationEpoch != fence.RegistrationEpoch || in.SourceLeaderEpoch != fence.SourceLeaderEpoch || !newer):
			t.Fatalf("counted past a fence: %+v after %+v against %+v", in, prev, fence)
		case !in.Fenced && prev.Valid && !prev.Unfenced && prev.RegistrationEpoch == fence.RegistrationEpoch:
			t.Fatal("an unfenced report replaced a fenced one")
		case got.MinLEO > fence.End:
			t.Fatal("counted above our own log end")
		}
		for _, id := range in.ISR {
			for _, r := range in.Replicas {
				if r.ID == id && got.MinLEO > r.LEO {
					t.Fatalf("replica %d has %d, counted %d", id, r.LEO, got.MinLEO)
				}
			}
		}
	})
}

// FuzzSource: the mark never falls, never passes a participant, and is what
// the rule as a reader would write it gives.
func FuzzSource(f *testing.F) {
	f.Add([]byte{3, 9, 2, 1, 2, 1, 8, 2, 7, 2, 1, 1, 2, 6, 1, 1, 2, 5})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := numbers(data)
		mark, end := n.next()&0xfff, n.next()&0xfff
		local := Local{InSync: int32(n.next() & 7), MinISR: int32(n.next() & 7)}
		for range n.next() & 3 {
			local.ISR = append(local.ISR, Replica{int32(n.next()), n.next() & 0xfff})
		}
		var mirrors []Mirror
		for range n.next() & 3 {
			mirrors = append(mirrors, Mirror{"m", Report{Valid: n.yes(), ISRSize: int32(n.next() & 7), MinISR: int32(n.next() & 7), MinLEO: n.next() & 0xfff}})
		}
		got := Source(mark, end, local, mirrors)
		if got.Mark < mark || got.Mark > mark && got.Mark > end {
			t.Fatalf("mark %d with end %d became %d", mark, end, got.Mark)
		}
		for _, m := range mirrors {
			if got.Mark > mark && (!m.Report.Valid || got.Mark > m.Report.MinLEO) {
				t.Fatalf("mark %d passed %+v", got.Mark, m)
			}
		}
		if want := twin(mark, end, local, mirrors); got.Mark != want.Mark || got.Outcome != want.Outcome {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
