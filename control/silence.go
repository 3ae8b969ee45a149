package control

import (
	"context"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// silence is what the source knows of registered mirrors that say nothing.
type silence struct {
	next  time.Time                     // of the next look
	since map[registrationKey]time.Time // when this controller first saw a registration
}

// registrationKey names a registration for good: another has another epoch.
type registrationKey struct {
	topic  [16]byte
	mirror string
	epoch  int64
}

// lookSilence asks the release policy about registrations that have been silent
// for as long as an operator has set. Without that standing word nobody is
// asked: a release ends RPO 0, and the KIP leaves it to operators.
func (m *Mirrors) lookSilence(ctx context.Context, v *meta.View) {
	now := m.o.Now()
	if m.o.AutoRelease <= 0 || now.Before(m.silence.next) {
		return
	}
	m.silence.next = now.Add(silenceEvery)
	seen := make(map[registrationKey]time.Time, len(m.silence.since))
	defer func() { m.silence.since = seen }()
	answers := true
	registered := map[string]int{} // partitions, by mirror
	for t := range v.Topics() {
		for _, r := range t.Registrations {
			if r.Gates() {
				registered[r.Mirror] += len(t.Partitions)
			}
		}
	}
	for t := range v.Topics() {
		for _, r := range t.Registrations {
			if !r.Gates() {
				continue
			}
			key := registrationKey{t.ID, r.Mirror, r.Epoch}
			since, ok := m.silence.since[key]
			if !ok {
				since = now
			}
			seen[key] = since
			// Idle partitions take turns to report: that is no silence.
			silent := m.silent(t, r.Mirror, since, now) - mirror.ReportCycle(registered[r.Mirror]) + mirror.ReportCycle(1)
			if answers && silent >= m.o.AutoRelease {
				answers = m.askSilent(ctx, t, r, silent)
			}
		}
	}
}

// silent tells for how long no partition of a topic has had a report that
// counts. Who leads not all of them does not know, and says 0.
func (m *Mirrors) silent(t *meta.Topic, name string, since, now time.Time) time.Duration {
	for i := range t.Partitions {
		st, ok := m.o.Data.Status(t.ID, int32(i))
		if !ok || !st.Leader {
			return 0
		}
		for _, r := range st.Mirrors {
			if at := now.Add(-time.Duration(r.AgeMS) * time.Millisecond); r.Name == name && r.AgeMS >= 0 && at.After(since) {
				since = at
			}
		}
	}
	return now.Sub(since)
}

// askSilent puts one silent registration to the policy. It tells whether the
// policy answers.
func (m *Mirrors) askSilent(ctx context.Context, t *meta.Topic, r meta.Registration, silent time.Duration) bool {
	subject := sdk.Subject{Mirror: r.Mirror, Topic: t.Name, TopicID: t.ID, Partition: -1}
	evidence := mirror.Evidence{SilentMS: silent.Milliseconds(), AutoReleaseMS: m.o.AutoRelease.Milliseconds()}
	asked, err := m.o.Release.Handle(ctx, sdk.Event{NowMS: m.o.Now().UnixMilli(), Type: sdk.SilentLook, Subject: subject,
		Facts: sdk.Facts{SilentMS: evidence.SilentMS, AutoReleaseMS: evidence.AutoReleaseMS}})
	if err != nil {
		return false
	}
	done := false
	verdicts := make([]host.Verdict, 0, len(asked.Wishes))
	for _, w := range asked.Wishes {
		why := mirror.AllowRelease(evidence)
		switch {
		case w.Subject != subject:
			why = "not about this topic"
		case w.Do != sdk.ReleaseSync:
			why = "not an answer to silence"
		case why != "":
		case done:
			why = "one step at a time"
		default:
			why = m.releaseSilent(ctx, asked.Fence, t, r, silent, w.Reason)
			done = why == ""
		}
		verdicts = append(verdicts, m.verdict(w, why))
	}
	asked.Settle(verdicts...)
	return true
}

// releaseSilent returns why nothing was released, "" if it was. It names the
// registration that was silent: a newer one stands.
func (m *Mirrors) releaseSilent(ctx context.Context, fence int64, t *meta.Topic, r meta.Registration, silent time.Duration, reason string) string {
	res, err := m.o.Node.Propose(ctx, &msg.ReleaseSyncCommand{Mirror: r.Mirror, TopicIds: [][16]byte{t.ID}, Fence: fence, RegistrationEpoch: r.Epoch})
	switch {
	case err != nil:
		return "not made durable: " + err.Error()
	case res.ErrorCode != 0:
		return text(res.ErrorMessage)
	case len(res.Items) != 1 || wire.ErrorCode(res.Items[0].ErrorCode) != wire.ErrNone:
		return "this registration does not stand any more"
	}
	m.o.Log.Warn("released by the release policy: acks=all no longer waits for this mirror; what it does not have yet may be lost with this site",
		"mirror", r.Mirror, "topic", t.Name, "release_number", res.Items[0].Number, "silent", silent.Round(time.Millisecond), "reason", reason)
	return ""
}
