package control

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/coordinator"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// policy is a policy of a test.
type policy struct {
	kind   sdk.Kind
	handle func(sdk.Event) (sdk.Decision, error)
}

func (p policy) Describe() sdk.Description                          { return sdk.Description{Kind: p.kind, Name: "test"} }
func (p policy) Handle(e sdk.Event) (sdk.Decision, error)           { return p.handle(e) }
func of(k sdk.Kind, f func(sdk.Event) (sdk.Decision, error)) policy { return policy{k, f} }

// swap replaces the policies while the topic goes on as it is.
func (b *bed) swap(f func(sdk.Event) (sdk.Decision, error)) {
	b.haltMirrors()
	for _, k := range []sdk.Kind{sdk.Coordinator, sdk.Promotion, sdk.Release} {
		b.policies[k] = of(k, f)
	}
	b.runMirrors()
}

// Whatever the policies do, SYNC stands, a stop works, and so does --async.
func TestEmergenciesWaitForNoPolicy(t *testing.T) {
	for name, f := range map[string]func(hang chan struct{}) func(sdk.Event) (sdk.Decision, error){
		"hangs": func(hang chan struct{}) func(sdk.Event) (sdk.Decision, error) {
			return func(sdk.Event) (sdk.Decision, error) { <-hang; return sdk.Decision{}, nil }
		},
		"panics": func(chan struct{}) func(sdk.Event) (sdk.Decision, error) {
			return func(sdk.Event) (sdk.Decision, error) { panic("policy") }
		},
		"says nothing": func(chan struct{}) func(sdk.Event) (sdk.Decision, error) {
			return func(sdk.Event) (sdk.Decision, error) { return sdk.Decision{}, nil }
		},
		"lies": func(chan struct{}) func(sdk.Event) (sdk.Decision, error) {
			return func(e sdk.Event) (sdk.Decision, error) { return lies(e), nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, b *bed) {
				hang := make(chan struct{})
				defer close(hang)
				b.sync()
				b.swap(f(hang))
				b.each(func(p *fakePart) { p.failing = time.Now().UnixMilli() }) // so that promotion is asked
				time.Sleep(demoteTime / 2)
				if b.phase() != mirror.InSync || !b.allIn(mirror.Mirroring)() {
					t.Fatal(b.dump())
				}
				b.each(func(p *fakePart) { p.failing = 0 })
				start := time.Now()
				b.alter(0)
				if d := time.Since(start); d > host.Deadline+100*time.Millisecond || b.phase() != mirror.PlainAsync {
					t.Errorf("--async took %v: %s", d, b.dump())
				}
				b.until("the source is told", time.Second, func() bool { return b.topic().Mirror.OwedUnregister == 0 })
				b.stop()
				if took := b.until("STOPPED", 20*time.Second, b.allIn(mirror.Stopped)); took > host.Deadline+300*time.Millisecond {
					t.Errorf("the stop took %v", took)
				}
				b.checkStopped(10, 3)
			})
		})
	}
}

// lies are wishes that nothing supports.
func lies(e sdk.Event) (d sdk.Decision) {
	other := e.Subject
	other.TopicID, other.Topic, other.Partition = [16]byte{99}, "other", 0
	for _, s := range []sdk.Subject{e.Subject, other} {
		for step := range uint8(20) {
			if ev := mirror.PartitionEvent(step); ev != mirror.WantStopped {
				d.Wishes = append(d.Wishes, sdk.Wish{Do: sdk.StepPartition, Subject: s, Step: step})
			}
		}
		for _, do := range []sdk.Action{sdk.Register, sdk.Demote, sdk.Hold, sdk.Admit, "no such thing"} {
			d.Wishes = append(d.Wishes, sdk.Wish{Do: do, Subject: s})
		}
	}
	return d
}

