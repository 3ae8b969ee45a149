package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/internal/msg"
	"lockstep/plugins/sdk"
)

var (
	pluginRounds = flag.Int("plugin.rounds", 12, "brokers that are started and killed to look for what they leave")
	pluginSeed   = flag.Uint64("plugin.seed", 0, "seed of when they are killed, 0 = from the clock")
)

// plugins asks a broker for its plugins and waits until all serve.
func (n *node) plugins() map[sdk.Kind]pluginView {
	n.t.Helper()
	of := map[sdk.Kind]pluginView{}
	eventually(n.t, "every plugin serves", 10*time.Second, func() bool {
		var list []pluginView
		if json.Unmarshal([]byte(get("http://"+n.admin+"/plugins")), &list) != nil {
			return false
		}
		for _, v := range list {
			if of[v.Kind] = v; v.Phase != "SERVING" || v.Fence == 0 {
				return false
			}
		}
		return len(of) == len(kinds)
	})
	return of
}

func (n *node) journal(kind sdk.Kind) (list []journalView) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(get("http://"+n.admin+"/plugins/journal?since=0&kind="+string(kind))), &list); err != nil {
		n.t.Fatal(err)
	}
	return list
}

func sendSignal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(pid, err)
	}
}

func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// A promotion plugin that stands still stops the promotion and nothing else; the
// others that stand still do not stop a release or a fail-over.
func TestStoppedPlugins(t *testing.T) {
	ctx := ctxFor(t, 2*time.Minute)
	p := startPair(t, 0)
	id := p.topic(ctx, "orders", 1, nil)
	here := p.dst.plugins()
	sendSignal(t, here[sdk.Promotion].Pid, syscall.SIGSTOP)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "at lag 0", 20*time.Second, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
		return len(x.Partitions) == 1 && x.Partitions[0].StateValue == "MIRRORING" && x.Partitions[0].Lag == 0
	})
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if r, err := c.produce(14, "orders", id, 0, 5*time.Second, []byte("v")); err != nil || r.code != 0 {
			t.Fatalf("a stopped plugin met traffic: %+v %v", r, err)
		}
		if list := p.describe(ctx); len(list) != 1 || inSync(list[0]) {
			t.Fatalf("promoted without its policy: %+v", list)
		}
	}
	sendSignal(t, here[sdk.Promotion].Pid, syscall.SIGCONT)
	p.until(ctx, "SYNC", 20*time.Second, inSync)

	sendSignal(t, p.src.plugins()[sdk.Release].Pid, syscall.SIGSTOP)
	began := time.Now()
	p.release(ctx)
	if took := time.Since(began); took > time.Second {
		t.Errorf("a release beside a stopped plugin took %v", took)
	}

	sendSignal(t, here[sdk.Coordinator].Pid, syscall.SIGSTOP)
	began = time.Now()
	p.failOver(ctx, "orders")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a fail-over beside a stopped plugin took %v", took)
	}
}

// nices are the priorities of a process's threads.
func nices(t *testing.T, pid int) (list []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatal(pid, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		text := string(b)
		list = append(list, strings.Fields(text[strings.LastIndexByte(text, ')')+1:])[16])
	}
	return list
}

// Plugins give way to their broker, in all their threads, and the broker has
// none that gives way once they are up.
func TestPluginsGiveWay(t *testing.T) {
	n := startNode(t)
	for kind, v := range n.plugins() {
		for _, nice := range nices(t, v.Pid) {
			if nice != "10" {
				t.Errorf("%s: a thread of priority %s", kind, nice)
			}
		}
	}
	eventually(t, "the broker is as it was", 5*time.Second, func() bool {
		return !slices.ContainsFunc(nices(t, n.cmd.Process.Pid), func(s string) bool { return s != "0" })
	})
}

// Killed, or silent for long, a plugin is started again; each event has one line
// in the journal.
func TestKilledPlugin(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	p.topic(ctx, "orders", 2, nil)
	for _, v := range p.dst.plugins() {
		sendSignal(t, v.Pid, syscall.SIGKILL)
		eventually(t, "it is gone", 5*time.Second, func() bool { return gone(v.Pid) })
	}
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	for kind, v := range p.dst.plugins() {
		if v.Fails != 1 || !strings.Contains(v.Last, "killed") {
			t.Errorf("%s: %+v", kind, v)
		}
		seen := map[int64]bool{}
		for _, e := range p.dst.journal(kind) {
			if seen[e.Seq] {
				t.Errorf("%s: event %d is in the journal twice", kind, e.Seq)
			}
			seen[e.Seq] = true
		}
		for seq := int64(1); seq <= v.Seq; seq++ {
			if !seen[seq] {
				t.Errorf("%s: event %d of %d has no verdict", kind, seq, v.Seq)
			}
		}
	}
}

