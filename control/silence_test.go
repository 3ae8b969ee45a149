package control

import (
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/msg"
	"lockstep/plugins/sdk"
)

// impatient releases whatever it is asked about.
func impatient(e sdk.Event) (d sdk.Decision, err error) {
	if e.Type == sdk.SilentLook {
		d.Wishes = []sdk.Wish{{Do: sdk.ReleaseSync, Subject: e.Subject, Reason: "silent"}}
	}
	return d, nil
}

// silentBed is a source with one registered mirror and an operator's word.
func silentBed(t *testing.T, after time.Duration, p func(sdk.Event) (sdk.Decision, error), f func(*testing.T, *bed)) {
	bubble(t, 2, func(t *testing.T, b *bed) {
		b.autoRelease = after
		b.haltMirrors()
		if p != nil {
			b.policies[sdk.Release] = of(sdk.Release, p)
		}
		b.runMirrors()
		b.plainTopic()
		b.until("the fences", time.Second, b.fenced)
		b.registerFar()
		f(t, b)
	})
}

func (b *bed) registerFar() {
	b.t.Helper()
	if o := b.mirrors.Register(b.t.Context(), "far", "dest", []SyncTopic{{Name: topicName, ID: topicID, Recovery: true, ReleaseNumber: -1}})[0]; o.Code != 0 {
		b.t.Fatal(o)
	}
}

func (b *bed) released() bool { return b.topic().Registrations[0].Released }

// A policy releases a silent mirror after the operator's time and not before,
// and a partition that hears of it keeps the whole topic.
func TestSilentMirrorIsReleased(t *testing.T) {
	silentBed(t, 20*time.Second, impatient, func(t *testing.T, b *bed) {
		for range 60 {
			time.Sleep(time.Second)
			b.data.set(topicID, 1, func(p *fakePart) { p.reported = time.Now() })
		}
		if b.released() {
			t.Fatal("released while a partition was heard")
		}
		took := b.until("released", time.Minute, b.released)
		if took < 18*time.Second || took > 22*time.Second {
			t.Errorf("released %v after the last report", took)
		}
		var accepted int
		for _, v := range verdicts(b.release) {
			if v.Accepted && v.Wish.Do == sdk.ReleaseSync {
				accepted++
			}
		}
		if accepted != 1 || b.logs.count("released by the release policy") != 1 {
			t.Errorf("%d accepted, %s", accepted, b.tail())
		}
		b.registerFar() // the mirror is back: another registration, silent from now
		time.Sleep(18 * time.Second)
		if b.released() {
			t.Error("the new registration pays for the silence of the old one")
		}
	})
}

// Without the operator's word nobody is asked, and the default policy releases
// nothing with it.
func TestNobodyReleasesUnasked(t *testing.T) {
	var asked atomic.Bool
	silentBed(t, 0, func(e sdk.Event) (sdk.Decision, error) {
		if e.Type == sdk.SilentLook {
			asked.Store(true)
		}
		return impatient(e)
	}, func(t *testing.T, b *bed) {
		time.Sleep(time.Hour)
		if asked.Load() || b.released() {
			t.Error("released without an operator's word")
		}
	})
	silentBed(t, time.Second, nil, func(t *testing.T, b *bed) {
		time.Sleep(time.Minute)
		if b.released() {
			t.Error("the default policy released")
		}
	})
}

// What is judged is one registration. If the mirror has registered anew before
// the wish is durable, the new registration stands; so it does if the policy
// has been replaced.
func TestLateReleaseDies(t *testing.T) {
	for name, before := range map[string]func(*bed){
		"a newer registration": func(b *bed) {
			b.must(&msg.RegisterSyncCommand{Fence: noFence, Mirror: "far", ClusterId: "dest", Topics: []msg.RegisterSyncCommandTopic{{TopicId: topicID}}})
		},
		"a newer fence": func(b *bed) {
			b.must(raiseFence(2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var at atomic.Pointer[bed]
			var once atomic.Bool
			silentBed(t, 5*time.Second, func(e sdk.Event) (sdk.Decision, error) {
				if e.Type == sdk.SilentLook && once.CompareAndSwap(false, true) {
					before(at.Load())
					return impatient(e)
				}
				return sdk.Decision{}, nil
			}, func(t *testing.T, b *bed) {
				at.Store(b)
				b.until("asked", 10*time.Second, func() bool { return len(verdicts(b.release)) > 0 })
				time.Sleep(time.Second)
				if v := verdicts(b.release); b.released() || v[0].Accepted || v[0].Why == "" {
					t.Errorf("%+v %+v", v, b.topic().Registrations)
				}
			})
		})
	}
}

// Wishes about another topic, of another sort, or twice are refused one by one.
func TestWrongAnswersToSilence(t *testing.T) {
	silentBed(t, time.Second, func(e sdk.Event) (d sdk.Decision, err error) {
		if e.Type == sdk.SilentLook {
			other := e.Subject
			other.Topic = "other"
			d.Wishes = []sdk.Wish{{Do: sdk.ReleaseSync, Subject: other}, {Do: sdk.Admit, Subject: e.Subject},
				{Do: sdk.ReleaseSync, Subject: e.Subject}, {Do: sdk.ReleaseSync, Subject: e.Subject}}
		}
		return d, nil
	}, func(t *testing.T, b *bed) {
		b.until("released", time.Minute, b.released)
		time.Sleep(5 * time.Second)
		v := verdicts(b.release)
		if len(v) != 4 || v[0].Accepted || v[1].Accepted || !v[2].Accepted || v[3].Accepted {
			t.Errorf("%+v", v)
		}
	})
}
