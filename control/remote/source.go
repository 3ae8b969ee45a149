package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/internal/status"
)

// Source is a client of one mirror's source cluster.
type Source struct {
	cl *kgo.Client
}

// Topic is a topic of the source.
type Topic struct {
	Name    string
	ID      [16]byte // zero when the source is older than topic ids
	Leaders []status.SourceLeader
	Configs map[string]string
}

// Dial makes a client from a mirror's configs. It does not connect yet.
func Dial(configs map[string]string) (*Source, error) {
	seeds := strings.FieldsFunc(configs["bootstrap.servers"], func(r rune) bool { return r == ',' || r == ' ' })
	if len(seeds) == 0 {
		return nil, errors.New("the mirror's bootstrap.servers is empty")
	}
	if p := configs["security.protocol"]; p != "" && p != "PLAINTEXT" {
		return nil, fmt.Errorf("security.protocol=%s is not supported yet: only PLAINTEXT", p)
	}
	opts := append(kafkareq.Options(), kgo.SeedBrokers(seeds...), kgo.ClientID("lockstep-mirror-control"),
		kgo.DialTimeout(3*time.Second), kgo.RequestRetries(1), kgo.RetryTimeout(5*time.Second),
		kgo.RequestTimeoutOverhead(5*time.Second), kgo.MetadataMinAge(50*time.Millisecond))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("client of the source: %w", err)
	}
	return &Source{cl}, nil
}

// Close ends the client.
func (s *Source) Close() { s.cl.Close() }

// ClusterID asks the source who it is.
func (s *Source) ClusterID(ctx context.Context) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return "", fmt.Errorf("metadata of the source: %w", err)
	}
	if resp.ClusterID == nil || *resp.ClusterID == "" {
		return "", errors.New("the source does not tell its cluster id")
	}
	return *resp.ClusterID, nil
}

// Topics asks for topics and their leaders; names nil asks for all. A topic the
// source does not have is left out.
func (s *Source) Topics(ctx context.Context, names []string) ([]Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	if names != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names))
		for _, n := range names {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(n)
			req.Topics = append(req.Topics, t)
		}
	}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return nil, fmt.Errorf("metadata of the source: %w", err)
	}
	addrs := map[int32]netip.AddrPort{}
	for _, b := range resp.Brokers {
		if a, err := resolve(ctx, b.Host, b.Port); err == nil {
			addrs[b.NodeID] = a
		}
	}
	var out []Topic
	for _, t := range resp.Topics {
		if t.Topic == nil || t.IsInternal || kerr.ErrorForCode(t.ErrorCode) != nil {
			continue
		}
		x := Topic{Name: *t.Topic, ID: t.TopicID, Leaders: make([]status.SourceLeader, len(t.Partitions))}
		for _, p := range t.Partitions {
			if int(p.Partition) >= len(x.Leaders) || p.Partition < 0 {
				return nil, fmt.Errorf("the source lists partition %d of %s among %d", p.Partition, *t.Topic, len(t.Partitions))
			}
			x.Leaders[p.Partition] = status.SourceLeader{Addr: addrs[p.Leader], Epoch: p.LeaderEpoch}
		}
		out = append(out, x)
	}
	return out, nil
}

// resolve turns a host and port into an address; IPv4 first, as the listeners
// of most clusters are.
func resolve(ctx context.Context, host string, port int32) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip, uint16(port)), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return netip.AddrPort{}, fmt.Errorf("resolve %s: %w", host, errors.Join(err, errors.New("no address")))
	}
	best := ips[0].Unmap()
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is4() {
			best = ip
			break
		}
	}
	return netip.AddrPortFrom(best, uint16(port)), nil
}

// EarliestOffset asks where a source partition's log starts.
func (s *Source) EarliestOffset(ctx context.Context, topic string, partition int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -2
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ListOffsetsRequestTopicPartition{p}
	req.Topics = []kmsg.ListOffsetsRequestTopic{t}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return 0, fmt.Errorf("list offsets at the source: %w", err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the source does not tell its offsets")
	}
	answer := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return 0, fmt.Errorf("list offsets at the source: %w", err)
	}
	return answer.Offset, nil
}

// Config asks for one setting of a topic, "" when the source does not have it.
func (s *Source) Config(ctx context.Context, topic, name string) (string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{name}
	req.Resources = []kmsg.DescribeConfigsRequestResource{r}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return "", fmt.Errorf("configuration of the source's topic: %w", err)
	}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Name == name && c.Value != nil {
				return *c.Value, nil
			}
		}
	}
	return "", nil
}

// ErrTooOld is a source that does not speak our requests.
var ErrTooOld = errors.New("the source cannot gate on mirrors: it does not speak RegisterMirrorSyncTopic")

// Register asks the source to gate on a mirror.
func (s *Source) Register(ctx context.Context, req *msg.RegisterMirrorSyncTopicRequest) (*msg.RegisterMirrorSyncTopicResponse, error) {
	resp := new(msg.RegisterMirrorSyncTopicResponse)
	return resp, s.do(ctx, req, resp)
}

// Unregister asks the source to stop gating, or which registration stands.
func (s *Source) Unregister(ctx context.Context, req *msg.UnregisterMirrorSyncTopicRequest) (*msg.UnregisterMirrorSyncTopicResponse, error) {
	resp := new(msg.UnregisterMirrorSyncTopicResponse)
	return resp, s.do(ctx, req, resp)
}

func (s *Source) do(ctx context.Context, req, resp msg.Message) error {
	err := kafkareq.Do(ctx, s.cl, req, resp)
	if err != nil && strings.Contains(err.Error(), "broker is too old") {
		return ErrTooOld
	}
	return err
}
