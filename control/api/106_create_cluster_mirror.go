package api

// CreateClusterMirror, version 0.
//
//   - bootstrap.servers is required. mirror.source.cluster.id is asked of the
//     source; one that is given must be what the source says.
//   - A setting without a value is the default.

import (
	"context"
	"fmt"

	"lockstep/internal/config"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func createClusterMirror(ctx context.Context, s *Server, r *Request) body {
	req := new(msg.CreateClusterMirrorRequest)
	if !read(req, r) {
		return nil
	}
	settings := map[string]string{}
	for _, c := range req.Config {
		if c.Value != nil {
			settings[c.Name] = *c.Value
		}
	}
	o := s.checkMirror(req.MirrorName, settings)
	if o.Code == wire.ErrNone {
		o = advised(s.d.Mirrors.Create(ctx, req.MirrorName, settings))
	}
	return &msg.CreateClusterMirrorResponse{Version: r.Version, ErrorCode: int16(o.Code), ErrorMessage: words(o.Message)}
}

func (s *Server) checkMirror(name string, settings map[string]string) Outcome {
	switch {
	case !config.ValidMirrorName(name):
		return Outcome{wire.ErrInvalidRequest, fmt.Sprintf("%.60q is not a mirror name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor ..", name)}
	case s.d.Control.View().Mirror(name) != nil:
		return Outcome{wire.ErrClusterMirrorAlreadyExists, "mirror " + name + " exists: alter its configs, or delete it first"}
	}
	m, err := config.MirrorOf(settings)
	switch {
	case err != nil:
		return badConfig(err)
	case len(m.BootstrapServers) == 0:
		return Outcome{wire.ErrInvalidRequest, "bootstrap.servers is missing: give addresses of the source cluster, host:port,…"}
	case m.SourceClusterID != "" && m.SourceClusterID == s.d.Control.View().ClusterID():
		return Outcome{wire.ErrInvalidRequest, "the source is this very cluster: give the addresses of another one"}
	}
	return Outcome{}
}
