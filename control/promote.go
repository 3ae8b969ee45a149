package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lockstep/control/remote"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

var registerBackoff = mirror.Backoff{InitialMS: 1000, MaxMS: retryMax.Milliseconds()}

// lookPromotion drives one topic between ASYNC and SYNC.
func (m *Mirrors) lookPromotion(ctx context.Context, t *meta.Topic) {
	p := t.Mirror.Promotion
	switch {
	case p.Phase == mirror.Registering:
		// Also after a restart: an answer may have been lost with the process.
		m.sendRegister(ctx, t, p)
		return
	case p.OwedUnregister != 0:
		m.sendUnregister(ctx, t, p)
	}
	if p.Phase == mirror.PlainAsync || t.Mirror.Desired != mirror.Mirroring {
		return
	}
	f := m.promotionFacts(t, p)
	if p.Phase == mirror.InSync && f.Failing < f.Partitions {
		return
	}
	if p.Phase != mirror.InSync && f.InStep < f.Partitions {
		m.note(t.ID, "")
		return
	}
	subject := sdk.Subject{Mirror: t.Mirror.Mirror, Topic: t.Name, TopicID: t.ID, Partition: -1}
	asked, err := m.o.Promotion.Handle(ctx, sdk.Event{NowMS: m.o.Now().UnixMilli(), Type: sdk.PromotionLook, Subject: subject, Facts: f})
	if err != nil {
		return // nothing changes without the policy; traffic goes on as it is
	}
	done := false
	verdicts := make([]host.Verdict, 0, len(asked.Wishes))
	for _, w := range asked.Wishes {
		why, event := m.allowPromotion(w, subject, f)
		switch {
		case why != "":
		case done:
			why = "one step at a time"
		case m.step(ctx, asked.Fence, t, p, mirror.PromotionEvent{Kind: event}, w.Reason):
			done = true
		default:
			why = "not made durable"
		}
		verdicts = append(verdicts, m.verdict(w, why))
	}
	asked.Settle(verdicts...)
}

// promotionFacts are measured here, from this broker's partitions: the
// evidence a promotion or a demotion needs (R24).
func (m *Mirrors) promotionFacts(t *meta.Topic, p mirror.Promotion) sdk.Facts {
	f := sdk.Facts{Phase: uint8(p.Phase), Partitions: int32(len(t.Partitions)), Attempts: p.Attempts,
		DemoteTimeoutMS: m.o.DemoteTimeout.Milliseconds()}
	now := m.o.Now().UnixMilli()
	since := int64(0)
	for i := range t.Partitions {
		st, ok := m.o.Data.Status(t.ID, int32(i))
		if !ok || st.Mirror == nil {
			continue
		}
		if st.Mirror.InStep {
			f.InStep++
		}
		if at := st.Mirror.FailingSinceMS; at > 0 {
			f.Failing++
			since = max(since, at) // all have been failing since the last began to
		}
	}
	if f.Failing == f.Partitions && since > 0 {
		f.FailingMS = now - since
	}
	m.mu.Lock()
	try := m.tries[t.ID]
	if try.attempts != p.Attempts {
		try = tryAt{attempts: p.Attempts}
		if p.Attempts > 0 {
			try.at = m.o.Now().Add(time.Duration(registerBackoff.Delay(p.Attempts, 0.5)) * time.Millisecond)
		}
		m.tries[t.ID] = try
	}
	m.mu.Unlock()
	if !try.at.IsZero() {
		f.NextTryMS = try.at.UnixMilli()
	}
	return f
}

