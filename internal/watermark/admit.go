package watermark

// Incoming is one partition's entry of a MirrorReplicaInfo as received.
type Incoming struct {
	Fenced            bool // the tagged fence fields were present
	RegistrationEpoch int64
	LeaderEpoch       int32 // the destination leader's epoch
	Sequence          int64 // per destination leadership, both lanes
	SourceLeaderEpoch int32 // the source epoch the destination leader has aligned with
	Replicas          []Replica
	ISR               []int32
	MinISR            int32
}

// Fence is what the source leader holds against a report.
type Fence struct {
	RegistrationEpoch int64 // the ledger's
	ClusterMatches    bool  // the request's cluster id is the ledger's, or the peer cannot tell one
	SourceLeaderEpoch int32 // our own current epoch
	End               int64 // log end offset
}

// Admission tells what became of a report.
type Admission uint8

// The admissions, in the order in which they are tried.
const (
	Counted           Admission = iota
	WrongRegistration           // another cluster or registration: INVALID_SYNC_REGISTRATION
	Invalid                     // malformed; never moves the mark
	HeldByEpoch                 // aligned with another source epoch than ours
	Stale                       // not newer than what is counted
)

func (a Admission) String() string {
	switch a {
	case Counted:
		return "counted"
	case WrongRegistration:
		return "wrong-registration"
	case Invalid:
		return "invalid"
	case HeldByEpoch:
		return "held-by-epoch"
	case Stale:
		return "stale"
	}
	return "unknown"
}

// Admit counts a report or says why not; when it is not counted the returned
// Report is prev. A new registration epoch forgets the fences of the old one.
//
// An unfenced report has no epochs to compare. The caller passes one only from
// the data lane, with one fetch in flight, when the same request has passed the
// epoch and divergence checks of the partition. It never replaces a fenced one.
func Admit(prev Report, in Incoming, f Fence) (Report, Admission) {
	if !f.ClusterMatches || in.Fenced && in.RegistrationEpoch != f.RegistrationEpoch {
		return prev, WrongRegistration
	}
	low, ok := reportedLow(in)
	if !ok {
		return prev, Invalid
	}
	counted := Report{
		Valid: true, Unfenced: !in.Fenced, LeaderEpoch: -1, ISRSize: int32(len(in.ISR)), MinISR: in.MinISR,
		RegistrationEpoch: f.RegistrationEpoch,
		// Above our log end there is nothing of ours to have: a divergent or a
		// future tail must not pass for replicated records.
		MinLEO: min(low, f.End),
	}
	old := prev
	if old.RegistrationEpoch != f.RegistrationEpoch {
		old = Report{}
	}
	if !in.Fenced {
		if old.Valid && !old.Unfenced {
			return prev, Stale
		}
		return counted, Counted
	}
	if in.LeaderEpoch < 0 || in.Sequence < 0 {
		return prev, Invalid
	}
	if in.SourceLeaderEpoch != f.SourceLeaderEpoch {
		return prev, HeldByEpoch
	}
	if old.Valid && !old.Unfenced && (in.LeaderEpoch < old.LeaderEpoch ||
		in.LeaderEpoch == old.LeaderEpoch && in.Sequence <= old.Sequence) {
		return prev, Stale
	}
	counted.LeaderEpoch, counted.Sequence = in.LeaderEpoch, in.Sequence
	return counted, Counted
}

// reportedLow validates a report and returns the smallest LEO over its ISR.
func reportedLow(in Incoming) (low int64, ok bool) {
	if len(in.ISR) == 0 || len(in.Replicas) > MaxReplicas || len(in.ISR) > len(in.Replicas) ||
		in.MinISR <= 0 || in.MinISR > MaxReplicas {
		return 0, false
	}
	for i, r := range in.Replicas {
		if r.ID < 0 || r.LEO < 0 {
			return 0, false
		}
		for _, other := range in.Replicas[:i] {
			if other.ID == r.ID {
				return 0, false
			}
		}
	}
	for i, id := range in.ISR {
		for _, other := range in.ISR[:i] {
			if other == id {
				return 0, false
			}
		}
		leo, known := int64(0), false
		for _, r := range in.Replicas {
			if r.ID == id {
				leo, known = r.LEO, true
			}
		}
		if !known {
			return 0, false
		}
		if i == 0 || leo < low {
			low = leo
		}
	}
	return low, true
}
