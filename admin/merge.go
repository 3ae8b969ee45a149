package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/internal/msg"
)

// pending begins the remark that each broker makes of its own partitions alone.
const pending = "promotion pending: lag "

// merger puts the answers of all brokers together.
type merger struct {
	mirrors       map[string]*mergedMirror
	registrations map[registrationKey]*Registration
}

type mergedMirror struct {
	err    error
	topics map[string]*mergedTopic
}

type mergedTopic struct {
	t          DescribedTopic
	pending    bool
	partitions map[int32]DescribedPartition
}

type registrationKey struct {
	topic  [16]byte
	mirror string
}

func newMerger() *merger {
	return &merger{mirrors: map[string]*mergedMirror{}, registrations: map[registrationKey]*Registration{}}
}

func (m *merger) add(r *msg.DescribeClusterMirrorsResponse) {
	for i := range r.Mirrors {
		in := &r.Mirrors[i]
		have := m.mirrors[in.MirrorName]
		if have == nil {
			have = &mergedMirror{err: bare(in.ErrorCode), topics: map[string]*mergedTopic{}}
			m.mirrors[in.MirrorName] = have
		}
		if in.ErrorCode == 0 {
			have.err = nil // a broker that lags did not know it yet
		}
		for k := range in.Topics {
			have.add(&in.Topics[k])
		}
	}
	for i := range r.Registrations {
		m.register(&r.Registrations[i])
	}
}

func (m *mergedMirror) add(in *msg.DescribeClusterMirrorsResponseDescribedTopic) {
	t := m.topics[in.TopicName]
	if t == nil {
		t = &mergedTopic{partitions: map[int32]DescribedPartition{}, t: DescribedTopic{Topic: in.TopicName, Desired: MirrorType(in.DesiredMirrorType),
			Effective: MirrorType(in.EffectiveMirrorType), RecoveryPending: in.RecoveryPending, RegistrationEpoch: in.RegistrationEpoch, FlushAck: in.FlushAck}}
		m.topics[in.TopicName] = t
	}
	if MirrorType(in.EffectiveMirrorType) != Sync {
		t.t.Effective = Async // each broker answers for its partitions: SYNC holds if it holds for all
	}
	if in.Annotation != nil {
		for remark := range strings.SplitSeq(*in.Annotation, "; ") {
			if strings.HasPrefix(remark, pending) {
				t.pending = true
			} else if !slices.Contains(t.t.Remarks, remark) {
				t.t.Remarks = append(t.t.Remarks, remark)
			}
		}
	}
	for i := range in.Partitions {
		p := describedPartition(&in.Partitions[i])
		// Two brokers answer for a partition that nobody leads: the one with
		// the longer log is what one chooses by.
		if have, ok := t.partitions[p.Partition]; !ok || p.DestinationOffset > have.DestinationOffset {
			t.partitions[p.Partition] = p
		}
	}
}

func describedPartition(p *msg.DescribeClusterMirrorsResponseDescribedPartition) DescribedPartition {
	o := DescribedPartition{Partition: p.PartitionIndex, State: p.StateValue, SourceOffset: p.SourceOffset, DestinationOffset: p.DestinationOffset,
		Lag: p.Lag, RetryAttempt: p.RetryAttempt, LastSourceEpoch: p.LastSourceEpoch, LastContactMS: p.LastContactMs, LostAcked: p.LostAckedRecords}
	if p.ErrorMessage != nil {
		o.Error = *p.ErrorMessage
	}
	return o
}

func (m *merger) register(in *msg.DescribeClusterMirrorsResponseRegistration) {
	r := &Registration{Topic: in.TopicName, TopicID: in.TopicId, Mirror: in.MirrorName, ClusterID: in.DestinationClusterId, Epoch: in.RegistrationEpoch,
		Released: in.Released, ReleaseNumber: in.ReleaseNumber, Unfenced: in.Unfenced}
	key := registrationKey{r.TopicID, r.Mirror}
	have := m.registrations[key]
	if have == nil {
		m.registrations[key] = r
		return
	}
	unfenced := have.Unfenced || r.Unfenced // each leader knows only its own reports
	if max(r.Epoch, r.ReleaseNumber) > max(have.Epoch, have.ReleaseNumber) {
		m.registrations[key] = r
	}
	m.registrations[key].Unfenced = unfenced
}

func (m *merger) result() (d Description) {
	for _, name := range slices.Sorted(maps.Keys(m.mirrors)) {
		in := m.mirrors[name]
		out := DescribedMirror{Name: name, Err: in.err}
		for _, topic := range slices.Sorted(maps.Keys(in.topics)) {
			out.Topics = append(out.Topics, in.topics[topic].result())
		}
		d.Mirrors = append(d.Mirrors, out)
	}
	for _, r := range m.registrations {
		d.Registrations = append(d.Registrations, *r)
	}
	slices.SortFunc(d.Registrations, func(a, b Registration) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Mirror, b.Mirror), slices.Compare(a.TopicID[:], b.TopicID[:]))
	})
	return d
}

func (t *mergedTopic) result() DescribedTopic {
	lag := int64(0) // of all partitions, -1 unknown
	for _, i := range slices.Sorted(maps.Keys(t.partitions)) {
		p := t.partitions[i]
		t.t.Partitions = append(t.t.Partitions, p)
		if p.Lag < 0 || lag < 0 {
			lag = -1
		} else {
			lag += p.Lag
		}
	}
	if t.pending {
		text := pending + "unknown"
		if lag >= 0 && len(t.partitions) > 0 {
			text = fmt.Sprint(pending, lag)
		}
		t.t.Remarks = slices.Insert(t.t.Remarks, 0, text)
	}
	return t.t
}
