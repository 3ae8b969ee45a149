package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hashicorp/raft"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func openNode(t *testing.T, o NodeOptions) *Node {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet()
	}
	if o.Published == nil {
		o.Published = func(*meta.View) {}
	}
	n, err := OpenNode(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func closeNode(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func propose(t *testing.T, n *Node, cmd meta.Message) meta.Result {
	t.Helper()
	res, err := n.Propose(within(t, 10*time.Second), cmd)
	if err != nil || res.ErrorCode != 0 {
		t.Fatalf("%T: %v %d %s", cmd, err, res.ErrorCode, text(res.ErrorMessage))
	}
	for _, it := range res.Items {
		if it.ErrorCode != 0 {
			t.Fatalf("%T: %d %s", cmd, it.ErrorCode, text(it.ErrorMessage))
		}
	}
	return res
}

func lead(t *testing.T, n *Node) {
	t.Helper()
	wait(t, "a controller", func() bool { return n.Leads() && n.Verify() == nil })
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("%s: not within 10 s", what)
}

func features(n int) meta.Message {
	return &msg.SetFeatureCommand{Name: "f" + fmt.Sprint(n%40), Level: int16(n)}
}

func dump(v *meta.View) string { return string(meta.AppendSnapshot(nil, v)) }

// A new directory needs no command before the first, and a restart keeps all.
func TestNodeRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	n := openNode(t, NodeOptions{NodeID: 7, Dir: dir})
	start := time.Now()
	if err := n.WaitLeader(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("an election of one took %v", d)
	}
	lead(t, n)
	propose(t, n, &msg.BootstrapCommand{ClusterId: "one"})
	for i := range 20 {
		res := propose(t, n, features(i))
		if n.View().Feature("f"+fmt.Sprint(i)) != int16(i) || n.Committed() < n.View().Index() {
			t.Fatalf("the View after Propose does not have it: %+v", res)
		}
	}
	before := dump(n.View())
	closeNode(t, n)
	var published int
	n = openNode(t, NodeOptions{NodeID: 7, Dir: dir, Published: func(*meta.View) { published++ }})
	defer closeNode(t, n)
	lead(t, n)
	if dump(n.View()) != before || published != 21 {
		t.Fatalf("not the same after a restart, %d Views published", published)
	}
}

// Snapshot, a few commands after it, and a restart: the same View as without.
func TestNodeSnapshot(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, NodeOptions{NodeID: 1, Dir: dir})
	lead(t, n)
	if err := n.raft.ReloadConfig(raft.ReloadableConfig{TrailingLogs: 3, SnapshotInterval: time.Hour, SnapshotThreshold: 1 << 40,
		HeartbeatTimeout: 50 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	propose(t, n, &msg.BootstrapCommand{ClusterId: "one"})
	for i := range 120 {
		propose(t, n, features(i))
	}
	broker := propose(t, n, &msg.RegisterBrokerCommand{BrokerId: 1, Host: "h", Port: 1})
	propose(t, n, &msg.UnfenceBrokerCommand{BrokerId: 1, BrokerEpoch: broker.Number})
	propose(t, n, &msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: "t", TopicId: [16]byte{5},
		Assignments: []msg.CreateTopicsCommandAssignment{{Replicas: []int32{1}}}}}})
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	first, err := n.store.FirstIndex()
	if err != nil || first < 100 {
		t.Fatalf("first log after a snapshot is %d: %v", first, err)
	}
	for i := range 7 {
		propose(t, n, features(1000+i))
	}
	before := dump(n.View())
	closeNode(t, n)
	published := 0
	n = openNode(t, NodeOptions{NodeID: 1, Dir: dir, Published: func(*meta.View) { published++ }})
	defer closeNode(t, n)
	lead(t, n)
	if dump(n.View()) != before || n.View().TopicByID([16]byte{5}) == nil || n.Committed() < n.View().Index() {
		t.Fatalf("not the same after a snapshot and a restart: index %d, committed %d, topic %v, %d bytes were %d", n.View().Index(), n.Committed(),
			n.View().TopicByID([16]byte{5}), len(dump(n.View())), len(before))
	}
	if published > 8 {
		t.Errorf("%d Views published: the snapshot was not used", published)
	}
	if propose(t, n, features(3)); n.View().Feature("f3") != 3 {
		t.Error("no command after the restart")
	}
}

