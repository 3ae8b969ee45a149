package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/plugins/sdk"
)

// Launch starts a program; Launcher's, or a fake.
type Launch func(Spec) (Running, error)

// Options is what a Supervisor is made of.
type Options struct {
	Kind     sdk.Kind
	Spec     Spec  // serves first
	Fallback *Spec // takes over if Spec does not last its probation; nil = none
	Launch   Launch
	Log      *slog.Logger
}

// Supervisor keeps a plugin of one kind running and swaps it. One goroutine, in
// Run, takes its Machine through events; it is the only one that starts, cuts
// over and stops.
type Supervisor struct {
	o      Options
	slot   *Slot
	events chan event
	tasks  sync.WaitGroup
	late   atomic.Int64 // answers that came after their deadline

	mu     sync.Mutex // Status reads beside Run
	m      Machine
	serves *serving
	last   string // the last end or refusal, in words
}

// serving is a plugin that was started and its instance.
type serving struct {
	Running
	inst  *Instance
	since time.Time
}

type event struct {
	kind  EventKind
	spec  Spec
	plug  Running
	err   error
	reply chan<- Report // of a swap
}

// Report is what came of a swap.
type Report struct {
	Err         error
	Old, New    sdk.Description
	FromSeq     int64 // the next instance serves from here on
	Seen, Apart int64 // events both saw, and disagreed about
	Differences []Difference
}

// NewSupervisor makes a supervisor; Run starts the plugin.
func NewSupervisor(o Options) *Supervisor {
	s := &Supervisor{o: o, slot: NewSlot(o.Kind), events: make(chan event, 8)}
	s.m = Machine{Spec: o.Spec, Previous: o.Fallback}
	if o.Fallback != nil {
		s.m.Probation = time.Now().Add(probationFor).UnixMilli()
	}
	return s
}

// Slot is where the plugin serves.
func (s *Supervisor) Slot() *Slot { return s.slot }

// run is what Run keeps between events.
type run struct {
	next  *serving
	reply chan<- Report
}

// Run keeps the plugin running until ctx ends; then it stops it.
func (s *Supervisor) Run(ctx context.Context) {
	var r run
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	s.step(ctx, &r, event{kind: Tick})
	for {
		select {
		case e := <-s.events:
			s.step(ctx, &r, e)
		case <-t.C:
			s.poll(ctx, &r)
		case <-ctx.Done():
			s.stop(&r)
			return
		}
	}
}

func (s *Supervisor) stop(r *run) {
	s.slot.Serve(nil)
	if s.serves != nil {
		s.drop(s.serves.Running)
	}
	if r.next != nil {
		s.drop(r.next.Running)
	}
	over := make(chan struct{})
	go func() { s.tasks.Wait(); close(over) }()
	refuse := func(e event) {
		if e.plug != nil { // came up too late; here, since no task may begin while others are waited for
			e.plug.Kill()
		}
		tell(e.reply, Report{Err: context.Canceled})
	}
	for {
		select {
		case e := <-s.events:
			refuse(e)
			continue
		case <-over:
		}
		select {
		case e := <-s.events: // the last word of a task that is over
			refuse(e)
		default:
			tell(r.reply, Report{Err: context.Canceled})
			return
		}
	}
}

// poll looks whether plugins live, and lets time pass.
func (s *Supervisor) poll(ctx context.Context, r *run) {
	if p := s.serves; p != nil {
		why, over := p.Exited()
		if !over && p.inst.SilentFor() > hungAfter {
			why, over = fmt.Sprintf("silent for %v", hungAfter), true
		}
		if over {
			s.step(ctx, r, event{kind: Ended, err: errors.New(why)})
		}
	}
	if p := r.next; p != nil {
		if why, over := p.Exited(); over {
			s.step(ctx, r, event{kind: NextEnded, err: errors.New(why)})
		}
	}
	s.step(ctx, r, event{kind: Tick})
}

func (s *Supervisor) step(ctx context.Context, r *run, e event) {
	s.mu.Lock()
	before := s.m
	act, err := s.m.Step(e.kind, e.spec, time.Now().UnixMilli())
	m := s.m
	s.mu.Unlock()
	switch e.kind {
	case SwapAsked, RollbackAsked:
		if err != nil {
			tell(e.reply, Report{Err: err})
			return
		}
		r.reply = e.reply
	case Started:
		if act == Unwanted {
			s.drop(e.plug)
			return
		}
		s.serve(e.plug, m.Spec)
		s.o.Log.Info("plugin serves", "kind", s.o.Kind, "name", s.serves.inst.about.Name, "version", s.serves.inst.about.Version, "pid", e.plug.Pid())
	case Ended, StartFailed:
		if e.kind == StartFailed && before.Phase != Starting {
			return
		}
		s.ended(before, m, e.err)
	case NextStarted:
		r.next = s.newServing(e.plug, m.Next)
		if act == CutOver {
			r.next = s.newServing(e.plug, m.Spec)
		} else {
			s.slot.shadow.Store(&shadow{next: r.next.inst, half: map[int64]half{}})
		}
	case NextEnded:
		s.nextEnded(r, before, e.err)
	}
	switch act {
	case Start:
		s.start(ctx, m.Spec, Started, StartFailed)
	case FellBack:
		s.o.Log.Warn("plugin did not last its probation; the one before serves again", "kind", s.o.Kind, "path", before.Spec.Path, "back", m.Spec.Path)
		s.start(ctx, m.Spec, Started, StartFailed)
	case StartNext:
		s.start(ctx, m.Next, NextStarted, NextEnded)
	case CutOver:
		s.cutOver(ctx, r)
	}
}

