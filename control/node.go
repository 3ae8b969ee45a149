package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"lockstep/internal/meta"
)

// Peer is a voter of the quorum.
type Peer struct {
	ID   int32
	Addr string // host:port of its controller listener
}

// NodeOptions is what a Node is made of.
type NodeOptions struct {
	NodeID    int32
	Dir       string // metadata directory
	Listen    string // controller listener, "" = embedded: this node alone is the quorum
	Advertise string
	Voters    []Peer
	Log       *slog.Logger
	Published func(*meta.View) // called after each change, on raft's goroutine
}

// Node is this process's member of the metadata quorum.
type Node struct {
	o     NodeOptions
	fsm   *fsm
	raft  *raft.Raft
	store *raftboltdb.BoltStore
	trans raft.Transport
}

// OpenNode starts raft over the directory. A new directory is bootstrapped with
// the given voters, or with this node alone: no command is needed before.
func OpenNode(o NodeOptions) (*Node, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("metadata directory: %w", err)
	}
	n := &Node{o: o, fsm: newFSM(o.Published)}
	store, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(o.Dir, "raft.db"), BoltOptions: &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}})
	if err != nil {
		if errors.Is(err, berrors.ErrTimeout) {
			return nil, fmt.Errorf("metadata directory %s is in use by another process", o.Dir)
		}
		return nil, fmt.Errorf("metadata store in %s: %w", o.Dir, err)
	}
	n.store = store
	snaps, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, 2, newHCLogger(o.Log))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metadata snapshots in %s: %w", o.Dir, err), store.Close())
	}
	if err := n.openTransport(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := n.bootstrap(snaps); err != nil {
		return nil, errors.Join(err, n.abandon())
	}
	n.raft, err = raft.NewRaft(n.config(), n.fsm, store, store, snaps, n.trans)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metadata quorum: %w", err), n.abandon())
	}
	return n, nil
}

func (n *Node) config() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(strconv.Itoa(int(n.o.NodeID)))
	c.Logger = newHCLogger(n.o.Log)
	c.SnapshotThreshold, c.TrailingLogs = snapshotThreshold, trailingLogs
	if len(n.o.Voters) <= 1 {
		// Nobody to wait for: an election of one need not take a second.
		c.HeartbeatTimeout, c.ElectionTimeout = 50*time.Millisecond, 50*time.Millisecond
		c.LeaderLeaseTimeout, c.CommitTimeout = 50*time.Millisecond, 5*time.Millisecond
	}
	return c
}

func (n *Node) openTransport() error {
	if n.o.Listen == "" {
		_, n.trans = raft.NewInmemTransport(raft.ServerAddress("embedded-" + strconv.Itoa(int(n.o.NodeID))))
		return nil
	}
	t, err := newTCPTransport(n.o.Listen, n.o.Advertise, newHCLogger(n.o.Log))
	if err != nil {
		return fmt.Errorf("controller listener %s: %w", n.o.Listen, err)
	}
	n.trans = t
	return nil
}

// abandon closes what a failed start has opened.
func (n *Node) abandon() error {
	var err error
	if c, ok := n.trans.(raft.WithClose); ok {
		err = c.Close()
	}
	return errors.Join(err, n.store.Close())
}

// votes tells whether this node is one of the voters it was given.
func (n *Node) votes() bool {
	return len(n.o.Voters) == 0 || slices.ContainsFunc(n.o.Voters, func(p Peer) bool { return p.ID == n.o.NodeID })
}

func (n *Node) bootstrap(snaps raft.SnapshotStore) error {
	has, err := raft.HasExistingState(n.store, n.store, snaps)
	if err != nil {
		return fmt.Errorf("metadata store: %w", err)
	}
	if has || !n.votes() {
		return nil // a non-voter waits for the leader's word: AddNonvoter
	}
	var servers []raft.Server
	for _, v := range n.o.Voters {
		addr := raft.ServerAddress(v.Addr)
		if v.ID == n.o.NodeID {
			addr = n.trans.LocalAddr()
		}
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(strconv.Itoa(int(v.ID))), Address: addr})
	}
	if len(servers) == 0 {
		servers = []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(strconv.Itoa(int(n.o.NodeID))), Address: n.trans.LocalAddr()}}
	}
	if err := raft.BootstrapCluster(n.config(), n.store, n.store, snaps, n.trans, raft.Configuration{Servers: servers}); err != nil {
		return fmt.Errorf("bootstrap of the metadata quorum: %w", err)
	}
	return nil
}

