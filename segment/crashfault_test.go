package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

// failure is what goes wrong with the n-th operation of a script.
type failure int

const (
	ioError    failure = iota // EIO, once; a flush that fails has thrown its data away
	noSpace                   // ENOSPC, once
	diskFull                  // ENOSPC for all that takes space, for a while
	shortWrite                // half of the bytes, or for a small file io.ErrShortWrite
	failures
	noRemoval // EIO for the n-th removal and every second one after it
)

func (f failure) String() string {
	return [...]string{"EIO", "ENOSPC", "disk full for a while", "short write", "", "EIO for every second removal"}[f]
}

const fullFor = 40 // operations that diskFull lasts

// arm makes the n-th operation from now on go wrong and returns how many were
// asked for and what was hit.
func (f failure) arm(disk *crashFS, n int) (asked *int, hit *string) {
	asked, hit = new(int), new(string)
	takesSpace := map[string]bool{"allocate": true, "create": true, "write": true, "writefile": true, "mkdir": true}
	mayFill := map[string]bool{"pwritev": true, "datasync": true, "rename": true}
	disk.hook = func(op, name string, size int) (int, error) {
		if f == noRemoval && op != "remove" {
			return size, nil
		}
		*asked++
		var err error
		switch first := *asked == n; {
		case f == ioError && first:
			err = fault(op, syscall.EIO)
		case f == noSpace && first && (takesSpace[op] || mayFill[op]):
			err = fault(op, syscall.ENOSPC)
		case f == diskFull && *asked >= n && *asked < n+fullFor && takesSpace[op]:
			err = fault(op, syscall.ENOSPC)
		case f == shortWrite && first && size > 1:
			size /= 2
		case f == noRemoval && *asked >= n && (*asked-n)%2 == 0:
			err = fault(op, syscall.EIO)
		default:
			return size, nil
		}
		if *hit == "" {
			*hit = op + " " + name
		}
		return size, err
	}
	return asked, hit
}

// script is one run of a world whose n-th operation fails.
type script struct {
	*crashWorld
	f       failure
	n       int
	asked   *int
	hit     *string
	seed    uint64
	refused int
	died    bool
}

// TestCrashNthOperationFails runs a script again and again, each time with a
// later operation going wrong, until none is left: a failed flush ends the
// directory, a full disk refuses and recovers, nothing acknowledged is lost.
func TestCrashNthOperationFails(t *testing.T) {
	y := newTally(t, "nth-io-fails")
	defer y.print(t)
	var died, refused int
	for s := y.Seed; y.Points < *crashFaults; s++ {
		for f := range failures {
			for n := 1; ; n++ {
				x := runScript(t, s, n, f, 22, s%2 == 1)
				if *x.asked < n {
					break
				}
				if *x.hit == "" {
					continue // that operation cannot go wrong so
				}
				y.Points++
				x.checked(t, y)
				if x.died {
					died++
				}
				if x.refused > 0 {
					refused++
				}
			}
		}
	}
	y.Note = fmt.Sprintf("the directory ended in %d, a step was refused in %d", died, refused)
	if died == 0 || refused == 0 {
		t.Fatal("the faults do not reach the laws: ", y.Note)
	}
}

// TestCrashRemovalsFail runs long scripts in which files that are to go stay, and
// others go after all: what is left of a log has no hole.
func TestCrashRemovalsFail(t *testing.T) {
	y := newTally(t, "removals-fail")
	defer y.print(t)
	for s := y.Seed; y.Points < *crashFaults; s++ {
		for n := 1; ; n++ {
			x := runScript(t, s, n, noRemoval, 80, true)
			if *x.asked < n {
				break
			}
			y.Points++
			x.checked(t, y)
		}
	}
}

func (x *script) fatal(t *testing.T, why any) {
	t.Helper()
	t.Fatalf("seed %d, operation %d (%s) fails with %s: %v", x.seed, x.n, *x.hit, x.f, why)
}

