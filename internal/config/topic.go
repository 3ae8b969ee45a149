package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/internal/invariant"
)

// What a replica reports as its log end offset to the gate.
const (
	FlushAppended = "appended" // in the page cache
	FlushDurable  = "durable"  // covered by an fdatasync that succeeded
)

var compressionTypes = []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}

// Topic is the configuration of a topic in force: NewTopic gives the broker's
// defaults, Set changes one setting.
type Topic struct {
	CleanupPolicy         []string
	CompressionType       string
	DeleteRetentionMs     int64
	FileDeleteDelayMs     int64
	FlushMessages         int64
	FlushMs               int64
	FlushAck              string
	IndexIntervalBytes    int32
	MaxCompactionLagMs    int64
	MaxMessageBytes       int32
	TimestampType         string
	TimestampBeforeMaxMs  int64
	TimestampAfterMaxMs   int64
	MinCleanableDirty     float64
	MinCompactionLagMs    int64
	MinInsyncReplicas     int32
	Preallocate           bool
	RetentionBytes        int64
	RetentionMs           int64
	SegmentBytes          int32
	SegmentIndexBytes     int32
	SegmentJitterMs       int64
	SegmentMs             int64
	UncleanLeaderElection bool

	LeaderThrottled   string // leader.replication.throttled.replicas
	FollowerThrottled string
	MirrorThrottled   string // mirror.replication.throttled.replicas
	// MirrorUnclean is mirror.support.unclean.leader.election.
	MirrorUnclean bool

	// Accepted as Kafka does, without effect.
	gzipLevel, lz4Level, zstdLevel int32
	tiered                         bool
	tieredCopyOff, tieredDelete    bool
	localRetentionMs, localBytes   int64
}

// Durable tells whether a replica reports only what is on disk: by flush.ack,
// or by flush.messages=1 as Kafka's users ask for it.
func (t *Topic) Durable() bool { return t.FlushAck == FlushDurable || t.FlushMessages == 1 }

// Compacted tells whether the log is compacted.
func (t *Topic) Compacted() bool {
	return slices.Contains(t.CleanupPolicy, "compact")
}

// bindTopic ties the names to t, with the defaults of c.
func bindTopic(t *Topic, c *Config) *binder {
	b := new(binder)
	list(b, "cleanup.policy", &t.CleanupPolicy, strings.Join(c.CleanupPolicy, ","), "compact", "delete")
	num(b, "compression.gzip.level", &t.gzipLevel, -1, -1, 9)
	num(b, "compression.lz4.level", &t.lz4Level, 9, 1, 17)
	oneOf(b, "compression.type", &t.CompressionType, c.CompressionType, compressionTypes...)
	num(b, "compression.zstd.level", &t.zstdLevel, 3, -131072, 22)
	num(b, "delete.retention.ms", &t.DeleteRetentionMs, c.CleanerDeleteMs, 0, maxInt64)
	num(b, "file.delete.delay.ms", &t.FileDeleteDelayMs, c.DeleteDelayMs, 0, maxInt64)
	oneOf(b, "flush.ack", &t.FlushAck, c.FlushAck, FlushAppended, FlushDurable)
	num(b, "flush.messages", &t.FlushMessages, c.FlushMessages, 1, maxInt64)
	num(b, "flush.ms", &t.FlushMs, c.FlushMs, 0, maxInt64)
	text(b, "follower.replication.throttled.replicas", &t.FollowerThrottled, "")
	num(b, "index.interval.bytes", &t.IndexIntervalBytes, c.IndexIntervalBytes, 0, maxInt32)
	text(b, "leader.replication.throttled.replicas", &t.LeaderThrottled, "")
	num(b, "local.retention.bytes", &t.localBytes, -2, -2, maxInt64)
	num(b, "local.retention.ms", &t.localRetentionMs, -2, -2, maxInt64)
	num(b, "max.compaction.lag.ms", &t.MaxCompactionLagMs, c.CleanerMaxLagMs, 1, maxInt64)
	num(b, "max.message.bytes", &t.MaxMessageBytes, c.MessageMaxBytes, 0, maxInt32)
	num(b, "message.timestamp.after.max.ms", &t.TimestampAfterMaxMs, c.TimestampAfterMaxMs, 0, maxInt64)
	num(b, "message.timestamp.before.max.ms", &t.TimestampBeforeMaxMs, c.TimestampBeforeMaxMs, 0, maxInt64)
	oneOf(b, "message.timestamp.type", &t.TimestampType, c.TimestampType, "CreateTime", "LogAppendTime")
	number(b, "min.cleanable.dirty.ratio", &t.MinCleanableDirty, c.CleanerMinDirtyRatio, 0, 1)
	num(b, "min.compaction.lag.ms", &t.MinCompactionLagMs, c.CleanerMinLagMs, 0, maxInt64)
	num(b, "min.insync.replicas", &t.MinInsyncReplicas, c.MinInsyncReplicas, 1, maxInt32)
	text(b, "mirror.replication.throttled.replicas", &t.MirrorThrottled, "")
	flag(b, "mirror.support.unclean.leader.election", &t.MirrorUnclean, false)
	flag(b, "preallocate", &t.Preallocate, c.Preallocate)
	flag(b, "remote.log.copy.disable", &t.tieredCopyOff, false)
	flag(b, "remote.log.delete.on.disable", &t.tieredDelete, false)
	flag(b, "remote.storage.enable", &t.tiered, false)
	num(b, "retention.bytes", &t.RetentionBytes, c.RetentionBytes, -1, maxInt64)
	num(b, "retention.ms", &t.RetentionMs, c.RetentionMs, -1, maxInt64)
	num(b, "segment.bytes", &t.SegmentBytes, c.SegmentBytes, 1<<20, maxInt32)
	num(b, "segment.index.bytes", &t.SegmentIndexBytes, c.IndexMaxBytes, 4, maxInt32)
	num(b, "segment.jitter.ms", &t.SegmentJitterMs, c.RollJitterMs, 0, maxInt64)
	num(b, "segment.ms", &t.SegmentMs, c.RollMs, 1, maxInt64)
	flag(b, "unclean.leader.election.enable", &t.UncleanLeaderElection, c.UncleanLeaderElection)
	return b
}

