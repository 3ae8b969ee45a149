package sim

import (
	"fmt"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/sdk"
)

// try is when a topic may register again after so many failed attempts.
type try struct {
	attempts int32
	at       int64 // Unix ms
}

// word is what the source answered to a Register.
type word struct {
	event mirror.PromotionEvent
	index uint64 // every shard of the source must have finished it
	life  int    // of the source: another one's connection is lost, and the answer with it
}

var registerBackoff = mirror.Backoff{InitialMS: 100, MaxMS: 1000}

// promote drives a topic between ASYNC and SYNC in the order of R10, as
// control.lookPromotion does.
func (c *pair) promote(p *part) {
	w := c.w
	t := w.dst.latest.TopicByID(p.id)
	pr := t.Mirror.Promotion
	switch {
	case c.said[p.id].index != 0:
		c.heard(p)
		return
	case pr.Phase == mirror.Registering:
		c.register(p, pr)
		return
	case pr.OwedUnregister != 0 && (w.calm || w.rnd.IntN(4) == 0):
		c.unregister(p, pr)
		return
	case w.released:
		return
	}
	if pr.Phase == mirror.InSync && w.rnd.IntN(400) == 0 && !w.calm {
		w.src.apply(&msg.ReleaseSyncCommand{Fence: noFence, RegistrationEpoch: mirror.AnyEpoch, Mirror: pairName, TopicIds: [][16]byte{p.id}})
		return
	}
	f, is := c.promotionFacts(p, t)
	if pr.Phase == mirror.InSync && f.Failing < f.Partitions || pr.Phase != mirror.InSync && f.InStep < f.Partitions && w.rnd.IntN(8) > 0 {
		return // a real one asks nothing; this one now and then, so that the guard has something to refuse
	}
	subject := sdk.Subject{Mirror: pairName, Topic: t.Name, TopicID: t.ID, Partition: -1}
	now := w.wall()
	c.promotion.ask(sdk.Event{Type: sdk.PromotionLook, Subject: subject, Facts: f}, func(fence int64, d sdk.Decision, _ error) {
		e := mirror.Evidence{Phase: pr.Phase, Partitions: int(f.Partitions), InStep: int(f.InStep), Failing: int(f.Failing), FailingMS: f.FailingMS,
			DemoteTimeoutMS: f.DemoteTimeoutMS, BackOffOver: now >= f.NextTryMS, MirroredHere: true}
		for _, x := range d.Wishes {
			switch {
			case x.Subject != subject:
			case x.Do == sdk.Register && mirror.AllowRegister(e) == "":
				if c.step(p, fence, pr.Phase, mirror.PromotionEvent{Kind: mirror.InStep}) {
					w.check(is.lagZero, "PromoteOnlyAtLagZero", t.Name, " began to register, and ", is.why)
					return
				}
			case x.Do == sdk.Demote && mirror.AllowDemote(e) == "":
				if c.step(p, fence, pr.Phase, mirror.PromotionEvent{Kind: mirror.AllFailing}) {
					w.check(is.failing || pr.Phase != mirror.InSync, "SyncEndsByEvidence", t.Name, " fell back to ASYNC, and a partition was well")
					return
				}
			}
		}
	})
}

// truth is what the world knows of a topic, beside the facts that were asked with.
type truth struct {
	lagZero bool
	why     string
	failing bool
}

