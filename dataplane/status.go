package dataplane

import (
	"context"
	"errors"
	"time"

	"lockstep/internal/status"
	"lockstep/internal/watermark"
	"lockstep/internal/wire"
	"lockstep/segment"
)

// Status returns a partition's status; false when this broker has no replica.
func (e *Engine) Status(id [16]byte, index int32) (status.Partition, bool) {
	p := e.byID(id, index)
	if p == nil {
		return status.Partition{}, false
	}
	return p.status(e.wall()), true
}

// Statuses returns the status of every partition on this broker.
func (e *Engine) Statuses() []status.Partition {
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	out := make([]status.Partition, 0, len(parts))
	for _, p := range parts {
		if !p.role.Load().gone {
			out = append(out, p.status(e.wall()))
		}
	}
	return out
}

func (p *Partition) status(wall int64) status.Partition {
	p.lock()
	defer p.unlock()
	r := p.role.Load()
	s := status.Partition{Topic: p.topic, TopicID: p.id, Partition: p.index, Leader: r.leader, LeaderEpoch: r.epoch,
		Start: p.log.Start(), End: p.log.End(), Durable: p.log.Durable(), High: p.high.Load(), Size: p.log.Size(),
		LatestEpoch: p.log.LatestEpoch(), Offline: p.log.Failed(), DurableAck: r.settings.Durable, MinISR: r.settings.MinISR, Dir: p.log.Dir().Path()}
	if o := p.verdict.Outcome; o != watermark.Moved && o != watermark.Unchanged {
		s.Frozen = o.String()
		if i := p.verdict.Slowest; i >= 0 && i < len(p.mirrors) {
			s.Frozen += ": " + p.mirrors[i].Name
		}
	}
	for i, m := range p.mirrors {
		x := status.Report{Name: m.Name, Reported: m.Report.Valid, MinLEO: m.Report.MinLEO, ISR: m.Report.ISRSize,
			MinISR: m.Report.MinISR, Unfenced: m.Report.Unfenced, AgeMS: -1}
		if at := p.fences[i].reported; at > 0 {
			x.AgeMS = max(0, wall-at)
		}
		s.Mirrors = append(s.Mirrors, x)
	}
	if d := p.down; d != nil {
		s.Mirror = &status.Mirror{Name: r.mirror, Sync: d.sync, SourceHigh: d.sourceHigh, SourceEpoch: d.alignedEpoch,
			InStep:         d.owner != nil && d.alignedEpoch >= 0 && d.heard && p.localLEO() >= d.sourceHigh,
			FailingSinceMS: d.failingSince, ContactMS: d.contact, LastError: d.lastError, Fetching: d.fetching,
			Drained: d.drained, LostAcked: d.lostAcked, EpochBehind: d.epochBehind,
			MaxSourceEpoch: d.maxSourceEpoch, Moved: d.moved, OutOfReach: d.outOfReach, Invalid: d.failInvalid,
			Propagating: d.failPropagating}
		if d.failReason != wire.ErrNone {
			s.Mirror.FailReason = d.failReason.Name()
		}
	}
	return s
}

// Errors of the calls below.
var (
	ErrNotLeader   = errors.New("this broker does not lead the partition")
	ErrStorage     = errors.New("the partition's log directory has failed or is full")
	ErrUnderMinISR = errors.New("the local ISR is below min.insync.replicas")
)

