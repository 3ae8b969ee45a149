package control

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

type (
	regTopic   = msg.RegisterMirrorSyncTopicRequestTopicState
	regResult  = msg.RegisterMirrorSyncTopicResponseTopicResult
	unregTopic = msg.UnregisterMirrorSyncTopicRequestTopicState
	unregReply = msg.UnregisterMirrorSyncTopicResponseTopicResult
)

// A Register goes out only when every partition is in step, and what it is for
// is durable before.
func TestRegisterWaitsForEveryPartition(t *testing.T) {
	bubble(t, 3, func(t *testing.T, b *bed) {
		var early atomic.Int32
		b.src.onRegister = func(int, *regTopic) (regResult, error) {
			if b.phase() != mirror.Registering || b.topic().Mirror.OwedUnregister != mirror.UnknownEpoch {
				early.Add(1)
			}
			return regResult{RegistrationEpoch: 77}, nil
		}
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.data.set(topicID, 0, func(p *fakePart) { p.inStep = true })
		b.data.set(topicID, 2, func(p *fakePart) { p.inStep = true })
		time.Sleep(5 * time.Second)
		if r, _ := b.src.asked(); len(r) != 0 || b.phase() != mirror.Pending {
			t.Fatalf("%d Registers, phase %v with a partition out of step", len(r), b.phase())
		}
		b.data.set(topicID, 1, func(p *fakePart) { p.inStep = true })
		b.until("SYNC", time.Second, b.inPhase(mirror.InSync))
		r, u := b.src.asked()
		if len(r) != 1 || r[0].recover || early.Load() != 0 || b.topic().Mirror.RegistrationEpoch != 77 || len(u) != 0 {
			t.Fatalf("registers %v unregisters %v, %d before REGISTERING was durable, %s", r, u, early.Load(), b.dump())
		}
		if e := b.topic().Partitions[1].LeaderEpoch; e <= b.src.epoch+epochMargin {
			t.Fatalf("leader epoch %d is not above the source's %d", e, b.src.epoch)
		}
		b.until("weak destinations said", time.Second, func() bool { return b.logs.count("weak destination for SYNC") == 1 })
		if b.logs.count("min.insync.replicas=1") != 1 || b.logs.count("durable at the source") != 1 {
			t.Fatal(b.tail())
		}
	})
}

// While the outcome of a Register is not known it is sent again.
func TestUnknownOutcomeIsResent(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.src.onRegister = func(n int, _ *regTopic) (regResult, error) {
			switch n {
			case 1, 2:
				return regResult{}, errors.New("connection reset")
			case 3: // registered, but not gated by all leaders yet
				return regResult{ErrorCode: int16(wire.ErrRequestTimedOut), RegistrationEpoch: 8}, nil
			}
			return regResult{RegistrationEpoch: 9}, nil
		}
		b.sync()
		r, u := b.src.asked()
		if len(r) != 4 || len(u) != 0 || b.topic().Mirror.RegistrationEpoch != 9 {
			t.Fatal(r, u, b.dump())
		}
		for i := 1; i < len(r); i++ {
			if gap := r[i].at.Sub(r[i-1].at); gap < registerRetry || gap > time.Second {
				t.Errorf("resent after %v", gap)
			}
		}
	})
}

// A process that dies in REGISTERING asks again when it is back, in step or not.
func TestRestartInRegisteringResends(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.src.set(func(s *fakeSource) { s.hole = true })
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("a Register is out", 5*time.Second, func() bool { r, _ := b.src.asked(); return len(r) == 1 })
		b.close()
		b.src.set(func(s *fakeSource) { s.hole = false })
		b.each(func(p *fakePart) { p.inStep = false })
		b.open()
		b.until("SYNC", 5*time.Second, b.inPhase(mirror.InSync))
	})
}