func (m *Mirrors) allowPromotion(w sdk.Wish, s sdk.Subject, f sdk.Facts) (why string, event mirror.PromotionEventKind) {
	e := mirror.Evidence{Phase: mirror.Phase(f.Phase), Partitions: int(f.Partitions), InStep: int(f.InStep), Failing: int(f.Failing),
		FailingMS: f.FailingMS, DemoteTimeoutMS: f.DemoteTimeoutMS, BackOffOver: m.o.Now().UnixMilli() >= f.NextTryMS, MirroredHere: true}
	switch {
	case w.Subject != s:
		return "not about this topic", 0
	case w.Do == sdk.Register:
		return mirror.AllowRegister(e), mirror.InStep
	case w.Do == sdk.Demote:
		return mirror.AllowDemote(e), mirror.AllFailing
	}
	return "not a promotion's wish", 0
}

// step makes an event of the promotion machine durable, then carries out what
// the machine asks for. Apply computes the same step from the same state.
func (m *Mirrors) step(ctx context.Context, fence int64, t *meta.Topic, p mirror.Promotion, e mirror.PromotionEvent, reason string) bool {
	next, _ := p.Step(e)
	if next == p {
		return true
	}
	cmd := &msg.PromotionStepCommand{Fence: fence, Topics: []msg.PromotionStepCommandTopic{{
		TopicId: t.ID, ExpectedPhase: int8(p.Phase), Event: int8(e.Kind), Number: e.Number, Asked: e.Asked}}}
	res, ok := m.propose(ctx, cmd, "promotion", t.Name)
	if !ok || len(res.Items) != 1 || res.Items[0].ErrorCode != 0 {
		return false
	}
	m.say(ctx, t, p, next, e, reason)
	m.Kick()
	return true
}

// say tells operators of a change that matters to them.
func (m *Mirrors) say(ctx context.Context, t *meta.Topic, was, is mirror.Promotion, e mirror.PromotionEvent, reason string) {
	log := m.o.Log.With("mirror", t.Mirror.Mirror, "topic", t.Name)
	switch {
	case is.Phase == mirror.InSync && was.Phase != mirror.InSync:
		log.Info("topic is in SYNC: the source acknowledges only what this cluster has", "registration_epoch", is.RegistrationEpoch)
		m.note(t.ID, "")
		m.warnWeak(ctx, t)
	case was.Phase == mirror.InSync && is.Phase != mirror.InSync:
		m.count("ALL_PARTITIONS_FAILING")
		log.Warn("topic fell back to ASYNC; it is promoted again when it is in step", "reason", reason)
		m.note(t.ID, "released by source or rejected - recovery in flight")
	case e.Kind == mirror.RegisterReleased:
		m.count("RELEASED_FRESH_PROMOTION_REQUIRED")
		log.Warn("source had released the topic; the next registration asks for recovery", "release_number", e.Number)
		m.note(t.ID, "released by source - recovery in flight")
	case e.Kind == mirror.RegisterMismatch:
		m.count("VERSION_MISMATCH")
		log.Warn("source cannot gate on mirrors; the topic stays ASYNC and is tried again later", "reason", reason)
		m.note(t.ID, "source cannot gate on mirrors (VERSION_MISMATCH)")
	case e.Kind == mirror.RegisterUnreachable:
		log.Warn("source did not take the registration; the topic stays ASYNC and is tried again later", "reason", reason)
		m.note(t.ID, "registration failed: "+reason)
	}
}

// warnWeak says aloud what a promotion does not promise (R19).
func (m *Mirrors) warnWeak(ctx context.Context, t *meta.Topic) {
	client := m.client(t.Mirror.Mirror)
	m.running.Add(1)
	go func() {
		defer m.running.Done()
		ack := ""
		if client != nil {
			c, cancel := context.WithTimeout(ctx, sourceTimeout)
			ack, _ = client.Config(c, t.Name, "flush.ack") // unknown counts as appended
			cancel()
		}
		st, ok := m.o.Data.Status(t.ID, 0)
		if !ok {
			return
		}
		var weak []string
		if st.MinISR <= 1 {
			weak = append(weak, "min.insync.replicas=1: one broker's word is enough")
		}
		if len(t.Partitions[0].Replicas) <= 1 {
			weak = append(weak, "replication factor 1: losing that broker's disk loses the copy")
		}
		if ack == "durable" && !st.DurableAck {
			weak = append(weak, "flush.ack=appended here, durable at the source: a power cut here may lose what was acknowledged")
		}
		if len(weak) > 0 {
			m.o.Log.Warn("weak destination for SYNC", "mirror", t.Mirror.Mirror, "topic", t.Name, "because", strings.Join(weak, "; "))
		}
	}()
}

