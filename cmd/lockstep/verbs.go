package main

import (
	"context"
	"errors"

	"lockstep/control"
	"lockstep/control/api"
	"lockstep/internal/meta"
)

// quorum is the node as the API handlers see it: their words for its errors.
type quorum struct{ *control.Node }

// Propose makes a command durable.
func (q quorum) Propose(ctx context.Context, cmd meta.Message) (meta.Result, error) {
	res, err := q.Node.Propose(ctx, cmd)
	switch {
	case errors.Is(err, control.ErrNoController):
		err = errors.Join(api.ErrNoController, err)
	case errors.Is(err, control.ErrUnknownOutcome):
		err = errors.Join(api.ErrUnknownOutcome, err)
	}
	return res, err
}

// mirrorVerbs is control's mirrors as the API handlers see them.
type mirrorVerbs struct{ m *control.Mirrors }

func outcome(o control.Outcome) api.Outcome { return api.Outcome{Code: o.Code, Message: o.Message} }

func topicOutcomes(list []control.TopicOutcome) []api.TopicOutcome {
	out := make([]api.TopicOutcome, len(list))
	for i, o := range list {
		out[i] = api.TopicOutcome{Name: o.Name, Outcome: outcome(o.Outcome)}
	}
	return out
}

func (v mirrorVerbs) Create(ctx context.Context, name string, configs map[string]string) api.Outcome {
	return outcome(v.m.Create(ctx, name, configs))
}

func (v mirrorVerbs) Delete(ctx context.Context, name string) api.Outcome {
	return outcome(v.m.Delete(ctx, name))
}

func (v mirrorVerbs) AddTopics(ctx context.Context, topics []api.AddTopic) []api.TopicOutcome {
	list := make([]control.AddTopic, len(topics))
	for i, t := range topics {
		list[i] = control.AddTopic(t)
	}
	return topicOutcomes(v.m.AddTopics(ctx, list))
}

func (v mirrorVerbs) RemoveTopics(ctx context.Context, mirror string, topics []string) []api.TopicOutcome {
	return topicOutcomes(v.m.RemoveTopics(ctx, mirror, topics))
}

func (v mirrorVerbs) AlterType(ctx context.Context, mirror string, topics []api.AlterTopic) []api.TopicOutcome {
	list := make([]control.AlterTopic, len(topics))
	for i, t := range topics {
		list[i] = control.AlterTopic(t)
	}
	return topicOutcomes(v.m.AlterType(ctx, mirror, list))
}

func (v mirrorVerbs) Register(ctx context.Context, r api.RegisterRequest) []api.RegisterOutcome {
	list := make([]control.SyncTopic, len(r.Topics))
	for i, t := range r.Topics {
		list[i] = control.SyncTopic{Name: t.Name, ID: t.ID, Recovery: t.Recovery, ReleaseNumber: t.ReleaseNumber}
	}
	return registerOutcomes(v.m.Register(ctx, r.Mirror, r.ClusterID, list))
}

func (v mirrorVerbs) Unregister(ctx context.Context, r api.UnregisterRequest) []api.RegisterOutcome {
	list := make([]control.SyncTopic, len(r.Topics))
	for i, t := range r.Topics {
		list[i] = control.SyncTopic{Name: t.Name, ID: t.ID, Epoch: t.Epoch}
	}
	if r.Release {
		return registerOutcomes(v.m.Release(ctx, r.Mirror, list))
	}
	return registerOutcomes(v.m.Unregister(ctx, r.Mirror, r.ClusterID, list))
}

func registerOutcomes(list []control.SyncOutcome) []api.RegisterOutcome {
	out := make([]api.RegisterOutcome, len(list))
	for i, o := range list {
		out[i] = api.RegisterOutcome{Name: o.Name, Code: o.Code, Message: o.Message, Epoch: o.Epoch, ReleaseNumber: o.ReleaseNumber}
	}
	return out
}