// A wrong coordinator changes nothing that the broker has not measured, and the
// journal has a verdict for every wish.
func TestLyingCoordinator(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		var wishes atomic.Int32
		b.haltMirrors()
		b.policies[sdk.Coordinator] = of(sdk.Coordinator, func(e sdk.Event) (sdk.Decision, error) {
			d := lies(e)
			wishes.Add(int32(len(d.Wishes)))
			return d, nil
		})
		b.walk(mirror.EpochFencing) // a state in which the policy is asked
		b.each(func(p *fakePart) { p.epochBehind = true })
		b.runMirrors()
		time.Sleep(500*time.Millisecond + tick/2) // between two looks
		b.haltMirrors()
		if s := b.topic().Partitions[0].State; s != mirror.EpochFencing || b.phase() != mirror.InSync {
			t.Fatal(b.dump())
		}
		j := b.coordinator.Journal()
		seen := 0
		for _, e := range j {
			seen += len(e.Verdicts)
			for _, v := range e.Verdicts {
				if v.Accepted || v.Why == "" || e.Fence != b.coordinator.Fence() || e.Plugin.Name != "test" {
					t.Fatalf("%+v", e)
				}
			}
		}
		if seen < 48 || seen != int(wishes.Load()) {
			t.Fatalf("%d verdicts for %d wishes", seen, wishes.Load())
		}
	})
}

// A wrong promotion policy neither promotes nor demotes without evidence; of
// its true wishes one is carried out and the others have a verdict.
func TestLyingPromotion(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *bed) {
		b.sync()
		b.haltMirrors()
		b.policies[sdk.Promotion] = of(sdk.Promotion, func(e sdk.Event) (sdk.Decision, error) {
			return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Demote, Subject: e.Subject}, {Do: sdk.Register, Subject: e.Subject},
				{Do: sdk.Demote, Subject: sdk.Subject{Topic: "other", Partition: -1}}, {Do: sdk.Demote, Subject: e.Subject}}}, nil
		})
		b.runMirrors()
		b.each(func(p *fakePart) { p.failing = time.Now().UnixMilli() })
		time.Sleep(demoteTime - time.Second)
		if b.phase() != mirror.InSync {
			t.Fatal(b.dump())
		}
		for _, v := range verdicts(b.promotion) {
			if v.Accepted || v.Why == "" {
				t.Fatalf("%+v", v)
			}
		}
		b.src.set(func(s *fakeSource) { s.down = true })
		b.until("RECOVERY", 5*time.Second, b.inPhase(mirror.Recovery))
		j := verdicts(b.promotion)
		last := j[len(j)-4:]
		if !last[0].Accepted || last[1].Accepted || last[2].Accepted || last[3].Accepted || last[3].Why != "one step at a time" {
			t.Fatalf("%+v", last)
		}
	})
}

// A default coordinator beside a hung promotion policy: traffic facts stay, and
// the policy's late answer does nothing.
func TestLateAnswerIsDropped(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		var late atomic.Bool
		b.policies[sdk.Promotion] = of(sdk.Promotion, func(e sdk.Event) (sdk.Decision, error) {
			if late.CompareAndSwap(false, true) {
				time.Sleep(5 * time.Second)
				return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Register, Subject: e.Subject}}}, nil
			}
			return sdk.Decision{}, nil
		})
		b.haltMirrors()
		b.runMirrors()
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("asked", 5*time.Second, late.Load)
		time.Sleep(10 * time.Second)
		if r, _ := b.src.asked(); len(r) != 0 || b.phase() != mirror.Pending {
			t.Fatal(r, b.dump())
		}
		if _, silent := b.promotion.Calls(); silent < 10 {
			t.Errorf("%d silent calls", silent)
		}
	})
}