func (m *Mirrors) count(reason string) {
	m.mu.Lock()
	m.rejected[reason]++
	m.mu.Unlock()
}

// Rejected counts registrations rejected and topic-wide demotions, by reason.
func (m *Mirrors) Rejected() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int64{"RELEASED_FRESH_PROMOTION_REQUIRED": 0, "ALL_PARTITIONS_FAILING": 0, "VERSION_MISMATCH": 0}
	for k, n := range m.rejected {
		out[k] = n
	}
	return out
}

func (m *Mirrors) note(id [16]byte, s string) {
	m.mu.Lock()
	if s == "" {
		delete(m.notes, id)
	} else {
		m.notes[id] = s
	}
	m.mu.Unlock()
}

// Note is what describe says of a topic's promotion, "" nothing.
func (m *Mirrors) Note(id [16]byte) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notes[id]
}

// sendRegister asks the source until it answers. REGISTERING is durable before:
// whatever becomes of this process, the next one asks again.
func (m *Mirrors) sendRegister(ctx context.Context, t *meta.Topic, p mirror.Promotion) {
	client := m.client(t.Mirror.Mirror)
	if client == nil {
		return
	}
	m.background(busyKey{id: t.ID}, func() {
		if now := m.o.Node.View().TopicByID(t.ID); now == nil || now.Mirror == nil || now.Mirror.Promotion != p {
			return // the one before has had its answer: another would end the registration it has got
		}
		req := &msg.RegisterMirrorSyncTopicRequest{MirrorName: t.Mirror.Mirror, DestinationClusterId: m.o.Node.View().ClusterID(),
			Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicId: t.ID, TopicName: t.Name, RecoveryPromotion: p.Recovery, ReleaseNumber: -1}}}
		if p.Recovery && p.ReleaseNumber > 0 {
			req.Topics[0].ReleaseNumber = p.ReleaseNumber
		}
		e, reason := m.register(ctx, client, req, t)
		if ctx.Err() != nil {
			return
		}
		for range registerResends { // the answer counts by whatever phase it meets
			now := m.o.Node.View().TopicByID(t.ID)
			if now == nil || now.Mirror == nil || now.Mirror.Desired == mirror.Stopped {
				// The stop's own Unregister may have come before what this answers.
				if e.Kind == mirror.RegisterOK {
					_, err := m.unregister(ctx, client, t, e.Number)
					m.o.Log.Debug("registration of a stopped topic removed", "topic", t.Name, "error", err)
				}
				return
			}
			if m.step(ctx, noFence, now, now.Mirror.Promotion, e, reason) {
				return
			}
			sleep(ctx, registerRetry)
		}
	})
}

// register sends one Register, again and again while its outcome is unknown.
func (m *Mirrors) register(ctx context.Context, client Source, req *msg.RegisterMirrorSyncTopicRequest, t *meta.Topic) (mirror.PromotionEvent, string) {
	var last error
	for range registerResends {
		c, cancel := context.WithTimeout(ctx, sourceTimeout)
		resp, err := client.Register(c, req)
		cancel()
		switch {
		case errors.Is(err, remote.ErrTooOld):
			return mirror.PromotionEvent{Kind: mirror.RegisterMismatch}, err.Error()
		case err == nil && len(resp.Topics) == 1 && wire.ErrorCode(resp.Topics[0].ErrorCode) != wire.ErrRequestTimedOut:
			return registerEvent(&resp.Topics[0])
		case err == nil && len(resp.Topics) == 1: // as unknown as silence
			err = fmt.Errorf("%s: %s", wire.ErrRequestTimedOut.Name(), text(resp.Topics[0].ErrorMessage))
		case err == nil:
			err = fmt.Errorf("the source answered for %d topics", len(resp.Topics))
		}
		last = err
		now := m.o.Node.View().TopicByID(t.ID)
		if ctx.Err() != nil || now == nil || now.Mirror == nil || now.Mirror.Phase != mirror.Registering || now.Mirror.Desired == mirror.Stopped {
			break // withdrawn: whoever withdrew it owes the Unregister
		}
		sleep(ctx, registerRetry)
	}
	return mirror.PromotionEvent{Kind: mirror.RegisterUnreachable}, fmt.Sprint(last)
}

