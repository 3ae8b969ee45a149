package host

import (
	"errors"
	"fmt"
	"time"
)

// Phase is where the serving plugin is.
type Phase uint8

// The phases.
const (
	Off      Phase = iota // ended; started again when Due
	Starting              // handshake under way
	Up                    // answers events
)

var phaseNames = [...]string{"BACKING_OFF", "STARTING", "SERVING"}

func (p Phase) String() string { return phaseNames[p] }

// Swap is where a swap is.
type Swap uint8

// The steps of a swap.
const (
	NoSwap       Swap = iota
	NextStarting      // the new plugin is being started beside the old
	Shadowing         // both see the same events, only the old one's wishes count
)

var swapNames = [...]string{"", "STARTING_NEXT", "SHADOWING"}

func (s Swap) String() string { return swapNames[s] }

// Machine is the life of one kind of plugin: which program serves, which waits
// its turn, what follows when one ends. Times are in ms.
type Machine struct {
	Phase     Phase
	Spec      Spec  // serves, or is to
	Previous  *Spec // served before; nil = none
	Probation int64 // until then an end brings Previous back; 0 = over
	Fails     int   // ends in a row
	Due       int64 // Off: when it is started again
	since     int64 // Up: since when

	Swap      Swap
	Next      Spec
	shadowEnd int64
}

// EventKind is what happened to a Machine.
type EventKind uint8

// The events.
const (
	Tick EventKind = iota
	Started
	StartFailed
	Ended // the serving one is no more
	SwapAsked
	RollbackAsked
	NextStarted
	NextEnded
)

// Act is what the shell is to do.
type Act uint8

// The acts.
const (
	Nothing   Act = iota
	Start         // Machine.Spec
	StartNext     // Machine.Next, beside the serving one
	CutOver       // the next instance serves from here on; the old one is drained and stopped
	DropNext      // the swap is over, the old one serves
	FellBack      // Start, and say that Previous came back
	Unwanted      // another serves by now: stop what was started
)

// Why a swap is refused.
var (
	ErrSwapping   = errors.New("a swap of this kind is under way")
	ErrNoPrevious = errors.New("no plugin served before this one")
)

// Step takes the machine through an event at time now.
func (m *Machine) Step(e EventKind, spec Spec, now int64) (Act, error) {
	switch e {
	case Tick:
		return m.tick(now), nil
	case Started:
		if m.Phase != Starting {
			return Unwanted, nil
		}
		m.Phase, m.since = Up, now
	case StartFailed:
		if m.Phase == Starting {
			return m.ended(now), nil
		}
	case Ended:
		return m.ended(now), nil
	case RollbackAsked, SwapAsked:
		if e == RollbackAsked {
			if m.Previous == nil {
				return Nothing, ErrNoPrevious
			}
			spec = *m.Previous
		}
		if m.Swap != NoSwap {
			return Nothing, ErrSwapping
		}
		m.Swap, m.Next = NextStarting, spec
		return StartNext, nil
	case NextStarted:
		m.Swap, m.shadowEnd = Shadowing, now+shadowFor.Milliseconds()
		if m.Phase != Up { // nobody to compare with
			return m.cut(now), nil
		}
	case NextEnded:
		m.Swap, m.Next = NoSwap, Spec{}
		return DropNext, nil
	default:
		return Nothing, fmt.Errorf("no such event: %d", e)
	}
	return Nothing, nil
}

func (m *Machine) tick(now int64) Act {
	if m.Probation > 0 && now >= m.Probation {
		m.Probation = 0
	}
	if m.Phase == Up && now-m.since >= probationFor.Milliseconds() {
		m.Fails = 0
	}
	switch {
	case m.Swap == Shadowing && now >= m.shadowEnd:
		return m.cut(now)
	case m.Phase == Off && now >= m.Due:
		m.Phase = Starting
		return Start
	}
	return Nothing
}

func (m *Machine) cut(now int64) Act {
	old := m.Spec
	m.Spec, m.Previous, m.Next, m.Swap = m.Next, &old, Spec{}, NoSwap
	m.Phase, m.since, m.Fails, m.Probation = Up, now, 0, now+probationFor.Milliseconds()
	return CutOver
}

func (m *Machine) ended(now int64) Act {
	if m.Probation > 0 && m.Previous != nil {
		m.Spec, m.Previous, m.Probation, m.Fails, m.Phase = *m.Previous, nil, 0, 0, Starting
		return FellBack
	}
	m.Phase, m.Due = Off, now+backoff(m.Fails).Milliseconds()
	m.Fails++
	return Nothing
}

// backoff is the wait after the n-th end in a row.
func backoff(n int) time.Duration {
	return min(backoffFirst<<min(n, 20), backoffMost)
}
