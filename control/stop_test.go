package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

// walk takes every partition through stored states, with the loops halted.
func (b *bed) walk(states ...mirror.PartitionState) {
	b.t.Helper()
	for _, s := range states {
		cmd := &msg.MirrorPartitionStatesCommand{BrokerId: 1, Fence: noFence}
		t := b.topic()
		for i, p := range t.Partitions {
			d := stateDelta(t, p, int32(i))
			d.State, d.Previous = int8(s), int8(p.State)
			cmd.Partitions = append(cmd.Partitions, d)
		}
		b.must(cmd)
	}
}

// register puts the topic into SYNC by commands.
func (b *bed) register(epoch int64) {
	b.t.Helper()
	for _, e := range []msg.PromotionStepCommandTopic{
		{TopicId: topicID, ExpectedPhase: int8(mirror.Pending), Event: int8(mirror.InStep)},
		{TopicId: topicID, ExpectedPhase: int8(mirror.Registering), Event: int8(mirror.RegisterOK), Number: epoch}} {
		b.must(&msg.PromotionStepCommand{Fence: -1, Topics: []msg.PromotionStepCommandTopic{e}})
	}
}

// checkStopped looks at what a stop leaves: one lineage entry of ours at the
// mirrored end, a leader epoch above everything mirrored, markers after it.
func (b *bed) checkStopped(end int64, latest int32) {
	b.t.Helper()
	t := b.topic()
	if t.Mirror.Promotion != (mirror.Promotion{}) {
		b.t.Errorf("promotion is left: %+v", t.Mirror.Promotion)
	}
	for i, p := range t.Partitions {
		if len(p.Lineage) != 2 || p.Lineage[0] != (meta.LineageEntry{ClusterID: "source-cluster", TopicID: topicID}) ||
			p.Lineage[1].ClusterID != "dest-cluster" || p.Lineage[1].TopicID != topicID || p.Lineage[1].FirstOffset != end || p.Lineage[1].FirstEpoch <= latest {
			b.t.Errorf("partition %d: lineage %+v", i, p.Lineage)
			continue
		}
		first := p.Lineage[1].FirstEpoch
		if p.LMEEpoch != latest || p.LMEOffset != end || p.LeaderEpoch < first {
			b.t.Errorf("partition %d: last mirror epoch %d offset %d, leader epoch %d, lineage from %d", i, p.LMEEpoch, p.LMEOffset, p.LeaderEpoch, first)
		}
		b.data.mu.Lock()
		markers := b.data.part(topicID, int32(i)).markers
		b.data.mu.Unlock()
		pids := 0
		for _, m := range markers {
			if m.epoch < first || m.base < end {
				b.t.Errorf("partition %d: %+v before epoch %d", i, m, first)
			}
			if m.pid {
				pids++
			} else if pids > 0 {
				b.t.Errorf("partition %d: an abort marker after the reset: %+v", i, markers)
			}
		}
		if pids == 0 {
			b.t.Errorf("partition %d: no producer id reset: %+v", i, markers)
		}
	}
}

// A stop works from every state, with a source that swallows everything, within
// its one Unregister.
func TestStopFromEveryState(t *testing.T) {
	const (
		un, lt, ef, mi, pa, pd, fa = mirror.Unknown, mirror.LogTruncation, mirror.EpochFencing, mirror.Mirroring, mirror.Pausing, mirror.Paused, mirror.Failed
	)
	for _, c := range []struct {
		states     []mirror.PartitionState
		registered bool
	}{{nil, false}, {nil, true}, {[]mirror.PartitionState{lt}, true}, {[]mirror.PartitionState{lt, ef}, true}, {[]mirror.PartitionState{lt, mi}, true},
		{[]mirror.PartitionState{lt, mi}, false}, {[]mirror.PartitionState{lt, mi, fa}, true}, {[]mirror.PartitionState{lt, mi, pa}, true},
		{[]mirror.PartitionState{lt, mi, pa, pd}, true}} {
		at := un
		if len(c.states) > 0 {
			at = c.states[len(c.states)-1]
		}
		t.Run(fmt.Sprintf("%v/%v", at, c.registered), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, b *bed) {
				b.src.down = true
				b.haltMirrors()
				b.must(&msg.CreateMirrorCommand{Mirror: mirrorName, Configs: []msg.CreateMirrorCommandConfig{
					{Name: "bootstrap.servers", Value: "far:1"}, {Name: "mirror.source.cluster.id", Value: "source-cluster"}}})
				b.must(&msg.AddTopicsToMirrorCommand{Mirror: mirrorName, Topics: []msg.AddTopicsToMirrorCommandTopic{
					{Name: topicName, TopicId: topicID, NumPartitions: 2, ReplicationFactor: 1, MirrorType: 1}}})
				if c.registered {
					b.register(9)
				}
				b.each(func(p *fakePart) { p.end, p.latest = 20, 3 })
				if at == pa || at == pd {
					b.must(&msg.PauseMirrorTopicsCommand{Mirror: mirrorName, Topics: []string{topicName}})
				}
				b.walk(c.states...)
				b.must(&msg.StopMirrorTopicsCommand{Mirror: mirrorName, Topics: []string{topicName}})
				b.src.set(func(s *fakeSource) { s.down, s.hole = false, true })
				b.runMirrors()
				took := b.until("STOPPED", 10*time.Second, b.allIn(mirror.Stopped))
				if limit := sourceTimeout + 500*time.Millisecond; took > limit {
					t.Errorf("took %v", took)
				}
				if !c.registered && took > 500*time.Millisecond {
					t.Errorf("took %v with nothing registered", took)
				}
				r, u := b.src.asked()
				if len(r) != 0 || c.registered && (len(u) != 1 || u[0].number != 9) || !c.registered && len(u) != 0 {
					t.Errorf("registers %v, unregisters %v", r, u)
				}
				b.checkStopped(20, 3)
				if n := b.logs.count("could not be told of the stop"); c.registered != (n == 1) {
					t.Errorf("said %d times that the source does not know", n)
				}
			})
		})
	}
}

