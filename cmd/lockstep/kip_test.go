package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/internal/wanlink"
	"lockstep/internal/wire"
)

// The integration tests of the KIP's test plan that clusters of one broker can
// show:
//
//	CLI Workflow                           TestKIP_CLIWorkflow
//	Sync Replication                       TestAckedIsOnTheDestinationsDisk, TestConsumersGoOnAtTheSameOffsets
//	Lag-Deferred Promotion                 TestKIP_LagDeferredPromotion
//	Auto-Promotion                         TestAckedIsOnTheDestinationsDisk; control: TestRegisterWaitsForEveryPartition
//	Topic Removal                          TestKIP_TopicRemoval; control: TestStopFromEveryState
//	Sync Replication Timeout               TestKIP_SyncReplicationTimeout
//	Source MinISR Violation                needs several brokers (next)
//	Producer Client Backward Compat.       timeout path: TestKIP_SyncReplicationTimeout, TestDeadDestination; under-MinISR path: needs several brokers (next)
//	Release: Concurrent Register Race      TestKIP_ConcurrentRegisterRace
//	Release: Multi-Destination             TestKIP_ReleaseMultiDestination
//	Release: Auto-Recovery                 TestKIP_AutoRecovery, TestDeadDestination
//	Release: Persistent Source Hold        TestKIP_PersistentHold; control: TestReleasedAnswerLeadsToRecovery, TestReleasePolicyHolds
//	Auto-Demote Keeps MIRRORING            TestKIP_ConcurrentRegisterRace
//	Source ULE Handling, ULE Blocked       needs several brokers (next)
//	CLI Probe: Compatible                  TestKIP_CLIWorkflow
//	CLI Probe: Incompatible                TestKIP_ProbeIncompatible
//	CLI Probe: Unreachable                 TestKIP_ProbeUnreachable; control: TestVersionMismatchBacksOff
//	Registration Propagation Race          needs several brokers (next)
//	Single-Partition Stale Leader          needs several brokers (next); control: TestDemotion
//	All-Partitions-Failing Demote          TestKIP_AllPartitionsFailing; control: TestDemotion

// mirrorsBinary builds kafka-cluster-mirrors once.
var mirrorsBinary = sync.OnceValues(func() (string, error) {
	path, err := brokerBinary()
	if err != nil {
		return "", err
	}
	out := filepath.Join(filepath.Dir(path), "kafka-cluster-mirrors")
	return out, exec.Command("go", "build", "-o", out, "../kafka-cluster-mirrors").Run()
})

// mirrorsCLI runs kafka-cluster-mirrors.
func mirrorsCLI(ctx context.Context, t *testing.T, addr string, args ...string) (out string, code int) {
	t.Helper()
	path, err := mirrorsBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"--bootstrap-server", addr}, args...)...)
	b, _ := cmd.CombinedOutput()
	return string(b), cmd.ProcessState.ExitCode()
}

const registeredHere = `lockstep_sync_registration{mirror="dr",topic="orders"}`

func (p *pair) alter(ctx context.Context, typ int8) {
	p.t.Helper()
	var resp msg.AlterMirrorTopicTypeResponse
	req := &msg.AlterMirrorTopicTypeRequest{MirrorName: mirrorName, Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "orders", MirrorType: typ}}}
	if err := kafkareq.Do(ctx, p.dstCl, req, &resp); err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		p.t.Fatalf("alter: %v %+v", err, resp)
	}
}

// register sends what a destination sends, by hand.
func (p *pair) register(ctx context.Context, id [16]byte, cluster string, recovery bool, number int64) msg.RegisterMirrorSyncTopicResponseTopicResult {
	p.t.Helper()
	var resp msg.RegisterMirrorSyncTopicResponse
	req := &msg.RegisterMirrorSyncTopicRequest{MirrorName: mirrorName, DestinationClusterId: cluster,
		Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicId: id, TopicName: "orders", RecoveryPromotion: recovery, ReleaseNumber: number}}}
	if err := kafkareq.Do(ctx, p.srcCl, req, &resp); err != nil || len(resp.Topics) != 1 {
		p.t.Fatalf("register: %v %+v", err, resp)
	}
	return resp.Topics[0]
}

func mirroring(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
	for _, q := range x.Partitions {
		if q.StateValue != "MIRRORING" {
			return false
		}
	}
	return len(x.Partitions) > 0
}

