package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/plugins/sdk"
)

// Bounds.
const (
	journalSize = 1024                   // entries kept per kind
	Deadline    = 200 * time.Millisecond // of one call; then the built-in rule goes on without it
)

// ErrSilent is a plugin that did not answer within the deadline.
var ErrSilent = errors.New("plugin did not answer in time")

// Verdict says what became of a wish.
type Verdict struct {
	Seq      int64
	NowMS    int64
	Plugin   sdk.Description
	Fence    int64
	Wish     sdk.Wish
	Accepted bool
	Why      string // why not
}

// Instance is one running policy of a kind.
type Instance struct {
	plugin sdk.Plugin
	about  sdk.Description
	fence  atomic.Int64
	seq    atomic.Int64
	calls  atomic.Int64
	silent atomic.Int64
	slot   chan struct{}          // one call at a time
	late   atomic.Pointer[answer] // the last call that missed its deadline

	mu      sync.Mutex
	journal []Verdict
}

// answer is one call's, valid when over is closed.
type answer struct {
	d    sdk.Decision
	err  error
	over chan struct{}
}

// NewInstance wraps a policy.
func NewInstance(p sdk.Plugin) *Instance {
	return &Instance{plugin: p, about: p.Describe(), slot: make(chan struct{}, 1)}
}

// Describe says what runs.
func (i *Instance) Describe() sdk.Description { return i.about }

// SetFence gives the instance its fencing number: what it wishes is durable
// only while the cluster's number is the same.
func (i *Instance) SetFence(n int64) { i.fence.Store(n) }

// Fence is the instance's fencing number.
func (i *Instance) Fence() int64 { return i.fence.Load() }

// Handle asks the policy about an event. It numbers the event. Calls at the same
// moment wait for each other, within the deadline. A policy that does not answer
// in time is left to itself: its late answer is dropped, and until then it is
// not asked again. One that panics has answered with an error.
func (i *Instance) Handle(ctx context.Context, e sdk.Event) (sdk.Decision, int64, error) {
	e.Seq = i.seq.Add(1)
	i.calls.Add(1)
	if late := i.late.Load(); late != nil && !late.isOver() {
		i.silent.Add(1)
		return sdk.Decision{}, e.Seq, ErrSilent
	}
	t := time.NewTimer(Deadline)
	defer t.Stop()
	select {
	case i.slot <- struct{}{}:
	case <-t.C:
		i.silent.Add(1)
		return sdk.Decision{}, e.Seq, ErrSilent
	case <-ctx.Done():
		return sdk.Decision{}, e.Seq, ctx.Err()
	}
	a := &answer{over: make(chan struct{})}
	go func() {
		defer func() { <-i.slot }()
		defer close(a.over)
		a.d, a.err = i.ask(e)
	}()
	select {
	case <-a.over:
		return a.d, e.Seq, a.err
	case <-t.C:
		i.late.Store(a)
		i.silent.Add(1)
		return sdk.Decision{}, e.Seq, ErrSilent
	case <-ctx.Done():
		i.late.Store(a)
		return sdk.Decision{}, e.Seq, ctx.Err()
	}
}

func (a *answer) isOver() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// ask keeps a policy's panic from the broker.
func (i *Instance) ask(e sdk.Event) (d sdk.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			d, err = sdk.Decision{}, fmt.Errorf("plugin %s panicked: %v", i.about.Name, r)
		}
	}()
	return i.plugin.Handle(e)
}

// Record enters a verdict into the journal.
func (i *Instance) Record(v Verdict) {
	v.Plugin, v.Fence = i.about, i.Fence()
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.journal) == journalSize {
		copy(i.journal, i.journal[1:])
		i.journal = i.journal[:journalSize-1]
	}
	i.journal = append(i.journal, v)
}

// Journal returns the verdicts kept, oldest first.
func (i *Instance) Journal() []Verdict {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Verdict(nil), i.journal...)
}

// Calls tells how often the policy was asked and how often it was silent.
func (i *Instance) Calls() (calls, silent int64) { return i.calls.Load(), i.silent.Load() }
