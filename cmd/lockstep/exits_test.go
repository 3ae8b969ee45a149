package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
)

// TestExitCodes runs into each code of the table but 0 and 1 of commands that
// need a cluster, which other tests do.
func TestExitCodes(t *testing.T) {
	dir, segments := logDir(t)
	hurt, _ := logDir(t)
	if err := os.WriteFile(strings.Replace(segments[0], dir, hurt, 1), []byte("no batch"), 0o644); err != nil {
		t.Fatal(err)
	}
	const nobody = " --bootstrap-server 127.0.0.1:1 --timeout 300ms"
	ran := map[int]bool{}
	for line, want := range map[string]int{
		"":                             0,
		"version":                      0,
		"help exit-codes":              0,
		"log verify " + dir:            0,
		"log verify " + hurt:           cli.ExitFailed,
		"log dump /nowhere":            cli.ExitFailed,
		"topics list" + nobody:         cli.ExitFailed,
		"mirrors list" + nobody:        cli.ExitFailed,
		"cluster status" + nobody:      cli.ExitFailed,
		"broker /nowhere":              cli.ExitFailed,
		"nonsense":                     cli.ExitUsage,
		"help nonsense":                cli.ExitUsage,
		"topics":                       cli.ExitUsage,
		"topics create":                cli.ExitUsage,
		"mirrors add dr" + nobody:      cli.ExitUsage, // before anybody is asked
		"topics list --nonsense":       cli.ExitUsage,
		"topics list --timeout -1s":    cli.ExitUsage,
		"cluster health" + nobody:      cli.ExitUnhealthy,
		"cluster health --nonsense":    cli.ExitUsage,
		"plugin promotion":             cli.ExitUsage, // not started by a broker
		"demo --records 1":             cli.ExitUsage,
		"broker --log-level shout":     cli.ExitUsage,
		"cluster health --timeout -1s": cli.ExitUsage,
	} {
		code, _, errs := lockstep(strings.Fields(line)...)
		if code != want || (code == 0) != (errs == "") {
			t.Errorf("%q: exit %d, want %d; %s", line, code, want, errs)
		}
		ran[code] = true
	}
	ran[exitInterrupted] = interruptedCommand(t) && interruptedBroker(t)
	for _, e := range exitCodes {
		if !ran[e.code] {
			t.Errorf("nothing ended with %d", e.code)
		}
	}
}

// interruptedCommand is Ctrl-C while a command waits: the signal itself ends
// it, of which a shell makes 130.
func interruptedCommand(t *testing.T) bool {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctxFor(t, time.Minute), path, "topics", "list", "--bootstrap-server", ln.Addr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if c, err := ln.Accept(); err == nil { // it is past its start
		defer func() { _ = c.Close() }()
	}
	_ = cmd.Process.Signal(os.Interrupt)
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) {
		t.Errorf("interrupted, and ended with %v", err)
		return false
	}
	status := ended.Sys().(syscall.WaitStatus)
	return status.Signaled() && 128+int(status.Signal()) == exitInterrupted
}

// interruptedBroker is the second signal of a broker that drains.
func interruptedBroker(t *testing.T) bool {
	n := startNode(t)
	interrupt(t, n.cmd.Process, syscall.SIGTERM, os.Interrupt)
	_ = n.cmd.Wait()
	code := n.cmd.ProcessState.ExitCode()
	n.cmd = nil
	if code != exitInterrupted {
		t.Errorf("a broker's second signal: exit %d, log:\n%s", code, n.tail())
	}
	return code == exitInterrupted
}

