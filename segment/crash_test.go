package segment

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// The amounts here are the share of `go test`; make crash asks for more.
var (
	crashSeed     = flag.Uint64("crash.seed", 0, "seed of the crash tests, 0 = a new one")
	crashSweep    = flag.Int("crash.sweep", 1500, "truncations and bit flips of a log directory, at least")
	crashFaults   = flag.Int("crash.faults", 800, "scripts in which the n-th operation fails, at least")
	crashPrefixes = flag.Int("crash.prefixes", 2500, "prefixes of block-write logs, at least")
	fullDisk      = flag.Bool("full.disk", false, "fill a file system on a loop mount")
	crashCuts     = flag.Int("crash.cuts", 0, "power cuts per file system, on loop mounts")
)

// tally is what one kind of crash test did; make crash adds them up.
type tally struct {
	Kind    string  `json:"kind"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	Points  int     `json:"crash_points"`
	Cuts    int     `json:"power_cuts"`
	Checked int64   `json:"acked_checked"`
	Lost    int64   `json:"acked_lost"`
	Skipped string  `json:"skipped,omitempty"`
	Note    string  `json:"note,omitempty"`

	began time.Time
}

func newTally(t testing.TB, kind string) *tally {
	s := *crashSeed
	if s == 0 {
		s = rand.Uint64() >> 1
	}
	t.Logf("-crash.seed=%d", s)
	return &tally{Kind: kind, Seed: s, began: time.Now()}
}

// print writes the line that make crash reads. It is deferred: a run that ends red
// has lost something, which belongs in the ledger.
func (y *tally) print(t testing.TB) {
	y.Seconds = float64(int(time.Since(y.began).Seconds()*10)) / 10
	line, err := json.Marshal(y)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "CRASH %s\n", line)
}

// TestCrashBlockLog loses the power after every operation of lives of a log
// directory, with what was not flushed lost, torn or reordered: what was
// acknowledged as durable is there, and nothing is that was not written.
func TestCrashBlockLog(t *testing.T) {
	y := newTally(t, "block-log")
	defer y.print(t)
	for s := y.Seed; y.Points < *crashPrefixes; s++ {
		blockLog(t, s, 6, 30, false, y)
	}
}

// TestCrashBlockLogControl acknowledges before the fdatasync: the harness must
// see the loss.
func TestCrashBlockLogControl(t *testing.T) {
	y := newTally(t, "block-log control")
	for s := y.Seed; s < y.Seed+50 && y.Lost == 0; s++ {
		blockLog(t, s, 6, 30, true, y)
	}
	if y.Lost == 0 {
		t.Fatal("the harness does not see an acknowledgement before the fdatasync")
	}
	y.Note = "an acknowledgement planted before the fdatasync: it must lose"
	y.print(t)
}
