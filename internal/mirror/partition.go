package mirror

// PartitionState is the stored state of one mirrored partition. The numbers are
// KIP-1279's.
type PartitionState int8

// The states.
const (
	Unknown       PartitionState = -1
	LogTruncation PartitionState = 0 // align the local log with the source's
	EpochFencing  PartitionState = 1 // raise our leader epoch above the source's
	Mirroring     PartitionState = 2 // the fetcher runs
	Pausing       PartitionState = 3
	Paused        PartitionState = 4 // read-only, no fetcher
	Stopping      PartitionState = 5 // fail-over work, see StopStep
	Stopped       PartitionState = 6 // writable
	Failed        PartitionState = 7 // waits for a retry, a stop or a pause
)

// PartitionStates lists all states in the order of their numbers.
var PartitionStates = []PartitionState{Unknown, LogTruncation, EpochFencing, Mirroring, Pausing, Paused, Stopping, Stopped, Failed}

func (s PartitionState) String() string {
	switch s {
	case LogTruncation:
		return "LOG_TRUNCATION"
	case EpochFencing:
		return "EPOCH_FENCING"
	case Mirroring:
		return "MIRRORING"
	case Pausing:
		return "PAUSING"
	case Paused:
		return "PAUSED"
	case Stopping:
		return "STOPPING"
	case Stopped:
		return "STOPPED"
	case Failed:
		return "FAILED"
	}
	return "UNKNOWN"
}

// PartitionEvent is what happens to a partition.
type PartitionEvent uint8

// The events. The three wishes are the topic's desired state as its leader sees
// it: on a change, on a new leadership, and whenever it looks again.
const (
	WantMirroring PartitionEvent = iota
	WantPaused
	WantStopped
	Aligned     // the log is a prefix of the source's
	EpochBehind // the source's leader epoch is above ours
	EpochRaised // and now it is not
	FetcherOff  // data lane and report lane are drained
	StopDone    // every StopStep is done
	Fail        // retriable
	FailForGood // the retry timer will not help
	Retry       // the retry timer fired
	partitionEvents
)

func (e PartitionEvent) String() string {
	return [...]string{"WantMirroring", "WantPaused", "WantStopped", "Aligned", "EpochBehind", "EpochRaised",
		"FetcherOff", "StopDone", "Fail", "FailForGood", "Retry"}[e]
}

// PartitionEffect is what the leader does once the new state is durable.
type PartitionEffect uint8

// The effects. All are idempotent: a new leader does them again.
const (
	Align PartitionEffect = iota
	RaiseEpoch
	RunFetcher
	RemoveFetcher
	RunStop
	ScheduleRetry
)

func (e PartitionEffect) String() string {
	return [...]string{"Align", "RaiseEpoch", "RunFetcher", "RemoveFetcher", "RunStop", "ScheduleRetry"}[e]
}

// Partition is the machine's state. Previous is where a retry of FAILED leads.
type Partition struct {
	State        PartitionState
	Previous     PartitionState
	NonRetryable bool
}

// Step moves a partition. Every pair is defined; one that makes no sense
// changes nothing and does nothing.
func (p Partition) Step(e PartitionEvent) (Partition, []PartitionEffect) {
	switch e {
	case WantMirroring, WantPaused, WantStopped:
		return p.want(e)
	case Fail, FailForGood:
		return p.fail(e == FailForGood)
	case Retry:
		if p.State != Failed || p.NonRetryable {
			return p, nil
		}
		return enter(p.retryTarget())
	}
	if to, ok := progress[progressKey{p.State, e}]; ok {
		return enter(to)
	}
	return p, nil
}

type progressKey struct {
	state PartitionState
	event PartitionEvent
}

var progress = map[progressKey]PartitionState{
	{LogTruncation, Aligned}:     Mirroring,
	{Mirroring, EpochBehind}:     EpochFencing,
	{LogTruncation, EpochBehind}: EpochFencing,
	{EpochFencing, EpochRaised}:  Mirroring,
	{Pausing, FetcherOff}:        Paused,
	{Stopping, StopDone}:         Stopped,
}

func (p Partition) want(e PartitionEvent) (Partition, []PartitionEffect) {
	switch {
	case p.State == Stopping:
		// A stop that has begun is finished, whatever is desired now.
		return enter(Stopping)
	case e == WantStopped:
		if p.State == Stopped {
			return p, nil
		}
		return enter(Stopping)
	case e == WantPaused:
		if p.State == Paused || p.State == Stopped {
			return p, nil
		}
		return enter(Pausing)
	case p.State == Unknown || p.State == Stopped:
		return enter(LogTruncation)
	case p.State == Paused:
		return enter(Mirroring)
	case p.State == Failed:
		if p.NonRetryable {
			return p, nil
		}
		return p, []PartitionEffect{ScheduleRetry}
	}
	return enter(p.State)
}

func (p Partition) fail(forGood bool) (Partition, []PartitionEffect) {
	switch p.State {
	case Stopped, Paused, Unknown:
		return p, nil // nothing runs that could fail: a late word of an old fetcher
	case Stopping:
		return p, []PartitionEffect{ScheduleRetry} // never leaves but to STOPPED
	case Failed:
		p.NonRetryable = p.NonRetryable || forGood
	default:
		p = Partition{Failed, p.State, forGood}
	}
	if p.NonRetryable {
		return p, []PartitionEffect{RemoveFetcher}
	}
	return p, []PartitionEffect{RemoveFetcher, ScheduleRetry}
}

func (p Partition) retryTarget() PartitionState {
	if p.Previous == Unknown || p.Previous == Failed {
		return LogTruncation
	}
	return p.Previous
}

func enter(s PartitionState) (Partition, []PartitionEffect) {
	p := Partition{State: s, Previous: Unknown}
	switch s {
	case LogTruncation:
		return p, []PartitionEffect{Align}
	case EpochFencing:
		return p, []PartitionEffect{RaiseEpoch}
	case Mirroring:
		return p, []PartitionEffect{RunFetcher}
	case Pausing:
		return p, []PartitionEffect{RemoveFetcher}
	case Stopping:
		return p, []PartitionEffect{RunStop}
	}
	return p, nil
}

// Allowed tells whether a stored state may follow another. It is the relation
// of Step, plus staying, which renews the step or the error of a state.
func Allowed(from, to PartitionState) bool {
	if from == to {
		return true
	}
	switch to {
	case LogTruncation:
		return from == Unknown || from == Stopped || from == Failed
	case EpochFencing:
		return from == LogTruncation || from == Mirroring || from == Failed
	case Mirroring:
		return from == LogTruncation || from == EpochFencing || from == Paused || from == Failed
	case Pausing:
		return from != Paused && from != Stopping && from != Stopped
	case Paused:
		return from == Pausing
	case Stopping:
		return from != Stopped
	case Stopped:
		return from == Stopping
	case Failed:
		return from == LogTruncation || from == EpochFencing || from == Mirroring || from == Pausing
	}
	return false
}
