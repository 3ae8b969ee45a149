package lint

import (
	"go/ast"
	"strconv"
	"testing"
)

const (
	maxFileLines = 500
	maxFuncLines = 70
	ratchetFile  = "testdata/size_ratchet.txt"
)

// sizes returns the lines of each file and function over the limit.
func sizes(list []*source) map[string]int {
	over := map[string]int{}
	for _, s := range list {
		if s.test || s.generated {
			continue
		}
		if n := s.lines(); n > maxFileLines {
			over[s.path] = n
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFuncLines {
				over[s.path+":"+f.Name.Name] = n
			}
		}
	}
	return over
}

// TestSizes: a file is a page one can hold in mind. The list of what is over
// the limit may only shrink: lower the number or delete the line.
func TestSizes(t *testing.T) {
	allowed := readList(t, ratchetFile)
	over := sizes(tree(t))
	for what, n := range over {
		text, listed := allowed[what]
		limit, err := strconv.Atoi(text)
		switch {
		case !listed:
			t.Errorf("%s: %d lines (files <= %d, functions <= %d)", what, n, maxFileLines, maxFuncLines)
		case err != nil:
			t.Errorf("%s: %v", ratchetFile, err)
		case n > limit:
			t.Errorf("%s: %d lines, the list allows %d", what, n, limit)
		case n < limit:
			t.Errorf("%s: down to %d lines; write that into %s", what, n, ratchetFile)
		}
	}
	for what := range allowed {
		if _, still := over[what]; !still {
			t.Errorf("%s is within the limit now; delete its line in %s", what, ratchetFile)
		}
	}
}
