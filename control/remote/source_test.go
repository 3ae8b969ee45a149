package remote

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"lockstep/internal/msg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDialRefusals(t *testing.T) {
	for _, c := range []struct {
		configs map[string]string
		want    string
	}{
		{nil, "bootstrap.servers is empty"},
		{map[string]string{"bootstrap.servers": " , "}, "bootstrap.servers is empty"},
		{map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}, "security.protocol=SASL_SSL is not supported"},
	} {
		if _, err := Dial(c.configs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.configs, err)
		}
	}
}

func source(t *testing.T, opts ...kfake.Opt) (*Source, *kfake.Cluster) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("faraway"), kfake.SeedTopics(3, "orders"), kfake.SeedTopics(1, "other")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s, err := Dial(map[string]string{"bootstrap.servers": strings.Join(c.ListenAddrs(), ", "), "security.protocol": "PLAINTEXT"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, c
}

// A foreign cluster tells what it has; what is ours alone is ErrTooOld.
func TestForeignSource(t *testing.T) {
	s, c := source(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if id, err := s.ClusterID(ctx); err != nil || id != "faraway" {
		t.Fatal(id, err)
	}
	found, err := s.Topics(ctx, []string{"orders", "no such topic"})
	if err != nil || len(found) != 1 || found[0].Name != "orders" || found[0].ID == [16]byte{} || len(found[0].Leaders) != 3 {
		t.Fatalf("%+v %v", found, err)
	}
	want := netip.MustParseAddrPort(c.ListenAddrs()[0])
	for i, l := range found[0].Leaders {
		if l.Addr != want || l.Epoch < 0 {
			t.Errorf("partition %d: %+v, want %v", i, l, want)
		}
	}
	if all, err := s.Topics(ctx, nil); err != nil || len(all) != 2 {
		t.Errorf("all topics: %+v %v", all, err)
	}
	if none, err := s.Topics(ctx, []string{}); err != nil || len(none) != 0 {
		t.Errorf("no topics: %+v %v", none, err)
	}
	if o, err := s.EarliestOffset(ctx, "orders", 2); err != nil || o != 0 {
		t.Errorf("earliest offset %d %v", o, err)
	}
	if _, err := s.EarliestOffset(ctx, "orders", 30); err == nil {
		t.Error("an offset of a partition that is not there")
	}
	if v, err := s.Config(ctx, "orders", "flush.ack"); err != nil || v != "" {
		t.Errorf("a config it does not have: %q %v", v, err)
	}
	if _, err := s.Register(ctx, &msg.RegisterMirrorSyncTopicRequest{MirrorName: "dr"}); !errors.Is(err, ErrTooOld) {
		t.Errorf("register: %v", err)
	}
	if _, err := s.Unregister(ctx, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "dr"}); !errors.Is(err, ErrTooOld) {
		t.Errorf("unregister: %v", err)
	}
}

// A source whose answer makes no sense is an error, never a wrong leader.
func TestNonsense(t *testing.T) {
	s, c := source(t)
	var change func(*kmsg.MetadataResponse)
	c.ControlKey(3, func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		id, name := "faraway", "orders"
		host, port, _ := net.SplitHostPort(c.ListenAddrs()[0])
		p, _ := net.LookupPort("tcp", port)
		resp.ClusterID, resp.ControllerID = &id, 0
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 0, Host: host, Port: int32(p)}, {NodeID: 1, Host: "no.such.host.invalid", Port: 1}}
		resp.Topics = []kmsg.MetadataResponseTopic{{Topic: &name, TopicID: [16]byte{1}, Partitions: []kmsg.MetadataResponseTopicPartition{{Partition: 1, Leader: 0, LeaderEpoch: 4}, {Partition: 0, Leader: 1, LeaderEpoch: 6}}}}
		if change != nil {
			change(resp)
		}
		return resp, nil, true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	found, err := s.Topics(ctx, []string{"orders"})
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	// Partitions come in any order; a leader that cannot be resolved is none.
	if l := found[0].Leaders; l[1].Epoch != 4 || !l[1].Addr.IsValid() || l[0].Epoch != 6 || l[0].Addr.IsValid() {
		t.Errorf("%+v", l)
	}
	change = func(r *kmsg.MetadataResponse) { r.Topics[0].Partitions[1].Partition = 7 }
	if found, err := s.Topics(ctx, []string{"orders"}); err == nil || !strings.Contains(err.Error(), "partition 7") {
		t.Errorf("partition 7 of 2: %+v %v", found, err)
	}
	change = func(r *kmsg.MetadataResponse) { r.Topics[0].Partitions[1].Partition = -1 }
	if _, err := s.Topics(ctx, []string{"orders"}); err == nil {
		t.Error("partition -1")
	}
	change = func(r *kmsg.MetadataResponse) { r.ClusterID = nil }
	if id, err := s.ClusterID(ctx); err == nil {
		t.Errorf("cluster id %q of a source that has none", id)
	}
}

// A source that swallows everything costs the caller's time and no more.
func TestSilentSource(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepted by the kernel, read by nobody
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	s, err := Dial(map[string]string{"bootstrap.servers": ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, f := range map[string]func(context.Context) error{
		"cluster id": func(c context.Context) error { _, err := s.ClusterID(c); return err },
		"topics":     func(c context.Context) error { _, err := s.Topics(c, []string{"t"}); return err },
		"offset":     func(c context.Context) error { _, err := s.EarliestOffset(c, "t", 0); return err },
		"config":     func(c context.Context) error { _, err := s.Config(c, "t", "x"); return err },
		"register": func(c context.Context) error {
			_, err := s.Register(c, &msg.RegisterMirrorSyncTopicRequest{})
			return err
		},
		"unregister": func(c context.Context) error {
			_, err := s.Unregister(c, &msg.UnregisterMirrorSyncTopicRequest{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		start := time.Now()
		err := f(ctx)
		cancel()
		if err == nil || errors.Is(err, ErrTooOld) || time.Since(start) > time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(start))
		}
	}
}
