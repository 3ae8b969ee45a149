package segment

import (
	"errors"
	"path/filepath"

	"lockstep/internal/invariant"
)

// Grow is one step of a log: more blocks for the active file, or the next
// file. Do it without the lock, then hand it to Grown.
type Grow struct {
	log *Log
	err error

	// A step of the active file.
	seg   *segment
	off   int64
	bytes int64

	// The next segment; seg is then the one to be sealed, if there is one.
	roll     bool
	base     int64
	limit    int64
	interval int32
	first    bool // the partition's directory is to be made
	there    bool // ... and was
	sealed   content
	snapshot []byte
	made     *segment
}

// GrowPlan returns the next step of the log, or false when none is needed or
// possible now: a step is under way, or the active segment is full and its
// writer has not drained. The first append makes the directory. [L]
func (l *Log) GrowPlan(now int64) (Grow, bool) {
	if l.err() != nil || l.growing || l.truncating {
		return Grow{}, false
	}
	l.now = max(l.now, now)
	s := l.active()
	if s == nil || l.sealing {
		if !l.idle() || (s == nil && l.want == 0) {
			return Grow{}, false // not drained, or nobody has asked for room yet
		}
		return l.rollPlan(s), true
	}
	if l.want == 0 && (s.m.Load() == nil || l.written.Load() == 0) {
		return Grow{}, false // at rest, or as the last process left it: nobody writes
	}
	if s.m.Load() == nil {
		l.growing = true
		return Grow{log: l, seg: s, off: s.alloc}, true
	}
	pos := s.size.Load() + l.queued
	if s.alloc >= s.limit || s.alloc-pos-l.want >= s.ahead() {
		if l.want == 0 {
			return Grow{}, false
		}
		// Room met it at rest, and a read has opened it since: there is nothing
		// to do, but whoever was told to wait for a step waits for one.
		l.growing = true
		return Grow{log: l, seg: s, off: s.alloc}, true
	}
	n := max(s.step, pos+l.want-s.alloc)
	l.growing = true
	return Grow{log: l, seg: s, off: s.alloc, bytes: min(n, s.limit-s.alloc)}, true
}

func (l *Log) rollPlan(s *segment) Grow {
	l.growing, l.sealing = true, true
	limit := min(max(l.cfg.SegmentBytes, int64(l.cfg.MaxMessageBytes), l.want), maxSegment)
	g := Grow{
		log: l, roll: true, seg: s, base: l.End(), limit: limit, interval: l.cfg.IndexIntervalBytes,
		first: !l.exists, bytes: min(limit, max(firstStep, l.want)),
	}
	if s != nil {
		g.sealed = s.content()
		g.snapshot = l.producers.encode(g.base)
	}
	return g
}

// Sealed tells that the step ended a segment.
func (g *Grow) Sealed() bool { return g.roll && g.seg != nil }

// Do makes the system calls of the step. Once, without the lock.
func (g *Grow) Do() {
	if !g.roll {
		g.err = g.seg.with(func(m *mapping) error {
			if g.bytes == 0 {
				return nil // it only had to be opened again
			}
			return m.Allocate(g.off, g.bytes)
		})
		return
	}
	if g.first {
		if g.err = g.log.makeDir(); g.err != nil {
			return
		}
		g.there = true
	}
	if g.seg != nil {
		if g.err = g.log.sealFile(g.seg, g.sealed, g.snapshot); g.err != nil {
			return
		}
	}
	g.made, g.err = g.log.createSegment(g.base, g.limit, g.bytes, g.interval)
}

// makeDir makes the partition's directory with its topic id. What the
// checkpoints still say of an earlier log of that name goes first.
func (l *Log) makeDir() error {
	if p := l.id.TopicPartition(); l.dir.promised(p) {
		if err := l.dir.dropCheckpoints(p); err != nil {
			return err
		}
	}
	meta := l.dir.fs.Meta()
	if err := meta.MkdirAll(l.path); err != nil {
		return err
	}
	return meta.WriteFile(filepath.Join(l.path, metadataFile), encodeTopicID(l.id.TopicID))
}

// createSegment makes an empty file with its first blocks. It leaves nothing
// behind when it fails.
func (l *Log) createSegment(base, limit, alloc int64, interval int32) (*segment, error) {
	name := segmentName(l.path, base, logSuffix)
	m, err := l.dir.fs.Open(name, limit, true)
	if err != nil {
		return nil, err
	}
	if alloc > 0 {
		if err := m.Allocate(0, alloc); err != nil {
			// Synced: after a clean stop nobody looks for a file that a loss of power
			// has brought back, and the next step would find the name taken.
			return nil, errors.Join(err, m.Close(), l.dir.fs.Remove(name), l.dir.fs.SyncDir(l.path))
		}
	}
	s := newSegment(l, base, m, limit, interval)
	s.alloc = alloc
	return s, nil
}

// sealFile gives up the blocks above the content and writes the hints of a
// full segment. A full disk is no failure for the index, which can be rebuilt.
// The producers cannot, once retention has taken the batches they are of.
func (l *Log) sealFile(s *segment, c content, snapshot []byte) error {
	if !s.shortened {
		if err := s.with(func(m *mapping) error { return m.Truncate(c.size) }); err != nil {
			return err
		}
	}
	meta := l.dir.fs.Meta()
	err := meta.WriteFile(segmentName(l.path, c.base, indexSuffix), encodeIndex(s.index, c))
	if err != nil && !temporary(err) {
		return err
	}
	return meta.WriteFile(segmentName(l.path, c.end, snapshotSuffix), snapshot)
}

// Grown ends the step. ErrNoSpace and ErrTooManyFiles: nothing is lost,
// GrowPlan may be tried again later. Any other error has failed the directory. [L]
func (l *Log) Grown(g Grow) error {
	if g.log != l || !l.growing {
		invariant.Check(false, "PlanDoApply", l.path)
	}
	l.growing = false
	l.exists = l.exists || g.there // also when the disk had no room for the file
	if g.err != nil {
		if !temporary(g.err) {
			l.dir.Fail(g.err)
		}
		if g.made != nil {
			g.made.retire()
		}
		return g.err
	}
	l.want = 0
	if !g.roll {
		g.seg.alloc = g.off + g.bytes
		if g.bytes > 0 {
			g.seg.step = min(2*g.seg.step, maxStep)
		}
		return nil
	}
	l.sealing = false
	l.appendSegment(g.made)
	return nil
}

// appendSegment makes s the active segment.
func (l *Log) appendSegment(s *segment) {
	s.mark = l.written.Load()
	old := l.list()
	if n := len(old); n > 0 && old[n-1].end.Load() != s.base {
		invariant.Check(false, "DenseOffsets", l.path, old[n-1].end.Load(), s.base)
	}
	l.setList(append(old[:len(old):len(old)], s))
	l.namesDirty = true
}
