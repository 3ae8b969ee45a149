package segment

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"lockstep/internal/wire"
)

// File names inside a partition's directory, Kafka's except for .new.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	snapshotSuffix = ".snapshot"
	newSuffix      = ".new" // a file not yet in its place; removed by recovery
	tmpSuffix      = ".tmp" // a small file half written; removed by recovery
	deleteSuffix   = "-delete"
	epochFile      = "leader-epoch-checkpoint"
	metadataFile   = "partition.metadata"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (p TopicPartition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// LogID names a partition's log; the topic id tells a topic from an earlier
// one of the same name.
type LogID struct {
	Topic     string
	Partition int32
	TopicID   [16]byte
}

// TopicPartition returns the id without the topic id.
func (id LogID) TopicPartition() TopicPartition { return TopicPartition{id.Topic, id.Partition} }

// Config is what a topic's configuration says about its logs. Negative
// retention is no retention.
type Config struct {
	SegmentBytes       int64 // segment.bytes
	SegmentMs          int64 // segment.ms; 0 or less: never by age
	IndexIntervalBytes int32 // index.interval.bytes, of segments yet to come
	RetentionMs        int64 // retention.ms
	RetentionBytes     int64 // retention.bytes
	MaxMessageBytes    int32 // max.message.bytes; a segment takes at least one such batch
	Durable            bool  // flush.ack=durable; for the caller, nothing here depends on it
}

// Releaser is told when the bytes of a batch are no longer needed.
type Releaser interface{ Release() }

// Log is the log of one partition.
type Log struct {
	dir    *Dir
	id     LogID
	path   string
	failed *atomic.Pointer[error] // the directory's

	start        atomic.Int64
	end          atomic.Int64
	lowering     atomic.Int64 // 1 + the offset that a truncation under way cuts at, 0 none
	durable      atomic.Int64
	covered      atomic.Int64 // by the epoch file as well; the recovery point is not above it
	size         atomic.Int64
	written      atomic.Int64 // bytes written by this process
	cleaned      atomic.Int64 // compacted below this
	closed       atomic.Bool
	stopCleaning atomic.Bool
	leaving      atomic.Bool                // its topic is gone: no step begins any more
	clean        bool                       // as a clean close left it, when it was opened
	segs         atomic.Pointer[[]*segment] // by base offset; a list is never changed, only replaced
	epochs       epochs

	// Below: under the partition's lock.
	cfg        Config
	now        int64 // of the last Room
	next       int64 // end offset once everything queued is published
	queue      []run
	queued     int64 // bytes in queue and in the outstanding Write
	writing    bool
	sealing    bool  // the active segment takes no more batches
	want       int64 // greatest batch that had no or little room since the last step
	growing    bool
	truncating bool
	cleaning   bool
	flushing   bool
	dropping   bool
	exists     bool        // the partition's directory is on disk
	namesDirty bool        // files were made whose names may not be durable
	unlinked   atomic.Bool // files were removed, likewise: after a clean stop nobody looks for one that is back
	left       []int64     // bases of files that could not be unlinked, the oldest first
	producers  *Producers
}

// run is a queued batch.
type run struct {
	b wire.Batch
	r Releaser
}

// ID returns the log's name.
func (l *Log) ID() LogID { return l.id }

// Start returns the log start offset.
func (l *Log) Start() int64 { return l.start.Load() }

// startPoint is the start that a checkpoint may name.
func (l *Log) startPoint() int64 {
	if to := l.lowering.Load(); to > 0 {
		return min(l.Start(), to-1)
	}
	return l.Start()
}

// End returns the log end offset: everything below it is published.
func (l *Log) End() int64 { return l.end.Load() }

// Durable returns the offset below which everything is covered by a flush.
func (l *Log) Durable() int64 { return l.durable.Load() }

// recoveryPoint is where the next start may begin to walk: segments below it
// are not, so the epochs of their batches are in the file.
func (l *Log) recoveryPoint() int64 { return min(l.Durable(), l.covered.Load()) }

// Size returns the bytes of all segments.
func (l *Log) Size() int64 { return l.size.Load() }

// Config returns the log's configuration. [L]
func (l *Log) Config() Config { return l.cfg }

// SetConfig changes it; open segments keep their limit and interval. [L]
func (l *Log) SetConfig(c Config) { l.cfg = c }

// Producers returns the idempotence and transaction state. [L]
func (l *Log) Producers() *Producers { return l.producers }

func (l *Log) list() []*segment {
	if p := l.segs.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *Log) setList(s []*segment) { l.segs.Store(&s) }

// active returns the segment appends go to, nil before the first append.
func (l *Log) active() *segment {
	s := l.list()
	if len(s) == 0 {
		return nil
	}
	return s[len(s)-1]
}

// err says why nothing may be done with the log.
func (l *Log) err() error {
	if l.failed.Load() != nil {
		return ErrDirFailed
	}
	if l.leaving.Load() || l.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Leave begins the end of a log whose topic is gone: from now on every plan and
// read is refused. It tells whether nothing is under way, and so whether Dir.Delete
// may have it: a step that is would go on by name in the directory of the next
// topic of that name, a write in whatever file gets its descriptor. [L]
func (l *Log) Leave() bool {
	l.leaving.Store(true)
	l.stopCleaning.Store(true)
	return l.idle() && !l.growing && !l.truncating && !l.flushing && !l.cleaning
}

// idle tells that no append is under way.
func (l *Log) idle() bool { return len(l.queue) == 0 && !l.writing }

// LatestEpoch returns the greatest leader epoch of the log, -1 if none.
func (l *Log) LatestEpoch() int32 { return l.epochs.latest() }

// EpochAt returns the leader epoch of an offset, -1 if not known.
func (l *Log) EpochAt(offset int64) int32 { return l.epochs.at(offset) }

// Epochs returns the leader-epoch history, oldest first.
func (l *Log) Epochs() []EpochStart { return l.epochs.list() }

// EndOffsetForEpoch answers OffsetsForLeaderEpoch as Kafka does: the greatest
// known epoch at or below the asked one and the offset where it ended;
// (-1, -1) when the asked epoch is not known here.
func (l *Log) EndOffsetForEpoch(epoch int32) (foundEpoch int32, end int64) {
	return l.epochs.endOffset(epoch, l.End())
}

// AssignEpoch begins a new leader's epoch at start, its log end offset. [L]
func (l *Log) AssignEpoch(epoch int32, start int64) { l.epochs.assign(epoch, start) }

// AdvanceStart raises the log start offset (DeleteRecords). The caller keeps
// it in log-start-offset-checkpoint; retention removes what lies below.
func (l *Log) AdvanceStart(offset int64) error {
	if err := l.err(); err != nil {
		return err
	}
	if offset > l.End() {
		return fmt.Errorf("%w: start %d above end %d", ErrOffsetOutOfRange, offset, l.End())
	}
	if raise(&l.start, offset) {
		l.epochs.truncateStart(offset)
	}
	return nil
}

// raise sets a to v unless it is there already.
func raise(a *atomic.Int64, v int64) bool {
	for {
		old := a.Load()
		if v <= old {
			return false
		}
		if a.CompareAndSwap(old, v) {
			return true
		}
	}
}

// Close gives up the files. Readers keep what they pinned. Without SealClean
// before it, the next OpenLog recovers as after a crash. It may be called
// while the directory is failed.
func (l *Log) Close() {
	if l.closed.Swap(true) {
		return
	}
	segs := l.list()
	l.setList(nil)
	for _, s := range segs {
		s.retire()
	}
	l.dir.forget(l)
}

// deletedName is where a deleted partition's directory goes before its files
// are unlinked, so that a crash in between leaves no half of a log.
func (id LogID) deletedName(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%s%s", id.TopicPartition(), hex.EncodeToString(id.TopicID[:]), deleteSuffix))
}
