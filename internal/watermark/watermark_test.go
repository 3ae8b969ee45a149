package watermark

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"sync"
	"testing"
)

// sleeper is one waiting shard: it announces, reads, and sleeps when the mark
// is too low; a wake makes it start over.
type sleeper struct {
	want   int64
	bit    uint64
	pc     int // 0 first step, 1 second step, 2 asleep, 3 done
	readAt bool
}

// run plays a schedule of steps (0 and 1 are raisers to 1 and 2, 2 is the
// sleeper) and returns the processes that could go on.
func play(schedule []int, readFirst bool) (ready []int, s sleeper) {
	var m Mark
	s = sleeper{want: 2, bit: 1 << 5}
	raiser := [2]int{}
	wake := func(mask uint64) {
		if mask&s.bit != 0 && s.pc == 2 {
			s.pc = 0
		} else if mask&s.bit != 0 && s.pc == 1 {
			s.readAt = true // woken while awake: the wake is kept
		}
	}
	for _, p := range schedule {
		if p < 2 {
			if raiser[p] == 0 {
				m.lift(int64(p + 1))
			} else {
				wake(m.Interest())
			}
			raiser[p]++
			continue
		}
		first, second := func() { m.announce(5) }, func() bool { return m.Load() >= s.want }
		switch {
		case s.pc == 0 && !readFirst:
			first()
			s.pc = 1
		case s.pc == 0: // the wrong order
			if second() {
				s.pc = 3
			} else {
				s.pc = 1
			}
		case readFirst:
			first()
			s.pc = 2
		case second():
			s.pc = 3
		case s.readAt:
			s.pc, s.readAt = 0, false
		default:
			s.pc = 2
		}
	}
	for p := range raiser {
		if raiser[p] < 2 {
			ready = append(ready, p)
		}
	}
	if s.pc < 2 {
		ready = append(ready, 2)
	}
	return ready, s
}

// schedules plays every interleaving and counts those that end asleep.
func schedules(prefix []int, readFirst bool) (all, lost int) {
	ready, s := play(prefix, readFirst)
	if len(ready) == 0 {
		if s.pc != 3 {
			return 1, 1
		}
		return 1, 0
	}
	for _, p := range ready {
		a, l := schedules(append(prefix[:len(prefix):len(prefix)], p), readFirst)
		all, lost = all+a, lost+l
	}
	return all, lost
}

func TestNoInterleavingLosesAWake(t *testing.T) {
	all, lost := schedules(nil, false)
	t.Logf("%d interleavings of two raisers and a waiter", all)
	if lost != 0 || all < 90 {
		t.Fatalf("%d of %d interleavings leave the waiter asleep", lost, all)
	}
	if _, lost := schedules(nil, true); lost == 0 {
		t.Fatal("reading before announcing loses no wake: the checker is blind")
	}
}

func TestMarkOnlyRises(t *testing.T) {
	var m Mark
	if m.Wait(3, 0) != true || m.Wait(63, 10) != false {
		t.Fatal("Wait")
	}
	if raised, wake := m.Raise(10); !raised || wake != 1<<3|1<<63 {
		t.Fatalf("Raise(10) = %v %x", raised, wake)
	}
	for _, v := range []int64{10, 9, -1} {
		m.Wait(1, 11)
		if raised, wake := m.Raise(v); raised || wake != 0 || m.Load() != 10 {
			t.Fatalf("Raise(%d) = %v %x, mark %d", v, raised, wake, m.Load())
		}
	}
	if got := m.Interest(); got != 1<<1 {
		t.Fatalf("Interest = %x", got)
	}
	if got := m.Interest(); got != 0 {
		t.Fatalf("second Interest = %x", got)
	}
	if m.Reset(4); m.Load() != 4 {
		t.Fatal("Reset does not lower")
	}
}

// TestMarkUnderContention lets raisers race and waiters sleep for real; a lost
// wake hangs the test.
func TestMarkUnderContention(t *testing.T) {
	const waiters, raisers, end = 4, 3, 20000
	var m Mark
	var wakes [waiters]chan struct{}
	for i := range wakes {
		wakes[i] = make(chan struct{}, 1)
	}
	var group sync.WaitGroup
	for r := range raisers {
		group.Go(func() {
			last := int64(0)
			for v := int64(r); v <= end; v += int64(r + 1) {
				_, mask := m.Raise(v)
				for i := range wakes {
					if mask&(1<<i) != 0 {
						select {
						case wakes[i] <- struct{}{}:
						default:
						}
					}
				}
				if now := m.Load(); now < last {
					t.Errorf("mark fell from %d to %d", last, now)
				} else {
					last = now
				}
			}
		})
	}
	for i := range wakes {
		group.Go(func() {
			for want := int64(1); want <= end; want += 7 {
				for !m.Wait(uint(i), want) {
					<-wakes[i]
				}
			}
		})
	}
	group.Wait()
	if m.Load() != end {
		t.Fatalf("mark %d, want %d", m.Load(), end)
	}
}

// TestNoLocks keeps the gate lock-free: no file but tests may import sync.
func TestNoLocks(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		seen++
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range parsed.Imports {
			if imp.Path.Value != `"sync/atomic"` {
				t.Errorf("%s imports %s", f.Name(), imp.Path.Value)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("only %d files seen", seen)
	}
}

var sink Ack

func TestNoAllocation(t *testing.T) {
	var m Mark
	local := Local{ISR: []Replica{{1, 10}, {2, 12}}, InSync: 2, MinISR: 2}
	mirrors := []Mirror{{"a", Report{Valid: true, ISRSize: 1, MinISR: 1, MinLEO: 9}}}
	in := Incoming{Fenced: true, Replicas: local.ISR, ISR: []int32{1, 2}, MinISR: 1, SourceLeaderEpoch: 1, RegistrationEpoch: 1}
	v := int64(0)
	n := testing.AllocsPerRun(1000, func() {
		v++
		m.Wait(2, v)
		m.Raise(v)
		verdict := Source(v, v+10, local, mirrors)
		sink, _ = AckError(verdict, v, v, true)
		in.Sequence = v
		Admit(mirrors[0].Report, in, Fence{RegistrationEpoch: 1, ClusterMatches: true, SourceLeaderEpoch: 1, End: v})
		Truncated(Following{Followers: local.ISR}, 100)
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkRaise(b *testing.B) {
	var m Mark
	for i := int64(1); b.Loop(); i++ {
		m.Raise(i)
	}
}

func BenchmarkWait(b *testing.B) {
	var m Mark
	m.Raise(1)
	for b.Loop() {
		m.Wait(3, 1)
	}
}

func BenchmarkSource(b *testing.B) {
	for _, n := range []int{0, 1, 4} {
		b.Run(fmt.Sprintf("mirrors=%d", n), func(b *testing.B) {
			local := Local{ISR: []Replica{{1, 100}, {2, 100}, {3, 99}}, InSync: 3, MinISR: 2}
			mirrors := make([]Mirror, n)
			for i := range mirrors {
				mirrors[i].Report = Report{Valid: true, ISRSize: 3, MinISR: 2, MinLEO: 98}
			}
			b.ReportAllocs()
			for b.Loop() {
				Source(90, 100, local, mirrors)
			}
		})
	}
}
