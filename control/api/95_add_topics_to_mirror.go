package api

// AddTopicsToMirror, version 0.
//
//   - Each topic names its mirror and has its own result.
//   - SYNC is a wish: the topic starts ASYNC and is promoted when in step.

import (
	"context"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func addTopicsToMirror(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.AddTopicsToMirrorRequest)
	if !read(req, r) {
		return nil
	}
	v := s.d.Control.View()
	all := make([]TopicOutcome, len(req.Topics))
	var places []int
	var pass []AddTopic
	for i := range req.Topics {
		q := &req.Topics[i]
		all[i].Name = q.TopicName
		name := ""
		if q.MirrorName != nil {
			name = *q.MirrorName
		}
		o := unknownMirror(v, name)
		switch {
		case o.Code != wire.ErrNone:
		case !validTopicName(q.TopicName):
			o = Outcome{wire.ErrInvalidTopic, "not a topic name: name the topic as the source cluster does"}
		case internalTopics[q.TopicName]:
			o = Outcome{wire.ErrInvalidTopic, q.TopicName + " is internal to each cluster and is not mirrored: leave it out"}
		case badType(q.MirrorType):
			o = Outcome{wire.ErrInvalidRequest, badTypeText}
		default:
			places = append(places, i)
			pass = append(pass, AddTopic{Name: q.TopicName, ID: q.TopicId, Mirror: name, Type: q.MirrorType})
		}
		all[i].Outcome = o
	}
	if len(pass) > 0 {
		merge(all, places, s.d.Mirrors.AddTopics(ctx, pass))
	}
	resp := &msg.AddTopicsToMirrorResponse{Version: r.Version}
	for _, o := range all {
		resp.Topics = append(resp.Topics, msg.AddTopicsToMirrorResponseTopicResult{Name: o.Name, ErrorCode: int16(o.Code), ErrorMessage: words(o.Message)})
	}
	return resp
}