// AppendControl appends control batches of the broker's own (abort markers, a
// producer id reset) to a partition that is being stopped, and waits until the
// high watermark covers them. build makes one batch; its offset and epoch are
// assigned here.
func (e *Engine) AppendControl(ctx context.Context, id [16]byte, index int32, build func() []byte) error {
	p := e.byID(id, index)
	if p == nil {
		return ErrNotLeader
	}
	var target int64
	for {
		next, err := e.tryControl(p, build)
		if err == nil {
			target = next
			break
		}
		if !errors.Is(err, errNoRoomYet) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	var w segment.Write
	e.wakeShards(p, e.drain(nil, p, &w))
	for p.high.Load() < target {
		if p.log.Failed() {
			return ErrStorage
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

var errNoRoomYet = errors.New("no room yet")

func pause(ctx context.Context) error {
	t := time.NewTimer(2 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type noRelease struct{}

func (noRelease) Release() {}

func (e *Engine) tryControl(p *Partition, build func() []byte) (int64, error) {
	b := wire.Batch(build())
	p.lock()
	defer p.unlock()
	r := p.role.Load()
	if !r.leader || r.gone {
		return 0, ErrNotLeader
	}
	if p.local.InSync < r.settings.MinISR {
		return 0, ErrUnderMinISR
	}
	switch p.log.Room(len(b), e.wall()) {
	case roomGrow:
		e.follow(p)
		return 0, errNoRoomYet
	case roomFailed:
		return 0, ErrStorage
	}
	b.SetBaseOffset(p.log.NextOffset())
	b.SetPartitionLeaderEpoch(r.epoch)
	p.log.Queue(b, noRelease{})
	return b.NextOffset(), nil
}

// OpenTransactions lists the transactions of a partition that no marker has
// ended.
func (e *Engine) OpenTransactions(id [16]byte, index int32) []status.OpenTransaction {
	p := e.byID(id, index)
	if p == nil {
		return nil
	}
	p.lock()
	defer p.unlock()
	var out []status.OpenTransaction
	for _, t := range p.log.Producers().Ongoing() {
		out = append(out, status.OpenTransaction{ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, FirstOffset: t.FirstOffset})
	}
	return out
}

// DeleteRecords raises a partition's log start, -1 to the high watermark. It
// returns the new start.
func (e *Engine) DeleteRecords(topic string, index int32, before int64) (int64, wire.ErrorCode) {
	p, code := e.named([]byte(topic), index)
	if code != wire.ErrNone {
		return -1, code
	}
	p.lock()
	defer p.unlock()
	r := p.role.Load()
	high := p.high.Load()
	switch {
	case !r.leader:
		return -1, wire.ErrNotLeaderOrFollower
	case r.readOnly:
		return -1, wire.ErrPolicyViolation
	case before == -1:
		before = high
	case before < 0 || before > high:
		return -1, wire.ErrOffsetOutOfRange
	}
	if err := p.log.AdvanceStart(before); err != nil {
		return -1, wire.ErrKafkaStorageError
	}
	return p.log.Start(), wire.ErrNone
}

// EpochEnd answers OffsetForLeaderEpoch for one partition.
func (e *Engine) EpochEnd(topic string, index, current, epoch int32) (int32, int64, wire.ErrorCode) {
	p, code := e.named([]byte(topic), index)
	if code != wire.ErrNone {
		return -1, -1, code
	}
	r := p.role.Load()
	if !r.leader {
		return -1, -1, wire.ErrNotLeaderOrFollower
	}
	if code := r.checkEpoch(current); code != wire.ErrNone {
		return -1, -1, code
	}
	found, end := p.log.EndOffsetForEpoch(epoch)
	return found, end, wire.ErrNone
}

// RestartAt empties a mirrored partition's log and lets it start at an offset:
// the source no longer has what lies below.
func (e *Engine) RestartAt(id [16]byte, index int32, offset int64) {
	p := e.byID(id, index)
	if p == nil {
		return
	}
	e.home(p.role.Load().mirror).inbox.put(note{kind: noteCall, fn: func(c *Core) {
		s := c.lanes.sessions[p]
		if s == nil || s.state != sessionHeld {
			return
		}
		p.lock()
		if p.down != nil {
			p.down.outOfReach = false
		}
		p.unlock()
		s.state, s.cutAt, s.full = sessionTruncating, offset, true
		c.cutLog(s)
	}})
}
