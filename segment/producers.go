package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"lockstep/internal/wire"
)

// Producers is what a partition remembers of its idempotent and transactional
// producers. It is a value of the batches seen: no clock, no disk. It belongs
// to the partition's lock.
type Producers struct {
	byID    map[int64]*producer
	ongoing int     // producers with an open transaction
	ended   []ended // transactions whose marker may still be above the mark
}

type producer struct {
	epoch    int16
	txnFirst int64 // offset of the first batch of the open transaction, -1 if none
	seen     int64 // when the last batch came, ms
	n        int   // of batches
	batches  [sequenceWindow]sequence
}

// sequence is one remembered batch, oldest first in producer.batches.
type sequence struct {
	first, last int32 // sequence numbers
	base, end   int64 // offsets of the first and last record
	timestamp   int64
}

type ended struct {
	first, marker int64
}

// SequenceVerdict is the answer of Check. Code is ErrNone for a batch to be
// appended and for a Duplicate; the offsets and the timestamp are those of
// the batch that is in the log already.
type SequenceVerdict struct {
	Duplicate              bool
	BaseOffset, LastOffset int64
	Timestamp              int64
	Code                   wire.ErrorCode
}

// OpenTransaction is a transaction without a marker yet.
type OpenTransaction struct {
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64
}

func newProducers() *Producers { return &Producers{byID: map[int64]*producer{}} }

// addSequence wraps at 2^31-1, as sequence numbers do.
func addSequence(seq, n int32) int32 {
	return int32((int64(seq) + int64(n)) & math.MaxInt32)
}

// Check judges a batch of count records before it is appended, as Kafka's
// leader does: an unknown producer may begin with any sequence number.
func (p *Producers) Check(pid int64, epoch int16, baseSeq, count int32) SequenceVerdict {
	if pid < 0 {
		return SequenceVerdict{}
	}
	e := p.byID[pid]
	if e == nil {
		return SequenceVerdict{}
	}
	if epoch < e.epoch {
		return SequenceVerdict{Code: wire.ErrInvalidProducerEpoch}
	}
	next := int32(0)
	if epoch == e.epoch {
		last := addSequence(baseSeq, count-1)
		for _, s := range e.batches[:e.n] {
			if s.first == baseSeq && s.last == last {
				return SequenceVerdict{Duplicate: true, BaseOffset: s.base, LastOffset: s.end, Timestamp: s.timestamp}
			}
		}
		if e.n > 0 {
			next = addSequence(e.batches[e.n-1].last, 1)
		}
	}
	if baseSeq != next {
		return SequenceVerdict{Code: wire.ErrOutOfOrderSequenceNumber}
	}
	return SequenceVerdict{}
}

// Add enters a batch with its final offsets at time now (ms). Log.Queue and
// recovery call it for every batch. A MIRROR_PID_RESET record forgets all
// producers; an end marker closes the producer's transaction.
func (p *Producers) Add(b wire.Batch, now int64) {
	if b.Control() {
		p.addControl(b, now)
		return
	}
	pid := b.ProducerID()
	if pid < 0 {
		return
	}
	e := p.entry(pid, b.ProducerEpoch(), now)
	if b.BaseSequence() >= 0 {
		if e.n == sequenceWindow {
			copy(e.batches[:], e.batches[1:])
			e.n--
		}
		base := b.BaseSequence()
		e.batches[e.n] = sequence{base, addSequence(base, b.LastOffsetDelta()), b.BaseOffset(), b.LastOffset(), b.MaxTimestamp()}
		e.n++
	}
	if b.Transactional() && e.txnFirst < 0 {
		e.txnFirst = b.BaseOffset()
		p.ongoing++
	}
}

func (p *Producers) entry(pid int64, epoch int16, now int64) *producer {
	e := p.byID[pid]
	if e == nil {
		e = &producer{epoch: epoch, txnFirst: -1}
		p.byID[pid] = e
	}
	if e.epoch != epoch {
		e.epoch, e.n = epoch, 0
	}
	e.seen = max(e.seen, now)
	return e
}

const (
	controlAbort    = 0
	controlCommit   = 1
	controlPidReset = 7
)

func (p *Producers) addControl(b wire.Batch, now int64) {
	switch controlType(b) {
	case controlPidReset:
		p.Reset()
	case controlAbort, controlCommit:
		if b.ProducerID() < 0 {
			return
		}
		e := p.entry(b.ProducerID(), b.ProducerEpoch(), now)
		if e.txnFirst >= 0 {
			p.ended = append(p.ended, ended{e.txnFirst, b.BaseOffset()})
			p.ongoing--
			e.txnFirst = -1
		}
	}
}

// Reset forgets all producers and their open transactions.
func (p *Producers) Reset() {
	clear(p.byID)
	p.ongoing = 0
	p.ended = p.ended[:0]
}