// promotionFacts are measured as control does; the truth is taken from other
// numbers than those.
func (c *pair) promotionFacts(p *part, t *meta.Topic) (f sdk.Facts, is truth) {
	w := c.w
	f = sdk.Facts{Phase: uint8(t.Mirror.Phase), Partitions: int32(len(t.Partitions)), Attempts: t.Mirror.Attempts, DemoteTimeoutMS: demoteMS}
	since := int64(0)
	is = truth{lagZero: true, failing: true}
	for i := range t.Partitions {
		st, ok := w.dst.eng.Status(t.ID, int32(i))
		if !ok || st.Mirror == nil {
			is = truth{why: "a partition is not mirrored"}
			continue
		}
		if at := st.Mirror.FailingSinceMS; at > 0 {
			f.Failing++
			since = max(since, at)
		}
		if st.Mirror.InStep {
			f.InStep++
		}
		if st.End < st.Mirror.SourceHigh || st.Mirror.SourceHigh < 0 {
			is.lagZero, is.why = false, fmt.Sprintf("partition %d lags: end %d of %d", i, st.End, st.Mirror.SourceHigh)
		}
		is.failing = is.failing && st.Mirror.FailReason != "" && w.wall()-st.Mirror.FailingSinceMS >= demoteMS
	}
	if f.Failing == f.Partitions && since > 0 {
		f.FailingMS = w.wall() - since
	}
	x := c.tries[t.ID]
	if x.attempts != f.Attempts {
		x = try{attempts: f.Attempts}
		if f.Attempts > 0 {
			x.at = w.wall() + registerBackoff.Delay(f.Attempts, 0.5)
		}
		c.tries[t.ID] = x
	}
	f.NextTryMS = x.at
	return f, is
}

// step makes an event of the promotion machine durable.
func (c *pair) step(p *part, fence int64, phase mirror.Phase, e mirror.PromotionEvent) bool {
	res := c.promotion.apply(p.id, fence, &msg.PromotionStepCommand{Fence: fence, Topics: []msg.PromotionStepCommandTopic{
		{TopicId: p.id, ExpectedPhase: int8(phase), Event: int8(e.Kind), Number: e.Number, Asked: e.Asked}}})
	c.w.note("copy of %s: %s %d in %s under fence %d: %d", p.topic, e.Kind, e.Number, phase, fence, res.ErrorCode)
	return res.ErrorCode == 0 && res.Items[0].ErrorCode == 0
}

// register asks the source, which asks its release policy. An answer may be lost.
func (c *pair) register(p *part, pr mirror.Promotion) {
	w := c.w
	if c.asked[p.id] == w.src.life {
		return
	}
	r := msg.RegisterSyncCommandTopic{TopicId: p.id, Recovery: pr.Recovery, ReleaseNumber: -1}
	if pr.Recovery && pr.ReleaseNumber > 0 {
		r.ReleaseNumber = pr.ReleaseNumber
	}
	life, dst := w.src.life, w.dst.life
	c.asked[p.id] = life
	if !w.admit(pairName, "dst", r, func(res meta.Result) {
		if dst != w.dst.life {
			return // whoever asked is no more
		}
		delete(c.asked, p.id)
		if !w.calm && w.rnd.IntN(8) == 0 {
			return
		}
		said := word{index: w.src.latest.Index(), life: life, event: mirror.PromotionEvent{Kind: mirror.RegisterUnreachable}}
		if res.ErrorCode == 0 {
			switch item := res.Items[0]; wire.ErrorCode(item.ErrorCode) {
			case wire.ErrNone:
				said.event = mirror.PromotionEvent{Kind: mirror.RegisterOK, Number: item.Number}
			case wire.ErrMirrorSyncReleasedRequiresFreshPromotion:
				said.event = mirror.PromotionEvent{Kind: mirror.RegisterReleased, Number: item.Number}
			default:
				w.check(false, "TheWorldWorks", "register: ", item)
			}
		}
		c.said[p.id] = said
	}) {
		delete(c.asked, p.id)
	}
}

// heard lets the source's answer count, once every shard there gates by it.
func (c *pair) heard(p *part) {
	w, said := c.w, c.said[p.id]
	switch {
	case said.life != w.src.life:
		delete(c.said, p.id)
	case w.src.eng.Applied() >= said.index:
		delete(c.said, p.id)
		c.step(p, noFence, w.dst.latest.TopicByID(p.id).Mirror.Phase, said.event)
	}
}

