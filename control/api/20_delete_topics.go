package api

// DeleteTopics, versions 1-6.
//
//   - Up to 5 by name, from 6 on by name or by id, never both.
//   - With delete.topic.enable=false the answer is TOPIC_DELETION_DISABLED, below
//     version 3 INVALID_REQUEST.
//   - A topic named twice is an error for both.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func deleteTopics(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrDeleteTopicsRequest()
	if !read(req, r) {
		return nil
	}
	for i := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &req.TopicNames[i]
		req.Topics = append(req.Topics, t)
	}
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.SetVersion(r.Version)
	v := s.d.Control.View()
	cmd := new(msg.DeleteTopicsCommand)
	var asked []int
	count := map[string]int{}
	found := make([]*meta.Topic, len(req.Topics))
	for i := range req.Topics {
		q := &req.Topics[i]
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = q.Topic, q.TopicID
		t, o := s.deletable(v, q, r.Version)
		if found[i] = t; t != nil {
			count[t.Name]++
			out.Topic, out.TopicID = &t.Name, t.ID
		}
		out.ErrorCode, out.ErrorMessage = int16(o.Code), words(o.Message)
		resp.Topics = append(resp.Topics, out)
	}
	for i, t := range found {
		switch {
		case t == nil:
		case count[t.Name] > 1:
			resp.Topics[i].ErrorCode = int16(wire.ErrInvalidRequest)
			resp.Topics[i].ErrorMessage = words("the topic is named twice in the request: name it once")
		default:
			asked = append(asked, i)
			cmd.Topics = append(cmd.Topics, msg.DeleteTopicsCommandTopic{Name: t.Name, TopicId: t.ID})
		}
	}
	if len(asked) == 0 {
		return resp
	}
	res, o := s.propose(ctx, cmd, req.TimeoutMillis)
	for k, i := range asked {
		if res != nil {
			o = item(res, k)
		}
		resp.Topics[i].ErrorCode, resp.Topics[i].ErrorMessage = int16(o.Code), words(o.Message)
	}
	return resp
}

// deletable finds the topic to delete.
func (s *Server) deletable(v *meta.View, q *kmsg.DeleteTopicsRequestTopic, version int16) (*meta.Topic, Outcome) {
	name := ""
	if q.Topic != nil {
		name = *q.Topic
	}
	switch {
	case !s.deletion() && version < 3:
		return nil, Outcome{wire.ErrInvalidRequest, ""}
	case !s.deletion():
		return nil, Outcome{wire.ErrTopicDeletionDisabled, "deletion of topics is disabled: set delete.topic.enable=true first"}
	case name != "" && q.TopicID != [16]byte{}:
		return nil, Outcome{wire.ErrInvalidRequest, "the topic is named by name and by id: give one of them"}
	}
	return resolve(v, name, q.TopicID)
}
