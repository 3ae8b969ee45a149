package segment

import (
	"errors"

	"lockstep/internal/invariant"
	"lockstep/internal/wire"
)

// Room is the answer to "may a batch be queued now".
type Room int

const (
	// RoomReady: queue it.
	RoomReady Room = iota
	// RoomSoon: queue it, and have the log grown before the next ones come.
	RoomSoon
	// RoomGrow: not now; ask again once Grown was called.
	RoomGrow
	// RoomFailed: the directory is failed or the log closed.
	RoomFailed
)

// Room tells whether a batch of n bytes may be queued at time now (ms). What
// is queued already counts. The answer is good until the lock is let go. [L]
func (l *Log) Room(n int, now int64) Room {
	if l.err() != nil {
		return RoomFailed
	}
	l.now = max(l.now, now)
	s := l.active()
	if s == nil || l.truncating {
		l.want = max(l.want, int64(n))
		return RoomGrow
	}
	if s.m.Load() == nil { // at rest
		l.want = max(l.want, int64(n))
		return RoomGrow
	}
	s.use()
	pos := s.size.Load() + l.queued
	if pos > 0 && (pos+int64(n) > l.cfg.SegmentBytes || l.expired(s, now) || l.next-s.base > maxRelativeOffset) ||
		pos+int64(n) > s.limit {
		l.sealing = true
	}
	if l.sealing || pos+int64(n) > s.alloc {
		l.want = max(l.want, int64(n))
		return RoomGrow
	}
	if !l.growing && s.alloc < s.limit && s.alloc-pos-int64(n) < s.ahead() {
		l.want = max(l.want, int64(n))
		return RoomSoon
	}
	return RoomReady
}

// ahead is how much reserved space a segment should have left: half of what
// the next step brings.
func (s *segment) ahead() int64 { return s.step / 2 }

// expired tells that the segment is due to be rolled by segment.ms. As in
// Kafka its age counts from the timestamp of its first batch.
func (l *Log) expired(s *segment, now int64) bool {
	return l.cfg.SegmentMs > 0 && s.firstTs != noTimestamp && now-s.firstTs > l.cfg.SegmentMs
}

// NextOffset returns the end offset once everything queued is published. [L]
func (l *Log) NextOffset() int64 { return l.next }

// Queue takes a batch that carries its final base offset and leader epoch.
// Room said RoomReady or RoomSoon for it under the same hold of the lock. The
// bytes stay untouched until r.Release, which comes when they are published
// or given up. The batch enters Producers here: nobody else adds it. [L]
func (l *Log) Queue(b wire.Batch, r Releaser) {
	s := l.active()
	if s == nil || s.m.Load() == nil || l.sealing || l.truncating || s.size.Load()+l.queued+int64(len(b)) > s.alloc {
		invariant.Check(false, "RoomBeforeQueue", l.path, len(b))
	}
	if b.BaseOffset() != l.next || b.Size() != len(b) || b.NextOffset() <= l.next {
		invariant.Check(false, "DenseOffsets", l.path, b.BaseOffset(), b.NextOffset(), l.next, len(b))
	}
	l.queue = append(l.queue, run{b, r})
	l.queued += int64(len(b))
	l.next = b.NextOffset()
	l.producers.Add(b, l.now)
}

// Write is one pwritev: write Bufs at Off to File, then tell Wrote. It is
// reused from call to call and must not be copied.
type Write struct {
	File File
	Off  int64
	Bufs [][]byte

	seg    *segment
	runs   []run
	all    [][]byte
	bytes  int64
	issued int64
}

// Take hands out everything queued, at most as much as one pwritev takes. It
// returns false when nothing is queued or a Write is outstanding: there is
// one writer. The caller keeps w and passes it again. [L]
func (l *Log) Take(w *Write) bool {
	if l.writing || len(l.queue) == 0 {
		return false
	}
	n := min(len(l.queue), iovMax)
	s := l.active()
	w.File, w.Off, w.seg, w.bytes = s.m.Load().File, s.size.Load(), s, 0
	w.runs = append(w.runs[:0], l.queue[:n]...)
	w.all = w.all[:0]
	for _, r := range w.runs {
		w.all = append(w.all, r.b)
		w.bytes += int64(len(r.b))
	}
	w.Bufs, w.issued = w.all, 0
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	l.writing = true
	return true
}

// Wrote tells how a Write went. When n is short of Bufs it returns false and
// w holds the rest: write again. When it returns true the Write is over:
// published and released, or, with the directory failed, given up along with
// everything queued behind it, and NextOffset is End again. [L]
func (l *Log) Wrote(w *Write, n int, err error) (done bool) {
	if !l.writing || w.seg == nil {
		invariant.Check(false, "OneWriter", l.path)
	}
	if err == nil && n <= 0 {
		err = errShortWrite
	}
	if err == nil && l.failed.Load() != nil {
		err = ErrDirFailed
	}
	if err != nil {
		l.dir.Fail(err)
		l.giveUp(w)
		return true
	}
	w.issued += int64(n)
	if w.issued > w.bytes {
		invariant.Check(false, "WroteWhatWasTaken", l.path, w.issued, w.bytes)
	}
	if w.issued < w.bytes {
		w.advance(n)
		return false
	}
	l.publish(w)
	return true
}

var errShortWrite = errors.New("write made no progress")

func (w *Write) advance(n int) {
	w.Off += int64(n)
	for n >= len(w.Bufs[0]) {
		n -= len(w.Bufs[0])
		w.Bufs = w.Bufs[1:]
	}
	w.Bufs[0] = w.Bufs[0][n:]
}

// publish enters the batches in the index, raises the length, then the end
// offset, and lets the buffers go.
func (l *Log) publish(w *Write) {
	s := w.seg
	pos, end := s.size.Load(), s.end.Load()
	for _, r := range w.runs {
		s.note(r.b, pos)
		if e := r.b.PartitionLeaderEpoch(); e > l.epochs.latest() {
			l.epochs.assign(e, r.b.BaseOffset())
		}
		pos += int64(len(r.b))
		end = r.b.NextOffset()
	}
	s.publish(pos, end)
	l.size.Add(w.bytes)
	l.written.Add(w.bytes)
	l.end.Store(end)
	l.queued -= w.bytes
	l.over(w)
}

// giveUp releases the outstanding runs and everything queued behind them.
func (l *Log) giveUp(w *Write) {
	l.over(w)
	l.dropQueue()
	l.epochs.truncateEnd(l.End() + 1) // a leadership may have begun behind what was queued
}

func (l *Log) dropQueue() {
	for _, r := range l.queue {
		r.r.Release()
	}
	clear(l.queue)
	l.queue = l.queue[:0]
	l.queued = 0
	l.next = l.End()
}

func (l *Log) over(w *Write) {
	l.writing = false
	for _, r := range w.runs {
		r.r.Release()
	}
	clear(w.runs)
	clear(w.all)
	w.runs, w.all, w.Bufs, w.seg, w.File = w.runs[:0], w.all[:0], nil, nil, nil
}
