package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"
)

// A clean close leaves one file that says of every small log what recovery
// would find in its directory. A node of 100,000 partitions starts from it
// with one look at each log file, and opens none. It counts only together with
// the marker of a clean close, which holds its checksum.
//
//	"LSMF" | version u32 | logs u32 | { length u32 | log }
//	log: topic, partition, topic id | epochs | producers snapshot | indexes of all segments
//
// All big endian; the parts of a log but the ids have a length u32 before them.
const (
	manifestFile    = "lockstep-clean-logs"
	manifestMagic   = "LSMF"
	manifestVersion = 1
	markerChecksum  = "manifest="
)

// manifest holds the logs of a clean close, undecoded.
type manifest map[TopicPartition][]byte

var errManifest = errors.New("damaged")

// small tells whether a log goes into the manifest: one that would make it
// large has index files instead.
func (l *Log) small() bool {
	if len(l.left) > 0 {
		return false // the next start is to see these files
	}
	entries := int64(0)
	for _, s := range l.list() {
		entries += s.index.count.Load()
		if s.shortened {
			return false // its file is longer than its content
		}
	}
	return entries+int64(len(l.list())) <= manifestEntries && l.producers.Len() <= manifestProducers
}

func appendPart(b, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
}

func cutPart(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if b = b[4:]; n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// encodeLog is the log as the manifest has it. Nobody may append any more.
func (l *Log) encodeLog() []byte {
	b := appendPart(nil, []byte(l.id.Topic))
	b = binary.BigEndian.AppendUint32(b, uint32(l.id.Partition))
	b = append(b, l.id.TopicID[:]...)
	b = appendPart(b, encodeEpochs(l.epochs.list()))
	b = appendPart(b, l.producers.encode(l.End()))
	for _, s := range l.list() {
		b = appendPart(b, encodeIndex(s.index, s.content()))
	}
	return b
}

// decodeID splits the name off an encoded log.
func decodeID(b []byte) (id LogID, rest []byte, ok bool) {
	topic, b, ok := cutPart(b)
	if !ok || len(b) < 4+len(id.TopicID) {
		return id, nil, false
	}
	id = LogID{Topic: string(topic), Partition: int32(binary.BigEndian.Uint32(b)), TopicID: [16]byte(b[4:])}
	return id, b[4+len(id.TopicID):], true
}

// writeManifest writes the logs that were sealed into it and returns the line
// of the marker that makes it count.
func (d *Dir) writeManifest() (string, error) {
	b := append([]byte(nil), manifestMagic...)
	b = binary.BigEndian.AppendUint32(b, manifestVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(d.sealed)))
	for _, l := range d.sealed {
		b = appendPart(b, l)
	}
	err := d.fs.Meta().WriteFile(filepath.Join(d.path, manifestFile), b)
	return fmt.Sprintf("%s%08x\n", markerChecksum, crc32.Checksum(b, castagnoli)), err
}

// readManifest reads what the marker vouches for; a marker without a checksum
// (Kafka's, or an earlier version's) vouches for none.
func (d *Dir) readManifest(marker string) (manifest, error) {
	_, sum, ok := strings.Cut(marker, markerChecksum)
	if !ok {
		return nil, nil
	}
	path := filepath.Join(d.path, manifestFile)
	b, err := d.fs.Meta().ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // somebody has taken it away: the logs are still there
	}
	if err != nil {
		return nil, err
	}
	m := manifest{}
	if fmt.Sprintf("%08x\n", crc32.Checksum(b, castagnoli)) != sum || len(b) < 12 || string(b[:4]) != manifestMagic ||
		binary.BigEndian.Uint32(b[4:]) != manifestVersion {
		return nil, nil // hints, as indexes are: what they say is found without them
	}
	for rest := b[12:]; len(rest) > 0; {
		var log []byte
		if log, rest, ok = cutPart(rest); !ok {
			return nil, fmt.Errorf("%s: %w", path, errManifest)
		}
		id, _, ok := decodeID(log)
		if !ok {
			return nil, fmt.Errorf("%s: %w", path, errManifest)
		}
		m[id.TopicPartition()] = log
	}
	return m, nil
}

// restore sets the log up from its entry in the manifest, its files at rest.
// It returns false when a file is not as the entry has it: then recovery looks.
func (l *Log) restore(entry []byte, start int64) bool {
	id, b, ok := decodeID(entry)
	if !ok || id != l.id {
		return false
	}
	history, b, ok1 := cutPart(b)
	snapshot, b, ok2 := cutPart(b)
	if !ok1 || !ok2 {
		return false
	}
	starts, ok1 := decodeEpochs(history)
	producers, end, ok2 := decodeProducers(snapshot)
	if !ok1 || !ok2 {
		return false
	}
	var segs []*segment
	at := int64(-1)
	for len(b) > 0 {
		part, rest, ok := cutPart(b)
		if !ok {
			return false
		}
		x, c, ok := decodeIndex(part)
		if !ok || at >= 0 && c.base != at {
			return false
		}
		if size, err := l.dir.fs.Meta().Size(segmentName(l.path, c.base, logSuffix)); err != nil || size != c.size {
			return false
		}
		segs = append(segs, l.atRest(x, c))
		at, b = c.end, rest
	}
	if len(segs) == 0 || at != end {
		return false
	}
	last := segs[len(segs)-1]
	last.limit = max(l.nextLimit(), last.size.Load())
	l.exists = true
	l.producers = producers
	l.epochs.replace(starts)
	l.epochs.dirty.Store(false)
	l.setUp(segs, start, end)
	l.durable.Store(end)
	l.covered.Store(end)
	return true
}

// atRest is a segment of the given content whose file is not open.
func (l *Log) atRest(x *index, c content) *segment {
	s := &segment{
		base: c.base, name: segmentName(l.path, c.base, logSuffix), dir: l.dir, limit: c.size, index: x, step: firstStep,
		interval: max(int64(l.cfg.IndexIntervalBytes), 1), firstTs: c.firstTs, alloc: c.size, indexed: int64(x.floorPos(c.size).pos),
	}
	s.size.Store(c.size)
	s.end.Store(c.end)
	s.maxTs.Store(c.maxTs)
	return s
}
