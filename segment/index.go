package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"sync/atomic"
)

// entry says that a batch begins at pos with base offset base+rel, and that
// the greatest timestamp of all batches before it in the segment is maxTs.
type entry struct {
	rel   uint32
	pos   uint32
	maxTs int64
}

// index is the offset and time index of one segment: a sparse list of batch
// borders, one per interval bytes at most. One writer appends under the
// partition's lock; readers take no lock, because a chunk never moves and an
// entry never changes once count covers it.
type index struct {
	count  atomic.Int64
	chunks *[indexChunks][]entry // made with the first entry: most logs of a large node have none
}

// slot finds the place of entry i: chunk k holds firstChunk<<k entries.
func slot(i int64) (chunk int, at int64) {
	chunk = bits.Len64(uint64(i/firstChunk+1)) - 1
	return chunk, i - firstChunk*(1<<chunk-1)
}

func (x *index) at(i int64) entry {
	c, at := slot(i)
	return x.chunks[c][at]
}

func (x *index) add(e entry) {
	i := x.count.Load()
	if x.chunks == nil {
		x.chunks = new([indexChunks][]entry)
	}
	c, at := slot(i)
	if at == 0 {
		x.chunks[c] = make([]entry, firstChunk<<c)
	}
	x.chunks[c][at] = e
	x.count.Store(i + 1)
}

// floor returns the last entry for which below is true, or the start of the
// segment. below must be true for a prefix of the entries only.
func (x *index) floor(below func(entry) bool) entry {
	lo, hi := int64(0), x.count.Load()
	for lo < hi {
		mid := (lo + hi) / 2
		if below(x.at(mid)) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return entry{maxTs: noTimestamp}
	}
	return x.at(lo - 1)
}

func (x *index) floorRel(rel int64) entry {
	return x.floor(func(e entry) bool { return int64(e.rel) <= rel })
}

func (x *index) floorPos(pos int64) entry {
	return x.floor(func(e entry) bool { return int64(e.pos) <= pos })
}

// floorTs returns the last entry before which no batch has a timestamp of ts
// or more.
func (x *index) floorTs(ts int64) entry {
	return x.floor(func(e entry) bool { return e.maxTs < ts })
}

// cut copies the entries below pos.
func (x *index) cut(pos int64) *index {
	c := &index{}
	for i := range x.count.Load() {
		if e := x.at(i); int64(e.pos) < pos {
			c.add(e)
		}
	}
	return c
}

// The index file is our own format: a header, the entries, a checksum, all
// big endian. It is written when a segment is sealed or closed and trusted
// only when every field of the header agrees with the segment.
//
//	0  "LSIX" | 4 version | 8 base | 16 size | 24 end | 32 maxTs | 40 firstTs | 48 count | 56 entries... | crc32c
const (
	indexMagic   = "LSIX"
	indexVersion = 1
	indexHeader  = 56
	indexEntry   = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content is what an index file says about its segment.
type content struct {
	base    int64 // base offset
	size    int64 // bytes
	end     int64 // offset after the last record
	maxTs   int64 // greatest timestamp, noTimestamp if empty
	firstTs int64 // greatest timestamp of the first batch
}

func encodeIndex(x *index, c content) []byte {
	n := x.count.Load()
	b := make([]byte, 0, indexHeader+n*indexEntry+4)
	b = append(b, indexMagic...)
	b = binary.BigEndian.AppendUint32(b, indexVersion)
	for _, v := range []int64{c.base, c.size, c.end, c.maxTs, c.firstTs, n} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	for i := range n {
		e := x.at(i)
		b = binary.BigEndian.AppendUint32(b, e.rel)
		b = binary.BigEndian.AppendUint32(b, e.pos)
		b = binary.BigEndian.AppendUint64(b, uint64(e.maxTs))
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeIndex returns false for anything that is not a whole index whose
// entries rise and lie inside the segment it describes.
func decodeIndex(b []byte) (*index, content, bool) {
	var c content
	if len(b) < indexHeader+4 || string(b[:4]) != indexMagic || binary.BigEndian.Uint32(b[4:]) != indexVersion {
		return nil, c, false
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, c, false
	}
	field := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8+8*i:])) }
	c = content{base: field(0), size: field(1), end: field(2), maxTs: field(3), firstTs: field(4)}
	n := field(5)
	if n < 0 || n != int64(len(body)-indexHeader)/indexEntry || int64(len(body)) != indexHeader+n*indexEntry {
		return nil, c, false
	}
	x := &index{}
	last := entry{maxTs: noTimestamp}
	for p := indexHeader; p < len(body); p += indexEntry {
		e := entry{
			rel:   binary.BigEndian.Uint32(b[p:]),
			pos:   binary.BigEndian.Uint32(b[p+4:]),
			maxTs: int64(binary.BigEndian.Uint64(b[p+8:])),
		}
		if e.rel <= last.rel || e.pos <= last.pos || e.maxTs < last.maxTs ||
			int64(e.pos) > c.size-batchHeader || int64(e.rel) >= c.end-c.base {
			return nil, c, false
		}
		last = e
		x.add(e)
	}
	return x, c, true
}

// ring remembers the last batch ends, which is where marks and sequential
// readers are. One writer, readers without a lock: offsets only rise, so a
// slot whose offset reads the same before and after its position was not
// overwritten in between.
type ring struct {
	slots [ringSize]struct{ off, pos atomic.Int64 }
	next  int // writer only
}

func (r *ring) add(off, pos int64) {
	s := &r.slots[r.next%ringSize]
	r.next++
	s.off.Store(-1)
	s.pos.Store(pos)
	s.off.Store(off)
}

// find returns the position of the batch border at offset off.
func (r *ring) find(off int64) (int64, bool) {
	for i := range r.slots {
		s := &r.slots[i]
		if s.off.Load() != off {
			continue
		}
		pos := s.pos.Load()
		if s.off.Load() == off && pos > 0 {
			return pos, true
		}
	}
	return 0, false
}

// indexSum tells index files apart.
func indexSum(data []byte) string {
	return fmt.Sprint(len(data), data[max(0, len(data)-4):])
}

// renewIndex replaces the index file of a walked segment by what the walk
// found. An old one may be of batches that were lost, end at the same offset
// as those that came in their place, and be trusted once the recovery point
// has passed it.
func (r *recovery) renewIndex(f *found, last bool) error {
	s, fs := f.seg, r.l.dir.fs
	name := segmentName(r.l.path, s.base, indexSuffix)
	data := encodeIndex(s.index, s.content())
	if f.sum == indexSum(data) || last && f.sum == "" {
		return nil
	}
	if !last { // the active one gets its own when it is sealed
		err := fs.Meta().WriteFile(name, data)
		if err == nil || !temporary(err) {
			return err
		}
	}
	return fs.Remove(name)
}

// setUp gives the log its segments and returns where the first begins.
func (l *Log) setUp(segs []*segment, start, end int64) (first int64) {
	l.setList(segs)
	total := int64(0)
	for i := len(segs) - 1; i >= 0; i-- {
		total += segs[i].size.Load()
		segs[i].mark = -total
	}
	l.size.Store(total)
	if len(segs) > 0 {
		first = segs[0].base
	}
	l.start.Store(max(first, min(start, end)))
	l.end.Store(end)
	l.next = end
	return first
}