// A release policy that holds keeps the marker, for Registers of the same
// moment too, and only while it holds.
func TestReleasePolicyHolds(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		var hold atomic.Bool
		b.haltMirrors()
		b.policies[sdk.Release] = of(sdk.Release, func(e sdk.Event) (sdk.Decision, error) {
			time.Sleep(20 * time.Millisecond)
			if hold.Load() {
				return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Hold, Subject: e.Subject}}}, nil
			}
			return sdk.Decision{}, nil
		})
		b.runMirrors()
		b.plainTopic()
		hold.Store(true)
		one := func(r int64) SyncOutcome {
			return b.mirrors.Register(t.Context(), "far", "dest", []SyncTopic{{Name: topicName, ID: topicID, Recovery: r >= 0, ReleaseNumber: r}})[0]
		}
		b.until("the fences", time.Second, b.fenced)
		if o := one(-1); o.Code != 0 || o.Epoch <= 0 { // nothing is released: a hold says nothing
			t.Fatal(o)
		}
		rel := b.mirrors.Release(t.Context(), "far", nil)
		if len(rel) != 1 || rel[0].Code != 0 || rel[0].ReleaseNumber <= 0 {
			t.Fatal(rel)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if o := one(rel[0].ReleaseNumber); o.Code != wire.ErrMirrorSyncReleasedRequiresFreshPromotion || o.ReleaseNumber != rel[0].ReleaseNumber {
					t.Errorf("admitted although held: %+v", o)
				}
			})
		}
		wg.Wait()
		hold.Store(false)
		if o := one(-1); o.Code != wire.ErrMirrorSyncReleasedRequiresFreshPromotion {
			t.Errorf("a Register without the hint: %+v", o)
		}
		if o := one(rel[0].ReleaseNumber); o.Code != 0 {
			t.Errorf("a recovery: %+v", o)
		}
		var accepted, refused int
		for _, v := range verdicts(b.release) {
			if v.Accepted {
				accepted++
			} else {
				refused++
			}
		}
		if accepted != 4 || refused != 1 {
			t.Errorf("%d holds accepted, %d refused", accepted, refused)
		}
	})
}

// A coordinator that fails what has failed is heard; FAILED is retried when due.
func TestFailedIsRetried(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(false)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.offline = true })
		b.until("FAILED", 5*time.Second, b.allIn(mirror.Failed))
		if p := b.topic().Partitions[0]; p.Error != "the log directory has failed" || p.RetryAttempt != 1 {
			t.Fatalf("%+v", p)
		}
		time.Sleep(5 * time.Minute)
		if n := b.topic().Partitions[0].RetryAttempt; n < 7 || n > 10 {
			t.Errorf("%d retries in five minutes", n)
		}
		b.each(func(p *fakePart) { p.offline = false })
		b.until("MIRRORING", retryMax+time.Minute, b.allIn(mirror.Mirroring))
	})
}

// A retry before it is due is refused.
func TestEarlyRetryIsRefused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.haltMirrors()
		b.policies[sdk.Coordinator] = of(sdk.Coordinator, func(e sdk.Event) (sdk.Decision, error) {
			if mirror.PartitionState(e.Facts.State) == mirror.Failed {
				return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.StepPartition, Subject: e.Subject, Step: uint8(mirror.Retry)}}}, nil
			}
			return coordinator.Policy{}.Handle(e)
		})
		b.runMirrors()
		b.mirror(false)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.offline = true })
		time.Sleep(time.Minute)
		if n := b.topic().Partitions[0].RetryAttempt; n < 5 || n > 8 {
			t.Errorf("%d retries in a minute", n)
		}
	})
}

// plainTopic creates the topic as a source has it.
func (b *bed) plainTopic() {
	b.t.Helper()
	b.must(&msg.CreateTopicsCommand{Topics: []msg.CreateTopicsCommandNewTopic{{Name: topicName, TopicId: topicID, NumPartitions: b.partitions(), ReplicationFactor: 1}}})
}

// fenced tells whether the controller has begun its term.
func (b *bed) fenced() bool {
	return b.coordinator.Fence() > 0 && b.promotion.Fence() > 0 && b.release.Fence() > 0 && b.mirrors.fencesHold()
}