func registerEvent(r *msg.RegisterMirrorSyncTopicResponseTopicResult) (mirror.PromotionEvent, string) {
	code := wire.ErrorCode(r.ErrorCode)
	why := code.Name()
	if r.ErrorMessage != nil && *r.ErrorMessage != "" {
		why += ": " + *r.ErrorMessage
	}
	switch code {
	case wire.ErrNone:
		return mirror.PromotionEvent{Kind: mirror.RegisterOK, Number: max(r.RegistrationEpoch, 1)}, "registered"
	case wire.ErrMirrorSyncReleasedRequiresFreshPromotion:
		return mirror.PromotionEvent{Kind: mirror.RegisterReleased, Number: max(r.ReleaseNumber, 0)}, why
	case wire.ErrMirrorSyncVersionMismatch, wire.ErrUnsupportedVersion:
		return mirror.PromotionEvent{Kind: mirror.RegisterMismatch}, why
	}
	return mirror.PromotionEvent{Kind: mirror.RegisterUnreachable}, why
}

// sendUnregister tells the source of an ended registration until it answers
// (R25).
func (m *Mirrors) sendUnregister(ctx context.Context, t *meta.Topic, p mirror.Promotion) {
	client := m.client(t.Mirror.Mirror)
	if client == nil {
		return
	}
	m.background(busyKey{id: t.ID}, func() {
		asked := max(p.OwedUnregister, 0)
		standing, err := m.unregister(ctx, client, t, asked)
		if err != nil {
			sleep(ctx, unregisterRetry)
			return
		}
		if now := m.o.Node.View().TopicByID(t.ID); now != nil && now.Mirror != nil {
			m.step(ctx, noFence, now, now.Mirror.Promotion, mirror.PromotionEvent{Kind: mirror.UnregisterAnswered, Number: standing, Asked: asked}, "unregistered")
		}
	})
}

// unregister sends one Unregister and returns the registration that stands.
func (m *Mirrors) unregister(ctx context.Context, client Source, t *meta.Topic, epoch int64) (standing int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	resp, err := client.Unregister(ctx, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: t.Mirror.Mirror,
		DestinationClusterId: m.o.Node.View().ClusterID(),
		Topics:               []msg.UnregisterMirrorSyncTopicRequestTopicState{{TopicId: t.ID, TopicName: t.Name, RegistrationEpoch: epoch}}})
	switch {
	case errors.Is(err, remote.ErrTooOld):
		return 0, nil // it never registered us
	case err != nil:
		return 0, err
	case resp.ErrorCode != 0:
		return 0, fmt.Errorf("%s: %s", wire.ErrorCode(resp.ErrorCode).Name(), text(resp.ErrorMessage))
	}
	if len(resp.Topics) != 1 {
		return 0, fmt.Errorf("the source answered for %d topics", len(resp.Topics))
	}
	r := &resp.Topics[0]
	switch code := wire.ErrorCode(r.ErrorCode); code {
	case wire.ErrNone, wire.ErrInvalidSyncRegistration, wire.ErrUnknownTopicId, wire.ErrUnknownTopicOrPartition:
		return max(r.CurrentEpoch, 0), nil // none of ours, or the one that stands
	default:
		return 0, fmt.Errorf("%s: %s", code.Name(), text(r.ErrorMessage))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