// A source that answers the question and then goes silent does not get another
// five seconds.
func TestStopAsksForFiveSecondsInAll(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.src.onRegister = func(int, *regTopic) (regResult, error) { return regResult{}, errors.New("lost") }
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("REGISTERING", 5*time.Second, b.inPhase(mirror.Registering))
		b.src.set(func(s *fakeSource) {
			s.onUnreg = func(n int, _ *unregTopic) (unregReply, error) {
				if n == 1 {
					time.Sleep(sourceTimeout - time.Second)
					s.set(func(s *fakeSource) { s.hole = true })
				}
				return unregReply{CurrentEpoch: 5}, nil
			}
		})
		b.stop()
		if took := b.until("STOPPED", 20*time.Second, b.allIn(mirror.Stopped)); took > sourceTimeout+500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// The open transactions of the source are aborted, each once, before the reset.
func TestStopAbortsOpenTransactions(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *bed) {
		b.sync()
		b.data.set(topicID, 1, func(p *fakePart) {
			p.open = []status.OpenTransaction{{ProducerID: 4, ProducerEpoch: 1, FirstOffset: 3}, {ProducerID: 9, FirstOffset: 6}}
		})
		b.stop()
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
		b.checkStopped(10, 3)
		b.data.mu.Lock()
		defer b.data.mu.Unlock()
		if a, z := len(b.data.part(topicID, 0).markers), len(b.data.part(topicID, 1).markers); a != 1 || z != 3 {
			t.Errorf("%d and %d control batches, want 1 and 3", a, z)
		}
	})
}

// The process is killed as each step becomes durable: the next one goes on from
// there, never unregisters again, and leaves what an undisturbed stop leaves.
func TestKilledAtEveryStopStep(t *testing.T) {
	for step := mirror.StopFetchersOff; step <= mirror.StopFinished; step++ {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, b *bed) {
				var armed atomic.Bool
				var killed atomic.Int32
				var cancel context.CancelFunc
				look := func(v *meta.View) {
					t := v.TopicByID(topicID)
					if armed.Load() && t != nil && t.Partitions[1].StopStep == step {
						killed.Add(1)
						cancel()
						armed.Store(false)
					}
				}
				b.published.Store(&look)
				b.sync()
				cancel = b.cancel
				b.data.set(topicID, 0, func(p *fakePart) { p.open = []status.OpenTransaction{{ProducerID: 4}} })
				armed.Store(true)
				b.stop()
				b.until("killed", 10*time.Second, func() bool { return killed.Load() == 1 })
				b.close()
				b.open()
				b.until("STOPPED", 10*time.Second, b.allIn(mirror.Stopped))
				if _, u := b.src.asked(); len(u) != 1 || u[0].number != 101 {
					t.Errorf("unregisters %v", u)
				}
				b.checkStopped(10, 3)
			})
		})
	}
}