func mustProduce(t *testing.T, c *rawConn, id [16]byte, value []byte) {
	t.Helper()
	if r, err := c.produce(14, "orders", id, 0, 5*time.Second, value); err != nil || r.code != wire.ErrNone {
		t.Fatalf("produce: %+v %v", r, err)
	}
}

func dial(t *testing.T, addr string) *rawConn {
	t.Helper()
	c, err := dialRaw(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestKIP_LagDeferredPromotion(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, false, "orders")
	p.until(ctx, "MIRRORING", 10*time.Second, mirroring)
	p.link.Cut()
	c := dial(t, p.src.addr)
	big := bytes.Repeat([]byte("lag"), 200_000)
	for range 20 { // ASYNC: nobody waits
		mustProduce(t, c, id, big)
	}
	p.alter(ctx, 1)
	for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if x := p.describe(ctx); len(x) != 1 || x[0].EffectiveMirrorType != 0 || x[0].DesiredMirrorType != 1 {
			t.Fatalf("with lag: %+v", x)
		}
	}
	last := []byte("the last before the promotion")
	mustProduce(t, c, id, last)
	p.link.Restore()
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	if !onDisk(t, p.dst.dir, "orders", last) {
		t.Error("promoted with lag")
	}
}

func TestKIP_SyncReplicationTimeout(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 2*time.Millisecond)
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	for _, d := range []wanlink.Direction{wanlink.ToClient, wanlink.ToTarget} {
		p.link.Stall(d)
		for version, want := range map[int16]wire.ErrorCode{14: wire.ErrMirrorSyncReplicationTimeout, 13: wire.ErrNotEnoughReplicasAfterAppend} {
			r, err := dial(t, p.src.addr).produce(version, "orders", id, 0, 400*time.Millisecond, []byte("stalled"))
			if err != nil || r.code != want || !strings.Contains(r.message, mirrorName) {
				t.Errorf("v%d, direction %v stalled: %+v %v", version, d, r, err)
			}
		}
		p.link.Resume(d)
		eventually(t, "acknowledged again", 10*time.Second, func() bool {
			r, err := dial(t, p.src.addr).produce(13, "orders", id, 0, time.Second, []byte("again"))
			return err == nil && r.code == wire.ErrNone
		})
	}
	if n := p.src.metric("lockstep_ungated_acks_total"); n != 0 {
		t.Errorf("%v acknowledgements were not gated", n)
	}
}

func TestKIP_ReleaseMultiDestination(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=60000")
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	second := startNode(t, "node.id=3")
	cl := newClient(t, second.addr)
	boot, name := p.link.Addr(), "dr2"
	var created msg.CreateClusterMirrorResponse
	if err := kafkareq.Do(ctx, cl, &msg.CreateClusterMirrorRequest{MirrorName: name,
		Config: []msg.CreateClusterMirrorRequestMirrorConfig{{Name: "bootstrap.servers", Value: &boot}}}, &created); err != nil || created.ErrorCode != 0 {
		t.Fatal(err, created)
	}
	var added msg.AddTopicsToMirrorResponse
	if err := kafkareq.Do(ctx, cl, &msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{{TopicName: "orders", MirrorName: &name, MirrorType: 1}}}, &added); err != nil || added.ErrorCode != 0 {
		t.Fatal(err, added)
	}
	const other = `lockstep_sync_registration{mirror="dr2",topic="orders"}`
	eventually(t, "both registered", 10*time.Second, func() bool { return p.src.metric(other) == 1 && p.src.metric(registeredHere) == 1 })
	c := dial(t, p.src.addr)
	mustProduce(t, c, id, []byte("both"))
	p.release(ctx)
	if p.src.metric(registeredHere) == 1 || p.src.metric(other) != 1 {
		t.Fatalf("after the release of dr: %v and %v", p.src.metric(registeredHere), p.src.metric(other))
	}
	eventually(t, "the released one is told", 10*time.Second, func() bool {
		return p.dst.metric(`kafka_server_sync_partition_fetch_failures_total{mirror="dr",topic="orders",partition="0",reason="INVALID"}`) > 0
	})
	p.dst.crash() // does not matter any more
	mustProduce(t, c, id, []byte("the other"))
	if !onDisk(t, second.dir, "orders", []byte("the other")) {
		t.Error("acknowledged without the other destination")
	}
	second.crash()
	r, err := c.produce(14, "orders", id, 0, 500*time.Millisecond, []byte("nobody"))
	if err != nil || r.code != wire.ErrMirrorSyncReplicationTimeout || !strings.Contains(r.message, name) {
		t.Errorf("without the other destination: %+v %v", r, err)
	}
}

