package api

// DescribeCluster, versions 0-2.
//
//   - Only brokers are described (endpoint type 1); controllers have no listener
//     for clients.
//   - Fenced brokers are in the answer from 2 on, when asked for.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/wire"
)

func describeCluster(_ context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrDescribeClusterRequest()
	if !read(req, r) {
		return nil
	}
	v := s.d.Control.View()
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.SetVersion(r.Version)
	resp.ClusterID, resp.ControllerID = v.ClusterID(), s.alive(v)
	if r.Version >= 1 && req.EndpointType != 1 {
		resp.EndpointType, resp.ControllerID = req.EndpointType, -1
		resp.ErrorCode = int16(wire.ErrUnsupportedEndpointType)
		resp.ErrorMessage = words("this listener describes brokers only: ask with endpoint type 1")
		return resp
	}
	for _, b := range v.Brokers() {
		host, port := s.d.Endpoint(r.Listener, b)
		if host == "" || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: b.ID, Host: host, Port: port, Rack: words(b.Rack), IsFenced: b.Fenced})
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}