// runScript plays steps, and after a step that failed it goes on as a broker
// would: with the log, or with a new process when the directory has ended.
func runScript(t *testing.T, seed uint64, n int, f failure, steps int, narrow bool) *script {
	w := newCrashWorld(rand.New(rand.NewPCG(seed, 13)), narrow)
	x := &script{crashWorld: w, f: f, n: n, seed: seed}
	x.asked, x.hit = f.arm(w.fs, n)
	if err := w.open(); err != nil {
		x.reopen(t, err)
	}
	for range steps {
		err := w.step()
		if errors.Is(err, errLaw) {
			x.fatal(t, err)
		}
		if w.fs.syncFailed && w.d.Failed() == nil {
			x.fatal(t, "a flush failed and the directory lives")
		}
		if w.d.Failed() != nil {
			x.dead(t)
			x.died = true
			x.reopen(t, w.d.Failed())
			continue
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) && f != shortWrite {
			x.fatal(t, fmt.Errorf("not the fault's error: %w", err))
		}
		x.refused++
		if !x.serving() {
			x.reopen(t, err)
		}
	}
	return x
}

// serving tells whether the logs are still there to go on with: a restart or
// a deletion that failed half way has closed them.
func (x *script) serving() bool {
	for _, p := range x.parts {
		if p.l == nil || p.l.closed.Load() || p.gone {
			return false
		}
	}
	return x.d != nil
}

// dead checks FailedDirIsDead.
func (x *script) dead(t *testing.T) {
	t.Helper()
	if x.fs.syncsAfterFail > 0 {
		x.fatal(t, "a log was flushed after a flush had failed")
	}
	for _, p := range x.parts {
		if p.l == nil || p.l.closed.Load() {
			continue
		}
		if p.l.Room(100, x.now) != RoomFailed {
			x.fatal(t, "a failed directory takes appends")
		}
		if _, err := p.l.Read(p.l.Start(), 100, p.l.End(), true); !errors.Is(err, ErrDirFailed) {
			x.fatal(t, fmt.Errorf("a failed directory is read: %w", err))
		}
		if _, ok := p.l.FlushPlan(); ok {
			x.fatal(t, "a failed directory is flushed")
		}
	}
	if err := x.d.WriteCheckpoint(RecoveryPointCheckpoint, nil); !errors.Is(err, ErrDirFailed) {
		x.fatal(t, fmt.Errorf("a failed directory takes checkpoints: %w", err))
	}
}

// reopen is a new process on the same machine: what the page cache has is
// there, the fault is over.
func (x *script) reopen(t *testing.T, why error) {
	t.Helper()
	if x.f != diskFull {
		x.fs.hook = nil
	}
	for _, p := range x.parts {
		if p.l != nil {
			p.l.Close()
		}
	}
	if x.d != nil {
		_ = x.d.Close()
	}
	if x.f == ioError && strings.HasPrefix(*x.hit, "syncdir") {
		// The journal is gone with it: nobody writes before a new mount.
		x.crash(x.fs.length(), loss(x.r.IntN(int(losses))))
	}
	x.fs.locks = map[string]bool{}
	x.fs.syncFailed = false
	err := x.open()
	if err != nil && x.f == diskFull {
		x.fs.hook = nil // a start may need space; it must come up once there is some
		err = x.open()
	}
	if err != nil {
		x.fatal(t, fmt.Errorf("no start after %w: %w", why, err))
	}
	for _, p := range x.parts {
		if broken := p.holds(p.l, false); broken != "" {
			x.fatal(t, broken)
		}
	}
	x.reconcile()
}

// checked loses the power at the end of the script and looks for what was
// acknowledged.
func (x *script) checked(t *testing.T, y *tally) {
	t.Helper()
	k := x.fs.length()
	how := loss(x.r.IntN(int(losses)))
	checked, lost, why := verify(x.fs.image(k, how, x.r), x.owed(k), false)
	y.Checked, y.Lost = y.Checked+checked, y.Lost+lost
	if why != "" {
		x.fatal(t, fmt.Sprintf("then the power went, %s: %s", how, why))
	}
}