// Whatever is offered in the place of a plugin: a clear line, and the old one
// serves on.
func TestBadPlugins(t *testing.T) {
	n := startNode(t)
	before := n.plugins()
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bin, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	zero := strings.Repeat("0", 64)
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"wrong kind", "no kind of plugin", []string{"gate", bin}},
		{"no such file", "no such file", []string{"promotion", filepath.Join(dir, "nothing")}},
		{"not executable", "permission denied", []string{"promotion", plain}},
		{"wrong checksum", "SHA-256 is not the one given", []string{"promotion", bin, "--sha256", zero}},
		{"no checksum", "not a SHA-256", []string{"promotion", bin, "--sha256", "xyz"}},
		{"ends at once", "it is no plugin", []string{"promotion", script("ends", "exit 3")}},
		{"garbage", "/garbage: ", // what go-plugin makes of it depends on the bytes
			[]string{"promotion", script("garbage", "head -c 3000000 /dev/urandom; exec sleep 60")}},
		{"wrong protocol", "incompatible API version", []string{"promotion", script("old", `echo "1|99|unix|/nowhere|grpc|"; exec sleep 60`)}},
		{"another kind's", "", []string{"promotion", script("kind", "exec "+bin+" plugin release")}},
		{"nothing before", "no plugin served before", []string{"rollback", "promotion"}},
	} {
		args := append([]string{"plugins", "swap", "--admin-listener", n.admin}, c.args...)
		if c.args[0] == "rollback" {
			args = append([]string{"plugins", "--admin-listener", n.admin}, c.args...)[0:1]
			args = append(args, c.args[0], "--admin-listener", n.admin, c.args[1])
		}
		out, rc := runCLI(t, args...)
		if rc == 0 || !strings.Contains(out, c.want) || strings.Count(out, "\n") > 1 {
			t.Errorf("%s: exit %d, %q; want %q in one line", c.name, rc, out, c.want)
		}
		t.Logf("%s: %s", c.name, strings.TrimSpace(out))
	}
	for kind, v := range n.plugins() {
		if v.Pid != before[kind].Pid {
			t.Errorf("%s: pid %d, was %d", kind, v.Pid, before[kind].Pid)
		}
	}
}

// spawn starts the broker and waits for nothing.
func (n *node) spawn() {
	n.t.Helper()
	path, err := brokerBinary()
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd = exec.Command(path, n.args...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// left is what of a broker, and of its plugins, is still there: processes, by
// the temporary directory in their environment, sockets and files.
func left(tmp, data string) (list []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if env, err := os.ReadFile(filepath.Join(p, "environ")); err == nil && strings.Contains(string(env), tmp) && filepath.Base(p) != strconv.Itoa(os.Getpid()) {
			cmd, _ := os.ReadFile(filepath.Join(p, "cmdline"))
			list = append(list, p+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	if sockets, err := os.ReadFile("/proc/net/unix"); err == nil {
		for line := range strings.Lines(string(sockets)) {
			if strings.Contains(line, tmp) || strings.Contains(line, data) {
				list = append(list, strings.TrimSpace(line))
			}
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(tmp, sdk.SocketDirPrefix+"*"))
	return append(list, dirs...)
}

// A broker that is killed, or stopped, leaves no plugin, no socket and no file,
// whatever its plugins were at: serving, standing still, starting, killed a
// moment ago, being swapped. (Who is killed with all its plugins at one moment
// leaves nobody to tidy: the next start does, TestSocketDirSweeps.)
func TestPluginsGoWithTheirBroker(t *testing.T) {
	seed := *pluginSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (-plugin.seed), %d rounds", seed, *pluginRounds)
	r := rand.New(rand.NewPCG(seed, 0))
	tmp, err := os.MkdirTemp("/tmp", "ls")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	bin, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t) // its own files are not in tmp
	n.stop()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("#!/bin/sh\nexec "+bin+" plugin release\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	ways := []string{"killed", "killed with plugins stopped", "stopped clean", "killed while starting", "killed after two plugins", "killed in a swap"}
	seen := map[string]int{}
	for round := range *pluginRounds {
		way := ways[(round+int(seed%6))%len(ways)]
		seen[way]++
		moment := time.Duration(r.IntN(700)) * time.Millisecond
		if way == "killed while starting" {
			n.spawn()
		} else {
			n.start()
			serve, spared := n.plugins(), kinds[r.IntN(len(kinds))]
			for kind, v := range serve {
				switch {
				case way == "killed with plugins stopped":
					sendSignal(t, v.Pid, syscall.SIGSTOP)
				case way == "killed after two plugins" && kind != spared:
					sendSignal(t, v.Pid, syscall.SIGKILL)
				}
			}
		}
		swap := exec.Command(bin, "plugins", "swap", "release", other, "--admin-listener", n.admin)
		switch way {
		case "killed in a swap":
			if err := swap.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(moment)
		case "killed while starting":
			time.Sleep(moment)
		case "killed after two plugins":
			time.Sleep(moment / 4)
		}
		if way == "stopped clean" {
			n.stop()
		} else {
			n.kill()
		}
		if swap.Process != nil {
			_ = swap.Wait()
		}
		var still []string
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if still = left(tmp, n.dir); len(still) == 0 {
				break
			}
		}
		if len(still) > 0 {
			t.Fatalf("round %d, %s, %v after: 3 s later there is still\n%s", round, way, moment, strings.Join(still, "\n"))
		}
	}
	t.Logf("%v", seen)
}
