package watermark

import (
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// seed is LOCKSTEP_SEED, or new each time; it is printed either way.
func seed(t testing.TB) int64 {
	s := time.Now().UnixNano()
	if env := os.Getenv("LOCKSTEP_SEED"); env != "" {
		var err error
		if s, err = strconv.ParseInt(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LOCKSTEP_SEED=%d", s)
	return s
}

// TestWorkedExample is the KIP's: "sourceHW = 88, gated on destination B".
func TestWorkedExample(t *testing.T) {
	local := Local{ISR: []Replica{{1, 100}, {2, 100}, {3, 99}}, InSync: 3, MinISR: 2}
	admit := func(leos ...int64) Report {
		in := Incoming{Fenced: true, MinISR: 2}
		for i, leo := range leos {
			in.Replicas = append(in.Replicas, Replica{int32(i), leo})
			in.ISR = append(in.ISR, int32(i))
		}
		r, a := Admit(Report{}, in, Fence{ClusterMatches: true, End: 100})
		if a != Counted {
			t.Fatal(a)
		}
		return r
	}
	mirrors := []Mirror{{"A", admit(95, 97, 96)}, {"B", admit(90, 88)}}
	want := Verdict{Mark: 88, Outcome: Moved, Slowest: 1}
	if got := Source(80, 100, local, mirrors); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if got := Source(80, 100, local, nil); got != (Verdict{99, Moved, -1}) {
		t.Fatalf("without mirrors: %+v", got)
	}
}

// twin is the rule as a reader would write it from the KIP: collect everybody,
// sort, take the first.
func twin(mark, end int64, local Local, mirrors []Mirror) Verdict {
	type participant struct {
		leo int64
		who int
	}
	var all []participant
	for _, r := range local.ISR {
		all = append(all, participant{r.LEO, -1})
	}
	if len(all) == 0 || int(local.InSync) < int(local.MinISR) {
		return Verdict{mark, FrozenLocal, -1}
	}
	for i, m := range mirrors {
		if m.Report.Valid && m.Report.ISRSize < m.Report.MinISR {
			return Verdict{mark, FrozenRemote, i}
		}
	}
	for i, m := range mirrors {
		if !m.Report.Valid {
			return Verdict{mark, AwaitingReport, i}
		}
		all = append(all, participant{m.Report.MinLEO, i})
	}
	all = append(all, participant{end, -1})
	slices.SortFunc(all, func(a, b participant) int {
		if a.leo != b.leo {
			return int(a.leo - b.leo)
		}
		return a.who - b.who
	})
	if all[0].leo <= mark {
		return Verdict{mark, Unchanged, all[0].who}
	}
	return Verdict{all[0].leo, Moved, all[0].who}
}

func TestSourceAgainstTwin(t *testing.T) {
	const vectors = 1_000_000
	r := rand.New(rand.NewSource(seed(t)))
	counts := map[Outcome]int{}
	for n := range vectors {
		mark, end := r.Int63n(12), r.Int63n(14)
		local := Local{InSync: int32(r.Intn(4)), MinISR: int32(r.Intn(3))}
		for i := range r.Intn(4) {
			local.ISR = append(local.ISR, Replica{int32(i), r.Int63n(14)})
		}
		mirrors := make([]Mirror, r.Intn(4))
		for i := range mirrors {
			mirrors[i].Report = Report{Valid: r.Intn(10) > 0, ISRSize: int32(1 + r.Intn(3)), MinISR: int32(1 + r.Intn(2)), MinLEO: r.Int63n(14)}
		}
		got, want := Source(mark, end, local, mirrors), twin(mark, end, local, mirrors)
		if got != want {
			t.Fatalf("vector %d: Source(%d, %d, %+v, %+v) = %+v, twin %+v", n, mark, end, local, mirrors, got, want)
		}
		if got.Mark < mark {
			t.Fatalf("vector %d: mark fell from %d to %d", n, mark, got.Mark)
		}
		counts[got.Outcome]++
	}
	for o := Moved; o <= AwaitingReport; o++ {
		t.Logf("%-16v %6.2f %%", o, float64(counts[o])*100/vectors)
		if counts[o] < vectors/100 {
			t.Errorf("%v in less than 1 %% of the vectors", o)
		}
	}
}

// TestProposedMemberDoesNotMakeAQuorum: {A} in sync, {B} eligible, min 2. A has
// proposed {A, C}. Were the mark raised on A and C, and the proposal lost, B
// could be elected without the records.
func TestProposedMemberDoesNotMakeAQuorum(t *testing.T) {
	local := Local{ISR: []Replica{{1, 9}, {3, 9}}, InSync: 1, MinISR: 2}
	if got := Source(5, 9, local, nil); got != (Verdict{5, FrozenLocal, -1}) {
		t.Fatalf("source: %+v", got)
	}
	if got := ReportedISR([]int32{1}, []int32{1, 3}, 2); !slices.Equal(got, []int32{1}) {
		t.Fatalf("destination reports %v", got)
	}
	if got := ReportedISR([]int32{1, 2}, []int32{1, 2, 3}, 2); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Fatalf("destination reports %v", got)
	}
}

func TestAdmit(t *testing.T) {
	fence := Fence{RegistrationEpoch: 7, ClusterMatches: true, SourceLeaderEpoch: 3, End: 50}
	good := Incoming{Fenced: true, RegistrationEpoch: 7, LeaderEpoch: 2, Sequence: 5, SourceLeaderEpoch: 3,
		Replicas: []Replica{{1, 40}, {2, 45}, {3, 10}}, ISR: []int32{1, 2}, MinISR: 2}
	prev := Report{Valid: true, LeaderEpoch: 2, Sequence: 4, RegistrationEpoch: 7, ISRSize: 2, MinISR: 2, MinLEO: 30}
	change := func(f func(*Incoming)) Incoming {
		in := good
		in.Replicas, in.ISR = slices.Clone(in.Replicas), slices.Clone(in.ISR)
		f(&in)
		return in
	}
	huge := make([]Replica, MaxReplicas+1)
	for i := range huge {
		huge[i].ID = int32(i)
	}
	for _, c := range []struct {
		name string
		prev Report
		in   Incoming
		f    Fence
		want Admission
		min  int64
	}{
		{"good", prev, good, fence, Counted, 40},
		{"first", Report{}, good, fence, Counted, 40},
		{"clamped", prev, good, Fence{7, true, 3, 35}, Counted, 35},
		{"lower than before", prev, change(func(i *Incoming) { i.Replicas[0].LEO = 3 }), fence, Counted, 3},
		{"other cluster", prev, good, Fence{7, false, 3, 50}, WrongRegistration, 0},
		{"other registration", prev, good, Fence{8, true, 3, 50}, WrongRegistration, 0},
		{"empty ISR", prev, change(func(i *Incoming) { i.ISR = nil }), fence, Invalid, 0},
		{"ISR without offset", prev, change(func(i *Incoming) { i.ISR[1] = 9 }), fence, Invalid, 0},
		{"ISR twice", prev, change(func(i *Incoming) { i.ISR[1] = 1 }), fence, Invalid, 0},
		{"replica twice", prev, change(func(i *Incoming) { i.Replicas[2].ID = 1 }), fence, Invalid, 0},
		{"negative LEO", prev, change(func(i *Incoming) { i.Replicas[2].LEO = -1 }), fence, Invalid, 0},
		{"negative id", prev, change(func(i *Incoming) { i.Replicas[2].ID = -1 }), fence, Invalid, 0},
		{"MinISR 0", prev, change(func(i *Incoming) { i.MinISR = 0 }), fence, Invalid, 0},
		{"MinISR absurd", prev, change(func(i *Incoming) { i.MinISR = MaxReplicas + 1 }), fence, Invalid, 0},
		{"replicas absurd", prev, change(func(i *Incoming) { i.Replicas = huge }), fence, Invalid, 0},
		{"negative sequence", prev, change(func(i *Incoming) { i.Sequence = -1 }), fence, Invalid, 0},
		{"negative epoch", prev, change(func(i *Incoming) { i.LeaderEpoch = -1 }), fence, Invalid, 0},
		{"old source epoch", prev, change(func(i *Incoming) { i.SourceLeaderEpoch = 2 }), fence, HeldByEpoch, 0},
		{"future source epoch", prev, change(func(i *Incoming) { i.SourceLeaderEpoch = 4 }), fence, HeldByEpoch, 0},
		{"same sequence", prev, change(func(i *Incoming) { i.Sequence = 4 }), fence, Stale, 0},
		{"older leadership", prev, change(func(i *Incoming) { i.LeaderEpoch, i.Sequence = 1, 99 }), fence, Stale, 0},
		{"newer leadership", prev, change(func(i *Incoming) { i.LeaderEpoch, i.Sequence = 3, 0 }), fence, Counted, 40},
		{"new registration forgets", Report{Valid: true, LeaderEpoch: 9, Sequence: 99, RegistrationEpoch: 6}, good, fence, Counted, 40},
		{"unfenced", Report{}, change(func(i *Incoming) { i.Fenced = false }), fence, Counted, 40},
		{"unfenced again", Report{Valid: true, Unfenced: true, RegistrationEpoch: 7}, change(func(i *Incoming) { i.Fenced = false }), fence, Counted, 40},
		{"unfenced after fenced", prev, change(func(i *Incoming) { i.Fenced = false }), fence, Stale, 0},
		{"fenced after unfenced", Report{Valid: true, Unfenced: true, RegistrationEpoch: 7, LeaderEpoch: -1}, good, fence, Counted, 40},
	} {
		got, a := Admit(c.prev, c.in, c.f)
		if a != c.want {
			t.Errorf("%s: %v, want %v", c.name, a, c.want)
		} else if a == Counted && (got.MinLEO != c.min || !got.Valid || got.ISRSize != int32(len(c.in.ISR)) || got.Unfenced == c.in.Fenced) {
			t.Errorf("%s: counted as %+v", c.name, got)
		} else if a != Counted && got != c.prev {
			t.Errorf("%s: refused, but %+v became %+v", c.name, c.prev, got)
		}
	}
}

func TestAckOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		v        Verdict
		localLEO int64
		late     bool
		want     Ack
		code     int16
		culprit  int
	}{
		{"reached", Verdict{10, Moved, 0}, 10, false, AckDone, 0, -1},
		{"reached late", Verdict{10, Moved, 0}, 10, true, AckDone, 0, -1},
		{"reached but local under min", Verdict{10, FrozenLocal, -1}, 10, false, AckLocalUnderMin, 20, -1},
		{"reached but remote under min", Verdict{10, FrozenRemote, 1}, 10, false, AckRemoteUnderMin, 151, 1},
		{"remote under min at once", Verdict{5, FrozenRemote, 1}, 5, false, AckRemoteUnderMin, 151, 1},
		{"no report yet: wait", Verdict{5, AwaitingReport, 2}, 10, false, AckWait, 0, 2},
		{"no report in time", Verdict{5, AwaitingReport, 2}, 10, true, AckRemoteTimeout, 150, 2},
		{"remote behind in time", Verdict{5, Unchanged, 0}, 10, false, AckWait, 0, 0},
		{"only remote behind", Verdict{5, Unchanged, 0}, 10, true, AckRemoteTimeout, 150, 0},
		{"local behind too", Verdict{5, Unchanged, 0}, 9, true, AckLocalTimeout, 7, -1},
	} {
		a, culprit := AckError(c.v, 10, c.localLEO, c.late)
		if a != c.want || a.Code() != c.code || culprit != c.culprit {
			t.Errorf("%s: %v (code %d) culprit %d", c.name, a, a.Code(), culprit)
		}
	}
}

