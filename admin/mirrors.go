package admin

import (
	"context"
	"maps"
	"slices"

	"lockstep/internal/msg"
)

// MirrorType is how a topic is mirrored.
type MirrorType int8

// The types.
const (
	Async MirrorType = 0
	Sync  MirrorType = 1
)

// String is the KIP's word.
func (t MirrorType) String() string {
	if t == Sync {
		return "SYNC"
	}
	return "ASYNC"
}

// TopicResult is the result for one topic; Err nil = done.
type TopicResult struct {
	Topic string
	Err   error
}

// CreateMirror makes a mirror. bootstrap.servers is required; the broker asks
// the source for its cluster id.
func (a *Client) CreateMirror(ctx context.Context, name string, configs map[string]string) error {
	req := &msg.CreateClusterMirrorRequest{MirrorName: name}
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		v := configs[k]
		req.Config = append(req.Config, msg.CreateClusterMirrorRequestMirrorConfig{Name: k, Value: &v})
	}
	var resp msg.CreateClusterMirrorResponse
	if err := a.do(ctx, req, &resp); err != nil {
		return err
	}
	return failure(resp.ErrorCode, resp.ErrorMessage)
}

// DeleteMirror removes a mirror whose topics are all stopped.
func (a *Client) DeleteMirror(ctx context.Context, name string) error {
	var resp msg.DeleteClusterMirrorResponse
	if err := a.do(ctx, &msg.DeleteClusterMirrorRequest{MirrorName: name}, &resp); err != nil {
		return err
	}
	return failure(resp.ErrorCode, resp.ErrorMessage)
}

// AddTopics begins to mirror topics. With Sync they start ASYNC and are promoted
// when in step.
func (a *Client) AddTopics(ctx context.Context, mirror string, topics []string, as MirrorType) ([]TopicResult, error) {
	req := new(msg.AddTopicsToMirrorRequest)
	for _, t := range topics {
		req.Topics = append(req.Topics, msg.AddTopicsToMirrorRequestTopicState{TopicName: t, MirrorName: &mirror, MirrorType: int8(as)})
	}
	var resp msg.AddTopicsToMirrorResponse
	if err := a.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	var out []TopicResult
	for _, t := range resp.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(resp.ErrorCode, resp.ErrorMessage)
}

// RemoveTopics stops mirroring topics, which makes them writable: the fail-over.
// It works with the source out of reach; DescribeMirrors shows when it is done.
func (a *Client) RemoveTopics(ctx context.Context, mirror string, topics []string) ([]TopicResult, error) {
	req := &msg.RemoveTopicsFromMirrorRequest{MirrorName: mirror}
	for _, t := range topics {
		req.Topics = append(req.Topics, msg.RemoveTopicsFromMirrorRequestTopicState{TopicName: t})
	}
	var resp msg.RemoveTopicsFromMirrorResponse
	if err := a.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	var out []TopicResult
	for _, t := range resp.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(resp.ErrorCode, resp.ErrorMessage)
}

