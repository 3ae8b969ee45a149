package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/internal/cli"
	"lockstep/internal/wire"
)

// output collects what a process writes while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestWatch: three watches, one for each form, live through a crash of the
// broker and end with 0 on Ctrl-C.
func TestWatch(t *testing.T) {
	n := startNode(t)
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	tty := openScreen(t)
	var text, textErr, lines, linesErr output
	var all []*exec.Cmd
	begin := func(out, errs any, args ...string) {
		cmd := exec.CommandContext(ctxFor(t, time.Minute), path, append([]string{"mirrors", "describe", "--watch", "--interval", "100ms", "--bootstrap-server", n.addr}, args...)...)
		if f, ok := out.(*os.File); ok {
			cmd.Stdout, cmd.Stderr = f, f
		} else {
			cmd.Stdout, cmd.Stderr = out.(*output), errs.(*output)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	begin(&text, &textErr)
	begin(&lines, &linesErr, "--json")
	begin(tty.slave, nil)
	eventually(t, "each has shown several times", 30*time.Second, func() bool {
		return strings.Count(text.String(), "\nNo mirror partitions found\n") > 2 && strings.Count(lines.String(), "\n") > 2 && strings.Count(tty.shown(), "\x1b[H") > 2
	})
	n.crash()
	eventually(t, "each has said that nobody answers", 30*time.Second, func() bool {
		return strings.Contains(textErr.String(), "asking again every 100ms, until Ctrl-C") && strings.Contains(lines.String(), `"error":`) && strings.Contains(tty.shown(), "NO ANSWER since ")
	})
	n.start()
	before := strings.Count(lines.String(), `"registrations":[]`)
	eventually(t, "each shows again", 30*time.Second, func() bool {
		s := tty.shown()
		last := s[strings.LastIndex(s, "\x1b[H"):]
		return strings.Contains(textErr.String(), "it answers again") && strings.Count(lines.String(), `"registrations":[]`) > before && !strings.Contains(last, "NO ANSWER") && strings.HasSuffix(last, "\x1b[J")
	})
	for i, cmd := range all {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("watch %d ended with %v", i, err)
		}
	}
	for _, l := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		var doc struct {
			AtMs       int64
			Error      string
			Partitions *[]cli.MirrorPartition
		}
		if err := json.Unmarshal([]byte(l), &doc); err != nil || doc.AtMs == 0 || (doc.Error == "") != (doc.Partitions != nil) {
			t.Fatalf("a line of --json: %v, %s", err, l)
		}
	}
	if n := strings.Count(textErr.String(), "asking again"); n != 1 {
		t.Errorf("an outage was said %d times:\n%s", n, textErr.String())
	}
	if s := linesErr.String(); s != "" {
		t.Errorf("--json wrote to stderr: %s", s)
	}
	if s := tty.shown(); !strings.Contains(s, "lockstep mirrors describe  ") || !strings.Contains(s, "every 100ms, Ctrl-C ends it") {
		t.Errorf("the heading of a terminal: %q", s[:min(len(s), 300)])
	}
}

// TestWatchRefused: what asking again does not mend ends a watch at once.
func TestWatchRefused(t *testing.T) {
	n := startNode(t)
	code, out, errs := lockstep("mirrors", "describe", "nothere", "--watch", "--bootstrap-server", n.addr)
	if code != cli.ExitFailed || out != "" || !strings.Contains(errs, "UNKNOWN_CLUSTER_MIRROR") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestFrame(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a\nbcdefg\n", "\x1b[Ha\x1b[K\nbcdef\x1b[K\n\x1b[J"},
		{"\x1b[31mré\t", "\x1b[H[31mr\x1b[K\n\x1b[J"}, // no control sequence passes
		{"1\n2\n3\n4\n5\n6\n7", "\x1b[H1\x1b[K\n2\x1b[K\n3\x1b[K\n4\x1b[K\n... 3\x1b[K\n\x1b[J"},
	} {
		if got := frame(c.text, 6, 5); got != c.want {
			t.Errorf("%q\n  is %q\nwant %q", c.text, got, c.want)
		}
	}
}

// TestProgress: a bar on a terminal, none elsewhere, none with JSON, and none
// of dump whose lines go to the same terminal.
func TestProgress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "orders-0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var data []byte
	for base := int64(0); len(data) < 3*progressStep; base++ {
		p := wire.PlainParams(1_700_000_000_000)
		p.BaseOffset = base
		data = wire.BuildBatch(data, p, wire.Record{Value: make([]byte, 32<<10)})
	}
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line    string
		outToo  bool
		want    string
		without string
	}{
		{"log verify " + dir, false, "verify", ""},
		{"log verify " + dir + " --json", false, "", "verify"},
		{"log dump " + dir, false, "dump", ""},
		{"log dump " + dir, true, "crc ok", "dump "},
	} {
		tty := openScreen(t)
		root, _ := rootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(tty.slave)
		if c.outToo {
			root.SetOut(tty.slave)
		}
		root.SetArgs(strings.Fields(c.line))
		if err := root.ExecuteContext(context.Background()); err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		fmt.Fprint(tty.slave, "end")
		eventually(t, "the terminal has it all", 5*time.Second, func() bool { return strings.HasSuffix(tty.shown(), "end") })
		got := tty.shown()
		if !strings.Contains(got, c.want) || c.without != "" && strings.Contains(got, c.without) {
			t.Errorf("%s: on the terminal %q", c.line, got)
		}
		if strings.Contains(out.String(), "%") {
			t.Errorf("%s: progress among the answer: %q", c.line, out.String())
		}
	}
	if _, _, errs := lockstep("log", "verify", dir); errs != "" {
		t.Errorf("progress where there is no terminal: %q", errs)
	}
}

// interrupt ends a process by signals that reach it together.
func interrupt(t *testing.T, p *os.Process, signals ...os.Signal) {
	t.Helper()
	for _, s := range append(append([]os.Signal{syscall.SIGSTOP}, signals...), syscall.SIGCONT) {
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}
