package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"lockstep/internal/cli"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// try runs the command line up to the point where a cluster would be asked.
func try(line string) (r *request, out string, err error) {
	cmd, ran := command(func(_ context.Context, got *request, _ *cli.Printer) error {
		r = got
		return nil
	})
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(strings.Fields(line))
	err = cmd.ExecuteContext(context.Background())
	if err != nil && *ran {
		err = errors.New("failed after the flags were accepted: " + err.Error())
	}
	return r, b.String(), err
}

func TestHelp(t *testing.T) {
	_, got, err := try("--help")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/help.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("help differs from %s (-rewrite takes it over):\n%s", file, got)
	}
}

// TestFlagErrors: each wrong call is refused with words that name the flag, and
// nothing is sent.
func TestFlagErrors(t *testing.T) {
	const b = "--bootstrap-server h:1 "
	for _, c := range []struct{ line, want string }{
		{b, "no action"},
		{b + "--create --delete --mirror m", "exactly one action is allowed, not --create and --delete"},
		{b + "--stop --remove --mirror m --topics a", "exactly one action"},
		{"--list", "--bootstrap-server is required"},
		{b + "--create --mirror m", "--create needs --mirror-config"},
		{b + "--create --mirror-config f", "--create needs --mirror"},
		{b + "--create --mirror m --mirror-config f --topics a", "--create takes no --topics"},
		{b + "--add --mirror m", "--add needs --topics"},
		{b + "--add --topics a", "--add needs --mirror"},
		{b + "--add --mirror m --topics a --async", "--async goes with --alter"},
		{b + "--add --mirror m --topics a --mirror-config f", "--mirror-config goes with --create"},
		{b + "--alter --mirror m --topics a", "--alter needs --sync or --async"},
		{b + "--alter --mirror m --topics a --sync --async", "exclude each other"},
		{b + "--alter --mirror m --sync", "--alter needs --topics"},
		{b + "--stop --mirror m", "--stop needs --topics"},
		{b + "--stop --mirror m --topics a --sync", "--sync goes with --add and --alter"},
		{b + "--stop --mirror m --topics a --failed", "--failed goes with --describe"},
		{b + "--pause --mirror m", "--pause needs --topics"},
		{b + "--resume --topics a", "--resume needs --mirror"},
		{b + "--delete", "--delete needs --mirror"},
		{b + "--delete --mirror m --topics a", "--delete takes no --topics"},
		{b + "--list --topics a", "--list takes no --topics"},
		{b + "--list --mirror m", "--list takes no --mirror"},
		{b + "--release-sync", "--release-sync needs --mirror"},
		{b + "--add --mirror m --topics a --topic b", "give one of them"},
		{b + "--add --mirror m --topics a(", "topic pattern"},
		{b + "--add --mirror m --topics ,", "no topic pattern"},
		{b + "--describe extra", "extra"},
		{b + "--nonsense", "nonsense"},
	} {
		r, _, err := try(c.line)
		if err == nil || r != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n  error %v, want %q", c.line, err, c.want)
		}
	}
}

// TestRequests: what right calls ask for.
func TestRequests(t *testing.T) {
	const b = "--bootstrap-server h:1 "
	for _, c := range []struct {
		line string
		ok   func(r *request) bool
	}{
		{"--bootstrap-server h:1,i:2 --list --json", func(r *request) bool {
			return r.action == "list" && r.options.Bootstrap == "h:1,i:2" && r.options.JSON
		}},
		{"--command-config f --list", func(r *request) bool { return r.options.CommandConfig == "f" }},
		{b + "--create --mirror m --mirror-config f", func(r *request) bool { return r.action == "create" && r.mirror == "m" && r.mirrorConfig == "f" }},
		{b + "--add --topic .* --mirror m --sync", func(r *request) bool { return r.action == "add" && r.sync && r.topics.Match("any") }},
		{b + "--add --topics a,b.* --mirror m", func(r *request) bool {
			return !r.sync && r.topics.Match("a") && r.topics.Match("bcd") && !r.topics.Match("ab") && !r.topics.Match("aa")
		}},
		{b + "--alter --topics a --mirror m --async", func(r *request) bool { return r.action == "alter" && !r.sync }},
		{b + "--release-sync --mirror m", func(r *request) bool { return r.action == "release-sync" && r.topics == nil }},
		{b + "--remove --topic a --mirror m", func(r *request) bool { return r.action == "remove" && r.topics != nil }},
		{b + "--describe", func(r *request) bool { return r.action == "describe" && r.mirror == "" && !r.failed }},
		{b + "--describe --failed --mirror m --topics a", func(r *request) bool { return r.failed && r.mirror == "m" && r.topics.Match("a") }},
	} {
		r, _, err := try(c.line)
		if err != nil || r == nil || !c.ok(r) {
			t.Errorf("%s\n  asked for %+v, err %v", c.line, r, err)
		}
	}
}

// TestExitCodes: usage is 2, anything that fails later 1.
func TestExitCodes(t *testing.T) {
	for line, want := range map[string]int{
		"--list": 2,
		"--bootstrap-server 127.0.0.1:1 --pause --mirror m --topics a": 1,
		"--bootstrap-server nonsense --list":                           2,
	} {
		if got := run(strings.Fields(line)); got != want {
			t.Errorf("%s: exit %d, want %d", line, got, want)
		}
	}
}
