package sdk

import (
	"fmt"
	"math"

	"lockstep/plugins/pluginpb"
)

func subjectTo(s Subject) *pluginpb.Subject {
	return &pluginpb.Subject{Mirror: s.Mirror, Topic: s.Topic, TopicId: s.TopicID[:], Partition: s.Partition}
}

func subjectFrom(m *pluginpb.Subject) (Subject, error) {
	s := Subject{Mirror: m.GetMirror(), Topic: m.GetTopic(), Partition: m.GetPartition()}
	if len(m.GetTopicId()) != len(s.TopicID) {
		return s, errTopicID
	}
	copy(s.TopicID[:], m.GetTopicId())
	return s, nil
}

func factsTo(f *Facts) *pluginpb.Facts {
	return &pluginpb.Facts{State: int32(f.State), Desired: int32(f.Desired), EpochBehind: f.EpochBehind, Aligned: f.Aligned, Failed: f.Failed,
		RetryAttempt: f.RetryAttempt, RetryDueMs: f.RetryDueMS, LeaderKnown: f.LeaderKnown,
		Phase: uint32(f.Phase), Partitions: f.Partitions, InStep: f.InStep, Failing: f.Failing, FailingMs: f.FailingMS,
		DemoteTimeoutMs: f.DemoteTimeoutMS, Attempts: f.Attempts, NextTryMs: f.NextTryMS,
		Released: f.Released, Recovery: f.Recovery, SilentMs: f.SilentMS, AutoReleaseMs: f.AutoReleaseMS}
}

func factsFrom(m *pluginpb.Facts) (Facts, error) {
	f := Facts{State: int8(m.GetState()), Desired: int8(m.GetDesired()), EpochBehind: m.GetEpochBehind(), Aligned: m.GetAligned(), Failed: m.GetFailed(),
		RetryAttempt: m.GetRetryAttempt(), RetryDueMS: m.GetRetryDueMs(), LeaderKnown: m.GetLeaderKnown(),
		Phase: uint8(m.GetPhase()), Partitions: m.GetPartitions(), InStep: m.GetInStep(), Failing: m.GetFailing(), FailingMS: m.GetFailingMs(),
		DemoteTimeoutMS: m.GetDemoteTimeoutMs(), Attempts: m.GetAttempts(), NextTryMS: m.GetNextTryMs(),
		Released: m.GetReleased(), Recovery: m.GetRecovery(), SilentMS: m.GetSilentMs(), AutoReleaseMS: m.GetAutoReleaseMs()}
	if int32(f.State) != m.GetState() || int32(f.Desired) != m.GetDesired() || uint32(f.Phase) != m.GetPhase() {
		return f, fmt.Errorf("state %d, desired %d or phase %d is out of range", m.GetState(), m.GetDesired(), m.GetPhase())
	}
	return f, nil
}

func eventTo(e Event) *pluginpb.Event {
	return &pluginpb.Event{Seq: e.Seq, NowMs: e.NowMS, Type: string(e.Type), Subject: subjectTo(e.Subject), Facts: factsTo(&e.Facts)}
}

func eventFrom(m *pluginpb.Event) (Event, error) {
	s, err := subjectFrom(m.GetSubject())
	if err != nil {
		return Event{}, err
	}
	f, err := factsFrom(m.GetFacts())
	return Event{Seq: m.GetSeq(), NowMS: m.GetNowMs(), Type: EventType(m.GetType()), Subject: s, Facts: f}, err
}

func decisionTo(d Decision, version int) *pluginpb.Decision {
	m := &pluginpb.Decision{Wishes: make([]*pluginpb.Wish, len(d.Wishes))}
	for i, w := range d.Wishes {
		m.Wishes[i] = &pluginpb.Wish{Do: string(w.Do), Subject: subjectTo(w.Subject), Step: uint32(w.Step), Reason: w.Reason}
	}
	if version >= 2 {
		m.Note = d.Note
	}
	return m
}

func decisionFrom(m *pluginpb.Decision, version int) (Decision, error) {
	var d Decision
	for _, w := range m.GetWishes() {
		s, err := subjectFrom(w.GetSubject())
		if err != nil {
			return Decision{}, err
		}
		if w.GetStep() > math.MaxUint8 {
			return Decision{}, fmt.Errorf("step %d is out of range", w.GetStep())
		}
		d.Wishes = append(d.Wishes, Wish{Do: Action(w.GetDo()), Subject: s, Step: uint8(w.GetStep()), Reason: w.GetReason()})
	}
	if version >= 2 {
		d.Note = m.GetNote()
	}
	return d, nil
}