// TestBrokerRefusals: a broker that does not start says why on one line, and
// what to do.
func TestBrokerRefusals(t *testing.T) {
	n := startNode(t)
	elsewhere := []string{"--override", "log.dirs=" + t.TempDir(), "--override", "listeners=PLAINTEXT://" + freeAddr(t), "--override", "lockstep.admin.listener=" + freeAddr(t)}
	for _, c := range []struct{ override, want, next string }{
		{"listeners=foo", `configuration: listeners: "foo" is not NAME://host:port; listeners is empty`, "; correct the file or --override, then start again"},
		{"retention.mss=1", "configuration: override: unknown setting retention.mss", "; correct the file or --override, then start again"},
		{"log.dirs=" + n.dir, "start: log directory " + n.dir + " is in use by another process", "; stop that process, or name another directory in log.dirs"},
		{"log.dirs=/proc/nothing", "start: mkdir /proc/nothing", "; see that this user may write there; log.dirs names the directories"},
		{"listeners=PLAINTEXT://" + n.addr, "another process listens there", "stop it or choose another port in listeners"},
		{"lockstep.admin.listener=" + n.admin, "address already in use", "; choose another port, or leave it empty for none"},
	} {
		out, code := runCLI(t, append(append([]string{"broker"}, elsewhere...), "--override", c.override)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		last := lines[len(lines)-1]
		if code != cli.ExitFailed || !strings.HasPrefix(last, "lockstep: ") || !strings.Contains(last, c.want) || !strings.HasSuffix(last, c.next) {
			t.Errorf("%s: exit %d\n  %s\nwant %q and an end in %q", c.override, code, last, c.want, c.next)
		}
	}
}

// TestNextSteps: what a person can be refused ends in what to do next.
func TestNextSteps(t *testing.T) {
	binary, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx := ctxFor(t, time.Minute)
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: binary, Dir: t.TempDir(), NoLink: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	src, dst := c.Source.Addr, c.Destination.Addr
	for _, s := range []struct {
		at, line string
		next     string // how the last line on stderr ends; empty = it is done
	}{
		{src, "topics create orders logs --partitions 2", ""},
		{src, "topics create orders", "; choose another name, or delete that topic first"},
		{src, "topics create a:b", ": use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor .."},
		{src, "topics create x --replication-factor 3", ": lower it, or start more brokers"},
		{src, "topics create x --partitions 0", ": ask for at least 1, or for -1, the broker's default"},
		{src, "topics create x --config retention.mss=1", "; did you mean retention.ms?"},
		{src, "topics create x --config retention.ms=soon", ": correct the setting"},
		{src, "topics create orders logs", "; see above why, and what to do about it"},
		{src, "topics delete nope", ": list the topics to see which exist"},
		{src, "topics describe nope", "; lockstep topics list shows what there is"},
		{src, "topics alter nope --partitions 4", ": list the topics to see which exist"},
		{src, "topics alter nope --config retention.ms=1", ": list the topics to see which exist"},
		{src, "topics alter orders --partitions 1", ": ask for more than 2"},
		{dst, "mirrors create dr --config bootstrap.servers=127.0.0.1:1", ": check bootstrap.servers, or name mirror.source.cluster.id to create the mirror all the same"},
		{dst, "mirrors create a:b --config bootstrap.servers=" + src, ": use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor .."},
		{dst, "mirrors create dr --config bootstrap.servers=" + src + " --config fetch.max.byte=1", "?"},
		{dst, "mirrors create dr --config bootstrap.servers=" + src, ""},
		{dst, "mirrors create dr --config bootstrap.servers=" + src, ": alter its configs, or delete it first"},
		{dst, "mirrors create dr --mirror-config /nowhere", "; check the name and its permissions"},
		{dst, "mirrors add nope --topics orders", "; create it first; mirrors live on the destination"},
		{dst, "mirrors add dr --topics nope", "; a pattern must fit the whole name, such as 'orders-.*'"},
		{dst, "mirrors add dr --topics orders", ""},
		{dst, "mirrors create dr2 --config bootstrap.servers=" + src, ""},
		{dst, "mirrors alter dr2 --topics orders --sync", "; a pattern must fit the whole name, such as 'orders-.*'"},
		{dst, "mirrors delete dr", "; stop its topics, and wait until describe shows STOPPED"},
		{dst, "mirrors delete nope", ": create it first, or list the mirrors to see which exist"},
		{dst, "mirrors describe nope", "; list shows which there are"},
		{dst, "mirrors release-sync dr", "; run this on the source cluster; describe there shows the registrations"},
		{dst, "topics alter orders --partitions 5", ": add the partitions there"},
		{dst, "plugins rollback promotion --admin-listener " + c.Destination.Admin, "; name a program: lockstep plugins swap promotion PATH"},
		{dst, "plugins swap promotion /bin/nope --admin-listener " + c.Destination.Admin, "; name a program this machine has"},
		{dst, "plugins swap promotion /bin/true --admin-listener " + c.Destination.Admin, "; mend the program and swap again; the old one serves on"},
		{dst, "plugins list --admin-listener " + dst, "; see lockstep.admin.listener in the broker's configuration, and name it by --admin-listener"},
		{dst, "cluster health --admin-listener 127.0.0.1:1", "; see lockstep cluster status"},
	} {
		code, out, errs := lockstep(append(strings.Fields(s.line), "--bootstrap-server", s.at, "--timeout", "10s")...)
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		if last := lines[len(lines)-1]; (s.next == "") != (code == 0) || !strings.HasSuffix(last, s.next) || s.next != "" && !strings.HasPrefix(last, "lockstep: ") {
			t.Errorf("%s: exit %d\n  %s\nwant an end in %q\n%s", s.line, code, last, s.next, out)
		}
	}
}
