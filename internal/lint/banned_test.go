package lint

import (
	"bytes"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ban is a call, import or word that is not wanted, why, and where it may be.
type ban struct {
	why   string
	files []string // paths, or directories ending in /
}

// programs may do what programs do.
var programs = []string{"cmd/", "perf/", "linux-test/", "admin/", "internal/testcluster/", "internal/cli/", "internal/lint/", "internal/msg/gen/"}

// bannedCalls are by package path and name; an empty name means the import.
var bannedCalls = map[string]ban{
	"time.Now":   {why: "time comes in by argument", files: []string{"internal/wanlink/", "control/", "plugins/host/", "plugins/sdk/conformance/"}},
	"time.Since": {why: "time comes in by argument", files: []string{"internal/wanlink/", "control/", "plugins/host/", "plugins/sdk/conformance/"}},
	"time.Sleep": {why: "wait for something, or be given a timer", files: []string{"dataplane/reactor.go", "internal/wanlink/", "control/", "plugins/host/process.go"}},
	"math/rand.": {why: "randomness comes in by argument, from a seed", files: []string{"internal/sim/"}},
	"math/rand/v2.": {why: "randomness comes in by argument, from a seed",
		files: []string{"internal/sim/", "internal/wanlink/", "plugins/sdk/conformance/"}},
	"os.": {why: "the disk comes in through segment.FS", files: []string{"segment/files.go", "segment/fs.go",
		"ioring/probe.go", "internal/wanlink/", "control/", "plugins/host/", "plugins/sdk/", "plugins/examples/"}},
	"net.":    {why: "the network comes in through ioring", files: []string{"internal/wanlink/", "control/", "plugins/sdk/", "plugins/host/"}},
	"unsafe.": {why: "memory tricks live where the kernel is spoken to", files: []string{"ioring/", "segment/files.go", "internal/wire/"}},
}

func allowedIn(path string, files []string) bool {
	return slices.ContainsFunc(slices.Concat(files, programs), func(f string) bool {
		return path == f || strings.HasSuffix(f, "/") && strings.HasPrefix(path, f)
	})
}

// TestBannedCalls walks imports and the selectors on them.
func TestBannedCalls(t *testing.T) {
	for _, s := range tree(t) {
		if !s.test && !s.generated {
			for _, found := range bannedIn(s) {
				t.Error(found)
			}
		}
	}
}

func bannedIn(s *source) (found []string) {
	names := map[string]string{} // local name → path
	for _, imp := range s.file.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		} else if path == "math/rand/v2" {
			name = "rand"
		}
		names[name] = path
		if b, ok := bannedCalls[path+"."]; ok && !allowedIn(s.path, b.files) {
			found = append(found, s.at(imp.Pos())+": imports "+path+": "+b.why)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || names[id.Name] == "" {
			return true
		}
		path := names[id.Name]
		if b, ok := bannedCalls[path+"."+sel.Sel.Name]; ok && !allowedIn(s.path, b.files) {
			found = append(found, s.at(sel.Pos())+": "+path+"."+sel.Sel.Name+": "+b.why)
		}
		if path == "sync/atomic" && rawAtomic.MatchString(sel.Sel.Name) {
			found = append(found, s.at(sel.Pos())+": atomic."+sel.Sel.Name+": typed atomics only")
		}
		return true
	})
	return found
}

var rawAtomic = regexp.MustCompile(`^(Add|And|CompareAndSwap|Load|Or|Store|Swap)(Int|Uint|Pointer)`)

func (s *source) at(p token.Pos) string { return s.path + ":" + strconv.Itoa(s.line(p)) }

// mayGo lists who starts goroutines; all else is a function.
var mayGo = []string{"dataplane/reactor.go", "ioring/portable.go", "control/", "plugins/host/", "plugins/sdk/", "internal/wanlink/"}

// TestGoroutines: a goroutine is a decision, and is made in few places.
func TestGoroutines(t *testing.T) {
	for _, s := range tree(t) {
		if s.test || allowedIn(s.path, mayGo) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a go statement; see mayGo for who has them", s.at(g.Pos()))
			}
			return true
		})
	}
}

// TestPanics: a panic names the law that was broken, through invariant.Check.
func TestPanics(t *testing.T) {
	for _, s := range tree(t) {
		if s.test || s.generated {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "panic" {
				return true
			}
			if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				t.Errorf("%s: panic with a bare string: use invariant.Check", s.at(call.Pos()))
			}
			return true
		})
	}
}

// TestNoLeftovers: what is to be done is done, or written down elsewhere.
func TestNoLeftovers(t *testing.T) {
	word := regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|X" + "XX" + `)\b`)
	for _, s := range tree(t) {
		if s.generated {
			continue
		}
		for i, line := range bytes.Split(s.text, []byte("\n")) {
			if word.Match(line) {
				t.Errorf("%s:%d: %s", s.path, i+1, word.Find(line))
			}
		}
	}
}
