package host

import "time"

// Bounds.
const (
	journalSize   = 4096                   // entries kept of each kind
	Deadline      = 200 * time.Millisecond // of one call; then the broker goes on without it
	hungAfter     = 30 * time.Second       // a plugin silent for so long is killed and started anew
	startTimeout  = 10 * time.Second       // from exec to the end of the handshake
	killGrace     = 2 * time.Second        // between asking a plugin to leave and SIGKILL
	pacedBytes    = 256 << 10              // of a program are hashed ...
	pacedRest     = 500 * time.Microsecond // ... between two rests: 40 MB take a tenth of a second more
	pollEvery     = 100 * time.Millisecond // how often a plugin's life is looked at
	backoffFirst  = 100 * time.Millisecond // before a plugin that ended is started again; doubles
	backoffMost   = 30 * time.Second
	probationFor  = 30 * time.Second // a plugin that ends within it gives way to the one before
	shadowFor     = 2 * time.Second  // old and new see the same events before a cut-over
	shownDiffs    = 8                // differences kept of a shadow
	logFileMax    = 4 << 20          // bytes of a plugin's log; then one older file is kept
	describeMax   = 100              // bytes of a name or version
	socketBaseMax = 45               // bytes of the temporary directory's path
)
