package wire

// Bounds of what a peer may make us walk. All sizes are counts or bytes.
const (
	// MaxTags is the largest number of tagged fields accepted in one tag section.
	MaxTags = 64
	// MaxPartitions is the largest number of partitions accepted in one Produce,
	// Fetch or ListOffsets message, all topics together.
	MaxPartitions = 1_000_000
	// MaxReportReplicas is the largest number of replicas, and of ISR members,
	// accepted in one mirror report; a larger report is flagged malformed.
	MaxReportReplicas = 64
	// BatchHeaderSize is the size of a record batch without its records.
	BatchHeaderSize = 61
	// firstSlice is the number of elements reserved before any of them is read.
	firstSlice = 64
)
