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

func TestEventsAreNumbered(t *testing.T) {
	var got []int64
	i := NewInstance(policy(func(e sdk.Event) (sdk.Decision, error) {
		got = append(got, e.Seq)
		return sdk.Decision{Wishes: []sdk.Wish{{Reason: "r"}}}, errors.New("no")
	}))
	for want := int64(1); want < 4; want++ {
		d, seq, err := i.Handle(t.Context(), sdk.Event{Seq: 77})
		if seq != want || err == nil || err.Error() != "no" || len(d.Wishes) != 1 || got[want-1] != want {
			t.Fatal(d, seq, err, got)
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
		i := NewInstance(policy(func(sdk.Event) (sdk.Decision, error) {
			if asked.Add(1) == 1 {
				time.Sleep(10 * time.Second)
			}
			return sdk.Decision{}, nil
		}))
		start := time.Now()
		for range 20 {
			if _, _, err := i.Handle(t.Context(), sdk.Event{}); !errors.Is(err, ErrSilent) {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d != Deadline {
			t.Errorf("20 events took %v", d)
		}
		time.Sleep(10 * time.Second)
		if _, _, err := i.Handle(t.Context(), sdk.Event{}); err != nil || asked.Load() != 2 {
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
		i := NewInstance(policy(func(sdk.Event) (sdk.Decision, error) {
			most.Store(max(most.Load(), in.Add(1)))
			time.Sleep(20 * time.Millisecond)
			in.Add(-1)
			return sdk.Decision{}, nil
		}))
		var wg sync.WaitGroup
		var bad atomic.Int32
		for range 8 {
			wg.Go(func() {
				if _, _, err := i.Handle(t.Context(), sdk.Event{}); err != nil {
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
	i := NewInstance(policy(func(sdk.Event) (sdk.Decision, error) { panic("boom") }))
	for range 2 {
		if d, _, err := i.Handle(t.Context(), sdk.Event{}); err == nil || !strings.Contains(err.Error(), "boom") || len(d.Wishes) != 0 {
			t.Fatal(d, err)
		}
	}
}

func TestCancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := NewInstance(policy(func(sdk.Event) (sdk.Decision, error) { time.Sleep(time.Second); return sdk.Decision{}, nil }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := i.Handle(ctx, sdk.Event{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
	})
}

// The journal keeps the newest verdicts, with who wished and under what fence.
func TestJournal(t *testing.T) {
	i := NewInstance(policy(nil))
	i.SetFence(12)
	for n := range int64(journalSize + 10) {
		i.Record(Verdict{Seq: n, Accepted: n%2 == 0})
	}
	j := i.Journal()
	if len(j) != journalSize || j[0].Seq != 10 || j[len(j)-1].Seq != journalSize+9 || j[0].Fence != 12 || j[0].Plugin.Version != "3" || !j[0].Accepted {
		t.Fatalf("%d verdicts from %+v", len(j), j[0])
	}
	j[0].Why = "changed"
	if i.Journal()[0].Why != "" {
		t.Error("the journal can be changed from outside")
	}
}