// An answer of RELEASED makes the next Register a recovery that names the number.
func TestReleasedAnswerLeadsToRecovery(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *bed) {
		var held atomic.Bool
		held.Store(true)
		b.src.onRegister = func(n int, q *regTopic) (regResult, error) {
			if n == 1 || q.ReleaseNumber != 42 || !q.RecoveryPromotion || held.Load() {
				return regResult{ErrorCode: int16(wire.ErrMirrorSyncReleasedRequiresFreshPromotion), ReleaseNumber: 42}, nil
			}
			return regResult{RegistrationEpoch: 50}, nil
		}
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("RECOVERY", 5*time.Second, b.inPhase(mirror.Recovery))
		if p := b.topic().Mirror; !p.Recovery || p.ReleaseNumber != 42 || !b.allIn(mirror.Mirroring)() {
			t.Fatal(b.dump())
		}
		if n := b.mirrors.Note(topicID); !strings.Contains(n, "recovery in flight") {
			t.Errorf("note %q", n)
		}
		b.until("held for six tries", 10*time.Minute, func() bool { r, _ := b.src.asked(); return len(r) == 6 })
		held.Store(false)
		b.until("SYNC", 10*time.Minute, b.inPhase(mirror.InSync))
		r, _ := b.src.asked()
		if r[0].recover || r[0].number != -1 {
			t.Errorf("first Register %+v", r[0])
		}
		for i := 1; i < len(r); i++ {
			want := retryInitial << (i - 1)
			if gap := r[i].at.Sub(r[i-1].at); !r[i].recover || r[i].number != 42 || gap < want || gap > want+time.Second {
				t.Errorf("try %d after %v, want %v: %+v", i, gap, want, r[i])
			}
		}
		if n := b.mirrors.Rejected()["RELEASED_FRESH_PROMOTION_REQUIRED"]; n != 6 {
			t.Errorf("%d rejections counted", n)
		}
	})
}

// A source that cannot gate is asked ever more seldom; the topic goes on ASYNC.
func TestVersionMismatchBacksOff(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.src.onRegister = func(int, *regTopic) (regResult, error) {
			return regResult{ErrorCode: int16(wire.ErrMirrorSyncVersionMismatch)}, nil
		}
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.inStep = true })
		time.Sleep(25 * time.Minute)
		r, _ := b.src.asked()
		// 1+2+…+256 s, then one in 300 s.
		if len(r) < 10 || len(r) > 14 || b.phase() != mirror.Pending || !b.allIn(mirror.Mirroring)() {
			t.Fatalf("%d Registers in 25 minutes, %s", len(r), b.dump())
		}
		for i := 2; i < len(r); i++ {
			if a, z := r[i-1].at.Sub(r[i-2].at), r[i].at.Sub(r[i-1].at); z < a-time.Second || z > retryMax+2*time.Second {
				t.Errorf("try %d: %v after %v", i, z, a)
			}
		}
		if n := b.mirrors.Rejected()["VERSION_MISMATCH"]; n != int64(len(r)) {
			t.Errorf("%d rejections counted of %d", n, len(r))
		}
		if o := b.topic().Mirror.OwedUnregister; o != 0 {
			t.Errorf("Unregister still owed: %d", o)
		}
	})
}

