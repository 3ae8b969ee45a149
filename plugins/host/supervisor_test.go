package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/plugins/sdk"
)

// fake is a plugin that is started without a process.
type fake struct {
	policy
	over   atomic.Bool
	killed atomic.Bool
}

func (f *fake) Plugin() sdk.Plugin     { return f.policy }
func (f *fake) Pid() int               { return 7 }
func (f *fake) Exited() (string, bool) { return "signal: killed", f.over.Load() }
func (f *fake) Kill()                  { f.killed.Store(true); f.over.Store(true) }

// house is a supervisor over fakes, in virtual time.
type house struct {
	*Supervisor
	t       *testing.T
	mu      sync.Mutex
	started map[string][]*fake
	bad     map[string]error
	makes   map[string]policy
}

func supervise(t *testing.T, fallback *Spec, f func(h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, started: map[string][]*fake{}, bad: map[string]error{}, makes: map[string]policy{}}
		h.Supervisor = NewSupervisor(Options{Kind: sdk.Release, Spec: spec("a"), Fallback: fallback, Launch: h.launch, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { h.Run(ctx); close(over) }()
		f(h)
		cancel()
		<-over
		h.mu.Lock()
		defer h.mu.Unlock()
		for path, all := range h.started {
			for _, p := range all {
				if !p.killed.Load() {
					t.Errorf("a process of %s was left", path)
				}
			}
		}
	})
}

func admit(e sdk.Event) (sdk.Decision, error) {
	return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Admit, Subject: e.Subject}}}, nil
}

func (h *house) launch(s Spec) (Running, error) {
	time.Sleep(50 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.bad[s.Path]; err != nil {
		return nil, err
	}
	p := h.makes[s.Path]
	if p == nil {
		p = admit
	}
	f := &fake{policy: p}
	h.started[s.Path] = append(h.started[s.Path], f)
	return f, nil
}

// set says what a program does when it is started.
func (h *house) set(path string, p policy, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.makes[path], h.bad[path] = p, err
}

func (h *house) runs(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.started[path])
}

func (h *house) last(path string) *fake {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started[path][len(h.started[path])-1]
}

// ask asks whoever serves, under a new fence.
func (h *house) ask() error {
	h.Slot().SetFence(h.Slot().Fence() + 1)
	a, err := h.Slot().Handle(h.t.Context(), sdk.Event{Subject: sdk.Subject{Topic: "t"}})
	if err == nil {
		a.Settle()
	}
	return err
}

// A plugin that is killed is started again after a wait that grows, and events
// in between have no decision.
func TestKilledIsStartedAgain(t *testing.T) {
	supervise(t, nil, func(h *house) {
		time.Sleep(time.Second)
		for n := range 4 {
			if err := h.ask(); err != nil || h.runs("a") != n+1 {
				t.Fatalf("%d: %v, %d starts", n, err, h.runs("a"))
			}
			h.last("a").over.Store(true)
			time.Sleep(pollEvery + time.Millisecond)
			if err := h.ask(); !errors.Is(err, ErrNone) {
				t.Fatal(err)
			}
			time.Sleep(backoff(n) + 300*time.Millisecond)
		}
		if s := h.Status(); s.Phase != Up || s.Fails != 4 || s.Last != "signal: killed" {
			t.Fatalf("%+v", s)
		}
	})
}

// A plugin that is silent for long is ended and started again.
func TestHungIsStartedAgain(t *testing.T) {
	supervise(t, nil, func(h *house) {
		wake := make(chan struct{})
		defer close(wake)
		h.set("a", func(e sdk.Event) (sdk.Decision, error) { <-wake; return admit(e) }, nil)
		time.Sleep(time.Second)
		if err := h.ask(); !errors.Is(err, ErrSilent) {
			t.Fatal(err)
		}
		h.set("a", admit, nil)
		time.Sleep(hungAfter - time.Second)
		if h.runs("a") != 1 {
			t.Fatal("ended too early")
		}
		time.Sleep(2 * time.Second)
		if err := h.ask(); err != nil || h.runs("a") != 2 {
			t.Fatal(err, h.runs("a"))
		}
	})
}

// A swap shows both the same events, tells where they differ, and cuts over at a
// number; the new one needs a fence of its own.
func TestSwap(t *testing.T) {
	supervise(t, nil, func(h *house) {
		h.set("b", func(e sdk.Event) (sdk.Decision, error) {
			if e.Seq%2 == 0 {
				return sdk.Decision{}, nil
			}
			return admit(e)
		}, nil)
		time.Sleep(time.Second)
		done := make(chan Report)
		go func() { done <- h.Swap(h.t.Context(), spec("b")) }()
		time.Sleep(time.Second)
		for range 10 {
			if err := h.ask(); err != nil {
				t.Fatal(err)
			}
		}
		rep := <-done
		if rep.Err != nil || rep.Seen != 10 || rep.Apart != 5 || len(rep.Differences) != 5 || rep.FromSeq != 11 ||
			rep.Differences[0].Old != "admit t[0] step 0" || rep.Differences[0].New != "nothing" {
			t.Fatalf("%+v", rep)
		}
		if h.Slot().Fence() != 0 {
			t.Error("the new one has the old one's fence")
		}
		time.Sleep(time.Second)
		if !h.last("a").killed.Load() || h.last("b").killed.Load() || h.Status().Spec.Path != "b" {
			t.Errorf("%+v", h.Status())
		}
		// It does not last: the one before comes back.
		h.last("b").over.Store(true)
		time.Sleep(time.Second)
		if h.Status().Spec.Path != "a" || h.runs("a") != 2 || h.ask() != nil {
			t.Errorf("%+v", h.Status())
		}
	})
}