// verdicts are all of a kind's journal, in order.
func verdicts(s *host.Slot) []host.Verdict {
	var all []host.Verdict
	for _, e := range s.Journal() {
		all = append(all, e.Verdicts...)
	}
	return all
}

// What an instance wishes under a number that is not the cluster's any more
// changes nothing, of every kind; under the cluster's it does.
func TestWishOfAnOldFence(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(false)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.haltMirrors()
		old := b.coordinator.Fence()
		raised, err := b.node.Propose(t.Context(), raiseFence(meta.FenceCoordinator))
		if err != nil || raised.Number <= old {
			t.Fatal(raised, err)
		}
		wish := func(fence int64) meta.Result {
			p := b.topic().Partitions[0]
			res, err := b.node.Propose(t.Context(), &msg.MirrorPartitionStatesCommand{BrokerId: 1, Fence: fence,
				Partitions: []msg.MirrorPartitionStatesCommandPartition{{TopicId: topicID, LeaderEpoch: p.LeaderEpoch, StateEpoch: p.StateEpoch,
					State: int8(mirror.Failed), Previous: int8(p.State), LmeEpoch: -1, LmeOffset: -1}}})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		if res := wish(old); res.ErrorCode == 0 || b.topic().Partitions[0].State != mirror.Mirroring {
			t.Fatalf("%+v: %s", res, b.dump())
		}
		if res := wish(raised.Number); res.ErrorCode != 0 || b.topic().Partitions[0].State != mirror.Failed {
			t.Fatalf("%+v: %s", res, b.dump())
		}
	})
}

// replaced is a policy whose instance is replaced, once it is armed, while it
// thinks about an event.
func (b *bed) replaced(kind sdk.Kind, fence meta.FenceKind, f func(sdk.Event) (sdk.Decision, error)) (arm func()) {
	var armed atomic.Bool
	b.haltMirrors()
	b.policies[kind] = of(kind, func(e sdk.Event) (sdk.Decision, error) {
		if armed.CompareAndSwap(true, false) {
			if _, err := b.node.Propose(b.t.Context(), raiseFence(fence)); err != nil {
				b.t.Error(err)
			}
		}
		return f(e)
	})
	b.runMirrors()
	b.until("the fences", time.Second, b.fenced)
	return func() { armed.Store(true) }
}

// A step that the quorum refuses, because its instance has been replaced, is not
// accepted in the journal: the accepted ones are those that were made.
func TestJournalOfARefusedStep(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.replaced(sdk.Coordinator, meta.FenceCoordinator, coordinator.Policy{}.Handle)()
		b.mirror(false)
		first := b.topic().Partitions[0].StateEpoch
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		accepted, lost := int32(0), 0
		for _, v := range verdicts(b.coordinator) {
			if v.Accepted {
				accepted++
			} else if strings.Contains(v.Why, "replaced") {
				lost++
			}
		}
		if made := b.topic().Partitions[0].StateEpoch - first; lost != 1 || accepted != made {
			t.Errorf("%d steps accepted, %d made, %d refused by the fence", accepted, made, lost)
		}
	})
}

// Nor is a hold.
func TestJournalOfARefusedHold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		arm := b.replaced(sdk.Release, meta.FenceRelease, func(e sdk.Event) (sdk.Decision, error) {
			return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Hold, Subject: e.Subject}}}, nil
		})
		b.plainTopic()
		one := func() SyncOutcome {
			return b.mirrors.Register(t.Context(), "far", "dest", []SyncTopic{{Name: topicName, ID: topicID, Recovery: true, ReleaseNumber: -1}})[0]
		}
		if o := one(); o.Code != 0 {
			t.Fatal(o)
		}
		b.mirrors.Release(t.Context(), "far", nil)
		arm()
		o := one()
		all := verdicts(b.release)
		if last := all[len(all)-1]; o.Code != wire.ErrInvalidUpdateVersion || last.Accepted || !strings.Contains(last.Why, "replaced") {
			t.Errorf("%+v %+v", o, last)
		}
	})
}