// Only all partitions failing for the whole timeout end SYNC.
func TestDemotion(t *testing.T) {
	bubble(t, 3, func(t *testing.T, b *bed) {
		b.sync()
		failing := func(i int32, at int64) { b.data.set(topicID, i, func(p *fakePart) { p.failing = at }) }
		failing(0, time.Now().UnixMilli())
		failing(1, time.Now().UnixMilli())
		time.Sleep(5 * time.Minute)
		if b.phase() != mirror.InSync {
			t.Fatal("demoted with one partition well")
		}
		for range 10 { // each time one partition recovers a millisecond early
			failing(2, time.Now().UnixMilli())
			time.Sleep(demoteTime - time.Millisecond)
			failing(2, 0)
			time.Sleep(time.Millisecond)
			if b.phase() != mirror.InSync {
				t.Fatal("demoted by flapping")
			}
		}
		if r, u := b.src.asked(); len(r) != 1 || len(u) != 0 {
			t.Fatal(r, u)
		}
		b.src.set(func(s *fakeSource) { s.down = true })
		b.each(func(p *fakePart) { p.failing, p.inStep = time.Now().UnixMilli(), false })
		failing(2, time.Now().UnixMilli()-1000*60) // the newest failure counts
		took := b.until("RECOVERY", demoteTime+time.Second, b.inPhase(mirror.Recovery))
		if took < demoteTime {
			t.Fatalf("demoted after %v", took)
		}
		if p := b.topic().Mirror; p.OwedUnregister != 101 || p.Recovery || !b.allIn(mirror.Mirroring)() {
			t.Fatal(b.dump())
		}
		b.until("the Unregister is tried again", 10*time.Second, func() bool { _, u := b.src.asked(); return len(u) >= 3 })
		b.src.set(func(s *fakeSource) { s.down = false })
		b.until("nothing is owed", 5*time.Second, func() bool { return b.topic().Mirror.OwedUnregister == 0 })
		_, u := b.src.asked()
		for _, x := range u {
			if x.number != 101 {
				t.Errorf("Unregister names %d", x.number)
			}
		}
		if n := b.mirrors.Rejected()["ALL_PARTITIONS_FAILING"]; n != 1 {
			t.Errorf("%d demotions counted", n)
		}
		b.each(func(p *fakePart) { p.failing, p.inStep = 0, true })
		b.until("SYNC by itself", 10*time.Second, b.inPhase(mirror.InSync))
	})
}

// --async while a Register is out takes effect at once and owes the source the
// word until it answers.
func TestAsyncDuringRegistering(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.src.set(func(s *fakeSource) { s.hole = true })
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("a Register is out", 5*time.Second, func() bool { r, _ := b.src.asked(); return len(r) == 1 })
		start := time.Now()
		b.alter(0)
		if d := time.Since(start); d > 200*time.Millisecond || b.phase() != mirror.PlainAsync || b.topic().Mirror.OwedUnregister != mirror.UnknownEpoch {
			t.Fatal(d, b.dump())
		}
		time.Sleep(time.Minute)
		if _, u := b.src.asked(); len(u) < 5 || b.topic().Mirror.OwedUnregister != mirror.UnknownEpoch {
			t.Fatal(u, b.dump())
		}
		// The source did register us: it names the epoch that stands, refuses for
		// a while to remove it, then does.
		busy := 3
		b.src.set(func(s *fakeSource) {
			s.hole = false
			s.onUnreg = func(_ int, q *unregTopic) (unregReply, error) {
				if q.RegistrationEpoch == 0 {
					return unregReply{CurrentEpoch: 31}, nil
				}
				if busy--; busy > 0 {
					return unregReply{ErrorCode: int16(wire.ErrRequestTimedOut), CurrentEpoch: -1}, nil
				}
				return unregReply{}, nil
			}
		})
		b.until("nothing is owed", 30*time.Second, func() bool { return b.topic().Mirror.OwedUnregister == 0 })
		_, u := b.src.asked()
		if n := len(u); u[n-1].number != 31 || u[n-2].number != 31 || u[n-3].number != 31 || u[n-4].number != 0 {
			t.Fatalf("unregisters end with %v", u[len(u)-4:])
		}
		if r, _ := b.src.asked(); len(r) != 1 {
			t.Fatalf("%d Registers after --async", len(r))
		}
	})
}

// A Register that is admitted after the stop's own Unregister is taken back.
func TestRegisterAdmittedAfterTheStop(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		gate := make(chan struct{})
		answer := sync.OnceFunc(func() { close(gate) })
		defer answer()
		b.src.onRegister = func(int, *regTopic) (regResult, error) {
			<-gate
			return regResult{RegistrationEpoch: 64}, nil
		}
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("a Register is out", 5*time.Second, func() bool { r, _ := b.src.asked(); return len(r) == 1 })
		b.stop()
		if took := b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped)); took > time.Second {
			t.Errorf("the stop took %v beside a Register that nobody answers", took)
		}
		_, before := b.src.asked()
		if len(before) != 1 || before[0].number != 0 {
			t.Fatalf("the stop's Unregister: %v", before)
		}
		answer()
		b.until("taken back", 5*time.Second, func() bool { _, u := b.src.asked(); return len(u) == 2 && u[1].number == 64 })
	})
}

