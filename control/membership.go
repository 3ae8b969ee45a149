package control

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// Member is this broker's registration.
type Member struct {
	NodeID      int32
	Incarnation [16]byte
	Host        string
	Port        int32
	Rack        string
	Clean       bool   // the last run closed its directories clean
	NewCluster  string // cluster id for a quorum that has none yet
	Features    map[string]int16
	Applied     func() uint64 // of the data plane
}

// Join bootstraps the cluster if it is new, registers this broker, waits until
// the data plane has applied the registration, and only then lets it lead.
func (n *Node) Join(ctx context.Context, m Member) (epoch int64, err error) {
	if err := n.WaitLeader(ctx); err != nil {
		return 0, err
	}
	if err := n.Verify(); err != nil {
		return 0, err
	}
	if n.View().ClusterID() == "" {
		cmd := &msg.BootstrapCommand{ClusterId: m.NewCluster}
		for name, level := range m.Features {
			cmd.Features = append(cmd.Features, msg.BootstrapCommandFeatureLevel{Name: name, Level: level})
		}
		if _, err := n.must(ctx, cmd, "bootstrap the cluster"); err != nil {
			return 0, err
		}
	}
	var rack *string
	if m.Rack != "" {
		rack = &m.Rack
	}
	res, err := n.must(ctx, &msg.RegisterBrokerCommand{BrokerId: m.NodeID, IncarnationId: m.Incarnation, Host: m.Host, Port: m.Port,
		Rack: rack, CleanShutdown: m.Clean}, "register this broker")
	if err != nil {
		return 0, err
	}
	for index := n.View().Index(); m.Applied() < index; {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("the data plane did not take the registration: %w", ctx.Err())
		}
		sleep(ctx, time.Millisecond)
	}
	if _, err := n.must(ctx, &msg.UnfenceBrokerCommand{BrokerId: m.NodeID, BrokerEpoch: res.Number}, "unfence this broker"); err != nil {
		return 0, err
	}
	return res.Number, nil
}

// Leave moves leadership away before a shutdown, as far as it has somewhere to go.
func (n *Node) Leave(ctx context.Context, id int32, epoch int64) error {
	_, err := n.must(ctx, &msg.ControlledShutdownCommand{BrokerId: id, BrokerEpoch: epoch}, "leave the cluster")
	return err
}

func (n *Node) must(ctx context.Context, cmd meta.Message, what string) (meta.Result, error) {
	res, err := n.Propose(ctx, cmd)
	if err != nil {
		return res, fmt.Errorf("%s: %w", what, err)
	}
	if res.ErrorCode != 0 {
		return res, fmt.Errorf("%s: %s: %s", what, wire.ErrorCode(res.ErrorCode).Name(), text(res.ErrorMessage))
	}
	return res, nil
}