// Killed between an append and its step, twice in a row: the markers are there
// at least once and the lineage still ends where the mirrored records do.
func TestKilledAfterAppend(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		b.data.set(topicID, 0, func(p *fakePart) {
			p.open = []status.OpenTransaction{{ProducerID: 4}}
			p.end, p.latest = 33, 5
		})
		var kills atomic.Int32
		b.data.after = func() {
			if kills.Load() < 2 {
				kills.Add(1)
				b.cancel()
			}
		}
		b.stop()
		for n := range int32(2) {
			b.until("killed", 10*time.Second, func() bool { return kills.Load() == n+1 })
			b.close()
			b.open()
		}
		b.until("STOPPED", 10*time.Second, b.allIn(mirror.Stopped))
		b.checkStopped(33, 5)
		if _, u := b.src.asked(); len(u) != 1 {
			t.Errorf("unregisters %v", u)
		}
	})
}

// A leadership that takes over before the first local append writes the lineage
// anew: its log may be shorter.
func TestResumeRewritesTheLineage(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		b.data.append_ = func(context.Context, partKey) error { return errors.New("not now") }
		b.stop()
		at := func() bool { return b.topic().Partitions[0].StopStep == mirror.StopPIDReset }
		b.until("before the first append", 10*time.Second, at)
		if l := b.topic().Partitions[0].Lineage; l[len(l)-1].FirstOffset != 10 {
			t.Fatal(l)
		}
		b.close()
		b.data.append_ = nil
		b.each(func(p *fakePart) { p.end, p.latest = 8, 2 })
		b.open()
		b.until("STOPPED", 10*time.Second, b.allIn(mirror.Stopped))
		b.checkStopped(8, 2)
	})
}

// Below the local min ISR a stop waits and says so once; then it goes on.
func TestStopWaitsBelowMinISR(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *bed) {
		b.sync()
		var low atomic.Bool
		low.Store(true)
		b.data.append_ = func(_ context.Context, k partKey) error {
			if low.Load() && k.index == 1 {
				return errors.New("in-sync replicas below min.insync.replicas")
			}
			return nil
		}
		b.stop()
		b.until("one STOPPED", 10*time.Second, func() bool { return b.topic().Partitions[0].State == mirror.Stopped })
		time.Sleep(time.Minute)
		if p := b.topic().Partitions[1]; p.State != mirror.Stopping || p.StopStep != mirror.StopPIDReset {
			t.Fatal(b.dump())
		}
		if n := b.logs.count("fail-over waits"); n != 1 {
			t.Errorf("said %d times", n)
		}
		low.Store(false)
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
		b.checkStopped(10, 3)
	})
}

// A stop waits for the fetchers, and records nothing before they are drained.
func TestStopWaitsForTheFetchers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		b.each(func(p *fakePart) { p.undrained = true })
		b.stop()
		time.Sleep(10 * time.Second)
		if p := b.topic().Partitions[0]; p.StopStep != mirror.StopFetchersOff || len(p.Lineage) != 0 {
			t.Fatal(b.dump(), p.Lineage)
		}
		b.each(func(p *fakePart) { p.end, p.undrained = 12, false })
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
		b.checkStopped(12, 3)
	})
}

// Nothing is appended before the data plane leads by the raised epoch.
func TestStopWaitsForTheEpoch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		b.data.set(topicID, 0, func(p *fakePart) { p.leads = b.topic().Partitions[0].LeaderEpoch })
		b.stop()
		time.Sleep(5 * time.Second)
		if p := b.topic().Partitions[0]; p.StopStep != mirror.StopBumpEpoch || p.LeaderEpoch < p.Lineage[1].FirstEpoch {
			t.Fatal(b.dump())
		}
		b.data.set(topicID, 0, func(p *fakePart) { p.leads = 0 })
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
		b.checkStopped(10, 3)
	})
}

// A topic that has stopped can be mirrored again, and its second stop
// unregisters too.
func TestSecondStopUnregistersToo(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		b.stop()
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
		if o := b.mirrors.AddTopics(t.Context(), []AddTopic{{Name: topicName, Mirror: mirrorName, Type: 1}}); o[0].Code != 0 {
			// The log has records: aligning comes with failback. A log without any
			// may be mirrored again.
			if o[0].Code != wire.ErrTopicAlreadyExists {
				t.Fatal(o)
			}
			b.each(func(p *fakePart) { *p = fakePart{latest: -1} })
			if o := b.mirrors.AddTopics(t.Context(), []AddTopic{{Name: topicName, Mirror: mirrorName, Type: 1}}); o[0].Code != 0 {
				t.Fatal(o)
			}
		}
		b.until("MIRRORING", 20*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("SYNC", 20*time.Second, b.inPhase(mirror.InSync))
		b.stop()
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
		if _, u := b.src.asked(); len(u) != 2 || u[0].number != 101 || u[1].number != 102 {
			t.Errorf("unregisters %v", u)
		}
	})
}
