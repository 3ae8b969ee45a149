package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/wire"
)

// lockstep runs a command line in this process.
func lockstep(args ...string) (code int, out, errs string) {
	root, ran := rootCommand()
	var o, e bytes.Buffer
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(args)
	code = cli.Report(&e, "lockstep", root.ExecuteContext(context.Background()), *ran)
	return code, o.String(), e.String()
}

// TestHelpTeaches: every command says what it is for and shows a real call.
func TestHelpTeaches(t *testing.T) {
	root, _ := rootCommand()
	root.InitDefaultHelpCmd() // as execution does
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		seen++
		if c.Short == "" || !strings.Contains(c.Example, "lockstep ") {
			t.Errorf("%s: no summary or no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if seen < 25 {
		t.Errorf("only %d commands", seen)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"nonsense", "nonsense"},
		{"topics", "name what to do"},
		{"mirors list", `"mirors" is no command: did you mean mirrors; see --help`},
		{"mirrors lst", `"mirrors lst" is no command: did you mean list; see --help`},
		{"mirrors nonsense --flag", `"mirrors nonsense" is no command: there are add, alter`},
		{"help mirrors lst", "did you mean list"},
		{"topics create", "topics create wants NAME..., and got no argument"},
		{"topics list extra", "topics list takes no arguments, not extra"},
		{"topics list --nonsense", "topics list: unknown flag: --nonsense"},
		{"topics alter a", "topics alter: nothing to alter: give --partitions"},
		{"topics create a --config b", "--config \"b\" is not NAME=VALUE, such as"},
		{"mirrors create dr", "--config bootstrap.servers=HOST:PORT"},
		{"mirrors add dr", "mirrors add: name the topics: --topics 'orders-.*'"},
		{"mirrors stop dr --topics a(", "topic pattern"},
		{"mirrors alter dr --topics a", "mirrors alter: give one of --sync and --async"},
		{"mirrors describe --interval 2s", "--interval goes with --watch"},
		{"mirrors describe --watch --interval 1ms", "want 100ms at least"},
		{"mirrors describe --watch --bootstrap-server nowhere", "is not HOST:PORT"},
		{"completion tcsh", "completion wants bash|zsh|fish"},
		{"man nonsense", `there is no command "nonsense"`},
		{"man mirrors --dir /nowhere", "name no command"},
		{"cluster health --admin-listener nowhere", "--admin-listener: \"nowhere\" is not HOST:PORT"},
		{"plugins list --admin-listener nowhere", "--admin-listener: \"nowhere\" is not HOST:PORT"},
		{"plugins rollback nonsense", "coordinator, promotion or release"},
		{"topics list --bootstrap-server nowhere", "is not HOST:PORT"},
		{"mirrors alter dr --topics a --sync --bootstrap-server 127.0.0.1:1 --timeout 10ms", ""},
		{"log verify", "log verify wants DIR..."},
		{"demo --kill all", "--kill is source, destination or none"},
		{"demo --records 3", "--records"},
		{"demo --async --kill destination", "shows nothing"},
		{"demo --rtt 2s", "--rtt"},
	} {
		code, out, errs := lockstep(strings.Fields(c.line)...)
		want := cli.ExitUsage
		if c.want == "" {
			want = cli.ExitFailed
		}
		if code != want || !strings.HasPrefix(errs, "lockstep: ") || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", c.line, code, out, errs)
		}
	}
}

