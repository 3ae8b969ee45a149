package lint

import (
	"slices"
	"strings"
	"testing"
)

// rule is what a package may import beside the standard library.
type rule struct {
	ours    string // packages of this module, by path
	outside string // modules or packages, by prefix
}

// layers is the whole import graph that is allowed. Imports go down; a package
// that is not in the table may not exist.
var layers = map[string]rule{
	"internal/invariant":      {},
	"internal/wire":           {ours: "internal/invariant"},
	"internal/watermark":      {ours: "internal/invariant"},
	"internal/mirror":         {ours: "internal/invariant"},
	"internal/status":         {},
	"internal/msg":            {ours: "internal/wire"},
	"internal/msg/gen":        {},
	"internal/planted":        {},
	"internal/kafkareq":       {ours: "internal/msg", outside: "github.com/twmb/franz-go/pkg/kgo github.com/twmb/franz-go/pkg/kmsg"},
	"internal/meta":           {ours: "internal/mirror internal/msg internal/invariant", outside: "github.com/benbjohnson/immutable"},
	"internal/compress":       {ours: "internal/invariant", outside: "github.com/klauspost/compress github.com/pierrec/lz4/v4"},
	"internal/config":         {ours: "internal/invariant", outside: "github.com/magiconair/properties"},
	"internal/wanlink":        {ours: "internal/invariant", outside: "golang.org/x/sys/unix"},
	"ioring":                  {ours: "internal/invariant", outside: "golang.org/x/sys/unix github.com/pawelgaczynski/giouring"},
	"segment":                 {ours: "internal/wire internal/invariant", outside: "golang.org/x/sys/unix"},
	"dataplane":               {ours: "ioring segment internal/wire internal/watermark internal/meta internal/mirror internal/invariant internal/status", outside: "golang.org/x/sys/unix"},
	"plugins/pluginpb":        {outside: "google.golang.org/protobuf google.golang.org/grpc"},
	"plugins/sdk":             {ours: "plugins/pluginpb", outside: "github.com/hashicorp/go-plugin github.com/hashicorp/go-hclog google.golang.org/grpc"},
	"plugins/sdk/conformance": {ours: "plugins/sdk"},
	"plugins/coordinator":     {ours: "plugins/sdk internal/mirror internal/msg"},
	"plugins/promotion":       {ours: "plugins/sdk internal/mirror internal/msg"},
	"plugins/release":         {ours: "plugins/sdk internal/mirror internal/msg"},
	"plugins/host":            {ours: "plugins/sdk", outside: "github.com/hashicorp/go-plugin github.com/hashicorp/go-hclog"},
	"internal/groups":         {ours: "internal/meta internal/msg internal/invariant"},
	"internal/txn":            {ours: "internal/meta internal/msg internal/invariant"},
	"internal/authz":          {ours: "internal/meta internal/msg internal/invariant", outside: "github.com/xdg-go/scram"},
	"control": {ours: "internal/meta internal/mirror internal/msg internal/wire internal/status internal/groups internal/txn internal/authz control/remote plugins/sdk plugins/host",
		outside: "github.com/hashicorp/raft github.com/hashicorp/raft-boltdb/v2 github.com/hashicorp/go-hclog go.etcd.io/bbolt"},
	"control/api": {ours: "control internal/meta internal/mirror internal/msg internal/wire internal/status internal/groups internal/txn internal/authz internal/config",
		outside: "github.com/twmb/franz-go/pkg/kmsg github.com/twmb/franz-go/pkg/kerr github.com/valyala/bytebufferpool"},
	"control/remote": {ours: "internal/meta internal/msg internal/status internal/kafkareq",
		outside: "github.com/twmb/franz-go/pkg/kgo github.com/twmb/franz-go/pkg/kmsg github.com/twmb/franz-go/pkg/kerr"},
	"admin": {ours: "internal/msg internal/kafkareq internal/wire",
		outside: "github.com/twmb/franz-go/pkg/kgo github.com/twmb/franz-go/pkg/kadm github.com/twmb/franz-go/pkg/kmsg github.com/twmb/franz-go/pkg/kerr"},
	"internal/sim": {ours: "internal/invariant internal/wire internal/watermark internal/mirror internal/status internal/msg internal/meta internal/compress ioring segment dataplane plugins/sdk plugins/host plugins/coordinator plugins/promotion plugins/release"},
}

// tops are trees whose packages may import anything and be imported by their
// own kind only.
var tops = []string{"cmd", "perf", "linux-test", "internal/testcluster", "internal/cli", "internal/lint"}

func isTop(path string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return path == top || strings.HasPrefix(path, top+"/") })
}

func covered(list, path string) bool {
	for _, x := range strings.Fields(list) {
		if path == x || strings.HasPrefix(path, x+"/") {
			return true
		}
	}
	return false
}

