package dataplane

import (
	"sync"
	"sync/atomic"

	"lockstep/internal/watermark"
	"lockstep/internal/wire"
	"lockstep/segment"
)

// TopicSettings is what a topic's configuration means to the data plane.
type TopicSettings struct {
	Segment          segment.Config
	MinISR           int32 // min.insync.replicas
	MaxMessageBytes  int   // max.message.bytes
	Durable          bool  // flush.ack=durable: a replica reports what it has flushed
	LogAppendTime    bool  // message.timestamp.type
	Compact          bool  // cleanup.policy contains compact: keys are required
	TimestampBefore  int64 // message.timestamp.before.max.ms
	TimestampAfter   int64 // message.timestamp.after.max.ms
	Retention        bool  // cleanup.policy contains delete
	Cleaner          Cleaner
	ProducerExpiryMS int64
}

// role is what a partition is on this broker, replaced as a whole when a View
// changes it: readers load one pointer and need no lock.
type role struct {
	leader      bool
	leaderID    int32 // -1 none
	epoch       int32
	settings    TopicSettings
	mirror      string // the mirror whose destination this is, "" for none
	readOnly    bool   // clients may not write: mirrored and not STOPPED
	tracking    bool   // MIRRORING: the source's mark bounds ours
	stopping    bool   // fetchers off and drained; control appends allowed
	gone        bool   // the topic was deleted
	electionEnd int64  // log end when this leadership began
}

// Partition is one partition's log, marks and what is known of its replicas.
// It is shared by all shards: readers use the log, the role and the marks
// without a lock; the rest changes under mu, which is never held across a
// system call or an allocation that could be large.
type Partition struct {
	topic string
	id    [16]byte
	index int32
	waits []*waits // of each shard, nil where nobody has waited; a shard looks at its own

	high watermark.Mark // the high watermark
	end  watermark.Mark // the log end offset as reported: appended, or flushed
	tail watermark.Mark // the log end: a mirror reads ahead of what is flushed here, and flushes meanwhile
	role atomic.Pointer[role]
	// trouble: waiters must look at why the mark stands still (frozen, or no
	// longer the leader).
	trouble atomic.Bool

	mu      sync.Mutex
	log     *segment.Log
	local   watermark.Local
	mirrors []watermark.Mirror
	fences  []fence // of mirrors, by index
	verdict watermark.Verdict
	growing bool   // a segment step is under way off the ring
	stalled uint64 // shards with requests that wait for it
	flushes bool   // a flush is under way
	down    *downstream

	hadMirror  bool // shard 0 only: it has told a mirror's shard of it
	lastMirror string
}

// fence is what a registration holds against reports.
type fence struct {
	clusterID string
	epoch     int64
	reported  int64 // wall ms of the last counted report, 0 none
}

// downstream is the destination side of a mirrored partition.
type downstream struct {
	leaderEpoch    int32 // ours: one sequence of reports a leadership
	leoAtElection  int64
	partitions     int32 // of the topic, told to the source with each report
	maxSourceEpoch int32 // highest epoch seen in a batch
	run            bool  // MIRRORING: a fetcher should run
	owner          *session

	tracked      int64 // the source's mark of the newest answer, -1 none
	alignedEpoch int32 // source leader epoch of the last accepted fetch, -1 none
	realigned    bool  // it has just changed: the source must hear of it
	registration int64 // registration epoch our reports name
	sync         bool  // reports are sent
	sequence     int64 // of the last report, per leadership
	acked        int64 // newest sequence the source has accepted
	answered     int64 // reports below this one have their answer, or have been overtaken by another word of the source
	reportedLEO  int64 // highest min-ISR LEO put in a report
	sourceHigh   int64 // mark of an answer this fetcher received, -1 none
	heard        bool  // ... on the connection it has now: without one the lag is unknown, not what it was
	sourceStart  int64
	failingSince int64 // wall ms, 0 = not failing
	failReason   wire.ErrorCode
	contact      int64 // wall ms of the last good answer
	lastError    string
	fetching     bool  // a session exists on a lane
	drained      bool  // both lanes are off
	lostAcked    int64 // records below our mark that the source dropped (R26)
	epochBehind  bool  // a batch carries an epoch above ours
	moved        bool  // the source's leader moved: addresses must be looked up
	outOfReach   bool  // the source does not have our offset

	failInvalid, failPropagating int64 // rejections, for metrics
}

// lock takes the partition's lock. Holders do a few hundred nanoseconds of
// work, so a reactor rather spins for a moment than parks its thread.
func (p *Partition) lock() {
	for range 64 {
		if p.mu.TryLock() {
			return
		}
	}
	p.mu.Lock()
}

