package watermark

// Replica is one replica's log end offset (LEO) as last noted.
type Replica struct {
	ID  int32
	LEO int64
}

// Local is the leader's own side.
type Local struct {
	// ISR is the maximal ISR, committed ∪ proposed, the leader included: until
	// the controller's answer is known any of them may be elected.
	ISR []Replica
	// InSync is the size of the committed ISR. A proposed member holds the mark
	// back but does not lift the ISR over MinISR: were the proposal lost, an
	// eligible leader replica (ELR) that lacks the records could be elected.
	InSync int32
	MinISR int32 // min.insync.replicas
}

// Report is the last counted report of one mirror for this leadership. The
// zero Report means that the mirror has not reported to this leader. A change
// of the source leader epoch or of the registration resets it to zero.
type Report struct {
	Valid             bool
	Unfenced          bool  // the peer sends no fence; see Admit
	LeaderEpoch       int32 // the destination's
	ISRSize           int32
	MinISR            int32
	RegistrationEpoch int64
	Sequence          int64
	MinLEO            int64 // over the reported ISR, at most the log end when counted
}

// Mirror is one registered mirror and its report.
type Mirror struct {
	Name   string
	Report Report
}

// Outcome tells what a rule did, or who stopped it.
type Outcome uint8

// The outcomes.
const (
	Moved          Outcome = iota // the mark rises
	Unchanged                     // everyone healthy, the slowest has not passed the mark
	FrozenLocal                   // the local ISR is under min.insync.replicas
	FrozenRemote                  // a mirror's reported ISR is under its min.insync.replicas
	AwaitingReport                // a mirror has not reported to this leader yet
)

func (o Outcome) String() string {
	switch o {
	case Moved:
		return "moved"
	case Unchanged:
		return "unchanged"
	case FrozenLocal:
		return "frozen-local"
	case FrozenRemote:
		return "frozen-remote"
	case AwaitingReport:
		return "awaiting-report"
	}
	return "unknown"
}

// Verdict is the next mark and who decided it.
type Verdict struct {
	Mark    int64
	Outcome Outcome
	Slowest int // index into mirrors of the slowest or the culprit; -1 = local
}

// Source computes the source's next mark: the smallest LEO over the maximal
// local ISR and every mirror's report, at most end (the log end). It never
// lowers mark. A side under its min ISR freezes it, a mirror without a report
// holds it. When both hold, the freeze is told: it is answered at once.
func Source(mark, end int64, local Local, mirrors []Mirror) Verdict {
	if len(local.ISR) == 0 || local.InSync < local.MinISR {
		return Verdict{mark, FrozenLocal, -1}
	}
	awaiting := -1
	for i := range mirrors {
		r := &mirrors[i].Report
		if !r.Valid {
			if awaiting < 0 {
				awaiting = i
			}
		} else if r.ISRSize < r.MinISR {
			return Verdict{mark, FrozenRemote, i}
		}
	}
	if awaiting >= 0 {
		return Verdict{mark, AwaitingReport, awaiting}
	}
	low, slowest := min(end, MinLEO(local.ISR)), -1
	for i := range mirrors {
		if leo := mirrors[i].Report.MinLEO; leo < low {
			low, slowest = leo, i
		}
	}
	if low > mark {
		return Verdict{low, Moved, slowest}
	}
	return Verdict{mark, Unchanged, slowest}
}

// MinLEO is the smallest LEO of a non-empty set.
func MinLEO(set []Replica) int64 {
	low := set[0].LEO
	for _, r := range set[1:] {
		low = min(low, r.LEO)
	}
	return low
}

// Ack is what an acks=all request that needs an offset hears now.
type Ack uint8

// The answers, in the order in which they are tried.
const (
	AckLocalUnderMin  Ack = iota // local ISR under min.insync.replicas after the append
	AckRemoteUnderMin            // a mirror's ISR under its min.insync.replicas
	AckDone                      // the mark has passed the request
	AckWait                      // none of the others, yet
	AckLocalTimeout              // out of time with local replicas behind
	AckRemoteTimeout             // out of time with only mirrors behind
)

// Code is the Kafka error code of an answer at Produce v14; AckDone and
// AckWait have none. The down-map for older versions is the wire's.
func (a Ack) Code() int16 {
	switch a {
	case AckLocalUnderMin:
		return 20 // NOT_ENOUGH_REPLICAS_AFTER_APPEND
	case AckRemoteUnderMin:
		return 151 // NOT_ENOUGH_REMOTE_REPLICAS_AFTER_APPEND
	case AckLocalTimeout:
		return 7 // REQUEST_TIMED_OUT
	case AckRemoteTimeout:
		return 150 // MIRROR_SYNC_REPLICATION_TIMEOUT
	}
	return 0
}

// AckError is the order of errors for acks=all. offset is the offset the mark
// must reach (last offset + 1), localLEO the smallest LEO of the maximal local
// ISR. culprit is an index into the mirrors of the verdict, -1 = none or local.
// Before the append the caller refuses with NOT_ENOUGH_REPLICAS (19) itself
// when InSync < MinISR.
func AckError(v Verdict, offset, localLEO int64, deadlinePassed bool) (a Ack, culprit int) {
	switch {
	case v.Outcome == FrozenLocal:
		return AckLocalUnderMin, -1
	case v.Outcome == FrozenRemote:
		return AckRemoteUnderMin, v.Slowest
	case v.Mark >= offset:
		return AckDone, -1
	case !deadlinePassed:
		return AckWait, v.Slowest
	case localLEO < offset:
		return AckLocalTimeout, -1
	}
	return AckRemoteTimeout, v.Slowest
}
