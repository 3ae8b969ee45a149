package api

import (
	"context"
	"log/slog"
	"sync/atomic"

	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/wire"
)

// Deps is what the handlers are given. All but Note are required.
type Deps struct {
	NodeID  int32
	Config  *config.Config // never changed
	Control Control
	Data    Data
	Mirrors Mirrors
	Log     *slog.Logger
	NewID   func() [16]byte // a fresh topic id
	Now     func() int64    // Unix ms
	Rack    string
	// Endpoint is where a client of this listener reaches a broker; host "" =
	// not at all.
	Endpoint func(listener string, b *meta.Broker) (host string, port int32)
	// Note is what this broker knows of a topic's promotion, "" nothing.
	Note func(id [16]byte) string
}

// Server answers requests.
type Server struct {
	d       Deps
	pids    producerIDs
	refused atomic.Int64 // transactional producers
}

// New makes a Server.
func New(d Deps) *Server {
	if d.Note == nil {
		d.Note = func([16]byte) string { return "" }
	}
	return &Server{d: d, pids: newProducerIDs()}
}

// Request is one request without its frame. Body is not changed and not kept.
type Request struct {
	Key, Version int16
	Correlation  int32
	ClientID     string
	Listener     string // name of the listener the client came in on
	Body         []byte
}

// body is the body of a response.
type body interface{ AppendTo([]byte) []byte }

// handler answers a request; nil = its body is malformed.
type handler func(ctx context.Context, s *Server, r *Request) body

// handlers has every key that is answered here, each in a file of its own.
var handlers = map[int16]handler{
	wire.KeyMetadata:                  metadata,
	wire.KeyCreateTopics:              createTopics,
	wire.KeyDeleteTopics:              deleteTopics,
	wire.KeyDeleteRecords:             deleteRecords,
	wire.KeyInitProducerId:            initProducerID,
	wire.KeyOffsetForLeaderEpoch:      offsetForLeaderEpoch,
	wire.KeyDescribeConfigs:           describeConfigs,
	wire.KeyAlterConfigs:              alterConfigs,
	wire.KeyDescribeLogDirs:           describeLogDirs,
	wire.KeyCreatePartitions:          createPartitions,
	wire.KeyIncrementalAlterConfigs:   incrementalAlterConfigs,
	wire.KeyDescribeCluster:           describeCluster,
	wire.KeyAddTopicsToMirror:         addTopicsToMirror,
	wire.KeyRemoveTopicsFromMirror:    removeTopicsFromMirror,
	wire.KeyListClusterMirrors:        listClusterMirrors,
	wire.KeyDescribeClusterMirrors:    describeClusterMirrors,
	wire.KeyPauseMirrorTopics:         pauseMirrorTopics,
	wire.KeyResumeMirrorTopics:        resumeMirrorTopics,
	wire.KeyDeleteClusterMirror:       deleteClusterMirror,
	wire.KeyCreateClusterMirror:       createClusterMirror,
	wire.KeyRegisterMirrorSyncTopic:   registerMirrorSyncTopic,
	wire.KeyUnregisterMirrorSyncTopic: unregisterMirrorSyncTopic,
	wire.KeyAlterMirrorTopicType:      alterMirrorTopicType,
}

// Serve returns the whole response frame, its four size bytes included; nil =
// close the connection: the key or version is not spoken here, or the body does
// not decode.
func (s *Server) Serve(ctx context.Context, r Request) []byte {
	row, answer := wire.Lookup(r.Key), handlers[r.Key]
	if row == nil || answer == nil || !row.Serves(r.Version) || row.Unstable && !s.d.Config.UnstableAPIs || len(r.Body) > maxBody {
		s.d.Log.Debug("request not served", "key", r.Key, "version", r.Version, "bytes", len(r.Body), "client", r.ClientID)
		return nil
	}
	resp := answer(ctx, s, &r)
	if resp == nil {
		s.d.Log.Debug("malformed request", "key", r.Key, "version", r.Version, "bytes", len(r.Body), "client", r.ClientID)
		return nil
	}
	b := wire.BeginResponse(nil, r.Key, r.Version, r.Correlation)
	b = resp.AppendTo(b)
	wire.EndResponse(b, 0, 0)
	return b
}

// readable is a request of kmsg or of internal/msg.
type readable interface {
	SetVersion(int16)
	ReadFrom([]byte) error
}

// read decodes a body in the version of its header.
func read(req readable, r *Request) bool {
	req.SetVersion(r.Version)
	return req.ReadFrom(r.Body) == nil
}

// alive is the id of a broker that admin requests may be sent to, this one by
// choice; -1 none.
func (s *Server) alive(v *meta.View) int32 {
	if v.Broker(s.d.NodeID).Alive() {
		return s.d.NodeID
	}
	for _, b := range v.Brokers() {
		if b.Alive() {
			return b.ID
		}
	}
	return -1
}

// What everybody may do, as bits of AclOperation: there are no ACLs.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	mirrorOperations  = 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11
)