func (s *Supervisor) ended(before, m Machine, err error) {
	s.slot.Serve(nil)
	if s.serves != nil {
		s.drop(s.serves.Running)
	}
	s.mu.Lock()
	s.serves, s.last = nil, err.Error()
	s.mu.Unlock()
	wait := time.Duration(max(0, m.Due-time.Now().UnixMilli())) * time.Millisecond
	s.o.Log.Warn("plugin ended", "kind", s.o.Kind, "path", before.Spec.Path, "why", err, "in_a_row", m.Fails, "starts_again_in", wait)
}

func (s *Supervisor) nextEnded(r *run, before Machine, err error) {
	s.slot.shadow.Store(nil)
	if r.next != nil {
		s.drop(r.next.Running)
		r.next = nil
	}
	s.mu.Lock()
	s.last = "swap: " + err.Error()
	s.mu.Unlock()
	s.o.Log.Warn("swap failed; the old plugin serves on", "kind", s.o.Kind, "path", before.Next.Path, "why", err)
	tell(r.reply, Report{Err: err})
	r.reply = nil
}

// cutOver: the next instance has no fence yet, so nothing it wishes counts until
// the controller has raised one for it; from then on nothing of the old one does.
func (s *Supervisor) cutOver(ctx context.Context, r *run) {
	old := s.serves
	s.mu.Lock()
	s.serves = r.next
	s.mu.Unlock()
	r.next = nil
	rep := Report{New: s.serves.inst.about}
	if sh := s.slot.shadow.Swap(nil); sh != nil {
		rep.Seen, rep.Apart, rep.Differences = sh.report()
	}
	s.slot.Serve(s.serves.inst)
	rep.FromSeq = s.slot.seq.Load() + 1
	if old != nil {
		rep.Old = old.inst.about
		s.drain(ctx, old.Running)
	}
	s.o.Log.Info("plugin swapped", "kind", s.o.Kind, "old", rep.Old.Name+" "+rep.Old.Version, "new", rep.New.Name+" "+rep.New.Version,
		"pid", s.serves.Pid(), "from_seq", rep.FromSeq, "shadowed", rep.Seen, "differences", rep.Apart)
	tell(r.reply, rep)
	r.reply = nil
}

func (s *Supervisor) newServing(p Running, spec Spec) *serving {
	inst := NewInstance(p.Plugin(), spec.SHA256)
	var said atomic.Bool
	inst.onLate = func(e sdk.Event, d sdk.Decision) {
		s.late.Add(1)
		if said.CompareAndSwap(false, true) { // once for each process: the journal has every event
			s.o.Log.Warn("plugin answered after its deadline; what it wished is dropped", "kind", s.o.Kind, "name", inst.about.Name,
				"pid", p.Pid(), "seq", e.Seq, "fence", inst.fence.Load(), "wished", wishes(d, nil))
		}
	}
	return &serving{Running: p, inst: inst, since: time.Now()}
}

func (s *Supervisor) serve(p Running, spec Spec) {
	s.mu.Lock()
	s.serves = s.newServing(p, spec)
	s.mu.Unlock()
	s.slot.Serve(s.serves.inst)
}

// start launches beside Run, which must not wait for a handshake.
func (s *Supervisor) start(ctx context.Context, spec Spec, ok, bad EventKind) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		e := event{kind: ok}
		if e.plug, e.err = s.o.Launch(spec); e.err != nil {
			e.kind, e.plug = bad, nil
		}
		s.events <- e
	}()
}

// drain stops a plugin that is asked no more, once the deadline of whatever it
// was asked last is over: until then it may answer.
func (s *Supervisor) drain(ctx context.Context, p Running) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		t := time.NewTimer(Deadline)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		p.Kill()
	}()
}

// drop stops a plugin beside Run: it is given time to leave.
func (s *Supervisor) drop(p Running) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		p.Kill()
	}()
}

func tell(to chan<- Report, r Report) {
	if to != nil {
		to <- r // has room for one
	}
}

// Swap puts another program in the place of the one that serves, and returns
// when it serves or when it is known that it will not.
func (s *Supervisor) Swap(ctx context.Context, spec Spec) Report {
	return s.ask(ctx, event{kind: SwapAsked, spec: spec})
}

// Rollback swaps back to the program that served before.
func (s *Supervisor) Rollback(ctx context.Context) Report {
	return s.ask(ctx, event{kind: RollbackAsked})
}

func (s *Supervisor) ask(ctx context.Context, e event) Report {
	reply := make(chan Report, 1)
	e.reply = reply
	select {
	case s.events <- e:
	case <-ctx.Done():
		return Report{Err: ctx.Err()}
	}
	select {
	case r := <-reply:
		return r
	case <-ctx.Done():
		return Report{Err: ctx.Err()}
	}
}

// Status is what `plugins list` shows of a kind.
type Status struct {
	Kind     sdk.Kind
	Phase    Phase
	Swap     Swap
	Plugin   sdk.Description
	Spec     Spec
	Previous *Spec
	Pid      int
	UpFor    time.Duration
	Fence    int64
	Seq      int64
	Calls    int64
	Silent   int64
	Late     int64 // answers that came after their deadline, of all that have served
	Fails    int
	Last     string // the last end or failed swap
}

// Status says how the kind is.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Kind: s.o.Kind, Phase: s.m.Phase, Swap: s.m.Swap, Spec: s.m.Spec, Previous: s.m.Previous, Fails: s.m.Fails, Last: s.last,
		Fence: s.slot.Fence(), Seq: s.slot.seq.Load(), Late: s.late.Load()}
	if p := s.serves; p != nil {
		st.Plugin, st.Pid, st.UpFor = p.inst.about, p.Pid(), time.Since(p.since)
		st.Calls, st.Silent = s.slot.Calls()
	}
	return st
}
