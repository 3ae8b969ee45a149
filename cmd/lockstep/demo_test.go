package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// demoRun is a demo process with a temporary directory of its own.
type demoRun struct {
	cmd *exec.Cmd
	tmp string
	out bytes.Buffer
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	d := &demoRun{cmd: exec.Command(path, append([]string{"demo"}, args...)...), tmp: t.TempDir()}
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	return d
}

// brokers are the broker processes whose data is below tmp.
func (d *demoRun) brokers() (pids []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range dirs {
		line, err := os.ReadFile(f)
		if err == nil && bytes.Contains(line, []byte("broker\x00")) && bytes.Contains(line, []byte(d.tmp)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// end waits for the process and checks that nothing of it is left.
func (d *demoRun) end(t *testing.T, code int, files bool) (last string) {
	t.Helper()
	_ = d.cmd.Wait() // the code is looked at below
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit %d, want %d:\n%s", got, code, d.out.String())
	}
	eventually(t, "the demo's brokers are gone", 5*time.Second, func() bool { return len(d.brokers()) == 0 })
	left, err := os.ReadDir(d.tmp)
	if err != nil || len(left) > 0 != files {
		t.Errorf("left in the temporary directory: %v, err %v", left, err)
	}
	lines := strings.Split(strings.TrimSpace(d.out.String()), "\n")
	return lines[len(lines)-1]
}

var demoPass = regexp.MustCompile(`^PASS acked=8000 lost=0 corrupted=0 out_of_order=0 ack_p50_ms=\d+\.\d rtt_ms=4\d$`)

func TestDemoLosesNothing(t *testing.T) {
	for _, args := range [][]string{{"--reactors", "1"}, {"--reactors", "3", "--engine", "portable"}, {"--kill", "destination"}, {"--kill", "none"}, {"--destinations", "2", "--plugin", "none"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel() // most of it waits for the line
			d := startDemo(t, append(args, "--records", "8000")...)
			last := d.end(t, 0, false)
			out := d.out.String()
			if !demoPass.MatchString(last) {
				t.Errorf("last line %q:\n%s", last, out)
			}
			if args[0] == "--reactors" && (!strings.Contains(out, "promotion plugin swapped") || strings.Count(out, "payments: default 1 wishes register (every partition is in step): accepted") != 4) {
				t.Errorf("the swap and its verdicts are not shown:\n%s", out)
			}
			if args[0] == "--destinations" && !strings.Contains(out, "is furthest ahead: it takes over") {
				t.Errorf("nobody was chosen:\n%s", out)
			}
		})
	}
}

// TestDemoControl: without SYNC the same demo must see the loss.
func TestDemoControl(t *testing.T) {
	d := startDemo(t, "--async")
	last := d.end(t, 1, false)
	if ok, _ := regexp.MatchString(`^FAIL acked=20000 lost=[1-9]\d* corrupted=0 out_of_order=0 `, last); !ok {
		t.Errorf("last line %q:\n%s", last, d.out.String())
	}
}

// TestDemoLeavesNothing: however it ends, its children end with it.
func TestDemoLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		code   int
		files  bool
	}{
		"Ctrl-C":  {syscall.SIGINT, 1, false},
		"SIGTERM": {syscall.SIGTERM, 1, false},
		"SIGKILL": {syscall.SIGKILL, -1, true}, // nobody is left to remove the files
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDemo(t, "--records", "1000000")
			eventually(t, "both brokers run", 10*time.Second, func() bool { return len(d.brokers()) == 2 })
			time.Sleep(500 * time.Millisecond)
			if err := d.cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			last := d.end(t, c.code, c.files)
			if c.code == 1 && !strings.HasPrefix(last, "FAIL ") {
				t.Errorf("last line %q", last)
			}
		})
	}
}