// judge says what is wrong with one import, "" for nothing.
func judge(from, to string) string {
	own, ours := strings.CutPrefix(to, module+"/")
	switch {
	case isTop(from) && ours && own != from && (strings.HasPrefix(own, "cmd/") || own == "internal/lint"):
		return "nobody imports a program"
	case isTop(from):
		return ""
	case ours && isTop(own):
		return "imports what is above everything"
	case ours && !slices.Contains(strings.Fields(layers[from].ours), own):
		return "this arrow is not in the table"
	case !ours && strings.Contains(strings.SplitN(to, "/", 2)[0], ".") && !covered(layers[from].outside, to):
		return "this module is not in the table"
	}
	return ""
}

func TestLayers(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range goList(t, "./...") {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		seen[from] = true
		if _, known := layers[from]; !known && !isTop(from) {
			t.Errorf("%s: a package without a row in the table of layers", from)
			continue
		}
		for _, to := range p.Imports {
			if why := judge(from, to); why != "" {
				t.Errorf("%s imports %s: %s", from, to, why)
			}
		}
	}
	if !seen["dataplane"] || !seen["segment"] {
		t.Fatal("go list did not name the packages that must be there")
	}
}

// TestJudge holds the judge itself: a table that allows all would pass unseen.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		from, to string
		bad      bool
	}{
		{"dataplane", "lockstep/control", true},
		{"dataplane", "lockstep/segment", false},
		{"dataplane", "github.com/hashicorp/raft", true},
		{"dataplane", "golang.org/x/sys/unix", false},
		{"internal/meta", "lockstep/dataplane", true},
		{"control", "lockstep/dataplane", true},
		{"control", "lockstep/plugins/promotion", true},
		{"segment", "lockstep/cmd/lockstep", true},
		{"cmd/lockstep", "lockstep/control", false},
		{"cmd/lockstep-perf", "lockstep/cmd/lockstep", true},
		{"segment", "fmt", false},
		{"internal/compress", "github.com/klauspost/compress/zstd", false},
		{"internal/compress", "github.com/klauspost/compressor", true},
	} {
		if got := judge(c.from, c.to) != ""; got != c.bad {
			t.Errorf("%s imports %s: judged bad=%v", c.from, c.to, got)
		}
	}
}

// TestHotPathClosure: nothing slow hides behind an import of an import.
func TestHotPathClosure(t *testing.T) {
	never := []string{"google.golang.org", "github.com/hashicorp", "github.com/twmb", "go.etcd.io", "net/http", "lockstep/control", "lockstep/plugins"}
	deps := goList(t, "-deps", "./dataplane")
	if len(deps) < 50 {
		t.Fatalf("only %d dependencies: go list has gone wrong", len(deps))
	}
	for _, p := range deps {
		if slices.ContainsFunc(never, func(x string) bool { return p.ImportPath == x || strings.HasPrefix(p.ImportPath, x+"/") }) {
			t.Errorf("dataplane reaches %s", p.ImportPath)
		}
	}
}

// TestPlugins: what a plugin author links is small and not ours.
func TestPlugins(t *testing.T) {
	for _, p := range goList(t, "-deps", "./plugins/sdk") {
		if strings.HasPrefix(p.ImportPath, module+"/") && !strings.HasPrefix(p.ImportPath, module+"/plugins/") {
			t.Errorf("plugins/sdk reaches %s", p.ImportPath)
		}
	}
}

// TestWatermarkHasNoLock: "lock-free gate" is a claim about imports.
func TestWatermarkHasNoLock(t *testing.T) {
	for _, p := range goList(t, "./internal/watermark") {
		if slices.Contains(p.Imports, "sync") {
			t.Error("internal/watermark imports sync")
		}
	}
}

// TestSimulatorIsReal: the simulator runs the real engine and never a ring.
func TestSimulatorIsReal(t *testing.T) {
	deps := goList(t, "-deps", "./internal/sim")
	for _, must := range []string{"lockstep/dataplane", "lockstep/segment", "lockstep/internal/meta", "lockstep/plugins/sdk", "lockstep/plugins/host"} {
		if !slices.ContainsFunc(deps, func(p pkg) bool { return p.ImportPath == must }) {
			t.Errorf("internal/sim does not reach %s", must)
		}
	}
	for _, s := range tree(t) {
		if s.dir() != "internal/sim" {
			continue
		}
		for _, name := range []string{"ioring.NewRing", "ioring.NewPortable", "ioring.OffHeap", "segment.DiskFS", "host.NewSlot", "host.NewInstance", "host.NewSupervisor", "host.Launch"} {
			if strings.Contains(string(s.text), name) {
				t.Errorf("%s uses %s: the simulator has neither kernel nor disk nor processes", s.path, name)
			}
		}
	}
}
