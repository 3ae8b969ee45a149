package main

import (
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// completed asks as a shell does and returns what is offered, without
// descriptions.
func completed(t *testing.T, words ...string) (offers []string, directive string) {
	t.Helper()
	code, out, errs := lockstep(append([]string{"__complete"}, words...)...)
	if code != 0 {
		t.Fatalf("%q: exit %d, %s", words, code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines[:len(lines)-1] {
		name, _, _ := strings.Cut(l, "\t")
		offers = append(offers, name)
	}
	return offers, lines[len(lines)-1]
}

// TestCompletionOffline: what is known without a cluster.
func TestCompletionOffline(t *testing.T) {
	const files, noFiles, noSpace, ext, dirs = ":0", ":4", ":6", ":8", ":16"
	for _, c := range []struct {
		line      string // the last word is the one that is begun, - = empty
		want      string // offers, those of several separated by blanks; * = at least these
		directive string
	}{
		{"mir", "mirrors", noFiles},
		{"plugins -", "journal list rollback swap", noFiles},
		{"plugins swap -", "coordinator promotion release", noFiles},
		{"plugins swap promotion -", "", files},
		{"plugins rollback -", "coordinator promotion release", noFiles},
		{"plugins journal promotion -", "", noFiles},
		{"completion -", "bash zsh fish", noFiles},
		{"help -", "* cluster exit-codes topics", noFiles},
		{"man mirrors -", "* describe stop", noFiles},
		{"man --dir -", "", dirs},
		{"broker -", "properties", ext},
		{"broker --log-level -", "debug info warn error", noFiles},
		{"demo --kill -", "source destination none", noFiles},
		{"demo --engine -", "auto io_uring portable", noFiles},
		{"version -", "", noFiles},
		{"log verify -", "", files},
		{"topics create --config min.ins", "min.insync.replicas=", noSpace},
		{"topics alter a --delete-config -", "* flush.ack retention.ms", noFiles},
		{"mirrors create dr --config boot", "bootstrap.servers=", noSpace},
		{"mirrors create dr --mirror-config -", "properties", ext},
		{"topics list --command-config -", "properties", ext},
		{"topics list --timeout -", "", noFiles},
	} {
		words := strings.Fields(c.line)
		if last := &words[len(words)-1]; *last == "-" {
			*last = ""
		}
		got, directive := completed(t, words...)
		want, some := strings.Fields(c.want), false
		if len(want) > 0 && want[0] == "*" {
			want, some = want[1:], true
		}
		missing := slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) })
		if missing || !some && len(got) != len(want) || directive != c.directive {
			t.Errorf("%s: %q %s, want %q %s", c.line, got, directive, want, c.directive)
		}
	}
}

// TestCompletionTopics asks a broker, and one that never answers.
func TestCompletionTopics(t *testing.T) {
	n := startNode(t)
	if code, _, errs := lockstep("topics", "create", "orders", "orders-eu", "logs", "--bootstrap-server", n.addr); code != 0 {
		t.Fatal(errs)
	}
	for line, want := range map[string]string{"describe ": "logs orders orders-eu", "describe or": "orders orders-eu", "delete orders or": "orders-eu", "alter l": "logs"} {
		words := append([]string{"--bootstrap-server", n.addr, "topics"}, strings.Split(line, " ")...)
		if got, directive := completed(t, words...); strings.Join(got, " ") != want || directive != ":4" {
			t.Errorf("%s: %q %s, want %q", line, got, directive, want)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // its backlog takes the connection, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	began := time.Now()
	if got, _ := completed(t, "topics", "describe", "--bootstrap-server", ln.Addr().String(), ""); len(got) != 0 {
		t.Errorf("offered %q", got)
	}
	if took := time.Since(began); took < completeWait/2 || took > completeWait+2*time.Second {
		t.Errorf("a broker that does not answer held the shell for %v, the limit is %v", took, completeWait)
	}
}

// TestCompletionScripts: each shell's script is written, and bash takes its own.
func TestCompletionScripts(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "complete -o default -F __start_lockstep lockstep", "zsh": "#compdef lockstep", "fish": "complete -c lockstep"} {
		code, out, errs := lockstep("completion", shell)
		if code != 0 || errs != "" || !strings.Contains(out, mark) {
			t.Errorf("%s: exit %d, %s, no %q", shell, code, errs, mark)
		}
		if shell == "bash" {
			check := exec.Command("bash", "-n")
			check.Stdin = strings.NewReader(out)
			if said, err := check.CombinedOutput(); err != nil {
				t.Errorf("bash refuses its script: %v, %s", err, said)
			}
		}
	}
}
