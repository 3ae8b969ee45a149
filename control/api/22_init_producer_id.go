package api

// InitProducerId, versions 0-5.
//
//   - Without a transactional id every request gets a new id with epoch 0,
//     whatever id and epoch it names, as in Kafka.
//   - Ids come in blocks that the controller hands to this broker; a block is
//     forgotten with the process, so ids are never given twice.
//   - While no block can be had the answer is COORDINATOR_LOAD_IN_PROGRESS: the
//     one code that Java, librdkafka and franz-go all retry for this request.
//   - A transactional id is refused with UNSUPPORTED_VERSION. The response has no
//     room for words; Java ends such a producer with "The version of API is not
//     supported" and franz-go with UNSUPPORTED_VERSION, both at once. The
//     authorization codes would send people to look at ACLs, and the coordinator
//     codes are retried for ever.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func initProducerID(ctx context.Context, s *Server, r *Request) body {
	req := kmsg.NewPtrInitProducerIDRequest()
	if !read(req, r) {
		return nil
	}
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.SetVersion(r.Version)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "", (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		resp.ErrorCode = int16(wire.ErrInvalidRequest)
	case req.TransactionalID != nil:
		if n := s.refused.Add(1); n%100 == 1 { // a producer that does not give up must not fill the log
			s.d.Log.Warn("transactions are not supported by this release: use an idempotent producer, without transactional.id",
				"transactional_id", *req.TransactionalID, "client", r.ClientID, "count", n)
		}
		resp.ErrorCode = int16(wire.ErrUnsupportedVersion)
	default:
		if id, ok := s.nextProducerID(ctx); ok {
			resp.ProducerID, resp.ProducerEpoch = id, 0
		} else {
			resp.ErrorCode = int16(wire.ErrCoordinatorLoadInProgress)
		}
	}
	return resp
}

// producerIDs is the block this broker gives ids from. It is a channel of one,
// so that who waits for a new block can give up.
type producerIDs chan idBlock

type idBlock struct{ next, end int64 }

func newProducerIDs() producerIDs {
	p := make(producerIDs, 1)
	p <- idBlock{}
	return p
}

func (s *Server) nextProducerID(ctx context.Context) (int64, bool) {
	var b idBlock
	select {
	case b = <-s.pids:
	case <-ctx.Done():
		return -1, false
	}
	defer func() { s.pids <- b }()
	if b.next >= b.end {
		self := s.d.Control.View().Broker(s.d.NodeID)
		if self == nil {
			return -1, false
		}
		res, o := s.propose(ctx, &msg.AllocateProducerIdsCommand{BrokerId: self.ID, BrokerEpoch: self.Epoch}, 0)
		if res == nil {
			s.d.Log.Warn("no producer ids", "error", o.Code, "reason", o.Message)
			return -1, false
		}
		b = idBlock{res.Number, res.Number + meta.ProducerIDBlock}
	}
	b.next++
	return b.next - 1, true
}
