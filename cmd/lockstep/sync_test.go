package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/wire"
)

// onDisk tells whether a value is in the destination's files, read by a parser
// that is not ours (kmsg's).
func onDisk(t *testing.T, dir, topic string, value []byte) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, topic+"-*", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for len(b) >= 61 {
			var batch kmsg.RecordBatch
			if err := batch.ReadFrom(b); err != nil {
				break
			}
			raw := batch.Records
			for range batch.NumRecords {
				var r kmsg.Record
				if err := r.ReadFrom(raw); err != nil {
					t.Fatalf("kmsg cannot read a record of %s: %v", name, err)
				}
				if bytes.Equal(r.Value, value) {
					return true
				}
				raw = raw[recordSize(&r):]
			}
			b = b[12+batch.Length:]
		}
	}
	return false
}

func recordSize(r *kmsg.Record) int { return len(r.AppendTo(nil)) }

// At any acknowledgement the destination's files hold the record.
func TestAckedIsOnTheDestinationsDisk(t *testing.T) {
	ctx := ctxFor(t, 2*time.Minute)
	p := startPair(t, 4*time.Millisecond)
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		value := []byte(strings.Repeat("v", 1+i*37) + time.Now().String())
		r, err := c.produce(14, "orders", id, 0, 5*time.Second, value)
		if err != nil || r.code != wire.ErrNone {
			t.Fatalf("record %d: %v %v", i, r, err)
		}
		if !onDisk(t, p.dst.dir, "orders", value) {
			t.Fatalf("record %d was acknowledged before it was at the destination", i)
		}
	}
	if n := p.src.metric("lockstep_ungated_acks_total"); n != 0 {
		t.Fatalf("%v acknowledgements were not gated", n)
	}
}

// A destination that stands still holds every acknowledgement; when it goes on,
// so do they.
func TestStoppedDestinationHoldsAcks(t *testing.T) {
	ctx := ctxFor(t, 2*time.Minute)
	p := startPair(t, 0)
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.produce(14, "orders", id, 0, 5*time.Second, []byte("before")); err != nil || r.code != 0 {
		t.Fatal(r, err)
	}
	if err := p.dst.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every thread stands still", 5*time.Second, p.dst.stopped) // kill(2) returns before they do
	for range 5 {
		if err := c.send(14, "orders", id, 0, 30*time.Second, []byte("while stopped")); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := c.answer(14, 3*time.Second); err == nil {
		t.Fatalf("acknowledged by a stopped destination: %+v", r)
	}
	// What is not acknowledged is not visible at the source either.
	if high := p.src.metric(`kafka_cluster_partition_high_watermark{topic="orders",partition="0"}`); high != 1 {
		t.Fatalf("high watermark %v, want 1", high)
	}
	if err := p.dst.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if r, err := c.answer(14, 10*time.Second); err != nil || r.code != wire.ErrNone {
			t.Fatalf("answer %d after SIGCONT: %+v %v", i, r, err)
		}
	}
}

