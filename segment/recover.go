package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/internal/wire"
)

// RecoveryStats says what OpenLog found and did.
type RecoveryStats struct {
	Segments        int   // of the recovered log
	Batches         int   // walked and checked
	Bytes           int64 // walked and checked
	TornBytes       int64 // cut above the recovery point
	SegmentsRemoved int   // that lay above a cut or an unfinished truncation
	IndexesRebuilt  int
}

// CorruptError is damage below the recovery point: bytes that were durable
// are broken or gone. The log stays offline, its files as they are.
type CorruptError struct {
	Path   string
	Offset int64 // the first offset that is lost
	Pos    int64 // where in the file
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt at byte %d (offset %d): %s", e.Path, e.Pos, e.Offset, e.Reason)
}

// recovery is the state of one run over a log's files.
type recovery struct {
	l     *Log
	point int64 // durable below this
	stats RecoveryStats

	bases     []int64
	snapshots []int64
	found     []*found
	epochsOK  bool
	walkFrom  int // first segment to be walked
	replay    int64
	borders   []knownAt
}

// knownAt is who was known where a segment begins.
type knownAt struct {
	off  int64
	data []byte
}

// found is a segment file and what its index said of it.
type found struct {
	seg     *segment
	bound   int64 // content ends here at the latest; -1 for the last segment
	trusted bool
	c       content
	redo    int64  // from here on nothing says that the disk has what was read; -1 if all is known to be there
	sum     string // length and checksum of the index file; "" if there is none
}

// recover loads the files of a partition, if there are any. Order: what is
// there, what can be trusted, walk the rest, and only when all is known to be
// no corruption, cut.
func (l *Log) recover(point, start int64) (RecoveryStats, error) {
	r := &recovery{l: l, point: point}
	there, err := r.list()
	if err != nil || !there {
		return r.stats, err
	}
	l.exists = true
	if err := r.open(); err != nil {
		return r.stats, err
	}
	if err := r.load(start); err != nil {
		return r.stats, err
	}
	end, err := r.walk()
	if err != nil {
		return r.stats, err
	}
	return r.stats, r.finish(end, start)
}

