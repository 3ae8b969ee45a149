package meta

import (
	"bytes"
	"iter"
	"strings"

	"github.com/benbjohnson/immutable"

	"lockstep/internal/mirror"
)

// UUID is a topic id, an incarnation id and the like.
type UUID = [16]byte

// View is the whole of the cluster's facts after the command at Index. It is
// immutable: everything reachable from it must be treated as read-only, and it
// may be read from any number of threads.
type View struct {
	index       uint64
	clusterID   string
	brokers     []*Broker     // by id
	controllers []*Controller // by id
	topics      *immutable.SortedMap[string, *Topic]
	names       *immutable.SortedMap[UUID, string]
	mirrors     *immutable.SortedMap[string, *Mirror]
	brokerCfg   *immutable.SortedMap[string, map[string]string] // "" = cluster default
	features    []Feature                                       // by name
	partitions  int
	nextPID     int64
	fences      [FenceKinds]int64
	recent      [recentChanges]*changeSet
}

// Broker is one registered broker.
type Broker struct {
	ID          int32
	Epoch       int64 // index of its registration
	Incarnation UUID
	Host        string
	Port        int32
	Rack        string
	Fenced      bool // leads nothing, is in no new ISR
	InShutdown  bool // likewise; still serves
}

// Alive tells whether the broker may lead or enter an ISR.
func (b *Broker) Alive() bool { return b != nil && !b.Fenced && !b.InShutdown }

// Controller is one registered controller.
type Controller struct {
	ID          int32
	Incarnation UUID
	Host        string
	Port        int32
}

// Topic is one topic with both sides of its mirroring.
type Topic struct {
	ID            UUID
	Name          string
	Configs       map[string]string
	Partitions    []*Partition
	Mirror        *TopicMirror   // destination side; nil = not mirrored
	Registrations []Registration // source side, by mirror name, released ones included
	Index         uint64         // index of the last change to anything in it
}

// Registration is a ledger entry; see mirror.Registration.
type Registration = mirror.Registration

// Gated tells whether any registration gates the topic's high watermark.
func (t *Topic) Gated() bool {
	for _, r := range t.Registrations {
		if r.Gates() {
			return true
		}
	}
	return false
}

// ReadOnly tells whether clients may not write to partition p.
func (t *Topic) ReadOnly(p int) bool {
	return t.Mirror != nil && t.Partitions[p].State != mirror.Stopped
}

// Partition is one partition's replicas, leadership and mirror state.
type Partition struct {
	Replicas []int32
	ISR      []int32
	ELR      []int32 // eligible leader replicas: hold everything below the high watermark
	Leader   int32   // -1 none
	// LastLeader is the only hope of a partition whose ISR and ELR are empty.
	LastLeader     int32 // -1 never led
	LeaderEpoch    int32
	PartitionEpoch int32

	Lineage      []LineageEntry
	State        mirror.PartitionState // Unknown when not mirrored
	Previous     mirror.PartitionState // where a retry of FAILED leads
	StopStep     mirror.StopStep
	StateEpoch   int32
	LMEEpoch     int32 // last mirror epoch, -1 none
	LMEOffset    int64 // log end offset when it was taken, -1 none
	RetryAttempt int16
	NonRetryable bool
	Error        string
}

// LineageEntry says who wrote a partition from an offset on.
type LineageEntry struct {
	ClusterID   string
	TopicID     UUID
	FirstEpoch  int32
	FirstOffset int64
}

// TopicMirror is the destination side of a mirrored topic.
type TopicMirror struct {
	mirror.Promotion // DesiredType, EffectiveType, Phase, RegistrationEpoch, …

	Mirror          string
	SourceClusterID string
	Desired         mirror.PartitionState // Mirroring, Paused or Stopped
	UnregisterDone  bool                  // the stop's one Unregister is over
}

// Mirror is a named link to a source cluster.
type Mirror struct {
	Name    string
	Configs map[string]string // bootstrap.servers, mirror.source.cluster.id, …
}

// SourceClusterID is the id of the cluster the mirror reads from.
func (m *Mirror) SourceClusterID() string { return m.Configs["mirror.source.cluster.id"] }

// Feature is a finalised feature level.
type Feature struct {
	Name  string
	Level int16
}

