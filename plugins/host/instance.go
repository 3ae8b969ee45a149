package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lockstep/plugins/sdk"
)

// Why an event has no decision.
var (
	ErrSilent  = errors.New("plugin did not answer in time")
	ErrNone    = errors.New("no plugin serves")
	ErrNoFence = errors.New("plugin has no fencing number yet")
)

// Instance is one running policy: a process, or a value in this one.
type Instance struct {
	plugin sdk.Plugin
	about  sdk.Description
	sum    string // SHA-256 of its program, hex; empty in process
	fence  atomic.Int64
	calls  atomic.Int64
	silent atomic.Int64
	slot   chan struct{}          // one call at a time
	late   atomic.Pointer[answer] // the last call that missed its deadline
	onLate func(sdk.Event, sdk.Decision)
}

// answer is one call's, valid when over is closed.
type answer struct {
	d     sdk.Decision
	err   error
	asked time.Time
	over  chan struct{}
	taken atomic.Bool // by whoever comes first: the answer, or the caller's leaving
}

// NewInstance wraps a policy. sum is the SHA-256 of its program, if it has one.
func NewInstance(p sdk.Plugin, sum string) *Instance {
	return &Instance{plugin: p, about: p.Describe(), sum: sum, slot: make(chan struct{}, 1)}
}

// Handle asks the policy about an event. Calls at the same moment wait for each
// other, within the deadline. A policy that does not answer in time is left to
// itself: its late answer is dropped, and until then it is not asked again. One
// that panics has answered with an error.
func (i *Instance) Handle(ctx context.Context, e sdk.Event) (sdk.Decision, error) {
	i.calls.Add(1)
	if i.SilentFor() > 0 {
		i.silent.Add(1)
		return sdk.Decision{}, ErrSilent
	}
	t := time.NewTimer(Deadline)
	defer t.Stop()
	select {
	case i.slot <- struct{}{}:
	case <-t.C:
		i.silent.Add(1)
		return sdk.Decision{}, ErrSilent
	case <-ctx.Done():
		return sdk.Decision{}, ctx.Err()
	}
	a := &answer{asked: time.Now(), over: make(chan struct{})}
	go func() {
		defer func() { <-i.slot }()
		defer close(a.over)
		a.d, a.err = i.ask(e)
		if !a.taken.CompareAndSwap(false, true) && a.err == nil && i.onLate != nil {
			i.onLate(e, a.d)
		}
	}()
	err := ErrSilent
	select {
	case <-a.over:
	case <-t.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !a.taken.CompareAndSwap(false, true) { // it has answered
		<-a.over
		return a.d, a.err
	}
	i.late.Store(a)
	if errors.Is(err, ErrSilent) {
		i.silent.Add(1)
	}
	return sdk.Decision{}, err
}

// SilentFor is how long a call that missed its deadline has been under way, 0
// if there is none.
func (i *Instance) SilentFor() time.Duration {
	a := i.late.Load()
	if a == nil {
		return 0
	}
	select {
	case <-a.over:
		return 0
	default:
		return max(time.Since(a.asked), 1)
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
