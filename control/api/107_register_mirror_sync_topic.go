package api

// RegisterMirrorSyncTopic, version 0: the source's side of a promotion.
//
//   - OK means that every leader holds its high watermark for the mirror.
//   - Any broker takes it; the active controller answers.
//   - A topic may be named by name, id or both; a name whose id is another is
//     refused, for the topic was made anew.

import (
	"context"

	"lockstep/internal/config"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func registerMirrorSyncTopic(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.RegisterMirrorSyncTopicRequest)
	if !read(req, r) {
		return nil
	}
	v := s.d.Control.View()
	all := make([]RegisterOutcome, len(req.Topics))
	pass := RegisterRequest{Mirror: req.MirrorName, ClusterID: req.DestinationClusterId}
	var places []int
	for i := range req.Topics {
		q := &req.Topics[i]
		t, o := resolve(v, q.TopicName, q.TopicId)
		if !config.ValidMirrorName(req.MirrorName) {
			t, o = nil, Outcome{wire.ErrInvalidRequest, "not a mirror name: name the mirror as the destination cluster does"}
		}
		all[i] = RegisterOutcome{Name: q.TopicName, Code: o.Code, Message: o.Message, Epoch: -1, ReleaseNumber: -1}
		if t != nil {
			all[i].Name = t.Name
			places = append(places, i)
			pass.Topics = append(pass.Topics, RegisterTopic{Name: t.Name, ID: t.ID, Recovery: q.RecoveryPromotion, ReleaseNumber: q.ReleaseNumber})
		}
	}
	if len(places) > 0 {
		mergeRegister(all, places, s.d.Mirrors.Register(ctx, pass))
	}
	resp := &msg.RegisterMirrorSyncTopicResponse{Version: r.Version}
	for _, o := range all {
		resp.Topics = append(resp.Topics, msg.RegisterMirrorSyncTopicResponseTopicResult{TopicName: o.Name, ErrorCode: int16(o.Code),
			ErrorMessage: words(o.Message), RegistrationEpoch: o.Epoch, ReleaseNumber: o.ReleaseNumber})
	}
	return resp
}

func mergeRegister(all []RegisterOutcome, places []int, done []RegisterOutcome) {
	for k, at := range places {
		if k >= len(done) {
			all[at].Code, all[at].Message = wire.ErrUnknownServerError, "no answer for this topic: send the request again"
			continue
		}
		name := all[at].Name
		all[at] = done[k]
		all[at].Name = name
	}
}
