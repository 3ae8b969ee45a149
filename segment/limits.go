package segment

// Every bound of the package. Sizes are bytes, times milliseconds.
const (
	// openFiles is how many log files a directory keeps open and mapped before
	// unused logs are put to rest, unless DirOptions says otherwise.
	openFiles = 16000

	// bulkFlushes is from how many logs on one flush of the whole file system
	// takes the place of a flush of each.
	bulkFlushes = 64

	// manifestEntries and manifestProducers bound what the manifest of a clean
	// close says of one log, segments counted as entries.
	manifestEntries   = 64
	manifestProducers = 8

	// iovMax is the kernel's bound on the buffers of one pwritev (IOV_MAX).
	iovMax = 1024

	// fewPieces is up to where a write keeps its list of buffers small.
	fewPieces = 64

	// firstStep and maxStep bound how far a file is allocated ahead of need.
	// Steps double, so a small partition costs little and a busy one is
	// interrupted seldom.
	firstStep = 64 << 10
	maxStep   = 64 << 20

	// maxSegment bounds one file: index entries hold positions in 32 bits.
	maxSegment = 1<<31 - 1

	// maxRelativeOffset is how far the base offset of a batch may lie above
	// the base offset of its segment, as in Kafka.
	maxRelativeOffset = 1<<31 - 1

	// ringSize is how many of the last batch ends an active segment remembers.
	ringSize = 32

	// indexChunks chunks of doubling size, the first of firstChunk entries,
	// hold more entries than a file of maxSegment bytes has batches.
	indexChunks = 24
	firstChunk  = 16

	// warmBytes is how far behind the newest byte a page written by this
	// process is still taken to be in the page cache.
	warmBytes = 64 << 20

	// cleanerKeys is how many keys one pass of the cleaner tells apart: 96 MiB.
	// A dirty part with more takes several passes.
	cleanerKeys = 3 << 20

	// cleanerBuffer is how much of a rewritten segment is written at a time.
	cleanerBuffer = 1 << 20

	// batchOverhead is the size of a batch's header up to and including its
	// length field; batchHeader is the whole header.
	batchOverhead = 12
	batchHeader   = 61

	// sequenceWindow is how many batches of a producer are remembered to
	// recognise a repeated one, as in Kafka.
	sequenceWindow = 5

	// maxRecordsLimit bounds what one batch may inflate to when a timestamp
	// is looked up inside it.
	maxRecordsLimit = 256 << 20

	// noTimestamp is Kafka's "no timestamp".
	noTimestamp = -1
)