func (p *Partition) unlock() { p.mu.Unlock() }

// leo is the log end offset as this replica reports it. [L] not needed: both
// ends only rise but for truncation, which holds the lock.
func (p *Partition) leo(r *role) int64 {
	if r.settings.Durable {
		return p.log.Durable()
	}
	return p.log.End()
}

// interest takes the shards that wait for anything here.
func (p *Partition) interest() uint64 {
	return p.high.Interest() | p.end.Interest() | p.tail.Interest()
}

// regate evaluates the gate after any of its inputs has changed and returns
// the shards to wake. [L]
func (p *Partition) regate(r *role) (wake uint64) {
	leo := p.leo(r)
	if raised, mask := p.end.Raise(leo); raised {
		wake |= mask
	}
	if raised, mask := p.tail.Raise(p.log.End()); raised {
		wake |= mask
	}
	if !r.leader {
		return wake
	}
	for i := range p.local.ISR {
		if p.local.ISR[i].ID == r.leaderID {
			p.local.ISR[i].LEO = leo
		}
	}
	mark := p.high.Load()
	var v watermark.Verdict
	if p.down != nil {
		v = watermark.Source(mark, leo, p.local, nil)
		rule := watermark.LocalISR
		if r.tracking {
			rule = watermark.Tracking
		}
		v.Mark = watermark.Destination(mark, max(p.down.tracked, 0), v.Mark, rule)
	} else {
		v = watermark.Source(mark, leo, p.local, p.mirrors)
	}
	before := p.verdict.Outcome
	p.verdict = v
	if raised, mask := p.high.Raise(v.Mark); raised {
		wake |= mask
	}
	frozen := v.Outcome == watermark.FrozenLocal || v.Outcome == watermark.FrozenRemote || p.log.Failed()
	p.trouble.Store(frozen)
	if frozen && v.Outcome != before {
		wake |= p.high.Interest()
	}
	return wake
}

// localLEO is the smallest LEO of the maximal local ISR. [L]
func (p *Partition) localLEO() int64 {
	if len(p.local.ISR) == 0 {
		return 0
	}
	return watermark.MinLEO(p.local.ISR)
}

// ack tells what an acks=all request that needs offset hears now. [L]
func (p *Partition) ack(r *role, offset int64, late bool) (code wire.ErrorCode, culprit string, done bool) {
	if !r.leader {
		return wire.ErrNotLeaderOrFollower, "", true
	}
	a, i := watermark.AckError(p.verdict, offset, p.localLEO(), late)
	switch a {
	case watermark.AckDone:
		return wire.ErrNone, "", true
	case watermark.AckWait:
		return wire.ErrNone, "", false
	}
	if i >= 0 && i < len(p.mirrors) {
		culprit = p.mirrors[i].Name
	}
	return wire.ErrorCode(a.Code()), culprit, true
}

// latestKnown tells whether the mark has caught up with what the log held when
// this leadership began: before that ListOffsets must not tell an end (R7).
func (p *Partition) latestKnown(r *role) bool { return p.high.Load() >= r.electionEnd }

// checkEpoch is Kafka's fence for requests that name a leader epoch (KIP-320).
func (r *role) checkEpoch(current int32) wire.ErrorCode {
	switch {
	case current < 0 || current == r.epoch:
		return wire.ErrNone
	case current < r.epoch:
		return wire.ErrFencedLeaderEpoch
	}
	return wire.ErrUnknownLeaderEpoch
}

// directory finds partitions by topic name and id. Each shard has its own,
// fed by deltas, so a look-up takes no lock.
type directory struct {
	byName map[string]*topic
	byID   map[[16]byte]*topic
}

// topic is the partitions of one topic this broker knows of; nil where it has
// no replica.
type topic struct {
	name  string
	id    [16]byte
	parts []*Partition
}

func (d *directory) init() {
	d.byName = map[string]*topic{}
	d.byID = map[[16]byte]*topic{}
}

// find returns a partition, or the error a client hears. An id is asked for
// when byID is set.
func (d *directory) find(name []byte, id [16]byte, byID bool, index int32) (*Partition, wire.ErrorCode) {
	var t *topic
	if byID {
		if t = d.byID[id]; t == nil {
			return nil, wire.ErrUnknownTopicId
		}
	} else if t = d.byName[string(name)]; t == nil {
		return nil, wire.ErrUnknownTopicOrPartition
	}
	if index < 0 || int(index) >= len(t.parts) {
		return nil, wire.ErrUnknownTopicOrPartition
	}
	if p := t.parts[index]; p != nil {
		return p, wire.ErrNone
	}
	return nil, wire.ErrNotLeaderOrFollower
}
