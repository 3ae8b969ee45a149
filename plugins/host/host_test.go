package host

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"lockstep/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type policy func(sdk.Event) (sdk.Decision, error)

func (policy) Describe() sdk.Description {
	return sdk.Description{Kind: sdk.Release, Name: "p", Version: "3"}
}
func (p policy) Handle(e sdk.Event) (sdk.Decision, error) { return p(e) }

// slotOf is a slot whose plugin wishes under fence 12.
func slotOf(p sdk.Plugin) *Slot {
	s := InProcess(p)
	s.SetFence(12)
	return s
}

func TestEventsAreNumbered(t *testing.T) {
	var got []int64
	i := slotOf(policy(func(e sdk.Event) (sdk.Decision, error) {
		got = append(got, e.Seq)
		return sdk.Decision{Wishes: []sdk.Wish{{Reason: "r"}}}, errors.New("no")
	}))
	for want := int64(1); want < 4; want++ {
		a, err := i.Handle(t.Context(), sdk.Event{Seq: 77})
		if a.Seq != want || err == nil || err.Error() != "no" || got[want-1] != want {
			t.Fatal(a, err, got)
		}
	}
	if calls, silent := i.Calls(); calls != 3 || silent != 0 {
		t.Error(calls, silent)
	}
}

// A silent policy costs one deadline, not one for each event, and is asked
// again as soon as it has come back.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		i := slotOf(policy(func(sdk.Event) (sdk.Decision, error) {
			if asked.Add(1) == 1 {
				time.Sleep(10 * time.Second)
			}
			return sdk.Decision{}, nil
		}))
		start := time.Now()
		for range 20 {
			if _, err := i.Handle(t.Context(), sdk.Event{}); !errors.Is(err, ErrSilent) {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d != Deadline {
			t.Errorf("20 events took %v", d)
		}
		time.Sleep(10 * time.Second)
		if _, err := i.Handle(t.Context(), sdk.Event{}); err != nil || asked.Load() != 2 {
			t.Error(err, asked.Load())
		}
		if calls, silent := i.Calls(); calls != 21 || silent != 20 {
			t.Error(calls, silent)
		}
	})
}

// Callers of the same moment wait for each other: none is taken for silence.
func TestCallersWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in, most atomic.Int32
		i := slotOf(policy(func(sdk.Event) (sdk.Decision, error) {
			most.Store(max(most.Load(), in.Add(1)))
			time.Sleep(20 * time.Millisecond)
			in.Add(-1)
			return sdk.Decision{}, nil
		}))
		var wg sync.WaitGroup
		var bad atomic.Int32
		for range 8 {
			wg.Go(func() {
				if _, err := i.Handle(t.Context(), sdk.Event{}); err != nil {
					bad.Add(1)
				}
			})
		}
		wg.Wait()
		if bad.Load() != 0 || most.Load() != 1 {
			t.Errorf("%d of 8 not answered, %d at once", bad.Load(), most.Load())
		}
	})
}

func TestPanicIsAnError(t *testing.T) {
	i := slotOf(policy(func(sdk.Event) (sdk.Decision, error) { panic("boom") }))
	for range 2 {
		if a, err := i.Handle(t.Context(), sdk.Event{}); err == nil || !strings.Contains(err.Error(), "boom") || len(a.Wishes) != 0 {
			t.Fatal(a, err)
		}
	}
}

func TestCancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := slotOf(policy(func(sdk.Event) (sdk.Decision, error) { time.Sleep(time.Second); return sdk.Decision{}, nil }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := i.Handle(ctx, sdk.Event{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
	})
}

// Each event has exactly one line, with who was asked and under what fence; the
// newest are kept.
func TestJournal(t *testing.T) {
	s := slotOf(policy(func(e sdk.Event) (sdk.Decision, error) {
		if e.Seq%3 == 0 {
			return sdk.Decision{}, errors.New("cannot")
		}
		return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Admit}}}, nil
	}))
	for range journalSize + 10 {
		if a, err := s.Handle(t.Context(), sdk.Event{}); err == nil {
			a.Settle(Verdict{Wish: a.Wishes[0], Accepted: true})
		}
	}
	j := s.Journal()
	if len(j) != journalSize {
		t.Fatal(len(j))
	}
	for n, e := range j {
		failed := e.Seq%3 == 0
		if e.Seq != int64(n)+11 || e.Fence != 12 || e.Plugin.Version != "3" || failed != (e.Error == "cannot") || failed != (len(e.Verdicts) == 0) {
			t.Fatalf("%d: %+v", n, e)
		}
	}
}

// Without an instance, or before it has a fence, an event has no decision, and
// that is in the journal.
func TestNobodyIsAsked(t *testing.T) {
	s := NewSlot(sdk.Release)
	if _, err := s.Handle(t.Context(), sdk.Event{}); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	s.Serve(NewInstance(policy(func(sdk.Event) (sdk.Decision, error) { panic("asked") }), ""))
	if _, err := s.Handle(t.Context(), sdk.Event{}); !errors.Is(err, ErrNoFence) {
		t.Error(err)
	}
	if j := s.Journal(); len(j) != 2 || j[0].Error != ErrNone.Error() || j[1].Error != ErrNoFence.Error() {
		t.Errorf("%+v", j)
	}
}

// Nobody who serves needs a number; one who begins to needs the cluster's.
func TestFenced(t *testing.T) {
	s := NewSlot(sdk.Release)
	if !s.Fenced(7) {
		t.Error("a fence is wanted for nobody")
	}
	s.Serve(NewInstance(policy(nil), ""))
	if s.Fenced(7) {
		t.Error("a new instance has a fence")
	}
	if s.SetFence(7); !s.Fenced(7) || s.Fenced(8) {
		t.Error("not the number that was given")
	}
}
