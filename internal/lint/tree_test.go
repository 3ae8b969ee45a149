package lint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the module's directory as seen from this package.
const root = "../.."

const module = "lockstep"

// source is one Go file of the tree.
type source struct {
	path      string // from root, with slashes
	text      []byte
	file      *ast.File
	set       *token.FileSet
	test      bool
	generated bool
}

func (s *source) line(p token.Pos) int { return s.set.Position(p).Line }
func (s *source) lines() int           { return bytes.Count(s.text, []byte("\n")) }
func (s *source) dir() string          { return filepath.ToSlash(filepath.Dir(s.path)) }

var parseTree = sync.OnceValues(func() ([]*source, error) {
	var out []*source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a file came and went while we looked
			}
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s := &source{path: filepath.ToSlash(rel), text: text, set: token.NewFileSet(), test: strings.HasSuffix(name, "_test.go")}
		if s.file, err = parser.ParseFile(s.set, s.path, text, parser.ParseComments); err != nil {
			return err
		}
		s.generated = ast.IsGenerated(s.file)
		out = append(out, s)
		return nil
	})
	return out, err
})

// tree returns all Go files, but for testdata.
func tree(t *testing.T) []*source {
	t.Helper()
	list, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 100 {
		t.Fatalf("only %d Go files found: this looks at the wrong place", len(list))
	}
	return list
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	GoFiles    []string
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Standard,Imports,GoFiles"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, errs.Bytes())
	}
	var list []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// readList reads a file of "key value" lines; # begins a comment.
func readList(t *testing.T, name string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out[key] = strings.TrimSpace(value)
		}
	}
	return out
}
