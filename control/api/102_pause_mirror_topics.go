package api

// PauseMirrorTopics, version 0: refused. Pause and resume come with a later
// release; the key is answered so that a tool gets words and not a broken
// connection.

import (
	"context"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

const laterRelease = "pause and resume of mirror topics come with a later release: until then, leave the topics running or stop them"

func pauseMirrorTopics(_ context.Context, _ *Server, r *Request) body {
	req := new(msg.PauseMirrorTopicsRequest)
	if !read(req, r) {
		return nil
	}
	resp := &msg.PauseMirrorTopicsResponse{Version: r.Version, ErrorCode: int16(wire.ErrUnsupportedVersion), ErrorMessage: words(laterRelease)}
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, msg.PauseMirrorTopicsResponseTopicResult{Name: req.Topics[i].TopicName,
			ErrorCode: int16(wire.ErrUnsupportedVersion), ErrorMessage: words(laterRelease)})
	}
	return resp
}
