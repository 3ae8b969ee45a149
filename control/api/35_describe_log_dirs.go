package api

// DescribeLogDirs, versions 1-4, of this broker.
//
//   - Null topics means all, an empty list none.
//   - A failed directory has KAFKA_STORAGE_ERROR and no partitions.
//   - There are no future replicas, so the lag is how far the high watermark is
//     above the log's end, as in Kafka.

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/status"
	"lockstep/internal/wire"
)

func describeLogDirs(_ context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	if !read(req, r) {
		return nil
	}
	wanted := func(status.Partition) bool { return true }
	if req.Topics != nil {
		asked := map[string][]int32{}
		for _, t := range req.Topics {
			asked[t.Topic] = append(asked[t.Topic], t.Partitions...)
		}
		wanted = func(p status.Partition) bool { return slices.Contains(asked[p.Topic], p.Partition) }
	}
	byDir := map[string][]status.Partition{}
	for _, p := range s.d.Data.Statuses() {
		if !p.Offline && wanted(p) {
			byDir[p.Dir] = append(byDir[p.Dir], p)
		}
	}
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.SetVersion(r.Version)
	for _, d := range s.d.Data.Dirs() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes = d.Path, d.TotalBytes, d.UsableBytes
		if d.Error != "" {
			out.ErrorCode = int16(wire.ErrKafkaStorageError)
		} else {
			out.Topics = dirTopics(byDir[d.Path])
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	return resp
}

func dirTopics(all []status.Partition) (out []kmsg.DescribeLogDirsResponseDirTopic) {
	slices.SortFunc(all, func(a, b status.Partition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	for _, p := range all {
		if n := len(out); n == 0 || out[n-1].Topic != p.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Topic
			out = append(out, t)
		}
		o := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		o.Partition, o.Size, o.OffsetLag = p.Partition, p.Size, max(0, p.High-p.End)
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, o)
	}
	return out
}
