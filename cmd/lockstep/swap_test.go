package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/internal/wire"
	"lockstep/plugins/sdk"
)

var swapRounds = flag.Int("swap.rounds", 4, "swaps of the promotion plugin under load")

// documentedPlugin builds the program of docs/plugins.md in a module of its own.
func documentedPlugin(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs/plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(doc), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !ok {
		t.Fatal(err, ok)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own := strings.Replace(string(mod), "module lockstep\n", "module patient\n", 1) + "\nrequire lockstep v0.0.0\n\nreplace lockstep => " + root + "\n"
	for name, data := range map[string]string{"main.go": code, "go.mod": own, "go.sum": string(sum)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-mod=mod", "-o", "patient", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the plugin of docs/plugins.md does not build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "patient")
}

// Under load the promotion plugin is swapped for another module's and back,
// killed and stopped in between: no produce fails, and every event has exactly
// one line in the journal.
func TestSwapUnderLoad(t *testing.T) {
	ctx := ctxFor(t, 4*time.Minute)
	patient := documentedPlugin(t)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=1000")
	id := p.topic(ctx, "orders", 4, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	over := make(chan struct{})
	var took []time.Duration
	var load sync.WaitGroup
	load.Go(func() {
		c, err := dialRaw(p.src.addr)
		if err != nil {
			t.Error(err)
			return
		}
		for i := int32(0); ; i++ {
			select {
			case <-over:
				return
			default:
			}
			began := time.Now()
			if r, err := c.produce(14, "orders", id, i%4, 5*time.Second, []byte("v")); err != nil || r.code != wire.ErrNone {
				t.Errorf("a swap met traffic: %+v %v", r, err)
				return
			}
			took = append(took, time.Since(began))
		}
	})
	for round := range *swapRounds {
		p.release(ctx) // events: demotion, recovery, registration
		switch round % 4 {
		case 2:
			sendSignal(t, p.dst.plugins()[sdk.Promotion].Pid, syscall.SIGKILL)
			p.dst.plugins()
		case 3:
			pid := p.dst.plugins()[sdk.Promotion].Pid
			sendSignal(t, pid, syscall.SIGSTOP)
			time.AfterFunc(time.Second, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		}
		args := []string{"plugins", "rollback", "promotion", "--admin-listener", p.dst.admin}
		if round%2 == 0 {
			args = []string{"plugins", "swap", "promotion", patient, "--admin-listener", p.dst.admin}
		}
		out, code := runCLI(t, args...)
		if code != 0 {
			t.Fatalf("round %d: exit %d: %s", round, code, out)
		}
		t.Logf("round %d: %s", round, strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "))
	}
	eventually(t, "registered again", 20*time.Second, func() bool { return p.src.metric(registeredHere) == 1 })
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	close(over)
	load.Wait()
	last := p.dst.plugins()[sdk.Promotion].Seq
	lines := map[int64]int{}
	for _, e := range p.dst.journal(sdk.Promotion) {
		lines[e.Seq]++
	}
	for seq := int64(1); seq <= last; seq++ { // the journal keeps 4,096: a run of this length has all
		if lines[seq] != 1 {
			t.Errorf("event %d of %d has %d lines", seq, last, lines[seq])
		}
	}
	slices.Sort(took)
	t.Logf("%d produces, p50 %v, p99 %v, most %v; %d events", len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1], len(lines))
}