func TestKIP_AutoRecovery(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=1000")
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	p.link.Cut()
	p.release(ctx)
	mustProduce(t, dial(t, p.src.addr), id, []byte("while released"))
	p.link.Restore()
	eventually(t, "registered again by itself", 30*time.Second, func() bool { return p.src.metric(registeredHere) == 1 })
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	if !onDisk(t, p.dst.dir, "orders", []byte("while released")) {
		t.Error("in SYNC without what was written meanwhile")
	}
	if n := strings.Count(p.dst.whole(), "source had released the topic"); n != 1 {
		t.Errorf("the destination heard of the release %d times", n)
	}
}

func TestKIP_PersistentHold(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=300")
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	// Released again and again: no recovery ever names the newest release.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		p.release(ctx)
	}
	const rejected = `kafka_server_sync_registration_rejected_total{reason="RELEASED_FRESH_PROMOTION_REQUIRED"}`
	if n := p.dst.metric(rejected); n < 2 || n > 5 {
		t.Errorf("%v Registers in 8 s of a held marker", n)
	}
	if x := p.describe(ctx); len(x) != 1 || x[0].EffectiveMirrorType != 0 || !x[0].RecoveryPending || !mirroring(x[0]) {
		t.Errorf("while held: %+v", x)
	}
	mustProduce(t, dial(t, p.src.addr), id, []byte("held"))
	eventually(t, "ASYNC goes on", 5*time.Second, func() bool { return onDisk(t, p.dst.dir, "orders", []byte("held")) })
}

func TestKIP_AllPartitionsFailing(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=1500")
	id := p.topic(ctx, "orders", 3, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	p.release(ctx)
	start := time.Now()
	const failing = `kafka_server_sync_partitions_failing{mirror="dr",topic="orders"}`
	eventually(t, "all partitions failing", 5*time.Second, func() bool { return p.dst.metric(failing) == 3 })
	// What describe calls effective is what holds now; the demotion takes the KIP's time.
	p.until(ctx, "ASYNC", time.Second, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
		return x.EffectiveMirrorType == 0 && !x.RecoveryPending && x.RegistrationEpoch > 0
	})
	p.until(ctx, "demoted", 10*time.Second, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool { return x.RecoveryPending })
	if d := time.Since(start); d < 1400*time.Millisecond {
		t.Errorf("demoted after %v", d)
	}
	eventually(t, "registered again by itself", 20*time.Second, func() bool { return p.src.metric(registeredHere) == 1 })
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	if n := p.dst.metric(`kafka_server_sync_registration_rejected_total{reason="ALL_PARTITIONS_FAILING"}`); n != 1 {
		t.Errorf("%v demotions", n)
	}
	mustProduce(t, dial(t, p.src.addr), id, []byte("synced"))
	if !onDisk(t, p.dst.dir, "orders", []byte("synced")) {
		t.Error("not gated after the recovery")
	}
}

func TestKIP_ConcurrentRegisterRace(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	id := p.topic(ctx, "orders", 1, nil)
	// A registration of an earlier life is released; the Register of the first
	// promotion, which knows nothing of it, comes after.
	if r := p.register(ctx, id, "another cluster", false, -1); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	p.release(ctx)
	for range 3 { // a stale Register never clears the marker
		r := p.register(ctx, id, "another cluster", false, -1)
		if wire.ErrorCode(r.ErrorCode) != wire.ErrMirrorSyncReleasedRequiresFreshPromotion || r.ReleaseNumber <= 0 || p.src.metric(registeredHere) == 1 {
			t.Fatalf("a stale Register: %+v", r)
		}
	}
	p.mirror(ctx, true, "orders")
	eventually(t, "rejected", 10*time.Second, func() bool { return strings.Contains(p.dst.whole(), "source had released the topic") })
	if x := p.describe(ctx); len(x) != 1 || !mirroring(x[0]) || x[0].EffectiveMirrorType == 0 && !x[0].RecoveryPending {
		t.Errorf("after the rejection: %+v", x)
	}
	p.until(ctx, "SYNC", 10*time.Second, inSync) // by a recovery that names the release
	if p.src.metric(registeredHere) != 1 || strings.Contains(p.dst.whole(), "FAILED") {
		t.Error("not registered, or a partition failed on the way")
	}
}

