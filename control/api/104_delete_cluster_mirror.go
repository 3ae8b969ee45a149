package api

// DeleteClusterMirror, version 0. All topics of the mirror must be stopped.

import (
	"context"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func deleteClusterMirror(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.DeleteClusterMirrorRequest)
	if !read(req, r) {
		return nil
	}
	o := unknownMirror(s.d.Control.View(), req.MirrorName)
	if o.Code == wire.ErrNone {
		o = advised(s.d.Mirrors.Delete(ctx, req.MirrorName))
	}
	return &msg.DeleteClusterMirrorResponse{Version: r.Version, ErrorCode: int16(o.Code), ErrorMessage: words(o.Message)}
}
