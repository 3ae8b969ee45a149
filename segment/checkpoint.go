package segment

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Names of the checkpoint files of a log directory, Kafka's.
const (
	RecoveryPointCheckpoint = "recovery-point-offset-checkpoint"
	HighWatermarkCheckpoint = "replication-offset-checkpoint"
	LogStartCheckpoint      = "log-start-offset-checkpoint"
	CleanerCheckpoint       = "cleaner-offset-checkpoint"
)

// ReadCheckpoint reads one of the checkpoint files; a file that is not there
// is an empty map, a damaged one an error.
func (d *Dir) ReadCheckpoint(name string) (map[TopicPartition]int64, error) {
	path := filepath.Join(d.path, name)
	data, err := d.fs.Meta().ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[TopicPartition]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	m, ok := decodeCheckpoint(data)
	if !ok {
		return nil, fmt.Errorf("%s is not a checkpoint file", path)
	}
	return m, nil
}

// WriteCheckpoint replaces a checkpoint file. No recovery point is written
// above what the log of that partition has durable at this moment, no log
// start above its start, and none is said to be clean above where it is. What
// the file says of a partition whose log is not open stays: it may be offline
// because it is damaged, and without its recovery point the next start would
// take the damage for a torn tail.
func (d *Dir) WriteCheckpoint(name string, m map[TopicPartition]int64) error {
	if err := d.Failed(); err != nil {
		return err
	}
	d.files.Lock()
	defer d.files.Unlock()
	have, most := d.owed(name)
	if have == nil {
		return d.writeCheckpoint(name, m)
	}
	d.mu.Lock()
	next := make(map[TopicPartition]int64, len(m))
	for p, v := range m {
		if l := d.logs[p]; l != nil {
			next[p] = min(v, most(l))
		}
	}
	for p, v := range *have {
		if d.logs[p] == nil {
			next[p] = v
		}
	}
	d.mu.Unlock()
	return d.replaceCheckpoint(name, have, next)
}

// owed returns what a checkpoint file says, and the most it may say of a log;
// nil for the file of the high watermarks, which this package does not read.
func (d *Dir) owed(name string) (have *map[TopicPartition]int64, most func(*Log) int64) {
	switch name {
	case RecoveryPointCheckpoint:
		return &d.points, (*Log).recoveryPoint
	case LogStartCheckpoint:
		return &d.starts, (*Log).startPoint
	case CleanerCheckpoint:
		return &d.cleans, (*Log).CleanedTo
	}
	return nil, nil
}

// replaceCheckpoint writes and remembers. d.files is held.
func (d *Dir) replaceCheckpoint(name string, have *map[TopicPartition]int64, next map[TopicPartition]int64) error {
	if err := d.writeCheckpoint(name, next); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	*have = next
	return nil
}

// writeCheckpoint fails the directory when it is not known which content the
// file has now: a promise that nobody remembers could not be lowered.
func (d *Dir) writeCheckpoint(name string, m map[TopicPartition]int64) error {
	err := d.fs.Meta().WriteFile(filepath.Join(d.path, name), encodeCheckpoint(m))
	if err != nil && !temporary(err) {
		d.Fail(err)
	}
	return err
}

// Lowered counts the recovery points that a truncation has lowered: the file
// says less than the logs until it is written again.
func (d *Dir) Lowered() int64 { return d.lowered.Load() }

// lowerCheckpoints makes sure that the files promise no more of a partition
// than is durable or clean, and no later start, before a truncation takes
// something away.
func (d *Dir) lowerCheckpoints(p TopicPartition) error {
	return d.changeCheckpoints(func(m map[TopicPartition]int64, l func(TopicPartition) (int64, bool)) {
		if most, ok := l(p); ok && m[p] > most {
			d.lowered.Add(1)
			m[p] = most
		}
	})
}

// promised tells whether the files say something of a partition.
func (d *Dir) promised(p TopicPartition) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.points[p] > 0 || d.starts[p] > 0 || d.cleans[p] > 0
}

// dropCheckpoints forgets partitions whose names begin anew: what is said of
// the old log would hide records of the new one.
func (d *Dir) dropCheckpoints(gone ...TopicPartition) error {
	return d.changeCheckpoints(func(m map[TopicPartition]int64, _ func(TopicPartition) (int64, bool)) {
		for _, p := range gone {
			delete(m, p)
		}
	})
}

// dropMarks does it for the high watermarks, which this package does not read:
// they would show consumers of a new topic what its mirrors do not have.
func (d *Dir) dropMarks(gone ...TopicPartition) error {
	d.files.Lock()
	defer d.files.Unlock()
	m, err := d.ReadCheckpoint(HighWatermarkCheckpoint)
	had := len(m)
	for _, p := range gone {
		delete(m, p)
	}
	if err != nil || len(m) == had {
		return err
	}
	return d.writeCheckpoint(HighWatermarkCheckpoint, m)
}

// changeCheckpoints rewrites those of the files read here that change differs in.
func (d *Dir) changeCheckpoints(change func(m map[TopicPartition]int64, most func(TopicPartition) (int64, bool))) error {
	d.files.Lock()
	defer d.files.Unlock()
	for _, name := range []string{RecoveryPointCheckpoint, LogStartCheckpoint, CleanerCheckpoint} {
		have, most := d.owed(name)
		d.mu.Lock()
		next := maps.Clone(*have)
		change(next, func(p TopicPartition) (int64, bool) {
			l := d.logs[p]
			if l == nil {
				return 0, false
			}
			return most(l), true
		})
		same := maps.Equal(next, *have)
		d.mu.Unlock()
		if same {
			continue
		}
		if err := d.replaceCheckpoint(name, have, next); err != nil {
			return err
		}
	}
	return nil
}

// encodeCheckpoint writes Kafka's offset checkpoint: version, count, and a
// line "topic partition offset" each.
func encodeCheckpoint(m map[TopicPartition]int64) []byte {
	lines := make([]string, 0, len(m))
	for p, v := range m {
		lines = append(lines, fmt.Sprintf("%s %d %d\n", p.Topic, p.Partition, v))
	}
	slices.Sort(lines)
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(lines))
	for _, line := range lines {
		b.WriteString(line)
	}
	return b.Bytes()
}

func decodeCheckpoint(data []byte) (map[TopicPartition]int64, bool) {
	lines, ok := checkpointLines(data)
	if !ok {
		return nil, false
	}
	m := make(map[TopicPartition]int64, len(lines))
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, false
		}
		partition, err1 := strconv.ParseInt(f[1], 10, 32)
		offset, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || partition < 0 {
			return nil, false
		}
		m[TopicPartition{f[0], int32(partition)}] = offset
	}
	return m, true
}

// checkpointLines returns the lines of a checkpoint file of version 0 after
// its count, which must be right.
func checkpointLines(data []byte) ([]string, bool) {
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) < 2 || strings.TrimSpace(lines[0]) != "0" {
		return nil, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || n != len(lines)-2 {
		return nil, false
	}
	return lines[2:], true
}

// encodeTopicID writes Kafka's partition.metadata.
func encodeTopicID(id [16]byte) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", base64.RawURLEncoding.EncodeToString(id[:]))
}

func decodeTopicID(data []byte) (id [16]byte, ok bool) {
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key != "topic_id" {
			continue
		}
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(value))
		if err != nil || len(b) != len(id) {
			return id, false
		}
		return [16]byte(b), true
	}
	return id, false
}

// parseName reads the offset out of a file name of 20 digits and a suffix.
func parseName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	return v, err == nil && v >= 0
}