// A program that does not start changes nothing; of two swaps at once one is
// refused; a rollback needs something to go back to.
func TestSwapRefused(t *testing.T) {
	supervise(t, nil, func(h *house) {
		h.set("b", nil, errors.New("no such file"))
		time.Sleep(time.Second)
		if rep := h.Swap(h.t.Context(), spec("b")); rep.Err == nil || rep.Err.Error() != "no such file" || h.ask() != nil {
			t.Fatalf("%+v", rep)
		}
		if rep := h.Rollback(h.t.Context()); !errors.Is(rep.Err, ErrNoPrevious) {
			t.Fatalf("%+v", rep)
		}
		go h.Swap(h.t.Context(), spec("c"))
		time.Sleep(time.Second)
		if rep := h.Swap(h.t.Context(), spec("d")); !errors.Is(rep.Err, ErrSwapping) {
			t.Fatalf("%+v", rep)
		}
		time.Sleep(2 * time.Second)
		if rep := h.Rollback(h.t.Context()); rep.Err != nil || h.Status().Spec.Path != "a" || h.Status().Previous.Path != "c" {
			t.Fatalf("%+v %+v", rep, h.Status())
		}
	})
}

// A program of the configuration that cannot serve gives way to the default.
func TestFallback(t *testing.T) {
	standard := spec("default")
	supervise(t, &standard, func(h *house) {
		h.set("a", nil, errors.New("no such file"))
		time.Sleep(time.Second)
		if s := h.Status(); s.Spec.Path != "default" || s.Phase != Up || h.ask() != nil {
			t.Fatalf("%+v", s)
		}
	})
}

// The next plugin may be slower than whoever asked waits: it differs only if it
// decides otherwise.
func TestShadowOutlivesItsAsker(t *testing.T) {
	supervise(t, nil, func(h *house) {
		h.set("b", func(e sdk.Event) (sdk.Decision, error) { time.Sleep(20 * time.Millisecond); return admit(e) }, nil)
		time.Sleep(time.Second)
		h.Slot().SetFence(1)
		done := make(chan Report)
		go func() { done <- h.Swap(h.t.Context(), spec("b")) }()
		time.Sleep(time.Second)
		for range 10 {
			ctx, cancel := context.WithCancel(h.t.Context())
			a, err := h.Slot().Handle(ctx, sdk.Event{})
			if cancel(); err != nil {
				t.Fatal(err)
			}
			a.Settle()
			time.Sleep(50 * time.Millisecond)
		}
		if rep := <-done; rep.Seen != 10 || rep.Apart != 0 {
			t.Errorf("%+v", rep)
		}
	})
}

// What the old one was asked before a cut-over it may still answer, within the
// deadline; it is stopped after that.
func TestOldIsDrained(t *testing.T) {
	supervise(t, nil, func(h *house) {
		h.set("a", func(e sdk.Event) (sdk.Decision, error) { time.Sleep(150 * time.Millisecond); return admit(e) }, nil)
		time.Sleep(time.Second)
		h.Slot().SetFence(1)
		done := make(chan Report)
		go func() { done <- h.Swap(h.t.Context(), spec("b")) }()
		var asked *Asked
		var err error
		for len(done) == 0 && h.Slot().Fence() == 1 { // the last of these is under way at the cut-over
			if asked, err = h.Slot().Handle(h.t.Context(), sdk.Event{}); err != nil {
				t.Fatal(err)
			}
			asked.Settle()
		}
		if rep := <-done; rep.Err != nil || rep.FromSeq != asked.Seq+1 || len(asked.Wishes) != 1 {
			t.Fatalf("%+v: the last event of the old one is %+v", rep, asked)
		}
		if h.last("a").killed.Load() {
			t.Error("stopped before its deadline was over")
		}
		if time.Sleep(Deadline + time.Millisecond); !h.last("a").killed.Load() {
			t.Error("not stopped")
		}
	})
}

// An answer that comes after its deadline is counted and dropped, whoever serves
// by then.
func TestLateAnswersAreCounted(t *testing.T) {
	supervise(t, nil, func(h *house) {
		wake := make(chan struct{})
		h.set("a", func(e sdk.Event) (sdk.Decision, error) { <-wake; return admit(e) }, nil)
		time.Sleep(time.Second)
		if err := h.ask(); !errors.Is(err, ErrSilent) || h.Status().Late != 0 {
			t.Fatal(err, h.Status())
		}
		if rep := h.Swap(h.t.Context(), spec("b")); rep.Err != nil {
			t.Fatal(rep)
		}
		close(wake)
		time.Sleep(time.Millisecond)
		if s := h.Status(); s.Late != 1 || len(h.Slot().Journal()) != 1 || h.ask() != nil {
			t.Fatalf("%+v", s)
		}
		if e := h.Slot().Journal()[0]; e.Error != ErrSilent.Error() || len(e.Verdicts) != 0 {
			t.Errorf("%+v", e)
		}
	})
}

// A stop meets a plugin that is just coming up, again and again: Run ends, and
// the process is gone by then.
func TestStopWhileStarting(t *testing.T) {
	for range 2000 {
		f := &fake{policy: admit}
		ctx, cancel := context.WithCancel(t.Context())
		s := NewSupervisor(Options{Kind: sdk.Release, Spec: spec("a"), Log: slog.New(slog.DiscardHandler),
			Launch: func(Spec) (Running, error) { cancel(); return f, nil }})
		s.Run(ctx)
		if !f.killed.Load() {
			t.Fatal("a process was left")
		}
	}
}