// Ongoing lists the open transactions by first offset.
func (p *Producers) Ongoing() []OpenTransaction {
	var out []OpenTransaction
	for pid, e := range p.byID {
		if e.txnFirst >= 0 {
			out = append(out, OpenTransaction{pid, e.epoch, e.txnFirst})
		}
	}
	slices.SortFunc(out, func(a, b OpenTransaction) int { return compare(a.FirstOffset, b.FirstOffset) })
	return out
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// LastStable returns the last stable offset when end is the high watermark:
// the first offset of the oldest transaction that is open, or whose marker is
// at or above end; else end. end must not fall from call to call.
func (p *Producers) LastStable(end int64) int64 {
	lso := end
	keep := p.ended[:0]
	for _, t := range p.ended {
		if t.marker >= end {
			keep = append(keep, t)
			lso = min(lso, t.first)
		}
	}
	p.ended = keep
	if p.ongoing > 0 {
		for _, e := range p.byID {
			if e.txnFirst >= 0 {
				lso = min(lso, e.txnFirst)
			}
		}
	}
	return lso
}

// Len returns how many producers are remembered.
func (p *Producers) Len() int { return len(p.byID) }

// Expire forgets producers without an open transaction whose last batch came
// more than ms before now, and returns how many.
func (p *Producers) Expire(now, ms int64) int {
	n := 0
	for pid, e := range p.byID {
		if e.txnFirst < 0 && now-e.seen > ms {
			delete(p.byID, pid)
			n++
		}
	}
	return n
}

// The snapshot is our own format, big endian:
//
//	"LSPS" | version u32 | offset i64 | producers u32 | ended u32 |
//	  { pid i64 | epoch i16 | batches u16 | txnFirst i64 | seen i64 |
//	    { first i32 | last i32 | base i64 | end i64 | timestamp i64 } }
//	  { first i64 | marker i64 } | crc32c u32
//
// offset says which batches are in it: all below.
const (
	snapshotMagic    = "LSPS"
	snapshotVersion  = 1
	snapshotHeader   = 24
	snapshotProducer = 28
	snapshotBatch    = 32
	snapshotEnded    = 16
)

func (p *Producers) encode(offset int64) []byte {
	be := binary.BigEndian
	b := append(make([]byte, 0, snapshotHeader+len(p.byID)*(snapshotProducer+sequenceWindow*snapshotBatch)+4), snapshotMagic...)
	b = be.AppendUint32(b, snapshotVersion)
	b = be.AppendUint64(b, uint64(offset))
	b = be.AppendUint32(b, uint32(len(p.byID)))
	b = be.AppendUint32(b, uint32(len(p.ended)))
	pids := make([]int64, 0, len(p.byID))
	for pid := range p.byID {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	for _, pid := range pids {
		e := p.byID[pid]
		b = be.AppendUint64(b, uint64(pid))
		b = be.AppendUint16(b, uint16(e.epoch))
		b = be.AppendUint16(b, uint16(e.n))
		b = be.AppendUint64(b, uint64(e.txnFirst))
		b = be.AppendUint64(b, uint64(e.seen))
		for _, s := range e.batches[:e.n] {
			b = be.AppendUint32(b, uint32(s.first))
			b = be.AppendUint32(b, uint32(s.last))
			b = be.AppendUint64(b, uint64(s.base))
			b = be.AppendUint64(b, uint64(s.end))
			b = be.AppendUint64(b, uint64(s.timestamp))
		}
	}
	for _, t := range p.ended {
		b = be.AppendUint64(b, uint64(t.first))
		b = be.AppendUint64(b, uint64(t.marker))
	}
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeProducers returns false for anything but a whole snapshot.
func decodeProducers(b []byte) (p *Producers, offset int64, ok bool) {
	be := binary.BigEndian
	if len(b) < snapshotHeader+4 || string(b[:4]) != snapshotMagic || be.Uint32(b[4:]) != snapshotVersion {
		return nil, 0, false
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != be.Uint32(b[len(body):]) {
		return nil, 0, false
	}
	p = newProducers()
	offset = int64(be.Uint64(b[8:]))
	count, endedCount := be.Uint32(b[16:]), be.Uint32(b[20:])
	rest := body[snapshotHeader:]
	for range count {
		if len(rest) < snapshotProducer {
			return nil, 0, false
		}
		pid := int64(be.Uint64(rest))
		e := &producer{
			epoch: int16(be.Uint16(rest[8:])), n: int(be.Uint16(rest[10:])),
			txnFirst: int64(be.Uint64(rest[12:])), seen: int64(be.Uint64(rest[20:])),
		}
		rest = rest[snapshotProducer:]
		if e.n > sequenceWindow || len(rest) < e.n*snapshotBatch {
			return nil, 0, false
		}
		for i := range e.n {
			e.batches[i] = sequence{
				int32(be.Uint32(rest)), int32(be.Uint32(rest[4:])),
				int64(be.Uint64(rest[8:])), int64(be.Uint64(rest[16:])), int64(be.Uint64(rest[24:])),
			}
			rest = rest[snapshotBatch:]
		}
		p.byID[pid] = e
		if e.txnFirst >= 0 {
			p.ongoing++
		}
	}
	if uint64(len(rest)) != uint64(endedCount)*snapshotEnded {
		return nil, 0, false
	}
	for ; len(rest) > 0; rest = rest[snapshotEnded:] {
		p.ended = append(p.ended, ended{int64(be.Uint64(rest)), int64(be.Uint64(rest[8:]))})
	}
	return p, offset, true
}
