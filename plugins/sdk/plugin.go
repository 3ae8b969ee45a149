package sdk

// Kind names what a plugin decides.
type Kind string

// The three kinds, each its own process and each swappable alone.
const (
	Coordinator Kind = "coordinator" // destination: the life of a mirrored partition
	Promotion   Kind = "promotion"   // destination: ASYNC to SYNC and back, per topic
	Release     Kind = "release"     // source: admission of Register, Unregister, Release
)

// Description says what a plugin is.
type Description struct {
	Kind    Kind
	Name    string
	Version string
}

// Subject is what an event is about. Partition is -1 for a whole topic.
type Subject struct {
	Mirror    string
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Facts are what the broker has measured or stored. Fields that a kind of
// event does not use are zero.
type Facts struct {
	// Partition events.
	State        int8 // KIP-1279's number of the stored state
	Desired      int8 // likewise: MIRRORING, PAUSED or STOPPED
	EpochBehind  bool // the source's leader epoch is above ours
	Aligned      bool // the log is a prefix of the source's, or empty
	Failed       string
	RetryAttempt int32
	RetryDueMS   int64 // Unix ms; a FAILED partition may retry from then on
	LeaderKnown  bool  // the source partition has a leader whose address is known

	// Promotion events.
	Phase           uint8
	Partitions      int32
	InStep          int32
	Failing         int32
	FailingMS       int64 // for how long all have been failing
	DemoteTimeoutMS int64
	Attempts        int32 // failed Registers in a row
	NextTryMS       int64 // Unix ms: the back-off is over then

	// Release events.
	Released      bool  // the marker stands
	Recovery      bool  // the Register is a recovery
	SilentMS      int64 // for how long no partition has had a report that counts
	AutoReleaseMS int64 // lockstep.mirror.auto.release.ms: silent for so long, a policy may release
}

// Event is one thing that happened. Seq rises by one per event of a kind.
type Event struct {
	Seq   int64
	NowMS int64 // Unix ms
	Type  EventType
	Subject
	Facts Facts
}

// EventType names an event.
type EventType string

// The events.
const (
	PartitionLook EventType = "partition" // coordinator: a partition's facts, on a change and every tick
	PromotionLook EventType = "promotion" // promotion: a topic's facts
	RegisterAsked EventType = "register"  // release: a destination wants to register
	SilentLook    EventType = "silent"    // release: a registered mirror has been silent for AutoReleaseMS
)

// Wish is a change the plugin wants. The broker may refuse it.
type Wish struct {
	Do Action
	Subject
	Step   uint8  // coordinator: the number of the mirror.PartitionEvent
	Reason string // for the journal and the operator
}

// Action names a wish.
type Action string

// The actions.
const (
	StepPartition Action = "step"     // coordinator: take the partition through an event
	Register      Action = "register" // promotion: promote, register at the source
	Demote        Action = "demote"   // promotion: end SYNC, keep the wish for it
	Admit         Action = "admit"    // release: let the request through to the ledger
	Hold          Action = "hold"     // release: keep the marker, refuse the Register
	ReleaseSync   Action = "release"  // release: stop waiting for the silent mirror; what it has not got may be lost
)

// Decision is a plugin's answer to one event.
type Decision struct {
	Wishes []Wish
	Note   string // for the operator: what the policy waits for; protocol 2
}

// Plugin is a policy.
type Plugin interface {
	Describe() Description
	// Handle decides about one event. It must not block and not keep pointers.
	Handle(e Event) (Decision, error)
}
