package compress

const (
	// firstOutput is the least capacity the output starts with, in bytes.
	firstOutput = 4 << 10
	// firstRatio is the expansion expected before any of it is seen.
	firstRatio = 4
	// maxSnappyRatio bounds what one byte of a snappy block can become: its
	// densest element gives 64 bytes for 3.
	maxSnappyRatio = 32
	// maxZstdWindow is the largest window a frame may ask for, in bytes: that of
	// the highest level Kafka's clients offer.
	maxZstdWindow = 128 << 20
	// Slack is the room Inflate wants behind its limit, in bytes: one zstd block.
	Slack = zstdBlock
	// zstdBlock is the largest output of one block, in bytes.
	zstdBlock = 128 << 10
	// maxZstdRatio bounds what one byte of a frame can become: a block takes
	// four bytes at least.
	maxZstdRatio = zstdBlock / 4
	// snappyBlock is the number of bytes in a block we write, as snappy-java's.
	snappyBlock = 32 << 10
)
