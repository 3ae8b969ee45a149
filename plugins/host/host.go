package host

import (
	"context"
	"errors"
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
	busy   atomic.Bool // a call that missed its deadline is still running

	mu      sync.Mutex
	journal []Verdict
}

// NewInstance wraps a policy.
func NewInstance(p sdk.Plugin) *Instance { return &Instance{plugin: p, about: p.Describe()} }

// Describe says what runs.
func (i *Instance) Describe() sdk.Description { return i.about }

// SetFence gives the instance its fencing number: what it wishes is durable
// only while the cluster's number is the same.
func (i *Instance) SetFence(n int64) { i.fence.Store(n) }

// Fence is the instance's fencing number.
func (i *Instance) Fence() int64 { return i.fence.Load() }

// Handle asks the policy about an event. It numbers the event. A policy that
// does not answer within the deadline is left to itself: its late answer is
// dropped, and until then it is not asked again.
func (i *Instance) Handle(ctx context.Context, e sdk.Event) (sdk.Decision, int64, error) {
	e.Seq = i.seq.Add(1)
	i.calls.Add(1)
	if !i.busy.CompareAndSwap(false, true) {
		i.silent.Add(1)
		return sdk.Decision{}, e.Seq, ErrSilent
	}
	type answer struct {
		d   sdk.Decision
		err error
	}
	out := make(chan answer, 1)
	go func() {
		defer i.busy.Store(false)
		d, err := i.plugin.Handle(e)
		out <- answer{d, err}
	}()
	t := time.NewTimer(Deadline)
	defer t.Stop()
	select {
	case a := <-out:
		return a.d, e.Seq, a.err
	case <-t.C:
		i.silent.Add(1)
		return sdk.Decision{}, e.Seq, ErrSilent
	case <-ctx.Done():
		return sdk.Decision{}, e.Seq, ctx.Err()
	}
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