// FenceKind names a kind of plugin.
type FenceKind int8

// The kinds.
const (
	FenceCoordinator FenceKind = iota
	FencePromotion
	FenceRelease
	FenceKinds
)

// Resource types of configs, with Kafka's numbers.
const (
	ResourceTopic  int8 = 2
	ResourceBroker int8 = 4
	ResourceMirror int8 = 64
)

// FeatureMirrorSync is the feature that lets a cluster gate on mirrors.
const FeatureMirrorSync = "mirror.sync.version"

// Empty returns the View before the first command.
func Empty() *View {
	return &View{
		topics:    immutable.NewSortedMap[string, *Topic](byString{}),
		names:     immutable.NewSortedMap[UUID, string](byUUID{}),
		mirrors:   immutable.NewSortedMap[string, *Mirror](byString{}),
		brokerCfg: immutable.NewSortedMap[string, map[string]string](byString{}),
	}
}

type byString struct{}

func (byString) Compare(a, b string) int { return strings.Compare(a, b) }

type byUUID struct{}

func (byUUID) Compare(a, b UUID) int { return bytes.Compare(a[:], b[:]) }

// Index is the index of the last applied command, refused ones included.
func (v *View) Index() uint64 { return v.index }

// ClusterID is "" until Bootstrap.
func (v *View) ClusterID() string { return v.clusterID }

// Broker returns a broker or nil.
func (v *View) Broker(id int32) *Broker {
	for _, b := range v.brokers {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// Brokers returns all brokers by id.
func (v *View) Brokers() []*Broker { return v.brokers }

// Controllers returns all registered controllers by id.
func (v *View) Controllers() []*Controller { return v.controllers }

// TopicByName returns a topic or nil.
func (v *View) TopicByName(name string) *Topic {
	t, _ := v.topics.Get(name)
	return t
}

// TopicByID returns a topic or nil.
func (v *View) TopicByID(id UUID) *Topic {
	name, ok := v.names.Get(id)
	if !ok {
		return nil
	}
	return v.TopicByName(name)
}

// Topics yields all topics by name.
func (v *View) Topics() iter.Seq[*Topic] { return values(v.topics) }

// NumTopics is the number of topics.
func (v *View) NumTopics() int { return v.topics.Len() }

// NumPartitions is the number of partitions of all topics.
func (v *View) NumPartitions() int { return v.partitions }

// Mirror returns a mirror or nil.
func (v *View) Mirror(name string) *Mirror {
	m, _ := v.mirrors.Get(name)
	return m
}

// Mirrors yields all mirrors by name.
func (v *View) Mirrors() iter.Seq[*Mirror] { return values(v.mirrors) }

// Feature returns a finalised level, 0 if never set.
func (v *View) Feature(name string) int16 {
	for _, f := range v.features {
		if f.Name == name {
			return f.Level
		}
	}
	return 0
}

// Features returns all finalised levels by name.
func (v *View) Features() []Feature { return v.features }

// BrokerConfig returns the cluster-wide dynamic defaults of all brokers.
func (v *View) BrokerConfig() map[string]string { return v.ConfigOf(ResourceBroker, "") }

// ConfigOf returns the dynamic configs of a resource, nil if there are none. A
// broker's name is its id in decimal, "" the cluster-wide default.
func (v *View) ConfigOf(resourceType int8, name string) map[string]string {
	switch resourceType {
	case ResourceTopic:
		if t := v.TopicByName(name); t != nil {
			return t.Configs
		}
	case ResourceBroker:
		c, _ := v.brokerCfg.Get(name)
		return c
	case ResourceMirror:
		if m := v.Mirror(name); m != nil {
			return m.Configs
		}
	}
	return nil
}

// NextProducerID is the first producer id not yet given to any broker.
func (v *View) NextProducerID() int64 { return v.nextPID }

// Fence is the number that wishes of a plugin kind must carry.
func (v *View) Fence(kind FenceKind) int64 {
	if kind < 0 || kind >= FenceKinds {
		return 0
	}
	return v.fences[kind]
}

func values[V any, K any](m *immutable.SortedMap[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for it := m.Iterator(); !it.Done(); {
			if _, v, ok := it.Next(); !ok || !yield(v) {
				return
			}
		}
	}
}
