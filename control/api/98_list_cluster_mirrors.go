package api

// ListClusterMirrors, version 0.
//
//   - TopicCount counts topics that are neither paused nor stopped; TopicNames,
//     when asked for, has the paused ones too.

import (
	"context"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

func listClusterMirrors(_ context.Context, s *Server, r *Request) body {
	req := new(msg.ListClusterMirrorsRequest)
	if !read(req, r) {
		return nil
	}
	v := s.d.Control.View()
	resp := &msg.ListClusterMirrorsResponse{Version: r.Version}
	at := map[string]int{}
	for m := range v.Mirrors() {
		at[m.Name] = len(resp.Mirrors)
		resp.Mirrors = append(resp.Mirrors, msg.ListClusterMirrorsResponseClusterMirror{MirrorName: m.Name,
			SourceBootstrap: m.Configs["bootstrap.servers"], SourceClusterId: m.SourceClusterID()})
	}
	if len(at) == 0 {
		return resp
	}
	for t := range v.Topics() {
		if t.Mirror == nil || t.Mirror.Desired == mirror.Stopped {
			continue
		}
		i, ok := at[t.Mirror.Mirror]
		if !ok {
			continue
		}
		m := &resp.Mirrors[i]
		if t.Mirror.Desired != mirror.Paused {
			m.TopicCount++
		}
		if req.IncludeTopicNames {
			m.TopicNames = append(m.TopicNames, t.Name)
		}
	}
	return resp
}
