package segment

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
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
// above what the log of that partition has durable at this moment.
func (d *Dir) WriteCheckpoint(name string, m map[TopicPartition]int64) error {
	if err := d.Failed(); err != nil {
		return err
	}
	d.files.Lock()
	defer d.files.Unlock()
	if name != RecoveryPointCheckpoint {
		return d.fs.Meta().WriteFile(filepath.Join(d.path, name), encodeCheckpoint(m))
	}
	points := make(map[TopicPartition]int64, len(m))
	for p, v := range m {
		points[p] = v
	}
	return d.writeRecoveryPoints(points)
}

// writeRecoveryPoints writes and remembers the recovery points, each at most
// the log's Durable. d.files is held.
func (d *Dir) writeRecoveryPoints(points map[TopicPartition]int64) error {
	d.mu.Lock()
	for p, v := range points {
		if l := d.logs[p]; l != nil {
			points[p] = min(v, l.Durable())
		}
	}
	d.mu.Unlock()
	if err := d.fs.Meta().WriteFile(filepath.Join(d.path, RecoveryPointCheckpoint), encodeCheckpoint(points)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.points = points
	return nil
}

// Lowered counts the recovery points that a truncation has lowered: the file
// says less than the logs until it is written again.
func (d *Dir) Lowered() int64 { return d.lowered.Load() }

// lowerRecoveryPoint makes sure that the file promises no more of a partition
// than is durable, before a truncation takes something away.
func (d *Dir) lowerRecoveryPoint(p TopicPartition) error {
	d.files.Lock()
	defer d.files.Unlock()
	d.mu.Lock()
	l, points := d.logs[p], d.points // never changed in place
	d.mu.Unlock()
	if v, ok := points[p]; !ok || l == nil || v <= l.Durable() {
		return nil
	}
	d.lowered.Add(1)
	return d.writeRecoveryPoints(copyOf(points))
}

// dropPoints forgets deleted partitions in all checkpoints: their names may come
// back, and offsets of the old log would then hide records of the new one, or show
// consumers what its mirrors do not have.
func (d *Dir) dropPoints(logs []*Log) error {
	d.files.Lock()
	defer d.files.Unlock()
	d.mu.Lock()
	points, had := copyOf(d.points), len(d.points)
	for _, l := range logs {
		delete(d.starts, l.id.TopicPartition())
		delete(points, l.id.TopicPartition())
	}
	d.mu.Unlock()
	if len(points) < had {
		if err := d.writeRecoveryPoints(points); err != nil {
			return err
		}
	}
	for _, name := range []string{LogStartCheckpoint, HighWatermarkCheckpoint, CleanerCheckpoint} {
		m, err := d.ReadCheckpoint(name)
		had := len(m)
		for _, l := range logs {
			delete(m, l.id.TopicPartition())
		}
		if err == nil && len(m) < had {
			err = d.fs.Meta().WriteFile(filepath.Join(d.path, name), encodeCheckpoint(m))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyOf(m map[TopicPartition]int64) map[TopicPartition]int64 {
	c := make(map[TopicPartition]int64, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
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
