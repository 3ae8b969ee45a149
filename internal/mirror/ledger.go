package mirror

// Registration is one destination's entry in a source topic's ledger, named by
// (topic id, mirror). A released entry stays and counts as not registered.
type Registration struct {
	Mirror        string
	ClusterID     string // the destination's; "" = a peer that sends none
	Epoch         int64  // commit index of the Register
	Released      bool
	ReleaseNumber int64 // commit index of the release; 0 = never released
}

// Gates tells whether the source's high watermark waits for this mirror.
func (r Registration) Gates() bool { return !r.Released }

// LedgerCode is an admission's result.
type LedgerCode uint8

// The results.
const (
	Admitted       LedgerCode = iota // the entry is written, or removed
	NeedsRecovery                    // released: MIRROR_SYNC_RELEASED_REQUIRES_FRESH_PROMOTION
	OtherCluster                     // bound to another cluster id: INVALID_SYNC_REGISTRATION
	NothingThere                     // no such registration: success without a change
	NotThatEpoch                     // a stale Unregister, or a policy's late release: no change
	MarkerKept                       // a destination's Unregister of a released entry: likewise
	SourceMirrored                   // sync out of a mirrored topic
	FeatureOff                       // mirror.sync.version 0: MIRROR_SYNC_VERSION_MISMATCH
)

func (c LedgerCode) String() string {
	return [...]string{"ADMITTED", "NEEDS_RECOVERY", "OTHER_CLUSTER", "NOTHING_THERE", "NOT_THAT_EPOCH",
		"MARKER_KEPT", "SOURCE_MIRRORED", "FEATURE_OFF"}[c]
}

// Decision is an admission and the entry after it.
type Decision struct {
	Code    LedgerCode
	Changed bool
	Exists  bool         // the entry exists afterwards
	Entry   Registration // if Exists
	// WarnUnnumbered: a marker was cleared by a Register that named no release
	// number, as the KIP allows. It may have been sent before the release.
	WarnUnnumbered bool
}

// Current is the epoch of the registration that stands after the decision, 0
// if none does. A destination that finds one it does not hold removes it.
func (d Decision) Current() int64 {
	if !d.Exists || d.Entry.Released {
		return 0
	}
	return d.Entry.Epoch
}

// RegisterRequest is one topic of a RegisterMirrorSyncTopic.
type RegisterRequest struct {
	Mirror        string
	ClusterID     string
	Recovery      bool  // RecoveryPromotion
	ReleaseNumber int64 // with Recovery: the release it answers; ≤ 0 = not named
}

// LedgerFacts is what decides beside the entry itself.
type LedgerFacts struct {
	Index    int64 // commit index
	SyncOn   bool  // feature mirror.sync.version ≥ 1
	Mirrored bool  // the source topic is itself being mirrored
	Held     bool  // the release policy holds the marker
}

// Register decides a Register at its commit index. old is the entry if exists.
//
// A Register that is admitted always gets a new epoch, even when the mirror is
// registered: an Unregister still under way names the old one, and would
// otherwise remove what this answer promises.
func Register(old Registration, exists bool, req RegisterRequest, f LedgerFacts) Decision {
	refused := Decision{Exists: exists, Entry: old}
	switch {
	case !f.SyncOn:
		refused.Code = FeatureOff
		return refused
	case f.Mirrored:
		refused.Code = SourceMirrored
		return refused
	case exists && !old.Released && old.ClusterID != req.ClusterID:
		refused.Code = OtherCluster
		return refused
	}
	d := Decision{Code: Admitted, Changed: true, Exists: true,
		Entry: Registration{Mirror: req.Mirror, ClusterID: req.ClusterID, Epoch: f.Index}}
	if exists && old.Released {
		unnumbered := req.ReleaseNumber <= 0
		if f.Held || !req.Recovery || !unnumbered && req.ReleaseNumber != old.ReleaseNumber {
			refused.Code = NeedsRecovery
			return refused
		}
		d.WarnUnnumbered = unnumbered
	}
	return d
}

// AnyEpoch is the epoch of an Unregister from a peer that names none, and of an
// operator's release.
const AnyEpoch int64 = -1

// Unregister decides a destination's Unregister. It removes the registration
// only if epoch is its, or AnyEpoch, and never a released marker. Epoch 0 is a
// question: it removes nothing, and Current answers it.
func Unregister(old Registration, exists bool, clusterID string, epoch int64) Decision {
	kept := Decision{Exists: exists, Entry: old}
	switch {
	case !exists:
		kept.Code = NothingThere
	case old.Released:
		kept.Code = MarkerKept
	case old.ClusterID != clusterID:
		kept.Code = OtherCluster
	case epoch != AnyEpoch && epoch != old.Epoch:
		kept.Code = NotThatEpoch
	default:
		return Decision{Code: Admitted, Changed: true}
	}
	return kept
}

// Release decides a release at its commit index: of whatever registration
// stands (AnyEpoch, an operator's), or of the one whose silence a policy has
// judged. A second release renumbers the marker: it also refuses the recovery
// that answers the first.
func Release(old Registration, exists bool, epoch, index int64) Decision {
	switch {
	case !exists:
		return Decision{Code: NothingThere}
	case epoch != AnyEpoch && (old.Released || old.Epoch != epoch):
		return Decision{Code: NotThatEpoch, Exists: true, Entry: old}
	}
	old.Released, old.ReleaseNumber = true, index
	return Decision{Code: Admitted, Changed: true, Exists: true, Entry: old}
}
