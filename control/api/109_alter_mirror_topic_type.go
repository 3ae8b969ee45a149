package api

// AlterMirrorTopicType, version 0.
//
//   - Promotion waits until no partition lags; the answer comes when the wish is
//     durable.
//   - The response has no error of the whole: an unknown mirror is answered for
//     each topic.

import (
	"context"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func alterMirrorTopicType(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.AlterMirrorTopicTypeRequest)
	if !read(req, r) {
		return nil
	}
	v := s.d.Control.View()
	none := unknownMirror(v, req.MirrorName)
	all := make([]TopicOutcome, len(req.Topics))
	var places []int
	var pass []AlterTopic
	for i := range req.Topics {
		q := &req.Topics[i]
		t, o := resolve(v, q.TopicName, q.TopicId)
		all[i].Name = q.TopicName
		switch {
		case none.Code != wire.ErrNone:
			o = none
		case badType(q.MirrorType):
			o = Outcome{wire.ErrInvalidRequest, badTypeText}
		case t != nil:
			all[i].Name = t.Name
			places = append(places, i)
			pass = append(pass, AlterTopic{Name: t.Name, ID: t.ID, Type: q.MirrorType})
		}
		all[i].Outcome = o
	}
	if len(pass) > 0 {
		merge(all, places, s.d.Mirrors.AlterType(ctx, req.MirrorName, pass))
	}
	resp := &msg.AlterMirrorTopicTypeResponse{Version: r.Version}
	for _, o := range all {
		resp.Topics = append(resp.Topics, msg.AlterMirrorTopicTypeResponseTopicResult{TopicName: o.Name, ErrorCode: int16(o.Code), ErrorMessage: words(o.Message)})
	}
	return resp
}