func TestKIP_TopicRemoval(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	id := p.topic(ctx, "orders", 2, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 10*time.Second, inSync)
	p.failOver(ctx, "orders")
	// The first thing a stop does is to let the source's producers go.
	if n := p.src.metric(registeredHere); n == 1 {
		t.Error("stopped and still registered")
	}
	mustProduce(t, dial(t, p.src.addr), id, []byte("not gated"))
	if x := p.describe(ctx); len(x) != 1 || x[0].EffectiveMirrorType != 0 || x[0].DesiredMirrorType != 0 || x[0].RecoveryPending {
		t.Errorf("the types are left: %+v", x)
	}
	mustProduce(t, dial(t, p.dst.addr), id, []byte("writable"))
}

func TestKIP_CLIWorkflow(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, false)
	for _, args := range [][]string{
		{"--add", "--topic", "orders", "--mirror", mirrorName, "--sync"},
		{"--alter", "--topics", "orders", "--mirror", mirrorName, "--async"},
		{"--alter", "--topics", "orders", "--mirror", mirrorName, "--sync"}} {
		if out, code := mirrorsCLI(ctx, t, p.dst.addr, args...); code != 0 {
			t.Fatalf("%v: %d %s", args, code, out)
		}
		want := byte(1)
		if args[len(args)-1] == "--async" {
			want = 0
		}
		p.until(ctx, args[len(args)-1], 15*time.Second, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
			return x.EffectiveMirrorType == int8(want)
		})
	}
	out, code := mirrorsCLI(ctx, t, p.dst.addr, "--describe", "--mirror", mirrorName)
	if code != 0 || !strings.Contains(out, "orders") || !strings.Contains(out, "MIRRORING") || !strings.Contains(out, "weak destination") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := mirrorsCLI(ctx, t, p.src.addr, "--release-sync", "--mirror", mirrorName, "--topics", "orders"); code != 0 || p.src.metric(registeredHere) == 1 {
		t.Errorf("%d %s", code, out)
	}
	if out, code := mirrorsCLI(ctx, t, p.dst.addr, "--stop", "--topics", "orders", "--mirror", mirrorName); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	p.until(ctx, "STOPPED", time.Second, stopped)
}

func TestKIP_ProbeIncompatible(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, false, "orders")
	p.until(ctx, "MIRRORING", 10*time.Second, mirroring)
	p.src.stop()
	p.src.args = append(p.src.args, "--override", "unstable.api.versions.enable=false") // no Fetch 20
	p.src.start()
	out, code := mirrorsCLI(ctx, t, p.dst.addr, "--alter", "--topics", "orders", "--mirror", mirrorName, "--sync")
	if code == 0 || !strings.Contains(strings.ToLower(out), "sync") {
		t.Errorf("exit %d: %s", code, out)
	}
	if x := p.describe(ctx); len(x) != 1 || x[0].DesiredMirrorType != 0 {
		t.Errorf("the type was changed all the same: %+v", x)
	}
}

func TestKIP_ProbeUnreachable(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, false, "orders")
	p.until(ctx, "MIRRORING", 10*time.Second, mirroring)
	p.src.stop()
	out, code := mirrorsCLI(ctx, t, p.dst.addr, "--alter", "--topics", "orders", "--mirror", mirrorName, "--sync")
	if code != 0 || !strings.Contains(strings.ToLower(out), "warn") {
		t.Errorf("exit %d: %s", code, out)
	}
	if x := p.describe(ctx); len(x) != 1 || x[0].DesiredMirrorType != 1 {
		t.Errorf("the type was not changed: %+v", x)
	}
	p.src.args = append(p.src.args, "--override", "unstable.api.versions.enable=false")
	p.src.start()
	eventually(t, "rejected", 25*time.Second, func() bool {
		return p.dst.metric(`kafka_server_sync_registration_rejected_total{reason="VERSION_MISMATCH"}`) >= 1
	})
	p.until(ctx, "ASYNC and MIRRORING", time.Second, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
		return x.EffectiveMirrorType == 0 && x.DesiredMirrorType == 1 && mirroring(x)
	})
}
