package mirror

import (
	"slices"
	"testing"
)

// TestAllowedIsStep: what Apply lets through is exactly what Step can do.
func TestAllowedIsStep(t *testing.T) {
	reached := map[[2]PartitionState]bool{}
	for _, s := range PartitionStates {
		for _, prev := range PartitionStates {
			for _, forGood := range []bool{false, true} {
				for e := range partitionEvents {
					next, _ := Partition{s, prev, forGood}.Step(e)
					reached[[2]PartitionState{s, next.State}] = true
					// A retry leads where the failure came from, which Step only
					// records for states that can fail.
					if !Allowed(s, next.State) && (s != Failed || Allowed(prev, Failed)) {
						t.Errorf("%v (was %v) --%v--> %v is not allowed", s, prev, e, next.State)
					}
				}
			}
		}
	}
	for _, from := range PartitionStates {
		for _, to := range PartitionStates {
			if Allowed(from, to) && from != to && !reached[[2]PartitionState{from, to}] {
				t.Errorf("%v -> %v is allowed, but no step does it", from, to)
			}
		}
	}
}

// TestEveryShortHistory walks all sequences of five events from every state.
func TestEveryShortHistory(t *testing.T) {
	n := 0
	var walk func(p Partition, stopping bool, depth int)
	walk = func(p Partition, stopping bool, depth int) {
		if stopping && p.State != Stopping && p.State != Stopped && p.State != LogTruncation {
			t.Fatalf("a stop was left for %v", p.State)
		}
		next, _ := p.Step(WantStopped)
		if next.State != Stopping && next.State != Stopped {
			t.Fatalf("stop does not work from %+v", p)
		}
		if n++; depth == 0 {
			return
		}
		for e := range partitionEvents {
			next, _ := p.Step(e)
			// Mirroring again after STOPPED is a new life.
			walk(next, (stopping || next.State == Stopping) && next.State != LogTruncation, depth-1)
		}
	}
	for _, s := range PartitionStates {
		walk(Partition{State: s, Previous: Unknown}, false, 5)
	}
	t.Logf("%d histories", n)
}

// TestStopResumes kills the leader before and after every step: the stop ends,
// its work stays in order, and the source is asked once.
func TestStopResumes(t *testing.T) {
	for crash := StopUnregister; crash < stopSteps; crash++ {
		for _, how := range []StopEvent{StopResumed, StopResumedAppended} {
			var done []StopEffect
			s, work := StopUnregister.Step(StopBegun)
			crashed := false
			for range 40 {
				done = append(done, work...)
				if s == crash && !crashed {
					crashed = true
					s, work = s.Step(how)
					continue
				}
				if s == StopFinished {
					break
				}
				s, work = s.Step(UnregisterOver + StopEvent(s))
			}
			if s != StopFinished || done[len(done)-1] != ReportStopped {
				t.Fatalf("crash at %v: ends in %v after %v", crash, s, done)
			}
			asked := 0
			for _, e := range done {
				if e == UnregisterOnce {
					asked++
				}
			}
			if asked != 1 {
				t.Fatalf("crash at %v: %d Unregisters", crash, asked)
			}
			for e := DrainFetchers; e <= ReportStopped; e++ {
				if !slices.Contains(done, e) {
					t.Fatalf("crash at %v: %v was left out: %v", crash, e, done)
				}
			}
			redone := crash > StopLineage && crash <= StopPIDReset && how == StopResumed
			if got := count(done, StoreLineage) == 2; got != (redone || crash == StopLineage) {
				t.Fatalf("crash at %v, %v: lineage in %v", crash, how, done)
			}
		}
	}
}

func count(all []StopEffect, e StopEffect) (n int) {
	for _, x := range all {
		if x == e {
			n++
		}
	}
	return n
}

