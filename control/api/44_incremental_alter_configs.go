package api

// IncrementalAlterConfigs, versions 0-1. Append and subtract are for lists; on a
// setting that is not set they start from the default, as in Kafka.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
)

func incrementalAlterConfigs(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	if !read(req, r) {
		return nil
	}
	var all []msg.AlterConfigsCommandResource
	for i := range req.Resources {
		q := &req.Resources[i]
		c := msg.AlterConfigsCommandResource{Type: int8(q.ResourceType), Name: q.ResourceName}
		for _, kv := range q.Configs {
			c.Ops = append(c.Ops, msg.AlterConfigsCommandOp{Name: kv.Name, Op: int8(kv.Op), Value: kv.Value})
		}
		all = append(all, c)
	}
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.SetVersion(r.Version)
	for i, o := range s.alterConfigsOf(ctx, all, req.ValidateOnly) {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		out.ErrorCode, out.ErrorMessage = int16(o.Code), words(o.Message)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}
