package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
)

// Description is what a cluster says of its mirrors and, as a source, of the
// mirrors registered with it.
type Description struct {
	Mirrors       []DescribedMirror // by name
	Registrations []Registration    // by topic and mirror
	// Silent are the brokers that did not answer: their partitions are missing.
	Silent map[int32]error
}

// DescribedMirror is one mirror.
type DescribedMirror struct {
	Name   string
	Err    error            // e.g. ErrUnknownMirror
	Topics []DescribedTopic // by name
}

// DescribedTopic is one topic of a mirror.
type DescribedTopic struct {
	Topic              string
	Desired, Effective MirrorType
	RecoveryPending    bool
	RegistrationEpoch  int64 // -1 none
	FlushAck           string
	Remarks            []string
	Partitions         []DescribedPartition // by number
}

// DescribedPartition is one partition. Offsets and lag are -1 when unknown.
type DescribedPartition struct {
	Partition         int32
	State             string
	SourceOffset      int64 // high watermark of the source
	DestinationOffset int64 // log end offset here
	Lag               int64
	RetryAttempt      int16 // -1 = it will not be retried
	Error             string
	LastSourceEpoch   int32
	LastContactMS     int64 // Unix ms, -1 never
	LostAcked         bool
}

// Registration is a destination's registration at this cluster.
type Registration struct {
	Topic         string
	TopicID       [16]byte
	Mirror        string
	ClusterID     string // of the destination; "" = it did not say
	Epoch         int64
	Released      bool
	ReleaseNumber int64 // -1 = never released
	Unfenced      bool
}

// DescribeMirrors asks all brokers and merges: each knows the partitions it
// leads. No names means all mirrors. It fails only if no broker answers.
func (a *Client) DescribeMirrors(ctx context.Context, names ...string) (Description, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	brokers, err := a.adm.BrokerMetadata(ctx)
	if err != nil {
		return Description{}, fmt.Errorf("admin: %w", err)
	}
	ids := brokers.Brokers.NodeIDs()
	if len(ids) == 0 {
		return Description{}, errors.New("admin: the cluster names no live broker")
	}
	answers := make([]*msg.DescribeClusterMirrorsResponse, len(ids))
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { answers[i], errs[i] = a.describeFrom(ctx, id, names) })
	}
	all.Wait()
	m := newMerger()
	silent := map[int32]error{}
	for i, id := range ids {
		if errs[i] != nil {
			silent[id] = errs[i]
		} else {
			m.add(answers[i])
		}
	}
	if len(silent) == len(ids) {
		return Description{}, fmt.Errorf("admin: %w", errors.Join(errs...))
	}
	d := m.result()
	d.Silent = silent
	return d, nil
}

// toBroker sends a message to one broker.
type toBroker struct {
	msg.Message
	resp *fromBroker
}

func (t toBroker) Key() int16                  { return t.APIKey() }
func (t toBroker) ResponseKind() kmsg.Response { return t.resp }

type fromBroker struct{ msg.Message }

func (f *fromBroker) Key() int16                { return f.APIKey() }
func (f *fromBroker) RequestKind() kmsg.Request { return nil }

func (a *Client) describeFrom(ctx context.Context, broker int32, names []string) (*msg.DescribeClusterMirrorsResponse, error) {
	resp := new(msg.DescribeClusterMirrorsResponse)
	_, err := a.cl.Broker(int(broker)).RetriableRequest(ctx, toBroker{&msg.DescribeClusterMirrorsRequest{MirrorNames: names}, &fromBroker{resp}})
	if err == nil {
		err = failure(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}