func TestLateStopAnswers(t *testing.T) {
	for s := range stopSteps {
		for e := UnregisterOver; e <= TypesCleared; e++ {
			next, effects := s.Step(e)
			if mine := int(e-UnregisterOver) == int(s); !mine && (next != s || effects != nil) {
				t.Errorf("%v: %v moves it to %v", s, e, next)
			}
		}
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{InitialMS: 1000, MaxMS: 300_000}
	for _, c := range []struct {
		attempt int32
		random  float64
		want    int64
	}{
		{0, 0.5, 0}, {-3, 0.5, 0}, {1, 0.5, 1000}, {2, 0.5, 2000}, {9, 0.5, 256_000}, {10, 0.5, 300_000}, {1 << 30, 0.5, 300_000},
		{1, 0, 800}, {1, 0.9999999, 1199}, {10, 0, 240_000},
	} {
		if got := b.Delay(c.attempt, c.random); got != c.want {
			t.Errorf("attempt %d, random %v: %d ms, want %d", c.attempt, c.random, got, c.want)
		}
	}
}

func TestGuards(t *testing.T) {
	ok := Evidence{Phase: Pending, Partitions: 3, InStep: 3, BackOffOver: true}
	change := func(f func(*Evidence)) Evidence {
		e := ok
		f(&e)
		return e
	}
	for name, c := range map[string]struct {
		reason string
		allow  bool
	}{
		"register":               {AllowRegister(ok), true},
		"register in recovery":   {AllowRegister(change(func(e *Evidence) { e.Phase = Recovery })), true},
		"register twice":         {AllowRegister(change(func(e *Evidence) { e.Phase = Registering })), false},
		"register async":         {AllowRegister(change(func(e *Evidence) { e.Phase = PlainAsync })), false},
		"register lagging":       {AllowRegister(change(func(e *Evidence) { e.InStep = 2 })), false},
		"register nothing":       {AllowRegister(change(func(e *Evidence) { e.Partitions, e.InStep = 0, 0 })), false},
		"register too soon":      {AllowRegister(change(func(e *Evidence) { e.BackOffOver = false })), false},
		"demote for no reason":   {AllowDemote(ok), false},
		"demote by operator":     {AllowDemote(Evidence{OperatorAsked: true}), true},
		"demote after rejection": {AllowDemote(Evidence{Rejected: true}), true},
		"demote, all failing":    {AllowDemote(Evidence{Partitions: 3, Failing: 3, FailingMS: 30, DemoteTimeoutMS: 30}), true},
		"demote, too soon":       {AllowDemote(Evidence{Partitions: 3, Failing: 3, FailingMS: 29, DemoteTimeoutMS: 30}), false},
		"demote, one healthy":    {AllowDemote(Evidence{Partitions: 3, Failing: 2, FailingMS: 99, DemoteTimeoutMS: 30}), false},
		"release by plugin":      {AllowRelease(ok), false},
		"silence, no consent":    {AllowRelease(Evidence{SilentMS: 1 << 40}), false},
		"silence, too short":     {AllowRelease(Evidence{SilentMS: 999, AutoReleaseMS: 1000}), false},
		"silence, with consent":  {AllowRelease(Evidence{SilentMS: 1000, AutoReleaseMS: 1000}), true},
		"release by operator":    {AllowRelease(Evidence{OperatorAsked: true}), true},
		"stop by plugin":         {AllowStop(Evidence{MirroredHere: true}), false},
		"stop by operator":       {AllowStop(Evidence{MirroredHere: true, OperatorAsked: true}), true},
		"step not desired":       {AllowStep(WantPaused, StepEvidence{Desired: Mirroring}), false},
		"step desired":           {AllowStep(WantPaused, StepEvidence{Desired: Paused}), true},
		"fenced, not behind":     {AllowStep(EpochBehind, StepEvidence{}), false},
		"raised, still behind":   {AllowStep(EpochRaised, StepEvidence{EpochBehind: true}), false},
		"aligned, not so":        {AllowStep(Aligned, StepEvidence{}), false},
		"fail, all well":         {AllowStep(Fail, StepEvidence{}), false},
		"fail, one failed":       {AllowStep(Fail, StepEvidence{Failed: true}), true},
		"fail for good":          {AllowStep(FailForGood, StepEvidence{Failed: true}), false},
		"retry too soon":         {AllowStep(Retry, StepEvidence{}), false},
		"stop is done, it says":  {AllowStep(StopDone, StepEvidence{Desired: Stopped}), false},
		"stop of nothing":        {AllowStop(Evidence{OperatorAsked: true}), false},
	} {
		if (c.reason == "") != c.allow {
			t.Errorf("%s: reason %q", name, c.reason)
		}
	}
}
