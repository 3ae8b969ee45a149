package lint

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryPackageHasDoc: a package's contract is in its doc.go. A program's
// may stand in its main.go.
func TestEveryPackageHasDoc(t *testing.T) {
	has, dirs := map[string]bool{}, map[string]bool{}
	for _, s := range tree(t) {
		if s.test {
			continue
		}
		dirs[s.dir()] = true
		name := filepath.Base(s.path)
		if s.file.Doc != nil && (name == "doc.go" || s.file.Name.Name == "main" && name == "main.go") {
			has[s.dir()] = strings.HasPrefix(s.file.Doc.Text(), "Package ") || s.file.Name.Name == "main"
		}
	}
	for dir := range dirs {
		if !has[dir] {
			t.Errorf("%s: no doc.go with a package comment", dir)
		}
	}
}

// TestNoMachinePaths: the tree knows nothing of the machine it was written on.
func TestNoMachinePaths(t *testing.T) {
	var words [][]byte
	for _, w := range []string{"/wo" + "rk/", "/tmp/" + "ls", "/ro" + "ot/", "/home/" + "user"} {
		words = append(words, []byte(w))
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
				return fs.SkipDir
			}
			return nil // files come and go
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".txt", ".json", ".mod", ".properties", ".sh", ".yml", ".yaml", ".proto", "":
		default:
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, w := range words {
			if i := bytes.Index(data, w); i >= 0 {
				t.Errorf("%s:%d: names %s", path, 1+bytes.Count(data[:i], []byte("\n")), w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
