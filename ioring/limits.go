package ioring

// Every bound of the package. Sizes are bytes unless the name says otherwise.
const (
	sqEntries = 1024 // submission slots: also the most ops one Turn submits at once
	cqEntries = 8192 // completion slots: several turns' worth, so overflow stays an accident

	// ProvidedSize is the first piece of a frame, and of what follows it on the
	// wire: several batches of a busy producer (16 KiB by default) come in one
	// piece, so few of them are cut and put together again. What is left of a
	// frame that is cut is received straight into its own buffer.
	ProvidedSize  = 64 << 10
	providedCount = 128 // buffers in a ring's group: idle connections pin none
	providedGroup = 0   // the one buffer group of a ring
	lendMin       = 32  // buffers of the group that the kernel has at a time when none was missed
	calmTurns     = 1 << 16

	// MaxPieces is the most slices one Send gathers (IOV_MAX is 1024; a turn
	// gains nothing past this and the header area stays one page).
	MaxPieces = 64

	sendSlots   = 1024 // message headers for sends in flight, each with MaxPieces iovecs
	opSlotsMin  = 256  // operations in flight the table starts with; it doubles as needed
	rawSendsMax = 8    // a turn with at most this many sends ...
	rawBytesMax = 64 << 10
	// ... and bytes is entered raw: more would keep the thread from a safepoint
	// for as long as the kernel copies.

	// MaxBuffer is the largest buffer of a Pool. No frame may be larger: it would
	// wait for memory for ever.
	MaxBuffer = 1 << maxClass

	pageSize   = 4 << 10 // the least of a page, in bytes
	minClass   = 9       // smallest pooled buffer: 512 B
	maxClass   = 27      // largest: MaxBuffer
	slabSize   = 256 << 10
	keepLarge  = 1 << 20 // buffers up to this size are kept for ever once made
	keptLarge  = 4       // larger ones: at most so many a class stay mapped
	epollBatch = 512     // readiness events taken per epoll_wait
)
