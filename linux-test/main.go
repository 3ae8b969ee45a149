// Linux-test runs what needs more of the machine than `go test`: the crash
// harness at its full size, and the suites that need a feature of the kernel.
//
//	go run ./linux-test crash    every kind of crash; one line to docs/reliability/ledger.jsonl
//	go run ./linux-test suites   what each suite needs, and whether it ran, was skipped and why
//
// It starts `go test` with larger amounts and reads the lines "CRASH {json}"
// that the crash tests print. It fails when a test fails or a record that was
// acknowledged is lost; a planted bug (a kind that ends in " control") must lose.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 || !slices.Contains([]string{"crash", "suites"}, os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: go run ./linux-test crash|suites [flags]")
		os.Exit(2)
	}
	run := map[string]func([]string) error{"crash": crash, "suites": suites}[os.Args[1]]
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kind is one line "CRASH {json}".
type kind struct {
	Kind    string  `json:"kind,omitempty"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	Points  int     `json:"crash_points"`
	Cuts    int     `json:"power_cuts"`
	Checked int64   `json:"acked_checked"`
	Lost    int64   `json:"acked_lost"`
	Skipped string  `json:"skipped,omitempty"`
	Note    string  `json:"note,omitempty"`
}

func (k kind) control() bool { return strings.HasSuffix(k.Kind, " control") }

// entry is one line of the ledger: a run of make crash.
type entry struct {
	Time    string            `json:"time"`
	Commit  string            `json:"commit"`
	Seed    uint64            `json:"seed"`
	Seconds float64           `json:"seconds"`
	Points  int               `json:"crash_points"`
	Cuts    int               `json:"power_cuts"`
	Checked int64             `json:"acked_checked"`
	Lost    int64             `json:"acked_lost"`
	ByKind  map[string]kind   `json:"by_kind"`
	Skipped map[string]string `json:"skipped"`
	Failed  []string          `json:"failed,omitempty"`
}

// add counts a kind. What a planted bug loses is not lost.
func (e *entry) add(k kind) {
	name := k.Kind
	if k.Skipped != "" {
		e.Skipped[name] = k.Skipped
		return
	}
	if k.control() {
		if k.Lost == 0 {
			e.Failed = append(e.Failed, name+": the planted bug is not seen")
		}
	} else {
		e.Points, e.Cuts = e.Points+k.Points, e.Cuts+k.Cuts
		e.Checked, e.Lost = e.Checked+k.Checked, e.Lost+k.Lost
	}
	k.Kind = ""
	e.ByKind[name] = k
}

// crash runs all kinds and writes the ledger.
func crash(args []string) error {
	f := flag.NewFlagSet("crash", flag.ExitOnError)
	seed := f.Uint64("crash.seed", 0, "seed of all kinds, 0 = a new one")
	sweep := f.Int("crash.sweep", 20000, "truncations and bit flips")
	faults := f.Int("crash.faults", 8000, "scripts in which the n-th operation fails")
	prefixes := f.Int("crash.prefixes", 60000, "prefixes of block-write logs")
	cuts := f.Int("crash.cuts", 150, "power cuts per file system")
	kills := f.Int("crash.kills", 200, "kill -9 of a broker")
	ledger := f.String("crash.ledger", "docs/reliability/ledger.jsonl", "where the line of the run goes")
	_ = f.Parse(args)
	if *seed == 0 {
		*seed = rand.Uint64() >> 12 // exact in every reader of JSON
	}
	began := time.Now()
	e := &entry{Time: began.UTC().Format(time.RFC3339), Commit: commit(), Seed: *seed, ByKind: map[string]kind{}, Skipped: map[string]string{}}
	runs := [][]string{
		{"./segment", "-run", "TestCrash", fmt.Sprint("-crash.sweep=", *sweep), fmt.Sprint("-crash.faults=", *faults),
			fmt.Sprint("-crash.prefixes=", *prefixes), fmt.Sprint("-crash.cuts=", *cuts)},
		{"./cmd/lockstep", "-run", "TestCrashKills", fmt.Sprint("-crash.kills=", *kills)},
	}
	for _, r := range runs {
		args := append([]string{"test", "-v", "-count=1", "-timeout=1200s"}, r...)
		if err := goTest(append(args, fmt.Sprint("-crash.seed=", *seed)), e.add); err != nil {
			e.Failed = append(e.Failed, r[0])
		}
	}
	e.Seconds = float64(int(time.Since(began).Seconds()*10)) / 10
	e.print(os.Stdout)
	if err := e.write(*ledger); err != nil {
		return err
	}
	if e.Lost > 0 || len(e.Failed) > 0 {
		return fmt.Errorf("crash: %d acknowledged records lost, failed: %v; the same again: make crash A=-crash.seed=%d", e.Lost, e.Failed, e.Seed)
	}
	return nil
}

func (e *entry) print(w io.Writer) {
	names := make([]string, 0, len(e.ByKind))
	for name := range e.ByKind {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(w, "%-26s %12s %10s %14s %10s %8s\n", "kind", "crash points", "power cuts", "acked checked", "acked lost", "seconds")
	for _, name := range names {
		k := e.ByKind[name]
		fmt.Fprintf(w, "%-26s %12d %10d %14d %10d %8.1f  %s\n", name, k.Points, k.Cuts, k.Checked, k.Lost, k.Seconds, k.Note)
	}
	for name, why := range e.Skipped {
		fmt.Fprintf(w, "%-26s skipped: %s\n", name, why)
	}
	fmt.Fprintf(w, "%-26s %12d %10d %14d %10d %8.1f  commit %s, seed %d\n", "all", e.Points, e.Cuts, e.Checked, e.Lost, e.Seconds, e.Commit, e.Seed)
}

func (e *entry) write(path string) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Close()
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// goTest runs go with args, hands its CRASH lines to add and shows the rest if
// it fails.
func goTest(args []string, add func(kind)) error {
	cmd := exec.Command("go", args...)
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = pw, pw
	if err := cmd.Start(); err != nil {
		return err
	}
	var rest strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if k, ok := parse(lines.Text()); ok {
				fmt.Fprintf(os.Stderr, "%s: %d crash points, %d power cuts, %d acknowledged, %d lost %s\n", k.Kind, k.Points, k.Cuts, k.Checked, k.Lost, k.Skipped)
				add(k)
				continue
			}
			rest.WriteString(lines.Text() + "\n")
		}
	}()
	err := cmd.Wait()
	_ = pw.Close()
	<-done
	if err != nil {
		fmt.Fprint(os.Stderr, rest.String())
	}
	return err
}

// parse reads a line "CRASH {json}".
func parse(line string) (k kind, ok bool) {
	text, ok := strings.CutPrefix(line, "CRASH ")
	return k, ok && json.Unmarshal([]byte(text), &k) == nil && k.Kind != ""
}
