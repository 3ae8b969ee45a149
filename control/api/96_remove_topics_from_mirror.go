package api

// RemoveTopicsFromMirror, version 0: the fail-over.
//
//   - It works from any state of a partition, with the source out of reach. The
//     answer comes when the wish is durable; describe shows the way to STOPPED.
//   - A topic may be named by name, id or both.

import (
	"context"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func removeTopicsFromMirror(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.RemoveTopicsFromMirrorRequest)
	if !read(req, r) {
		return nil
	}
	resp := &msg.RemoveTopicsFromMirrorResponse{Version: r.Version}
	v := s.d.Control.View()
	if o := unknownMirror(v, req.MirrorName); o.Code != wire.ErrNone {
		resp.ErrorCode, resp.ErrorMessage = int16(o.Code), words(o.Message)
		return resp
	}
	all := make([]TopicOutcome, len(req.Topics))
	var places []int
	var pass []string
	for i := range req.Topics {
		q := &req.Topics[i]
		t, o := resolve(v, q.TopicName, q.TopicId)
		all[i] = TopicOutcome{q.TopicName, o}
		if t != nil {
			all[i].Name = t.Name
			places, pass = append(places, i), append(pass, t.Name)
		}
	}
	if len(pass) > 0 {
		merge(all, places, s.d.Mirrors.RemoveTopics(ctx, req.MirrorName, pass))
	}
	for _, o := range all {
		resp.Topics = append(resp.Topics, msg.RemoveTopicsFromMirrorResponseTopicResult{Name: o.Name, ErrorCode: int16(o.Code), ErrorMessage: words(o.Message)})
	}
	return resp
}
