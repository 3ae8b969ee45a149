package api

// ResumeMirrorTopics, version 0: refused, as PauseMirrorTopics.

import (
	"context"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func resumeMirrorTopics(_ context.Context, _ *Server, r *Request) body {
	req := new(msg.ResumeMirrorTopicsRequest)
	if !read(req, r) {
		return nil
	}
	resp := &msg.ResumeMirrorTopicsResponse{Version: r.Version, ErrorCode: int16(wire.ErrUnsupportedVersion), ErrorMessage: words(laterRelease)}
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, msg.ResumeMirrorTopicsResponseTopicResult{Name: req.Topics[i].TopicName,
			ErrorCode: int16(wire.ErrUnsupportedVersion), ErrorMessage: words(laterRelease)})
	}
	return resp
}