// With the destination dead every produce is answered in its time, by the new
// code at v14 and the old one at v13, and names the mirror. Sync resumes by
// itself. With a release producers go on at once, and sync comes back too.
func TestDeadDestination(t *testing.T) {
	ctx := ctxFor(t, 3*time.Minute)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=2000")
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	p.dst.crash()
	for _, v := range []struct {
		version int16
		want    wire.ErrorCode
	}{{14, wire.ErrMirrorSyncReplicationTimeout}, {13, wire.ErrNotEnoughReplicasAfterAppend}, {9, wire.ErrNotEnoughReplicasAfterAppend}} {
		start := time.Now()
		r, err := c.produce(v.version, "orders", id, 0, 500*time.Millisecond, []byte("lonely"))
		if err != nil || r.code != v.want || !strings.Contains(r.message, mirrorName) {
			t.Fatalf("v%d: %+v %v, want %v naming %s", v.version, r, err, v.want, mirrorName)
		}
		if d := time.Since(start); d < 400*time.Millisecond || d > 3*time.Second {
			t.Fatalf("v%d answered after %v, timeout 500 ms", v.version, d)
		}
	}
	p.dst.start()
	eventually(t, "sync resumes by itself", 20*time.Second, func() bool {
		r, err := c.produce(14, "orders", id, 0, time.Second, []byte("again"))
		return err == nil && r.code == wire.ErrNone
	})
	p.until(ctx, "SYNC", 20*time.Second, inSync)

	p.dst.crash()
	if err := c.send(14, "orders", id, 0, 30*time.Second, []byte("released")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	start := time.Now()
	p.release(ctx)
	if r, err := c.answer(14, 5*time.Second); err != nil || r.code != wire.ErrNone {
		t.Fatalf("after the release: %+v %v", r, err)
	}
	if d := time.Since(start); d > time.Second {
		t.Fatalf("the release took %v to let producers go on", d)
	}
	p.dst.start()
	eventually(t, "recovery promotion", 40*time.Second, func() bool {
		return p.src.metric(`lockstep_sync_registration{mirror="dr",topic="orders"}`) == 1
	})
	p.until(ctx, "SYNC", 30*time.Second, inSync)
	value := []byte("synced again")
	if r, err := c.produce(14, "orders", id, 0, 5*time.Second, value); err != nil || r.code != wire.ErrNone || !onDisk(t, p.dst.dir, "orders", value) {
		t.Fatalf("after recovery: %+v %v", r, err)
	}
	// Nothing of what was ever acknowledged, nor of what was not, is missing.
	for _, v := range []string{"lonely", "again", "released", "synced again"} {
		if !onDisk(t, p.dst.dir, "orders", []byte(v)) {
			t.Errorf("%q is not at the destination", v)
		}
	}
}

// The destination refuses writes while it mirrors, in the version's words.
func TestReadOnlyDestination(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	c, err := dialRaw(p.dst.addr)
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[int16]wire.ErrorCode{14: wire.ErrReadOnlyTopic, 13: wire.ErrPolicyViolation, 9: wire.ErrPolicyViolation} {
		r, err := c.produce(v, "orders", id, 0, time.Second, []byte("no"))
		if err != nil || r.code != want || !strings.Contains(r.message, mirrorName) {
			t.Errorf("v%d: %+v %v, want %v", v, r, err, want)
		}
	}
	p.failOver(ctx, "orders")
	if r, err := c.produce(14, "orders", id, 0, time.Second, []byte("yes")); err != nil || r.code != wire.ErrNone {
		t.Fatalf("after the fail-over: %+v %v", r, err)
	}
}

// A consumer at the destination goes on at the same offsets after a fail-over.
func TestConsumersGoOnAtTheSameOffsets(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 2*time.Millisecond)
	p.topic(ctx, "orders", 3, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	at := map[string][2]int64{}
	for i := range 300 {
		r := &kgo.Record{Topic: "orders", Value: []byte{byte(i), byte(i >> 8), 7}}
		if err := p.srcCl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		at[string(r.Value)] = [2]int64{int64(r.Partition), r.Offset}
	}
	p.src.crash()
	p.failOver(ctx, "orders")
	cl := newClient(t, p.dst.addr, kgo.ConsumeTopics("orders"))
	for len(at) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d records not seen: %v", len(at), err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if w, ok := at[string(r.Value)]; !ok || w != [2]int64{int64(r.Partition), r.Offset} {
				t.Errorf("record %v at %d/%d, want %v", r.Value, r.Partition, r.Offset, w)
			}
			delete(at, string(r.Value))
		})
	}
}

// stopped tells whether every thread of the process is stopped.
func (n *node) stopped() bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.cmd.Process.Pid))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if i := bytes.LastIndexByte(b, ')'); err != nil || i < 0 || !bytes.HasPrefix(b[i:], []byte(") T")) {
			return false
		}
	}
	return len(names) > 0
}

func eventually(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, limit)
}
