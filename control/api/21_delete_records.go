package api

// DeleteRecords, versions 0-2.
//
//   - Offset -1 is the high watermark; other negative offsets are out of range.
//   - A mirrored topic is refused, as its log is the source's, and so is one that
//     is only compacted, as in Kafka. The response has no room for words: they go
//     to the log.

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/meta"
	"lockstep/internal/wire"
)

func deleteRecords(_ context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrDeleteRecordsRequest()
	if !read(req, r) {
		return nil
	}
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.SetVersion(r.Version)
	v := s.d.Control.View()
	for i := range req.Topics {
		q := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = q.Topic
		t := v.TopicByName(q.Topic)
		for _, p := range q.Partitions {
			o := kmsg.NewDeleteRecordsResponseTopicPartition()
			o.Partition, o.LowWatermark = p.Partition, -1
			code := s.mayDeleteRecords(t, p.Partition, p.Offset)
			if code == wire.ErrNone {
				low, c := s.d.Data.DeleteRecords(q.Topic, p.Partition, p.Offset)
				if code = c; code == wire.ErrNone {
					o.LowWatermark = low
				}
			}
			o.ErrorCode = int16(code)
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (s *Server) mayDeleteRecords(t *meta.Topic, partition int32, before int64) wire.ErrorCode {
	switch {
	case t == nil || partition < 0 || int(partition) >= len(t.Partitions):
		return wire.ErrUnknownTopicOrPartition
	case t.ReadOnly(int(partition)):
		s.d.Log.Warn("records of a mirrored topic are deleted at its source: delete them there", "topic", t.Name, "mirror", t.Mirror.Mirror)
		return wire.ErrPolicyViolation
	case before < -1:
		return wire.ErrOffsetOutOfRange
	}
	if c, err := s.topicConfig(t.Configs); err == nil && !slices.Contains(c.CleanupPolicy, "delete") {
		s.d.Log.Warn("records of a topic that is only compacted are not deleted: add delete to its cleanup.policy", "topic", t.Name)
		return wire.ErrPolicyViolation
	}
	return wire.ErrNone
}
