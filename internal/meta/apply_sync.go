package meta

import (
	"slices"
	"strings"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

func (x *tx) promotionStep(c *msg.PromotionStepCommand) {
	if !x.fenceHolds(FencePromotion, c.Fence) {
		return
	}
	for i := range c.Topics {
		r := &c.Topics[i]
		t := x.topicByID(r.TopicId)
		if t == nil {
			x.answer(ResultItem{TopicId: r.TopicId, Partition: -1}, refuse(unknownTopicID, "no topic with this id"))
			continue
		}
		bad := checkPromotion(t, r)
		item := topicItem(t, -1)
		if bad == nil {
			x.promote(t, mirror.PromotionEvent{Kind: mirror.PromotionEventKind(r.Event), Number: r.Number, Asked: r.Asked})
			p := x.topic(t.Name).Mirror.Promotion
			item.Number, item.Current = p.OwedUnregister, p.RegistrationEpoch
		}
		x.answer(item, bad)
	}
}

// checkPromotion lets through what a coordinator may report. Wishes of an
// operator have commands of their own.
func checkPromotion(t *Topic, r *msg.PromotionStepCommandTopic) *refusal {
	if t.Mirror == nil {
		return refuse(topicNotInMirror, "topic is not mirrored")
	}
	switch mirror.PromotionEventKind(r.Event) {
	case mirror.InStep:
		if t.Mirror.Desired != mirror.Mirroring {
			return refuse(invalidRequest, "topic is not being mirrored")
		}
	case mirror.RegisterOK, mirror.RegisterReleased, mirror.RegisterMismatch, mirror.RegisterUnreachable,
		mirror.AllFailing, mirror.UnregisterAnswered:
	default:
		return refuse(invalidRequest, "not an event of the coordinator")
	}
	switch {
	case t.Mirror.Desired == mirror.Stopped:
		return refuse(topicBeingStopped, "topic is being stopped")
	case int8(t.Mirror.Phase) != r.ExpectedPhase:
		return refuse(invalidUpdateVersion, "phase is "+t.Mirror.Phase.String())
	}
	return nil
}

// entry finds a mirror's registration of a topic.
func (t *Topic) entry(name string) (at int, r Registration, exists bool) {
	at, exists = slices.BinarySearchFunc(t.Registrations, name, func(r Registration, n string) int { return strings.Compare(r.Mirror, n) })
	if exists {
		r = t.Registrations[at]
	}
	return at, r, exists
}

// record writes what the ledger has decided.
func (x *tx) record(t *Topic, at int, existed bool, d mirror.Decision) {
	if !d.Changed {
		return
	}
	t = x.edit(t)
	t.Registrations = slices.Clone(t.Registrations)
	switch {
	case !d.Exists:
		t.Registrations = slices.Delete(t.Registrations, at, at+1)
	case existed:
		t.Registrations[at] = d.Entry
	default:
		t.Registrations = slices.Insert(t.Registrations, at, d.Entry)
	}
}

func (x *tx) registerSync(c *msg.RegisterSyncCommand) {
	if bad := checkName(c.Mirror); bad != nil {
		x.fail(invalidRequest, bad.text)
		return
	}
	if !x.fenceHolds(FenceRelease, c.Fence) {
		return
	}
	for i := range c.Topics {
		r := &c.Topics[i]
		t := x.topicByID(r.TopicId)
		if t == nil {
			x.answer(ResultItem{TopicId: r.TopicId, Partition: -1}, refuse(unknownTopicID, "no topic with this id"))
			continue
		}
		at, old, exists := t.entry(c.Mirror)
		d := mirror.Register(old, exists,
			mirror.RegisterRequest{Mirror: c.Mirror, ClusterID: c.ClusterId, Recovery: r.Recovery, ReleaseNumber: r.ReleaseNumber},
			mirror.LedgerFacts{Index: x.index, SyncOn: x.v.Feature(FeatureMirrorSync) >= 1,
				Mirrored: t.Mirror != nil && !t.fullyStopped(), Held: r.Held})
		x.record(t, at, exists, d)
		item := topicItem(t, -1)
		item.Current = d.Current()
		item.Number = item.Current
		if d.Code == mirror.NeedsRecovery {
			item.Number = d.Entry.ReleaseNumber
		}
		bad := ledgerRefusal(d.Code, old)
		if d.WarnUnnumbered {
			text := "release cleared by a Register that does not name it"
			item.Warn, item.ErrorMessage = true, &text
		}
		x.answer(item, bad)
	}
}

func ledgerRefusal(code mirror.LedgerCode, old Registration) *refusal {
	switch code {
	case mirror.FeatureOff:
		return refuse(mirrorSyncVersionMismatch, "mirror.sync.version is 0 in this cluster")
	case mirror.SourceMirrored:
		return refuse(invalidSyncRegistration, "topic is itself being mirrored: sync out of a mirror is not possible")
	case mirror.OtherCluster:
		return refuse(invalidSyncRegistration, "mirror name is registered by cluster "+old.ClusterID)
	case mirror.NeedsRecovery:
		return refuse(releasedNeedsFreshPromote, "released by the source")
	}
	return nil
}

func (x *tx) unregisterSync(c *msg.UnregisterSyncCommand) {
	for i := range c.Topics {
		r := &c.Topics[i]
		t := x.topicByID(r.TopicId)
		if t == nil { // deleted at the source: nothing gates any more
			x.answer(ResultItem{TopicId: r.TopicId, Partition: -1}, nil)
			continue
		}
		at, old, exists := t.entry(c.Mirror)
		d := mirror.Unregister(old, exists, c.ClusterId, r.Epoch)
		x.record(t, at, exists, d)
		item := topicItem(t, -1)
		if d.Code != mirror.OtherCluster {
			item.Current = d.Current()
		}
		x.answer(item, ledgerRefusal(d.Code, old))
	}
}

func (x *tx) releaseSync(c *msg.ReleaseSyncCommand) {
	if !x.fenceHolds(FenceRelease, c.Fence) {
		return
	}
	release := func(t *Topic) bool {
		at, old, exists := t.entry(c.Mirror)
		d := mirror.Release(old, exists, c.RegistrationEpoch, x.index)
		x.record(t, at, exists, d)
		if d.Changed {
			item := topicItem(t, -1)
			item.Number = d.Entry.ReleaseNumber
			x.answer(item, nil)
		}
		return d.Changed
	}
	if len(c.TopicIds) == 0 {
		for t := range x.v.Topics() {
			release(t)
		}
		return
	}
	for _, id := range c.TopicIds {
		t := x.topicByID(id)
		switch {
		case t == nil:
			x.answer(ResultItem{TopicId: id, Partition: -1}, refuse(unknownTopicID, "no topic with this id"))
		case !release(t):
			x.answer(topicItem(t, -1), refuse(invalidSyncRegistration, "mirror is not registered for this topic"))
		}
	}
}
