package api

// CreatePartitions, versions 0-3.
//
//   - The count is the new total. A manual assignment covers the new ones only.
//   - A mirrored topic grows with its source; a topic that a mirror is registered
//     for does not grow from here, for its producers would wait.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func createPartitions(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrCreatePartitionsRequest()
	if !read(req, r) {
		return nil
	}
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.SetVersion(r.Version)
	count := map[string]int{}
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	cmd := &msg.CreatePartitionsCommand{ValidateOnly: req.ValidateOnly}
	var asked []int
	for i := range req.Topics {
		q := &req.Topics[i]
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = q.Topic
		o := s.mayGrow(q)
		if count[q.Topic] > 1 {
			o = Outcome{wire.ErrInvalidRequest, "the topic is named twice in the request: name it once"}
		}
		if o.Code == wire.ErrNone {
			n := msg.CreatePartitionsCommandTopic{Name: q.Topic, Count: q.Count}
			for _, a := range q.Assignment {
				n.Assignments = append(n.Assignments, msg.CreatePartitionsCommandAssignment{Replicas: a.Replicas})
			}
			asked, cmd.Topics = append(asked, i), append(cmd.Topics, n)
		}
		out.ErrorCode, out.ErrorMessage = int16(o.Code), words(o.Message)
		resp.Topics = append(resp.Topics, out)
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

func (s *Server) mayGrow(q *kmsg.CreatePartitionsRequestTopic) Outcome {
	t, o := findTopic(s.d.Control.View(), q.Topic)
	if t == nil {
		return o
	}
	if have := len(t.Partitions); int(q.Count) <= have {
		return Outcome{wire.ErrInvalidPartitions, fmt.Sprintf("the topic has %d partitions and cannot have fewer or as many: ask for more than %d", have, have)}
	}
	if t.Mirror != nil && t.Mirror.Desired != mirror.Stopped {
		return Outcome{wire.ErrInvalidRequest, "the topic is mirrored by " + t.Mirror.Mirror + " and grows with its source: add the partitions there"}
	}
	for _, g := range t.Registrations {
		if g.Gates() {
			return Outcome{wire.ErrInvalidRequest, "producers of a new partition would wait for mirror " + g.Mirror +
				": make the topic ASYNC there, grow it, and make it SYNC again"}
		}
	}
	return Outcome{}
}