// TestNobodyThere: an error says what failed, why, and what to do.
func TestNobodyThere(t *testing.T) {
	code, _, errs := lockstep("topics", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "300ms")
	if code != cli.ExitFailed || !strings.Contains(errs, "127.0.0.1:1") || !strings.Contains(errs, "; see whether a broker listens there") {
		t.Errorf("exit %d, %q", code, errs)
	}
	code, _, errs = lockstep("cluster", "health", "--bootstrap-server", "127.0.0.1:1", "--timeout", "300ms")
	if code != cli.ExitUnhealthy || !strings.HasPrefix(errs, "lockstep: unhealthy: ") {
		t.Errorf("health: exit %d, %q", code, errs)
	}
	code, _, errs = lockstep("metadata", "dump", "--admin-listener", "127.0.0.1:1")
	if code != cli.ExitFailed || !strings.HasPrefix(errs, "lockstep: asking the admin listener at 127.0.0.1:1: dial tcp") || !strings.Contains(errs, "lockstep.admin.listener") {
		t.Errorf("metadata: exit %d, %q", code, errs)
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := lockstep("version", "--json")
	var v versionFacts
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.Version != version || !strings.HasPrefix(v.Go, "go1.") || v.Kernel == "" || v.Commit == "" {
		t.Errorf("exit %d, %s, err %v", code, out, err)
	}
}

// logDir writes a partition of two segments and returns the log directory.
func logDir(t *testing.T) (dir string, segments [2]string) {
	t.Helper()
	dir = t.TempDir()
	part := filepath.Join(dir, "orders-0")
	if err := os.MkdirAll(part, 0o755); err != nil {
		t.Fatal(err)
	}
	batch := func(base int64, values ...string) []byte {
		p := wire.PlainParams(1_700_000_000_000)
		p.BaseOffset, p.PartitionLeaderEpoch = base, 4
		var recs []wire.Record
		for _, v := range values {
			recs = append(recs, wire.Record{Key: []byte("k"), Value: []byte(v)})
		}
		return wire.BuildBatch(nil, p, recs...)
	}
	segments = [2]string{filepath.Join(part, "00000000000000000000.log"), filepath.Join(part, "00000000000000000003.log")}
	first := append(batch(0, "a", "b"), batch(2, "c")...)
	second := append(batch(3, "d", "\x00\x01"), make([]byte, 5000)...) // allocated ahead
	for i, data := range [][]byte{first, second} {
		if err := os.WriteFile(segments[i], data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, segments
}

func TestLogDump(t *testing.T) {
	dir, segments := logDir(t)
	code, out, errs := lockstep("log", "dump", dir, "--records")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %q", code, errs)
	}
	for _, want := range []string{segments[0] + "\n", "byte 0  offsets 0..1  epoch 4  pid -1/-1  seq -1  none  time 2023-11-14T22:13:20.000Z",
		"offsets 3..4", `    1  2023-11-14T22:13:20.000Z  key "k"  value "b"`, `value "0x0001"`, "crc ok"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, _ = lockstep("log", "dump", segments[1], "--json", "--records")
	var b batchLine
	if err := json.Unmarshal([]byte(out), &b); code != 0 || err != nil || b.BaseOffset != 3 || b.LastOffset != 4 || !b.CRC || len(b.Records) != 2 || *b.Records[0].Value != "d" {
		t.Errorf("exit %d, err %v, %s", code, err, out)
	}
}

// TestLogVerify: an intact directory passes; each kind of damage is found, in
// the right file at the right byte.
func TestLogVerify(t *testing.T) {
	dir, _ := logDir(t)
	code, out, errs := lockstep("log", "verify", dir)
	if code != 0 || errs != "" || !strings.Contains(out, "2 files, 3 batches, 5 records") || !strings.Contains(out, ": 0 damaged places") {
		t.Fatalf("intact: exit %d, %q, %q", code, out, errs)
	}
	for name, c := range map[string]struct {
		hurt func(data []byte, segment int) []byte
		file int
		at   int64
		what string
	}{
		"a flipped bit": {func(d []byte, i int) []byte {
			if i == 0 {
				d[100] ^= 1
			}
			return d
		}, 0, 79, "the checksum does not fit"},
		"a segment cut short": {func(d []byte, i int) []byte {
			if i == 0 {
				return d[:len(d)-3]
			}
			return d
		}, 0, 0, "no whole batch"},
		"garbage after the end": {func(d []byte, i int) []byte {
			if i == 1 {
				d[len(d)-1] = 9
			}
			return d
		}, 1, 0, "not zeros"},
		"a hole in the offsets": {func(d []byte, i int) []byte {
			if i == 0 {
				b, rest, _ := wire.NextBatch(d)
				wire.Batch(rest).SetBaseOffset(7)
				return append(b[:len(b):len(b)], rest...)
			}
			return d
		}, 0, 0, "offset 7 follows 1"},
		"a hole between segments": {func(d []byte, i int) []byte {
			if i == 0 {
				b, _, _ := wire.NextBatch(d)
				return b
			}
			return d
		}, 1, 0, "begins at offset 3, the segment before ends at 2"},
	} {
		dir, segments := logDir(t)
		for i, s := range segments {
			data, err := os.ReadFile(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s, c.hurt(data, i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := lockstep("log", "verify", dir, "--json")
		out = out[strings.Index(out, "{"):]
		var r verifyResult
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: %v in %s", name, err, out)
		}
		if code != cli.ExitFailed || len(r.Damage) == 0 || r.Damage[0].File != segments[c.file] || !strings.Contains(r.Damage[0].What, c.what) {
			t.Errorf("%s: exit %d, %+v, %q", name, code, r.Damage, errs)
			continue
		}
		if c.at > 0 && r.Damage[0].Byte != c.at {
			t.Errorf("%s: at byte %d, want %d", name, r.Damage[0].Byte, c.at)
		}
		if !strings.Contains(errs, segments[c.file]) {
			t.Errorf("%s: the error names no file: %q", name, errs)
		}
	}
}

// TestDemoChecker: the judge of the demo sees what it is there to see.
func TestDemoChecker(t *testing.T) {
	const seed, n = 5, 12
	feed := func(order ...int) (*demoChecker, *demoLedger) {
		led := newDemoLedger(n, seed)
		for i := range n {
			led.sent()
			led.answer(i, nil)
		}
		c := newDemoChecker(led)
		for _, i := range order {
			r := led.record(i)
			c.take(r.Partition, r.Key, r.Value)
		}
		return c, led
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	c, _ := feed(all...)
	if f := c.findings(); f.lost+f.corrupted+f.outOfOrder+f.duplicates != 0 || f.records != n {
		t.Errorf("an intact log: %+v", f)
	}
	c, _ = feed(append(all, 11, 11)...)
	if f := c.findings(); f.duplicates != 2 || f.lost+f.corrupted+f.outOfOrder != 0 {
		t.Errorf("two duplicates: %+v", f)
	}
	c, _ = feed(all[:n-1]...)
	if f := c.findings(); f.lost != 1 {
		t.Errorf("one lost: %+v", f)
	}
	c, _ = feed(3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11)
	if f := c.findings(); f.outOfOrder != 1 || f.lost != 0 {
		t.Errorf("one out of order: %+v", f)
	}
	c, led := feed(all[:n-1]...)
	r := led.record(11)
	r.Value[1000] ^= 1
	c.take(r.Partition, r.Key, r.Value)
	c.take(0, led.record(1).Key, led.record(1).Value) // in a wrong partition
	if f := c.findings(); f.corrupted != 2 || f.lost != 1 {
		t.Errorf("two corrupted: %+v", f)
	}
}