func TestBadSnapshotIsRefused(t *testing.T) {
	f := newFSM(func(*meta.View) { t.Error("published") })
	if err := f.Restore(io.NopCloser(iotest.ErrReader(errors.New("disk")))); err == nil {
		t.Error("an unreadable snapshot was taken")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString("not a snapshot")
	_ = w.Close()
	if err := f.Restore(r); err == nil || !strings.Contains(err.Error(), "metadata snapshot") {
		t.Errorf("a broken snapshot: %v", err)
	}
}

// Two processes on one directory: the second is told.
func TestNodeDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, NodeOptions{NodeID: 1, Dir: dir})
	defer closeNode(t, n)
	start := time.Now()
	_, err := OpenNode(NodeOptions{NodeID: 1, Dir: dir, Log: quiet()})
	if err == nil || !strings.Contains(err.Error(), dir+" is in use by another process") || time.Since(start) > 3*time.Second {
		t.Fatalf("after %v: %v", time.Since(start), err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNode(NodeOptions{NodeID: 1, Dir: file, Log: quiet()}); err == nil || !strings.Contains(err.Error(), "metadata directory") {
		t.Errorf("a file for a directory: %v", err)
	}
}

// A start that fails leaves neither the listener nor the store behind.
func TestNodeFailedStart(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	if err := os.WriteFile(filepath.Join(dir, "snapshots"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNode(NodeOptions{NodeID: 1, Dir: dir, Listen: addr, Log: quiet()}); err == nil {
		t.Fatal("snapshots is a file, and nobody minded")
	}
	if err := os.Remove(filepath.Join(dir, "snapshots")); err != nil {
		t.Fatal(err)
	}
	// Two voters with one address are refused after the listener is open.
	if _, err := OpenNode(NodeOptions{NodeID: 1, Dir: dir, Listen: addr, Log: quiet(), Voters: []Peer{{1, addr}, {2, addr}}}); err == nil {
		t.Fatal("two voters with one address")
	}
	taken, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the listener is left: %v", err)
	}
	if _, err := OpenNode(NodeOptions{NodeID: 1, Dir: dir, Listen: addr, Log: quiet()}); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("a taken address: %v", err)
	}
	_ = taken.Close()
	n := openNode(t, NodeOptions{NodeID: 1, Dir: dir, Listen: addr})
	defer closeNode(t, n)
	lead(t, n)
}

func TestProposeBounds(t *testing.T) {
	n := openNode(t, NodeOptions{NodeID: 1, Dir: t.TempDir()})
	lead(t, n)
	propose(t, n, &msg.BootstrapCommand{ClusterId: "one"})
	index := n.View().Index()
	big := &msg.StopMirrorTopicsCommand{Mirror: "m"}
	for range 5000 {
		big.Topics = append(big.Topics, strings.Repeat("x", 240))
	}
	if _, err := n.Propose(within(t, time.Second), big); !errors.Is(err, ErrTooLarge) || n.View().Index() != index {
		t.Fatalf("a command of %d bytes: %v", len(meta.Encode(big)), err)
	}
	// A state machine that stands still: the caller hears that the outcome is
	// not known when its time is over, not when it goes on.
	gate := make(chan struct{})
	n.HoldApply(func() { <-gate })
	start := time.Now()
	_, err := n.Propose(within(t, 50*time.Millisecond), features(1))
	if !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrNoController) || time.Since(start) > time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := n.Propose(ctx, features(1)); !errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
	close(gate)
	wait(t, "the command happened all the same", func() bool { return n.View().Feature("f1") == 1 })
	closeNode(t, n)
	if _, err := n.Propose(within(t, time.Second), features(2)); !errors.Is(err, ErrNoController) {
		t.Errorf("after Close: %v", err)
	}
	if err := n.Verify(); !errors.Is(err, ErrNoController) {
		t.Errorf("after Close: %v", err)
	}
}

// given are the addresses that freeAddr has given out.
var given sync.Map

func freeAddr(t *testing.T) string {
	for {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		if _, taken := given.LoadOrStore(addr, true); !taken {
			return addr
		}
	}
}

// quorum is some voters over TCP.
func quorum(t *testing.T, n int) (nodes []*Node, peers []Peer, reopen func(int) *Node) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		peers = append(peers, Peer{ID: int32(i + 1), Addr: freeAddr(t)})
	}
	reopen = func(i int) *Node {
		return openNode(t, NodeOptions{NodeID: peers[i].ID, Dir: filepath.Join(dir, fmt.Sprint(i)), Listen: peers[i].Addr, Voters: peers})
	}
	for i := range n {
		nodes = append(nodes, reopen(i))
	}
	return nodes, peers, reopen
}

