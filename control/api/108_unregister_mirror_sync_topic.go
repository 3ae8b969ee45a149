package api

// UnregisterMirrorSyncTopic, version 0: a destination leaves, or an operator of
// the source releases it.
//
//   - A topic that does not exist any more is a success: nothing gates.
//   - Without a registration epoch, whichever registration stands is ended.
//   - Release without topics releases all topics of the mirror. Without Release
//     an empty list does nothing.

import (
	"context"

	"lockstep/internal/config"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func unregisterMirrorSyncTopic(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.UnregisterMirrorSyncTopicRequest)
	if !read(req, r) {
		return nil
	}
	resp := &msg.UnregisterMirrorSyncTopicResponse{Version: r.Version}
	if !config.ValidMirrorName(req.MirrorName) {
		resp.ErrorCode = int16(wire.ErrInvalidRequest)
		resp.ErrorMessage = words("not a mirror name: describe the mirrors to see which are registered")
		return resp
	}
	v := s.d.Control.View()
	pass := UnregisterRequest{Mirror: req.MirrorName, ClusterID: req.DestinationClusterId, Release: req.Release, All: req.Release && len(req.Topics) == 0}
	all := make([]RegisterOutcome, len(req.Topics))
	var places []int
	for i := range req.Topics {
		q := &req.Topics[i]
		t, o := resolve(v, q.TopicName, q.TopicId)
		all[i] = RegisterOutcome{Name: q.TopicName, Code: o.Code, Message: o.Message, Epoch: -1}
		switch {
		case t != nil:
			all[i].Name = t.Name
			places = append(places, i)
			pass.Topics = append(pass.Topics, UnregisterTopic{Name: t.Name, ID: t.ID, Epoch: q.RegistrationEpoch})
		case q.TopicId != [16]byte{} && !req.Release:
			all[i] = RegisterOutcome{Name: q.TopicName} // gone with its registrations
		}
	}
	switch {
	case pass.All:
		all = s.d.Mirrors.Unregister(ctx, pass)
	case len(places) > 0:
		mergeRegister(all, places, s.d.Mirrors.Unregister(ctx, pass))
	}
	for _, o := range all {
		resp.Topics = append(resp.Topics, msg.UnregisterMirrorSyncTopicResponseTopicResult{TopicName: o.Name, ErrorCode: int16(o.Code),
			ErrorMessage: words(o.Message), CurrentEpoch: o.Epoch})
	}
	return resp
}
