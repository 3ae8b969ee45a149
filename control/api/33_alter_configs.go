package api

// AlterConfigs, versions 0-2: the settings given replace all that were set.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
)

func alterConfigs(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrAlterConfigsRequest()
	if !read(req, r) {
		return nil
	}
	var all []msg.AlterConfigsCommandResource
	for i := range req.Resources {
		q := &req.Resources[i]
		c := msg.AlterConfigsCommandResource{Type: int8(q.ResourceType), Name: q.ResourceName, Full: true}
		for _, kv := range q.Configs {
			c.Ops = append(c.Ops, msg.AlterConfigsCommandOp{Name: kv.Name, Op: opSet, Value: kv.Value})
		}
		all = append(all, c)
	}
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.SetVersion(r.Version)
	for i, o := range s.alterConfigsOf(ctx, all, req.ValidateOnly) {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		out.ErrorCode, out.ErrorMessage = int16(o.Code), words(o.Message)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}