// View is the newest View of this node.
func (n *Node) View() *meta.View { return n.fsm.view.Load() }

// Committed is the newest command index this node has heard of.
func (n *Node) Committed() uint64 { return n.fsm.committed.Load() }

// Leads tells whether this node is the active controller.
func (n *Node) Leads() bool { return n.raft.State() == raft.Leader }

// Errors of Propose.
var (
	// ErrNoController: the command was not accepted; it may be tried again.
	ErrNoController = errors.New("no active controller: the metadata quorum has no leader that can be reached")
	// ErrUnknownOutcome: the command may or may not have happened. Look again.
	ErrUnknownOutcome = errors.New("the outcome is not known: the metadata quorum lost its leader meanwhile")
	// ErrTooLarge: the command is over the bound.
	ErrTooLarge = errors.New("metadata command is over 1 MiB")
)

// Propose makes a command durable and returns what Apply answered at its commit
// index. When it returns, View includes it.
func (n *Node) Propose(ctx context.Context, cmd meta.Message) (meta.Result, error) {
	b := meta.Encode(cmd)
	if len(b) > maxCommandBytes {
		return meta.Result{}, ErrTooLarge
	}
	timeout := proposeTimeout
	if d, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(d), time.Millisecond))
	}
	f := n.raft.Apply(b, timeout)
	err := await(ctx, f, timeout) // raft bounds the queueing only
	switch {
	case err == nil:
		return f.Response().(meta.Result), nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return meta.Result{}, ErrNoController
	case errors.Is(err, raft.ErrRaftShutdown):
		return meta.Result{}, errors.Join(ErrNoController, err)
	default:
		return meta.Result{}, errors.Join(ErrUnknownOutcome, err)
	}
}

// await bounds the wait for raft, whose futures know no end: not while a disk
// or the state machine stands still, nor, for some, after a shutdown.
func await(ctx context.Context, f raft.Future, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Verify tells whether this node is still the active controller, by asking the
// quorum, and waits until all it has committed is applied here.
func (n *Node) Verify() error {
	if !n.Leads() {
		return ErrNoController
	}
	ctx := context.Background()
	if err := await(ctx, n.raft.VerifyLeader(), proposeTimeout); err != nil {
		return ErrNoController
	}
	if err := await(ctx, n.raft.Barrier(proposeTimeout), proposeTimeout); err != nil {
		return ErrNoController
	}
	return nil
}

// AddNonvoter lets another node follow the metadata log without a vote. Only
// the active controller can; to add a node again changes its address.
func (n *Node) AddNonvoter(p Peer) error {
	err := n.raft.AddNonvoter(raft.ServerID(strconv.Itoa(int(p.ID))), raft.ServerAddress(p.Addr), 0, proposeTimeout).Error()
	if errors.Is(err, raft.ErrNotLeader) {
		return ErrNoController
	}
	return err
}

// WaitLeader waits until the quorum has a leader.
func (n *Node) WaitLeader(ctx context.Context) error {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		if addr, _ := n.raft.LeaderWithID(); addr != "" {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoController, ctx.Err())
		}
	}
}

// HoldApply makes every command wait for f before it is applied. Tests only:
// it shows that the data plane does not wait for the quorum.
func (n *Node) HoldApply(f func()) { n.fsm.hold.Store(&f) }

// Close stops raft and closes its store.
func (n *Node) Close() error {
	err := n.raft.Shutdown().Error()
	if c, ok := n.trans.(raft.WithClose); ok {
		err = errors.Join(err, c.Close())
	}
	return errors.Join(err, n.store.Close())
}
