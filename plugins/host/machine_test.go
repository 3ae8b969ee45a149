package host

import (
	"errors"
	"testing"
	"time"
)

const sec = int64(time.Second / time.Millisecond)

func spec(name string) Spec { return Spec{Path: name} }

// TestMachine is the life of a plugin, step by step.
func TestMachine(t *testing.T) {
	m := Machine{Spec: spec("a")}
	now := int64(1000)
	do := func(after int64, e EventKind, s Spec, want Act, phase Phase, swap Swap) {
		t.Helper()
		now += after
		act, err := m.Step(e, s, now)
		if err != nil || act != want || m.Phase != phase || m.Swap != swap {
			t.Fatalf("at %d: act %d, %v %v, %v; want act %d, %v %v", now, act, m.Phase, m.Swap, err, want, phase, swap)
		}
	}
	none := Spec{}
	do(0, Tick, none, Start, Starting, NoSwap)
	do(0, Tick, none, Nothing, Starting, NoSwap)
	do(10, Started, none, Nothing, Up, NoSwap)
	// It ends again and again: each wait is twice the one before, up to 30 s.
	for n := range 12 {
		do(0, Ended, none, Nothing, Off, NoSwap)
		if wait := m.Due - now; wait != min(100<<n, 30*sec) {
			t.Fatalf("wait %d ms after end %d", wait, n)
		}
		do(m.Due-now-1, Tick, none, Nothing, Off, NoSwap)
		do(1, Tick, none, Start, Starting, NoSwap)
		if n%2 == 0 {
			do(1, Started, none, Nothing, Up, NoSwap)
		}
		if n%2 == 1 {
			m.Phase = Starting
			do(0, StartFailed, none, Nothing, Off, NoSwap)
			m.Fails--
			do(m.Due-now, Tick, none, Start, Starting, NoSwap)
			do(1, Started, none, Nothing, Up, NoSwap)
		}
	}
	// It has lasted: the next end is the first one again.
	do(30*sec, Tick, none, Nothing, Up, NoSwap)
	do(0, Ended, none, Nothing, Off, NoSwap)
	do(100, Tick, none, Start, Starting, NoSwap)
	do(1, Started, none, Nothing, Up, NoSwap)
	// A swap: start beside, shadow for 2 s, cut over.
	do(0, SwapAsked, spec("b"), StartNext, Up, NextStarting)
	if _, err := m.Step(SwapAsked, spec("c"), now); !errors.Is(err, ErrSwapping) {
		t.Fatal(err)
	}
	do(5, NextStarted, none, Nothing, Up, Shadowing)
	do(1999, Tick, none, Nothing, Up, Shadowing)
	do(1, Tick, none, CutOver, Up, NoSwap)
	if m.Spec.Path != "b" || m.Previous.Path != "a" || m.Probation != now+30*sec {
		t.Fatalf("%+v", m)
	}
	// It ends within its probation: the one before comes back, and stays.
	do(29*sec, Ended, none, FellBack, Starting, NoSwap)
	do(1, Started, none, Nothing, Up, NoSwap)
	if m.Spec.Path != "a" || m.Previous != nil || m.Probation != 0 {
		t.Fatalf("%+v", m)
	}
	if _, err := m.Step(RollbackAsked, none, now); !errors.Is(err, ErrNoPrevious) {
		t.Fatal(err)
	}
	// A next one that does not start changes nothing.
	do(0, SwapAsked, spec("c"), StartNext, Up, NextStarting)
	do(3, NextEnded, none, DropNext, Up, NoSwap)
	if m.Spec.Path != "a" {
		t.Fatalf("%+v", m)
	}
	// One whose probation is over is started again itself; a rollback is a swap.
	do(0, SwapAsked, spec("d"), StartNext, Up, NextStarting)
	do(1, NextStarted, none, Nothing, Up, Shadowing)
	do(2*sec, Tick, none, CutOver, Up, NoSwap)
	do(31*sec, Tick, none, Nothing, Up, NoSwap)
	do(0, Ended, none, Nothing, Off, NoSwap)
	do(0, RollbackAsked, none, StartNext, Off, NextStarting)
	do(1, NextStarted, none, CutOver, Up, NoSwap) // nobody serves: no shadow
	if m.Spec.Path != "a" || m.Previous.Path != "d" {
		t.Fatalf("%+v", m)
	}
	// A start that ends after a cut-over has taken its place is not wanted.
	do(0, Ended, none, FellBack, Starting, NoSwap)
	do(0, SwapAsked, spec("e"), StartNext, Starting, NextStarting)
	do(1, NextStarted, none, CutOver, Up, NoSwap)
	do(1, Started, none, Unwanted, Up, NoSwap)
	do(1, StartFailed, none, Nothing, Up, NoSwap)
	if m.Spec.Path != "e" {
		t.Fatalf("%+v", m)
	}
}
