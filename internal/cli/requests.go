package cli

import (
	"context"

	"lockstep/admin"
)

// Listing is a mirror in a list.
type Listing struct {
	Mirror          string   `json:"mirror"`
	Topics          int      `json:"topics"` // neither paused nor stopped
	SourceClusterID string   `json:"sourceClusterId"`
	SourceBootstrap string   `json:"sourceBootstrapServer"`
	Names           []string `json:"topicNames"` // not stopped
}

func (s *Session) listMirrors(ctx context.Context) ([]Listing, error) {
	got, err := s.Mirrors.ListMirrors(ctx)
	if err != nil {
		return nil, s.Lost("listing mirrors", err)
	}
	list := []Listing{}
	for _, m := range got {
		list = append(list, Listing{m.Name, m.Active, m.SourceClusterID, m.SourceBootstrap, append([]string{}, m.Topics...)})
	}
	return list, nil
}

// Description is what a cluster knows of mirrors.
type Description struct {
	Partitions    []MirrorPartition
	Registrations []Registration // with this cluster as the source
}

// MirrorPartition is one mirrored partition at the destination.
type MirrorPartition struct {
	Mirror            string  `json:"mirror"`
	Topic             string  `json:"topic"`
	Partition         int32   `json:"partition"`
	SourceOffset      int64   `json:"sourceOffset"`      // -1 = unknown
	DestinationOffset int64   `json:"destinationOffset"` // log end offset, -1 = unknown
	Lag               int64   `json:"lag"`               // records, -1 = unknown
	State             string  `json:"state"`
	RetryAttempt      int16   `json:"retryAttempt"` // -1 = not retried
	ErrorMessage      *string `json:"errorMessage"`

	Desired           string   `json:"desiredMirrorType"`
	Effective         string   `json:"effectiveMirrorType"`
	RecoveryPending   bool     `json:"recoveryPending"`
	Annotations       []string `json:"annotations"`
	RegistrationEpoch int64    `json:"registrationEpoch"` // -1 = none
	FlushAck          string   `json:"flushAck"`
	LastSourceEpoch   int32    `json:"lastSourceEpoch"` // -1 = none
	LastContactMs     int64    `json:"lastContactMs"`   // since 1970, -1 = never
	LostAckedRecords  bool     `json:"lostAckedRecords"`
}

// Registration is a mirror that gates a topic of this cluster.
type Registration struct {
	Mirror               string `json:"mirror"`
	Topic                string `json:"topic"`
	DestinationClusterID string `json:"destinationClusterId"`
	Epoch                int64  `json:"registrationEpoch"`
	Released             bool   `json:"released"`
	ReleaseNumber        int64  `json:"releaseNumber"` // -1 = never released
	Unfenced             bool   `json:"unfenced"`
}

// describe asks about the named mirrors, all if none is named. Brokers
// that do not answer are named beside the answer.
func (m *Mirrors) describe(ctx context.Context, names ...string) (*Description, error) {
	got, err := m.S.Mirrors.DescribeMirrors(ctx, names...)
	if err != nil {
		return nil, m.S.Lost("describing mirrors", err)
	}
	for id, err := range got.Silent {
		m.P.Note("WARNING: broker %d did not answer (%s): its partitions are missing here", id, reason(err))
	}
	d := &Description{Partitions: []MirrorPartition{}, Registrations: []Registration{}}
	for i := range got.Mirrors {
		x := &got.Mirrors[i]
		if x.Err != nil {
			return nil, Fail("mirror "+x.Name, x.Err, "list shows which there are")
		}
		for j := range x.Topics {
			d.addTopic(x.Name, &x.Topics[j])
		}
	}
	for _, r := range got.Registrations {
		d.Registrations = append(d.Registrations, Registration{r.Mirror, r.Topic, r.ClusterID, r.Epoch, r.Released, r.ReleaseNumber, r.Unfenced})
	}
	d.sort()
	return d, nil
}

func (d *Description) addTopic(mirror string, t *admin.DescribedTopic) {
	for _, p := range t.Partitions {
		var why *string
		if p.Error != "" {
			why = &p.Error
		}
		d.Partitions = append(d.Partitions, MirrorPartition{mirror, t.Topic, p.Partition, p.SourceOffset, p.DestinationOffset, p.Lag,
			p.State, p.RetryAttempt, why, t.Desired.String(), t.Effective.String(), t.RecoveryPending, append([]string{}, t.Remarks...),
			t.RegistrationEpoch, t.FlushAck, p.LastSourceEpoch, p.LastContactMS, p.LostAcked})
	}
}

// released makes results of a release those of topics.
func released(list []admin.UnregisterResult) []admin.TopicResult {
	out := make([]admin.TopicResult, len(list))
	for i, r := range list {
		out[i] = admin.TopicResult{Topic: r.Topic, Err: r.Err}
	}
	return out
}