// NewTopic returns the configuration of a topic that sets nothing itself.
func NewTopic(c *Config) Topic {
	var t Topic
	bindTopic(&t, c)
	return t
}

// TopicOf returns the configuration of a topic with these settings of its own.
func TopicOf(c *Config, settings map[string]string) (Topic, error) {
	var t Topic
	b := bindTopic(&t, c)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := setNamed(b, name, settings[name]); err != nil {
			return Topic{}, err
		}
	}
	if t.tiered {
		return Topic{}, fmt.Errorf("config: remote.storage.enable: tiered storage is not supported")
	}
	if len(t.CleanupPolicy) == 0 {
		return Topic{}, fmt.Errorf("config: cleanup.policy is empty")
	}
	return t, nil
}

func setNamed(b *binder, name, value string) error {
	e := b.find(name)
	if e == nil {
		names := make([]string, len(b.entries))
		for i := range b.entries {
			names[i] = b.entries[i].name
		}
		return fmt.Errorf("config: unknown setting %s; did you mean %s?", name, nearest(name, names))
	}
	if err := e.set(value); err != nil {
		return fmt.Errorf("config: %s: %w", name, err)
	}
	return nil
}

// ValidateTopic tells whether a topic may have this setting.
func ValidateTopic(name, value string) error {
	c := Defaults()
	_, err := TopicOf(&c, map[string]string{name: value})
	return err
}

// TopicNames lists the settings a topic can have, in order.
func TopicNames() []string {
	var t Topic
	return namesOf(bindTopic(&t, &Config{}))
}

// Values lists all settings of the topic in the order of TopicNames.
func (t Topic) Values() [][2]string {
	shown := t
	b := bindTopic(&t, &Config{})
	t = shown
	return valuesOf(b)
}

func namesOf(b *binder) []string {
	out := make([]string, len(b.entries))
	for i := range b.entries {
		out[i] = b.entries[i].name
	}
	return out
}

func valuesOf(b *binder) [][2]string {
	out := make([][2]string, len(b.entries))
	for i := range b.entries {
		out[i] = [2]string{b.entries[i].name, b.entries[i].get()}
	}
	return out
}

// Defaults is the configuration of an empty server.properties.
func Defaults() Config {
	c, _, err := Load(nil, nil)
	invariant.Check(err == nil, "LimitsHold", "defaults", err)
	return c
}
