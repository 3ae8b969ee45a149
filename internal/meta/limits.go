package meta

const (
	// MaxCommandBytes bounds one command, and so one raft entry.
	MaxCommandBytes = 1 << 20
	// MaxStateDeltas bounds the partitions of one MirrorPartitionStates.
	MaxStateDeltas = 1000
	// MaxPartitionsPerTopic bounds what one topic can ask for.
	MaxPartitionsPerTopic = 100_000
	// MaxPartitionsPerCommand bounds the partitions one command can create.
	MaxPartitionsPerCommand = 100_000
	// MaxReplicationFactor bounds a partition's replicas.
	MaxReplicationFactor = 32
	// MaxNameLength is Kafka's bound on topic and mirror names.
	MaxNameLength = 249
	// MaxErrorLength bounds a stored error text, in bytes.
	MaxErrorLength = 512
	// ProducerIDBlock is the number of producer ids handed out at once.
	ProducerIDBlock = 1000
	// recentChanges is how many commands Diff can look back without a scan.
	recentChanges = 16
)
