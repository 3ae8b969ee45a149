package api

// OffsetForLeaderEpoch, versions 2-4: the largest epoch at or below the one
// asked for, and where it ends; -1 and -1 when there is none. The leader's own
// epoch fences requests with an older or a newer one.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/wire"
)

func offsetForLeaderEpoch(_ context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	if !read(req, r) {
		return nil
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.SetVersion(r.Version)
	v := s.d.Control.View()
	for i := range req.Topics {
		q := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = q.Topic
		t := v.TopicByName(q.Topic)
		for _, p := range q.Partitions {
			o := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			o.Partition, o.LeaderEpoch, o.EndOffset = p.Partition, -1, -1
			if t == nil || p.Partition < 0 || int(p.Partition) >= len(t.Partitions) {
				o.ErrorCode = int16(wire.ErrUnknownTopicOrPartition)
			} else if epoch, end, code := s.d.Data.EpochEnd(q.Topic, p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch); code != wire.ErrNone {
				o.ErrorCode = int16(code)
			} else {
				o.LeaderEpoch, o.EndOffset = epoch, end
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