// list reads the names. It returns false when there is nothing to recover.
func (r *recovery) list() (bool, error) {
	l := r.l
	names, err := l.dir.fs.Meta().ReadDir(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	data, err := l.dir.fs.Meta().ReadFile(filepath.Join(l.path, metadataFile))
	if err == nil {
		if id, ok := decodeTopicID(data); !ok || id != l.id.TopicID {
			return false, fmt.Errorf("%s is of another topic id", l.path)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, name := range names {
		if base, ok := parseName(name, logSuffix); ok {
			r.bases = append(r.bases, base)
		}
		if off, ok := parseName(name, snapshotSuffix); ok {
			r.snapshots = append(r.snapshots, off)
		}
		if strings.HasSuffix(name, newSuffix) || strings.HasSuffix(name, tmpSuffix) {
			if err := l.dir.fs.Remove(filepath.Join(l.path, name)); err != nil {
				return false, err
			}
		}
	}
	slices.Sort(r.bases)
	slices.Sort(r.snapshots)
	return err == nil, nil
}

// open opens the segment files and reads their indexes.
func (r *recovery) open() error {
	l := r.l
	for i, base := range r.bases {
		last := i == len(r.bases)-1
		limit := l.nextLimit()
		if !last {
			limit = 0
		}
		m, err := l.dir.fs.Open(segmentName(l.path, base, logSuffix), limit, false)
		if err != nil {
			return err
		}
		bound := int64(-1)
		if !last {
			bound = r.bases[i+1]
		}
		r.add(base, m, max(limit, m.Size), bound)
	}
	return nil
}

func (r *recovery) add(base int64, m Mapped, limit, bound int64) {
	l := r.l
	s := newSegment(l, base, m, limit, l.cfg.IndexIntervalBytes)
	s.alloc = m.Size
	f := &found{seg: s, bound: bound, redo: -1}
	r.found = append(r.found, f)
	l.setList(append(l.list(), s)) // so that an error closes it
	data, err := l.dir.fs.Meta().ReadFile(segmentName(l.path, base, indexSuffix))
	if err != nil {
		return
	}
	f.sum = indexSum(data)
	x, c, ok := decodeIndex(data)
	whole := c.size == m.Size && bound < 0 || c.end == bound && bound >= 0 && c.size <= m.Size
	if ok && whole && c.base == base && c.size > 0 && c.end > base {
		s.index, f.c, f.trusted = x, c, true
	}
}

// load reads epochs and the producer snapshot and decides where the walk
// begins: at the recovery point, or earlier if something must be rebuilt.
func (r *recovery) load(start int64) error {
	l := r.l
	if len(r.found) == 0 {
		return nil
	}
	if data, err := l.dir.fs.Meta().ReadFile(filepath.Join(l.path, epochFile)); err == nil {
		if s, ok := decodeEpochs(data); ok {
			l.epochs.replace(s)
			// Else what retention had taken is back, and who led then is in the batches only.
			r.epochsOK = len(s) == 0 || s[0].Start <= max(start, r.found[0].seg.base)
		}
	}
	n := len(r.found)
	r.walkFrom = n
	for i, f := range r.found {
		// Above the recovery point only a clean close makes an index good.
		if !f.trusted || (!l.clean && f.c.end > r.point) {
			r.walkFrom = i
			break
		}
	}
	r.replay = r.found[0].seg.base
	for i := len(r.snapshots) - 1; i >= 0; i-- {
		data, err := l.dir.fs.Meta().ReadFile(segmentName(l.path, r.snapshots[i], snapshotSuffix))
		if err != nil {
			continue
		}
		p, off, ok := decodeProducers(data)
		if !ok || off != r.snapshots[i] || !r.usable(off) {
			continue
		}
		l.producers, r.replay = p, off
		break
	}
	for i, f := range r.found {
		if !r.epochsOK || (f.trusted && r.replay < f.c.end) {
			r.walkFrom = min(r.walkFrom, i)
			break
		}
	}
	return nil
}

// usable tells whether a snapshot at off may stand for the batches below it:
// they must be durable, or the walk may find that they are gone. Where retention
// has taken all of them nothing else tells of their producers.
func (r *recovery) usable(off int64) bool {
	if off <= r.found[0].seg.base {
		return true
	}
	last := r.found[len(r.found)-1]
	return off <= r.point || (r.l.clean && last.trusted && off == last.c.end)
}

// walk checks every batch from walkFrom on and returns where the log ends.
// It changes nothing on disk.
func (r *recovery) walk() (int64, error) {
	end := int64(0)
	for i, f := range r.found {
		s := f.seg
		if i > 0 && s.base != end {
			return end, r.tail(r.found[i-1], border{r.found[i-1].seg.size.Load(), end}, "the next segment does not begin where this one ends", i)
		}
		if i < r.walkFrom {
			s.size.Store(f.c.size)
			s.end.Store(f.c.end)
			s.maxTs.Store(f.c.maxTs)
			s.firstTs = f.c.firstTs
			s.indexed = int64(s.index.floorPos(f.c.size).pos)
			end = f.c.end
			continue
		}
		if i == r.walkFrom { // what the file says of epochs from here on is older than the batches
			r.l.epochs.truncateEnd(s.base)
		}
		if i > 0 && s.base >= r.replay && (s.base > r.point || !slices.Contains(r.snapshots, s.base)) {
			r.borders = append(r.borders, knownAt{s.base, r.l.producers.encode(s.base)})
		}
		at, reason := r.walkSegment(f)
		end = at.off
		if reason != "" {
			return end, r.tail(f, at, reason, i+1)
		}
	}
	if end < r.point && len(r.found) > 0 {
		f := r.found[len(r.found)-1]
		return end, &CorruptError{f.seg.name, end, f.seg.size.Load(), fmt.Sprintf("the log ends below its recovery point %d", r.point)}
	}
	return end, nil
}

// walkSegment rebuilds a segment from its bytes up to its bound or to the
// first byte that is no good batch; the reason is "" when all were good.
func (r *recovery) walkSegment(f *found) (border, string) {
	s, l := f.seg, r.l
	s.index, s.indexed = &index{}, 0
	s.maxTs.Store(noTimestamp)
	r.stats.IndexesRebuilt++
	at := border{0, s.base}
	m := s.m.Load()
	rest := m.Bytes[:m.Size]
	reason := ""
	for at.off != f.bound && len(rest) > 0 {
		b, after, why := goodBatch(rest, at.off, f.bound)
		if why == "" && at.off >= r.point && b.PartitionLeaderEpoch() >= 0 && b.PartitionLeaderEpoch() < l.epochs.latest() {
			// A file system may bring back, behind the new end of a file, what an
			// earlier loss of power had left in its last block.
			why = "the leader epoch falls"
		}
		if why != "" {
			reason = why
			break
		}
		s.note(b, at.pos)
		if f.redo < 0 && !l.clean && b.NextOffset() > r.point {
			f.redo = at.pos
		}
		if e := b.PartitionLeaderEpoch(); e > l.epochs.latest() {
			l.epochs.assign(e, at.off)
		}
		if at.off >= r.replay {
			l.producers.Add(b, l.now)
		}
		rest = after
		at = border{at.pos + int64(b.Size()), b.NextOffset()}
		r.stats.Batches++
		r.stats.Bytes += int64(b.Size())
	}
	s.publish(at.pos, at.off)
	return at, reason
}

// goodBatch returns the first batch of data if it is whole, sound, begins at
// off and stays below bound (if that is not negative).
func goodBatch(data []byte, off, bound int64) (wire.Batch, []byte, string) {
	b, rest, ok := wire.NextBatch(data)
	switch {
	case !ok:
		return nil, nil, "no whole batch"
	case b.Magic() != 2:
		return nil, nil, "unknown batch format"
	case b.BaseOffset() != off:
		return nil, nil, "the batch has another base offset"
	case b.NextOffset() <= off || b.LastOffsetDelta() < 0:
		return nil, nil, "the batch has no offsets"
	case bound >= 0 && b.NextOffset() > bound:
		return nil, nil, "the batch reaches into the next segment"
	case !b.CheckCRC():
		return nil, nil, "checksum mismatch"
	}
	return b, rest, ""
}

// tail judges a break at offset at: below the recovery point it is
// corruption, else everything from there on is a torn tail to be cut, which
// leaves the segments before keep.
func (r *recovery) tail(f *found, at border, reason string, keep int) error {
	if at.off < r.point {
		return &CorruptError{f.seg.name, at.off, at.pos, reason}
	}
	for _, g := range r.found[keep:] {
		r.stats.TornBytes += g.seg.m.Load().Size
	}
	r.found = r.found[:keep]
	f.bound = -1
	return nil
}

// finish cuts what was found torn, newest first, and sets the log up.
func (r *recovery) finish(end, start int64) error {
	l := r.l
	all := l.list()
	for i := len(all) - 1; i >= len(r.found); i-- {
		r.stats.SegmentsRemoved++
		if err := l.removeFiles(all[i].base); err != nil {
			return err
		}
		all[i].retire()
		l.setList(all[:i])
	}
	if r.stats.SegmentsRemoved > 0 { // they would follow what is written in their place
		if err := l.dir.fs.SyncDir(l.path); err != nil {
			return err
		}
	}
	segs := make([]*segment, 0, len(r.found))
	for i, f := range r.found {
		s, err := r.settle(f, i == len(r.found)-1)
		if err != nil {
			return err
		}
		segs = append(segs, s)
		if i >= r.walkFrom {
			if err := r.renewIndex(f, i == len(r.found)-1); err != nil {
				return err
			}
		}
	}
	first := l.setUp(segs, start, end)
	l.durable.Store(min(r.point, end))
	if l.clean {
		l.durable.Store(end)
	}
	l.covered.Store(l.Durable())
	l.namesDirty = true
	l.epochs.truncateEnd(end)
	l.epochs.truncateStart(l.Start())
	r.stats.Segments = len(segs)
	// A snapshot above the recovery point may be of batches that are lost: when
	// the point has passed it, it would speak for those that came in their place.
	// Where a segment begins there is one again, of what was read: retention may
	// take all that is below.
	err := l.removeSnapshots(func(off int64) bool { return off > end || off < first || len(segs) > 0 && !r.usable(off) })
	for _, b := range r.borders {
		if err == nil && b.off <= end && b.off > first {
			err = l.dir.fs.Meta().WriteFile(segmentName(l.path, b.off, snapshotSuffix), b.data)
		}
	}
	if temporary(err) {
		return nil // a hint
	}
	return err
}

// settle cuts a file to its content and maps it as what it is from now on:
// the last one to be appended to, the others as they are.
func (r *recovery) settle(f *found, last bool) (*segment, error) {
	s := f.seg
	size := s.size.Load()
	s.alloc = size
	m := s.m.Load()
	if m.Size > size {
		if f.bound < 0 {
			r.stats.TornBytes += m.Size - size
		}
		// Nobody reads this map yet. The cut is made durable before anything
		// is written in its place: sound batches may lie behind the broken one,
		// and a new batch of its length would make them part of the log again.
		err := m.Truncate(size)
		if err == nil {
			err = m.Datasync()
		}
		if err != nil {
			r.l.dir.Fail(err)
			return nil, err
		}
	}
	if f.redo >= 0 {
		if err := writeAgain(m, f.redo, size); err != nil {
			return nil, err
		}
	}
	if !last {
		s.ring.Store(nil)
		return s, nil
	}
	limit := max(r.l.nextLimit(), size)
	if int64(len(m.Bytes)) >= limit {
		s.limit = limit
		return s, nil
	}
	s.limit = limit // and opened again with a map of that length
	m.unpin()
	s.m.Store(nil)
	return s, s.wake()
}

// writeAgain makes what was read above the recovery point dirty. It may be there
// in the page cache only: after a flush that failed the kernel takes the pages
// for clean, and the next flush would succeed without writing them.
func writeAgain(m *mapping, from, to int64) error {
	for from < to {
		n, err := m.Pwritev([][]byte{m.Bytes[from:to]}, from)
		if err == nil && n <= 0 {
			err = errShortWrite
		}
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// producersAt returns the producers of all batches below end, which is where
// segs end, from the newest snapshot at or below end.
func (l *Log) producersAt(segs []*segment, end int64) (*Producers, error) {
	names, err := l.dir.fs.Meta().ReadDir(l.path)
	if err != nil {
		return nil, err
	}
	p, from := newProducers(), int64(-1)
	for _, name := range names {
		off, ok := parseName(name, snapshotSuffix)
		if !ok || off > end || off <= from {
			continue
		}
		data, err := l.dir.fs.Meta().ReadFile(filepath.Join(l.path, name))
		if err != nil {
			return nil, err
		}
		if q, at, ok := decodeProducers(data); ok && at == off {
			p, from = q, off
		}
	}
	for _, s := range segs {
		if s.end.Load() <= from {
			continue
		}
		err := s.with(func(m *mapping) error {
			size := s.size.Load()
			for at := (border{0, s.base}); ; {
				b, ok := s.batch(m, at, size)
				if !ok {
					return nil
				}
				if b.NextOffset() > end {
					return nil
				}
				if at.off >= from {
					p.Add(b, l.now)
				}
				at = border{at.pos + int64(b.Size()), b.NextOffset()}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}
