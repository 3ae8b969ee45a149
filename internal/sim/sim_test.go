package sim

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	flagSeed  = flag.Uint64("sim.seed", 0, "play this seed only; 0 = new ones")
	flagTrace = flag.Bool("sim.trace", false, "print all events of a failure, not the last ones")
	flagLaw   = flag.String("sim.law", "", "only the breach of this law is a failure: for planted bugs")
	flagTime  = flag.Duration("sim.d", 0, "how long to play new seeds")
)

// TestSim plays worlds until its time is over, or one seed:
//
//	go test ./internal/sim -run TestSim -sim.seed=N
//	go test ./internal/sim -run TestSim -sim.d=60s
func TestSim(t *testing.T) {
	seed, given := *flagSeed, *flagSeed != 0
	if v := os.Getenv("LOCKSTEP_SEED"); v != "" && !given {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed, given = n, true
	}
	if given {
		play(t, seed)
		return
	}
	d := *flagTime
	if d == 0 {
		d = 12 * time.Second
		if v := os.Getenv("LOCKSTEP_SIM_SECONDS"); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			d = time.Duration(n) * time.Second
		}
	}
	if testing.Short() {
		d = 2 * time.Second
	}
	first := rand.Uint64N(1 << 40)
	t.Logf("first seed %d; -sim.seed=N plays one again", first)
	n, events := uint64(0), 0
	for end := time.Now().Add(d); time.Now().Before(end); n++ {
		events += play(t, first+n)
	}
	t.Logf("%d worlds, %d events", n, events)
}

// play plays one world and returns its events.
func play(t *testing.T, seed uint64) int {
	t.Helper()
	cfg := Pick(seed)
	cfg.Whole = *flagTrace
	w, err := Run(seed, cfg)
	if err != nil && (*flagLaw == "" || strings.Contains(err.Error(), "invariant broken: "+*flagLaw)) { // a panic of the runtime names no law
		t.Fatal(err)
	}
	return w.events
}

// TestSameSeedSameRun: a failure can be played again.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		a, err := Run(seed, Pick(seed))
		if err != nil {
			t.Fatal(err)
		}
		b, err := Run(seed, Pick(seed))
		if err != nil {
			t.Fatal(err)
		}
		if a.Trace() != b.Trace() || a.mono != b.mono {
			t.Fatalf("seed %d played twice differs:\n%s\n----\n%s", seed, a.Trace(), b.Trace())
		}
	}
}
