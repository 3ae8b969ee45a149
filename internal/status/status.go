package status

import "net/netip"

// Partition is what is known of one partition on this broker: a copy, taken
// under the partition's lock.
type Partition struct {
	Topic       string
	TopicID     [16]byte
	Partition   int32
	Leader      bool
	LeaderEpoch int32
	Start, End  int64 // log start and log end offset
	Durable     int64 // below it everything is covered by a flush
	High        int64 // high watermark
	Size        int64 // bytes
	LatestEpoch int32 // greatest leader epoch in the log, -1 none
	Offline     bool  // the log directory has failed
	DurableAck  bool  // flush.ack=durable
	MinISR      int32
	Dir         string
	Frozen      string // who freezes or holds the high watermark, "" nobody
	Mirrors     []Report
	Mirror      *Mirror // destination side, nil when not mirrored or STOPPED
}

// Report is what a source leader knows of one registered mirror.
type Report struct {
	Name     string
	Reported bool // to this leadership
	MinLEO   int64
	ISR      int32 // size
	MinISR   int32
	Unfenced bool  // the peer sends no epochs: an old leader's word would count
	AgeMS    int64 // since the last counted report, -1 none
}

// Mirror is the destination side of a mirrored partition.
type Mirror struct {
	Name           string
	Sync           bool  // reports are sent
	SourceHigh     int64 // the source's high watermark of an answer this fetcher received, -1 unknown
	SourceEpoch    int32 // source leader epoch the log is aligned with, -1 none
	InStep         bool  // min-ISR log end ≥ SourceHigh
	FailingSinceMS int64 // Unix ms, 0 = reports are counted
	FailReason     string
	ContactMS      int64 // Unix ms of the last good answer, 0 never
	LastError      string
	Fetching       bool
	Drained        bool  // data lane and report lane are off, nothing is queued
	LostAcked      int64 // records below our high watermark that the source dropped
	EpochBehind    bool  // the source's epoch is above our leader epoch
	MaxSourceEpoch int32
	Moved          bool // the source's leader moved: addresses must be looked up
	OutOfReach     bool // the source no longer has our offset
	Invalid        int64
	Propagating    int64 // rejections of reports, counted by reason
}

// SourceLeader is who leads a partition at a mirror's source.
type SourceLeader struct {
	Addr  netip.AddrPort // not valid = no leader, or its name did not resolve
	Epoch int32          // -1 = the source does not say
}

// OpenTransaction is a transaction that no marker has ended.
type OpenTransaction struct {
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64
}

// Dir is a log directory.
type Dir struct {
	Path                    string
	Error                   string // "" = in use
	TotalBytes, UsableBytes int64  // of its disk, -1 unknown
}
