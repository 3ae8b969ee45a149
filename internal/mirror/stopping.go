package mirror

// StopStep is the recorded step of a stop. A crash at any step resumes there.
type StopStep int8

// The steps in order.
const (
	StopUnregister   StopStep = iota // once per topic, at most UnregisterTimeoutMS
	StopFetchersOff                  // data lane and report lane drained
	StopLineage                      // last mirror epoch and offset, our lineage entry
	StopBumpEpoch                    // leader epoch above every mirrored batch
	StopAbortMarkers                 // the first local appends
	StopPIDReset
	StopClearTypes // desired and effective type
	StopFinished
	stopSteps
)

func (s StopStep) String() string {
	return [...]string{"UNREGISTER", "FETCHERS_OFF", "LINEAGE", "BUMP_EPOCH", "ABORT_MARKERS", "PID_RESET",
		"CLEAR_TYPES", "STOPPED"}[s]
}

// StopEvent is what happens to a stop.
type StopEvent uint8

// The events. Each step has its own word for done, so that a late answer to an
// earlier step cannot finish a later one.
const (
	StopBegun           StopEvent = iota // the operator's stop, first leadership
	StopResumed                          // new leadership, no local append in its log
	StopResumedAppended                  // new leadership, its log has a local append
	UnregisterOver                       // answered, refused or out of time: all the same
	FetchersDrained
	LineageStored
	EpochBumped
	MarkersWritten
	PIDResetWritten
	TypesCleared
	BelowMinISR // local ISR under min: an append would not be durable
	stopEvents
)

func (e StopEvent) String() string {
	return [...]string{"Begun", "Resumed", "ResumedAppended", "UnregisterOver", "FetchersDrained", "LineageStored",
		"EpochBumped", "MarkersWritten", "PIDResetWritten", "TypesCleared", "BelowMinISR"}[e]
}

// StopEffect is what the leader does once the step is durable.
type StopEffect uint8

// The effects.
const (
	UnregisterOnce StopEffect = iota
	DrainFetchers
	StoreLineage
	BumpEpoch
	WriteAbortMarkers
	WritePIDReset
	ClearTypes
	ReportStopped
	SayWaiting // tell the operator that the local ISR is too small
)

func (e StopEffect) String() string {
	return [...]string{"UnregisterOnce", "DrainFetchers", "StoreLineage", "BumpEpoch", "WriteAbortMarkers",
		"WritePIDReset", "ClearTypes", "ReportStopped", "SayWaiting"}[e]
}

var stopWork = [...]StopEffect{UnregisterOnce, DrainFetchers, StoreLineage, BumpEpoch, WriteAbortMarkers,
	WritePIDReset, ClearTypes, ReportStopped}

// Step moves a stop. Every pair is defined.
func (s StopStep) Step(e StopEvent) (StopStep, []StopEffect) {
	switch e {
	case StopBegun:
		return s.run()
	case StopResumed:
		// Until the first local append each leadership records where *its* log
		// ends: the one before may have held records that we do not.
		if s > StopLineage && s <= StopPIDReset {
			s = StopLineage
		}
		return s.resume()
	case StopResumedAppended:
		return s.resume()
	case BelowMinISR:
		if s == StopAbortMarkers || s == StopPIDReset {
			return s, []StopEffect{SayWaiting}
		}
		return s, nil
	}
	if e == s.done() {
		return (s + 1).run()
	}
	return s, nil
}

func (s StopStep) run() (StopStep, []StopEffect) { return s, []StopEffect{stopWork[s]} }

// resume never unregisters: the source may be gone, and was asked once.
func (s StopStep) resume() (StopStep, []StopEffect) { return max(s, StopFetchersOff).run() }

func (s StopStep) done() StopEvent {
	if s == StopFinished {
		return stopEvents // no event finishes what is finished
	}
	return UnregisterOver + StopEvent(s)
}