// AlterMirrorTopicType changes the desired type of topics. It returns when the
// wish is durable, not when a promotion has come about.
func (a *Client) AlterMirrorTopicType(ctx context.Context, mirror string, topics []string, to MirrorType) ([]TopicResult, error) {
	req := &msg.AlterMirrorTopicTypeRequest{MirrorName: mirror}
	for _, t := range topics {
		req.Topics = append(req.Topics, msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{TopicName: t, MirrorType: int8(to)})
	}
	var resp msg.AlterMirrorTopicTypeResponse
	if err := a.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	var out []TopicResult
	for _, t := range resp.Topics {
		out = append(out, TopicResult{t.TopicName, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, nil
}

// RegisterTopic is a topic to register at its source. A zero ID is not named.
type RegisterTopic struct {
	Topic         string
	ID            [16]byte
	Recovery      bool  // the source may clear the marker of an earlier release
	ReleaseNumber int64 // the release this answers; ≤ 0 = not named
}

// RegisterResult is the result for one topic.
type RegisterResult struct {
	Topic         string
	Err           error
	Epoch         int64 // number of the registration, ≤ 0 none
	ReleaseNumber int64 // the release a recovery has to name, ≤ 0 none
}

// RegisterMirrorSyncTopics registers a destination's mirror at this cluster, its
// source: from OK on, acks=all waits for the mirror too.
func (a *Client) RegisterMirrorSyncTopics(ctx context.Context, mirror, destination string, topics []RegisterTopic) ([]RegisterResult, error) {
	req := &msg.RegisterMirrorSyncTopicRequest{MirrorName: mirror, DestinationClusterId: destination}
	for _, t := range topics {
		q := msg.RegisterMirrorSyncTopicRequestTopicState{TopicId: t.ID, TopicName: t.Topic, RecoveryPromotion: t.Recovery, ReleaseNumber: -1}
		if t.ReleaseNumber > 0 {
			q.ReleaseNumber = t.ReleaseNumber
		}
		req.Topics = append(req.Topics, q)
	}
	var resp msg.RegisterMirrorSyncTopicResponse
	if err := a.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	var out []RegisterResult
	for _, t := range resp.Topics {
		out = append(out, RegisterResult{t.TopicName, failure(t.ErrorCode, t.ErrorMessage), t.RegistrationEpoch, t.ReleaseNumber})
	}
	return out, nil
}

// UnregisterTopic is a topic whose registration ends.
type UnregisterTopic struct {
	Topic string
	ID    [16]byte
	Epoch int64 // registration to end; ≤ 0 = whichever there is
}

// UnregisterResult is the result for one topic.
type UnregisterResult struct {
	Topic string
	Err   error
	Epoch int64 // registration that stands afterwards; 0 none, -1 not said
}

// UnregisterMirrorSyncTopics ends registrations, as the destination does.
func (a *Client) UnregisterMirrorSyncTopics(ctx context.Context, mirror, destination string, topics []UnregisterTopic) ([]UnregisterResult, error) {
	req := &msg.UnregisterMirrorSyncTopicRequest{MirrorName: mirror, DestinationClusterId: destination}
	for _, t := range topics {
		q := msg.UnregisterMirrorSyncTopicRequestTopicState{TopicId: t.ID, TopicName: t.Topic, RegistrationEpoch: -1}
		if t.Epoch > 0 {
			q.RegistrationEpoch = t.Epoch
		}
		req.Topics = append(req.Topics, q)
	}
	return a.unregister(ctx, req)
}

// ReleaseMirrorSyncTopics lets the source go on without a destination: an
// operator's act. No topics means all of the mirror. The destination has to be
// promoted anew afterwards.
func (a *Client) ReleaseMirrorSyncTopics(ctx context.Context, mirror string, topics []string) ([]UnregisterResult, error) {
	req := &msg.UnregisterMirrorSyncTopicRequest{MirrorName: mirror, Release: true}
	for _, t := range topics {
		req.Topics = append(req.Topics, msg.UnregisterMirrorSyncTopicRequestTopicState{TopicName: t, RegistrationEpoch: -1})
	}
	return a.unregister(ctx, req)
}

func (a *Client) unregister(ctx context.Context, req *msg.UnregisterMirrorSyncTopicRequest) ([]UnregisterResult, error) {
	var resp msg.UnregisterMirrorSyncTopicResponse
	if err := a.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	var out []UnregisterResult
	for _, t := range resp.Topics {
		out = append(out, UnregisterResult{t.TopicName, failure(t.ErrorCode, t.ErrorMessage), t.CurrentEpoch})
	}
	return out, failure(resp.ErrorCode, resp.ErrorMessage)
}

// ListedMirror is a mirror as ListMirrors gives it.
type ListedMirror struct {
	Name            string
	SourceBootstrap string
	SourceClusterID string
	Active          int      // topics that are neither paused nor stopped
	Topics          []string // those that are not stopped
}

// ListMirrors lists the mirrors of the cluster.
func (a *Client) ListMirrors(ctx context.Context) ([]ListedMirror, error) {
	var resp msg.ListClusterMirrorsResponse
	if err := a.do(ctx, &msg.ListClusterMirrorsRequest{IncludeTopicNames: true}, &resp); err != nil {
		return nil, err
	}
	var out []ListedMirror
	for _, m := range resp.Mirrors {
		out = append(out, ListedMirror{m.MirrorName, m.SourceBootstrap, m.SourceClusterId, int(m.TopicCount), m.TopicNames})
	}
	return out, failure(resp.ErrorCode, resp.ErrorMessage)
}