func TestDestination(t *testing.T) {
	for _, c := range []struct {
		mark, tracked, local int64
		rule                 Rule
		want                 int64
	}{
		{5, 9, 7, Tracking, 7}, {5, 7, 9, Tracking, 7}, {5, 4, 9, Tracking, 5}, {5, 9, 4, Tracking, 5},
		{5, 6, 9, LocalISR, 9}, {5, 9, 4, LocalISR, 5},
	} {
		if got := Destination(c.mark, c.tracked, c.local, c.rule); got != c.want {
			t.Errorf("Destination(%d, %d, %d, %d) = %d, want %d", c.mark, c.tracked, c.local, c.rule, got, c.want)
		}
	}
}

func TestTruncatedClampsAll(t *testing.T) {
	s := Following{Mark: 20, Tracked: 25, LEOAtElection: 30, Reported: 22, Followers: []Replica{{1, 40}, {2, 10}}}
	got, lost := Truncated(s, 15)
	if lost != 5 || got.Mark != 15 || got.Tracked != 15 || got.LEOAtElection != 15 || got.Reported != 15 ||
		got.Followers[0].LEO != 15 || got.Followers[1].LEO != 10 {
		t.Fatalf("%+v, lost %d", got, lost)
	}
	if JoinFloor(got.Tracked, got.LEOAtElection, got.Reported) != 15 {
		t.Fatal("the floor stays above the log")
	}
	if _, lost := Truncated(s, 22); lost != 0 {
		t.Fatalf("nothing below the mark is gone, but lost = %d", lost)
	}
}