// unregister tells the source of an ended registration (R25).
func (c *pair) unregister(p *part, pr mirror.Promotion) {
	asked := max(pr.OwedUnregister, 0)
	res := c.w.src.apply(&msg.UnregisterSyncCommand{Mirror: pairName, ClusterId: "dst", Topics: []msg.UnregisterSyncCommandTopic{{TopicId: p.id, Epoch: asked}}})
	c.step(p, noFence, pr.Phase, mirror.PromotionEvent{Kind: mirror.UnregisterAnswered, Number: res.Items[0].Current, Asked: asked})
}

// admit is a Register at the source: the release policy may hold a marker, and
// without its answer the built-in rule holds none (R12).
func (w *World) admit(name, cluster string, r msg.RegisterSyncCommandTopic, then func(meta.Result)) bool {
	t := w.src.latest.TopicByID(r.TopicId)
	if t == nil {
		return false
	}
	subject := sdk.Subject{Mirror: name, Topic: t.Name, TopicID: t.ID, Partition: -1}
	f := sdk.Facts{Recovery: r.Recovery}
	for _, x := range t.Registrations {
		f.Released = f.Released || x.Mirror == name && x.Released
	}
	life := w.src.life
	return w.release.ask(sdk.Event{Type: sdk.RegisterAsked, Subject: subject, Facts: f}, func(fence int64, d sdk.Decision, _ error) {
		if w.calm && (name != pairName || w.released) {
			return // nobody waits for it
		}
		cmd := &msg.RegisterSyncCommand{Fence: noFence, Mirror: name, ClusterId: cluster}
		for _, x := range d.Wishes {
			if x.Subject == subject && x.Do == sdk.Hold && f.Released {
				r.Held, cmd.Fence = true, fence
			}
		}
		cmd.Topics = []msg.RegisterSyncCommandTopic{r}
		w.check(life == w.src.life, "TheWorldWorks", "a policy of a life that is over has answered")
		w.registered[int64(w.src.latest.Index())+1] = w.mono
		then(w.release.apply(r.TopicId, cmd.Fence, cmd))
	})
}

// lookSilence puts a registration to the release policy, whatever its silence: the
// guard demands an operator's word and the broker's own measure.
func (w *World) lookSilence() {
	p := w.model.parts[w.rnd.IntN(len(w.model.parts))]
	t := w.src.latest.TopicByID(p.id)
	if t == nil || len(t.Registrations) == 0 {
		return
	}
	r := t.Registrations[w.rnd.IntN(len(t.Registrations))]
	e := mirror.Evidence{SilentMS: 1 << 40, AutoReleaseMS: w.cfg.AutoRelease}
	for i := range t.Partitions {
		st, ok := w.src.eng.Status(t.ID, int32(i))
		if !ok || !st.Leader {
			return
		}
		for _, m := range st.Mirrors {
			if m.Name == r.Mirror && m.AgeMS >= 0 {
				e.SilentMS = min(e.SilentMS, m.AgeMS)
			}
		}
	}
	if e.SilentMS = min(e.SilentMS, w.wall()-w.wallAt(w.registered[r.Epoch])); !r.Gates() {
		return
	}
	subject := sdk.Subject{Mirror: r.Mirror, Topic: t.Name, TopicID: t.ID, Partition: -1}
	w.release.ask(sdk.Event{Type: sdk.SilentLook, Subject: subject, Facts: sdk.Facts{SilentMS: e.SilentMS, AutoReleaseMS: e.AutoReleaseMS}},
		func(fence int64, d sdk.Decision, _ error) {
			for _, x := range d.Wishes {
				if x.Subject != subject || x.Do != sdk.ReleaseSync || mirror.AllowRelease(e) != "" {
					continue
				}
				res := w.release.apply(t.ID, fence, &msg.ReleaseSyncCommand{Mirror: r.Mirror, TopicIds: [][16]byte{t.ID}, Fence: fence, RegistrationEpoch: r.Epoch})
				w.check(res.ErrorCode != 0 || w.cfg.AutoRelease > 0 && e.SilentMS >= w.cfg.AutoRelease, "SyncEndsByEvidence", t.Name,
					": a policy has released ", r.Mirror, ", silent for ", e.SilentMS, " ms; an operator allows it after ", w.cfg.AutoRelease)
				return
			}
		})
}
