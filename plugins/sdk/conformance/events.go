package conformance

import (
	"math"

	"lockstep/plugins/sdk"
)

// The broker's numbers, as the border carries them.
const (
	stateUnknown, stateTruncation, stateFencing, stateMirroring = -1, 0, 1, 2
	statePausing, statePaused, stateStopping, stateStopped      = 3, 4, 5, 6
	stateFailed                                                 = 7

	phaseAsync, phasePending, phaseRegistering, phaseInSync, phaseRecovery = 0, 1, 2, 3, 4
)

// event makes one, ordinary or at the edge of its fields.
func (s *suite) event(seq int64) sdk.Event {
	r := s.r
	t := types(s.kind)
	e := sdk.Event{Seq: seq, NowMS: 1_700_000_000_000 + r.Int64N(1<<40), Type: t[r.IntN(len(t))],
		Subject: sdk.Subject{Mirror: "dr", Topic: "orders", TopicID: [16]byte{byte(seq), byte(seq >> 8), 7}, Partition: -1}}
	if s.kind == sdk.Coordinator {
		e.Partition = r.Int32N(200)
	}
	number := func() int64 {
		switch r.IntN(6) {
		case 0:
			return math.MinInt64
		case 1:
			return math.MaxInt64
		case 2:
			return 0
		}
		return e.NowMS + r.Int64N(1<<20) - 1<<19
	}
	count := func() int32 { return []int32{0, 1, 3, 3, 3, math.MaxInt32, -1}[r.IntN(7)] }
	flag := func() bool { return r.IntN(2) == 0 }
	f := &e.Facts
	switch s.kind {
	case sdk.Coordinator:
		f.State, f.Desired = int8(r.IntN(9)-1), []int8{stateMirroring, statePaused, stateStopped}[r.IntN(3)]
		if r.IntN(20) == 0 {
			f.State, f.Desired = int8(r.Int()), int8(r.Int())
		}
		f.EpochBehind, f.Aligned, f.LeaderKnown = flag(), flag(), flag()
		f.Failed = []string{"", "", "", "the disk is gone"}[r.IntN(4)]
		f.RetryAttempt, f.RetryDueMS = count(), number()
	case sdk.Promotion:
		f.Phase, f.Partitions, f.InStep, f.Failing = uint8(r.IntN(5)), count(), count(), count()
		if r.IntN(20) == 0 {
			f.Phase = uint8(r.Int())
		}
		f.FailingMS, f.DemoteTimeoutMS = []int64{0, 29_999, 30_000, math.MaxInt64}[r.IntN(4)], []int64{30_000, 30_000, 0, math.MaxInt64}[r.IntN(4)]
		f.Attempts, f.NextTryMS = count(), number()
	case sdk.Release:
		if e.Type == sdk.RegisterAsked {
			f.Released, f.Recovery = flag(), flag()
			break
		}
		f.SilentMS, f.AutoReleaseMS = []int64{0, 29_999, 30_000, math.MaxInt64}[r.IntN(4)], []int64{30_000, 30_000, 0, math.MaxInt64}[r.IntN(4)]
	}
	return e
}

// forbidden says why a wish must not follow from the facts, "" if it may.
func forbidden(e sdk.Event, w sdk.Wish) string {
	f := &e.Facts
	switch w.Do {
	case sdk.Register:
		switch {
		case f.Phase != phasePending && f.Phase != phaseRecovery:
			return "the topic is not waiting for SYNC"
		case f.InStep != f.Partitions || f.Partitions <= 0:
			return "not every partition is in step"
		case e.NowMS < f.NextTryMS:
			return "the back-off is not over"
		}
	case sdk.Demote:
		switch {
		case f.Phase != phaseInSync:
			return "the topic is not in SYNC"
		case f.Failing != f.Partitions || f.Partitions <= 0 || f.FailingMS < f.DemoteTimeoutMS:
			return "not every partition has been failing for the timeout"
		}
	case sdk.Hold:
		if !f.Released {
			return "nothing is released that could be held"
		}
	case sdk.ReleaseSync:
		switch {
		case e.Type != sdk.SilentLook:
			return "no silence has been measured"
		case f.AutoReleaseMS <= 0:
			return "no operator allows it"
		case f.SilentMS < f.AutoReleaseMS:
			return "it has been silent for less than the operator's time"
		}
	}
	return ""
}

// progress: what is plainly due is wished.
func (s *suite) progress(t sdk.EventType) {
	e := sdk.Event{Seq: 3 * events, NowMS: 1_800_000_000_000, Type: t,
		Subject: sdk.Subject{Mirror: "dr", Topic: "orders", TopicID: [16]byte{9}, Partition: -1}}
	due := func(what string, f sdk.Facts) {
		e.Facts = f
		if d := s.ask(e); len(d.Wishes) == 0 {
			s.fail("Progress", &e, "%s, and it wishes nothing", what)
		}
	}
	switch t {
	case sdk.PromotionLook:
		// When to register is the policy's; an end of SYNC is owed to the source's producers.
		due("all partitions have failed for the timeout", sdk.Facts{Phase: phaseInSync, Partitions: 3, InStep: 0, Failing: 3, FailingMS: 30_000, DemoteTimeoutMS: 30_000})
	case sdk.PartitionLook:
		e.Partition = 1
		for _, state := range []int8{stateUnknown, stateTruncation, stateFencing, stateMirroring, statePaused, stateFailed} {
			due("a stop is desired", sdk.Facts{State: state, Desired: stateStopped, Aligned: true, LeaderKnown: true})
		}
		due("mirroring is desired", sdk.Facts{State: stateUnknown, Desired: stateMirroring, Aligned: true, LeaderKnown: true})
	}
}