// A command of a policy instance that has been replaced changes nothing, and a
// controller whose fences another has raised raises them again.
func TestStaleFence(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		old := b.promotion.Fence()
		if old <= 0 || old != b.node.View().Fence(meta.FencePromotion) {
			t.Fatalf("fence %d, the View's is %d", old, b.node.View().Fence(meta.FencePromotion))
		}
		b.must(&msg.RaiseFenceCommand{Kind: int8(meta.FencePromotion)})
		stale := &msg.PromotionStepCommand{Fence: old, Topics: []msg.PromotionStepCommandTopic{{TopicId: topicID,
			ExpectedPhase: int8(mirror.Pending), Event: int8(mirror.InStep)}}}
		res, err := b.node.Propose(t.Context(), stale)
		if err != nil || res.ErrorCode == 0 || b.phase() != mirror.Pending {
			t.Fatalf("a stale wish: %+v %v", res, err)
		}
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("SYNC under a new fence", 5*time.Second, b.inPhase(mirror.InSync))
		if f := b.promotion.Fence(); f <= old || f != b.node.View().Fence(meta.FencePromotion) {
			t.Errorf("fence %d after %d", f, old)
		}
	})
}

// The loop ends at once, with a Register and an Unregister out that nobody
// answers; the client is closed.
func TestMirrorsEndAtOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(true)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.src.set(func(s *fakeSource) { s.hole = true })
		b.each(func(p *fakePart) { p.inStep = true })
		b.until("a Register is out", 5*time.Second, func() bool { r, _ := b.src.asked(); return len(r) == 1 })
		start := time.Now()
		b.cancel()
		<-b.over
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("ended after %v", d)
		}
		if b.src.closed != b.src.dials {
			t.Errorf("%d clients made, %d closed", b.src.dials, b.src.closed)
		}
	})
}

// A source that swallows everything is said once, and again when it is back.
func TestSilentSourceIsSaidOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(false)
		b.until("MIRRORING", 5*time.Second, b.allIn(mirror.Mirroring))
		b.src.set(func(s *fakeSource) { s.hole = true })
		time.Sleep(3 * time.Minute)
		if n := b.logs.count("mirror source does not answer"); n != 1 {
			t.Fatalf("said %d times\n%s", n, b.tail())
		}
		b.src.set(func(s *fakeSource) { s.hole = false })
		b.until("back", 20*time.Second, func() bool { return b.logs.count("mirror source answers again") == 1 })
	})
}

// Configs that make no client are said once, not at every look.
func TestUnusableMirrorIsSaidOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.mirror(false)
		b.close()
		b.src.dialErr = errors.New("no such protocol")
		b.open()
		time.Sleep(10 * time.Second)
		if n := b.logs.count("mirror cannot be used"); n != 1 {
			t.Fatalf("said %d times", n)
		}
		if o := b.mirrors.AddTopics(context.Background(), []AddTopic{{Name: "other", Mirror: mirrorName}}); o[0].Code != wire.ErrInvalidRequest {
			t.Fatal(o)
		}
		b.stop()
		b.until("STOPPED", 5*time.Second, b.allIn(mirror.Stopped))
	})
}

// A look at many topics takes a while, and may come to one whose Register has
// had its answer since: another would end the registration that it has got.
func TestRegisterIsNotSentTwice(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *bed) {
		b.sync()
		behind := *b.topic()
		m := *behind.Mirror
		m.Promotion = mirror.Promotion{Phase: mirror.Registering, OwedUnregister: mirror.UnknownEpoch}
		behind.Mirror = &m
		before, _ := b.src.asked()
		b.mirrors.sendRegister(t.Context(), &behind, m.Promotion)
		time.Sleep(5 * time.Second)
		if after, _ := b.src.asked(); len(after) != len(before) {
			t.Errorf("%d Registers, %d before", len(after), len(before))
		}
	})
}