func leaderOf(t *testing.T, nodes []*Node) (at int) {
	t.Helper()
	wait(t, "one controller", func() bool {
		at = slices.IndexFunc(nodes, func(n *Node) bool { return n != nil && n.Leads() && n.Verify() == nil })
		return at >= 0
	})
	return at
}

// Three voters elect one, a follower refuses commands, the loss of the leader
// is survived with everything that was committed, and a non-voter has it all.
func TestQuorum(t *testing.T) {
	nodes, peers, reopen := quorum(t, 3)
	defer func() {
		for _, n := range nodes {
			if n != nil {
				closeNode(t, n)
			}
		}
	}()
	for _, n := range nodes {
		if err := n.WaitLeader(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	l := leaderOf(t, nodes)
	propose(t, nodes[l], &msg.BootstrapCommand{ClusterId: "three"})
	for i, n := range nodes {
		if i == l {
			continue
		}
		if _, err := n.Propose(within(t, time.Second), features(1)); !errors.Is(err, ErrNoController) {
			t.Errorf("a follower: %v", err)
		}
		if err := n.Verify(); !errors.Is(err, ErrNoController) {
			t.Errorf("a follower verifies: %v", err)
		}
		if err := n.AddNonvoter(Peer{ID: 9, Addr: "127.0.0.1:1"}); !errors.Is(err, ErrNoController) {
			t.Errorf("a follower adds a node: %v", err)
		}
	}
	propose(t, nodes[l], features(5))

	// A broker that is no voter: nothing until it is added, then the whole log.
	addr := freeAddr(t)
	follower := openNode(t, NodeOptions{NodeID: 9, Dir: t.TempDir(), Listen: addr, Voters: peers})
	defer closeNode(t, follower)
	if err := follower.WaitLeader(within(t, 200*time.Millisecond)); !errors.Is(err, ErrNoController) {
		t.Errorf("a node nobody knows has a controller: %v", err)
	}
	if c := follower.raft.GetConfiguration(); c.Error() != nil || len(c.Configuration().Servers) != 0 {
		t.Errorf("it has made up a quorum: %+v", c.Configuration())
	}
	if err := nodes[l].AddNonvoter(Peer{ID: 9, Addr: addr}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the non-voter has the log", func() bool { return dump(follower.View()) == dump(nodes[l].View()) })
	if _, err := follower.Propose(within(t, time.Second), features(1)); !errors.Is(err, ErrNoController) {
		t.Errorf("a non-voter: %v", err)
	}

	lost := l
	closeNode(t, nodes[lost])
	nodes[lost] = nil
	l = leaderOf(t, nodes)
	if nodes[l].View().Feature("f5") != 5 {
		t.Error("a committed command is lost")
	}
	propose(t, nodes[l], features(6))
	wait(t, "the non-voter goes on", func() bool { return follower.View().Feature("f6") == 6 })
	if follower.Leads() {
		t.Error("a non-voter leads")
	}
	nodes[lost] = reopen(lost)
	wait(t, "the lost one catches up", func() bool { return dump(nodes[lost].View()) == dump(nodes[l].View()) })

	// Without a majority there is no controller, and nobody waits for ever.
	for i := range nodes {
		if i != l {
			closeNode(t, nodes[i])
			nodes[i] = nil
		}
	}
	start := time.Now()
	_, err := nodes[l].Propose(within(t, 5*time.Second), features(7))
	if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoController) || time.Since(start) > 6*time.Second {
		t.Errorf("without a majority, after %v: %v", time.Since(start), err)
	}
	wait(t, "no controller", func() bool { return !nodes[l].Leads() })
}

func TestRaftsLogIsOurs(t *testing.T) {
	var b logBuf
	l := newHCLogger(b.logger()).Named("snapshot").With("a", 1)
	l.Trace("t1")
	l.Debug("d1", "k", "v")
	l.Info("i1")
	l.Warn("w1")
	l.Error("e1", "err", "bad")
	for s, n := range map[string]int{"t1": 0, "level=DEBUG msg=\"raft: d1\" k=v": 1, "level=DEBUG msg=\"raft: i1\"": 1, "level=DEBUG msg=\"raft: w1\"": 1,
		"level=ERROR msg=\"raft: e1\" err=bad": 1} {
		if b.count(s) != n {
			t.Errorf("%q is there %d times: %s", s, b.count(s), b.b.String())
		}
	}
	if l.Name() != "snapshot" || l.ResetNamed("x").Name() != "x" {
		t.Error("names")
	}
	l.StandardLogger(nil).Print("to nowhere")
}
