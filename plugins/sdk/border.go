package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"lockstep/plugins/pluginpb"
)

// describeTimeout bounds the one call without which a plugin does not start.
const describeTimeout = 5 * time.Second

// border carries the interface over gRPC.
type border struct {
	plugin.NetRPCUnsupportedPlugin
	policy  Plugin
	version int
}

// GRPCServer is the plugin's side.
func (b *border) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, &server{policy: b.policy, version: b.version})
	return nil
}

// GRPCClient is the broker's side: a Plugin.
func (b *border) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	cl := &client{rpc: pluginpb.NewPluginClient(c), version: b.version}
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	d, err := cl.rpc.Describe(ctx, &pluginpb.DescribeRequest{}, capped)
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	cl.about = Description{Kind: Kind(d.GetKind()), Name: d.GetName(), Version: d.GetVersion()}
	return cl, nil
}

type server struct {
	pluginpb.UnimplementedPluginServer
	policy  Plugin
	version int
}

func (s *server) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.Description, error) {
	d := s.policy.Describe()
	return &pluginpb.Description{Kind: string(d.Kind), Name: d.Name, Version: d.Version}, nil
}

func (s *server) Handle(_ context.Context, m *pluginpb.Event) (out *pluginpb.Decision, err error) {
	defer func() { // a policy that panics has answered with an error, in process and out of it
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	e, err := eventFrom(m)
	if err != nil {
		return nil, err
	}
	d, err := s.policy.Handle(e)
	if err != nil {
		return nil, err
	}
	return decisionTo(d, s.version), nil
}

// capped: go-plugin's own bound is 2 GiB.
var capped = grpc.MaxCallRecvMsgSize(MaxMessage)

type client struct {
	rpc     pluginpb.PluginClient
	about   Description
	version int
}

func (c *client) Describe() Description { return c.about }

// Handle has no deadline of its own: the host stops waiting long before, and
// ends the process, and with it the call, when it is silent for good.
func (c *client) Handle(e Event) (Decision, error) {
	m, err := c.rpc.Handle(context.Background(), eventTo(e), capped)
	if err != nil {
		return Decision{}, err
	}
	return decisionFrom(m, c.version)
}

var errTopicID = errors.New("a topic id is 16 bytes")
