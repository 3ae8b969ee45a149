package planted

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	run  = flag.Bool("planted", false, "plant every bug and see its test go red: make planted")
	only = flag.String("planted.only", "", "only the patches whose name has this in it")
)

const (
	root      = "../.."
	patches   = root + "/testdata/planted"
	buildTags = "-tags=invariants"
	timeLimit = "-timeout=120s"
)

// bug is one patch with what its header says.
type bug struct {
	name, path     string
	law, test, why string
}

// bugs reads all patches.
func bugs(t *testing.T) (list []bug) {
	t.Helper()
	paths, err := filepath.Glob(patches + "/*.patch")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no patches in %s: %v", patches, err)
	}
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b := bug{name: strings.TrimSuffix(filepath.Base(path), ".patch"), path: abs}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "# law":
				b.law = value
			case "# test":
				b.test = value
			case "# why":
				b.why = value
			}
		}
		if f := strings.Fields(b.test); b.law == "" || b.why == "" || len(f) < 3 || f[1] != "-run" {
			t.Errorf("%s: wants lines `# law: …`, `# test: ./pkg -run Regexp …`, `# why: …`", path)
			continue
		}
		if strings.Contains(b.name, *only) {
			list = append(list, b)
		}
	}
	return list
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// needGit skips where there is no repository to plant in.
func needGit(t *testing.T) {
	t.Helper()
	if out, err := git(root, "rev-parse", "--show-toplevel"); err != nil {
		t.Skipf("not a git checkout, so no patch can be tried: %v %s", err, out)
	}
}

// TestPatchesApply keeps the patches up to date: a change of the code under one
// must bring its patch along.
func TestPatchesApply(t *testing.T) {
	needGit(t)
	for _, b := range bugs(t) {
		if out, err := git(root, "apply", "--check", b.path); err != nil {
			t.Errorf("testdata/planted/%s.patch does not apply any more; make it anew: %s", b.name, out)
		}
	}
}

// TestPlanted plants one bug after the other in a worktree of HEAD.
func TestPlanted(t *testing.T) {
	if !*run {
		t.Skip("3 minutes, in a worktree of its own: make planted; here only that every patch applies (TestPatchesApply)")
	}
	needGit(t)
	list := bugs(t)
	tree := filepath.Join(t.TempDir(), "tree")
	if out, err := git(root, "worktree", "add", "--detach", tree, "HEAD"); err != nil {
		t.Fatalf("worktree: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := git(root, "worktree", "remove", "--force", tree); err != nil {
			t.Errorf("worktree: %v %s", err, out)
		}
	})
	green(t, tree, list)
	var table strings.Builder
	for _, b := range list {
		start := time.Now()
		verdict := plant(tree, b)
		took := time.Since(start).Seconds()
		fmt.Fprintf(&table, "\n%-38s %-28s %-62s red after %.1f s", b.name, b.law, b.test, took)
		if verdict != "" {
			fmt.Fprintf(&table, ": NO, %s", verdict[:min(len(verdict), 1500)])
			t.Errorf("%s: %s", b.name, verdict)
		}
	}
	t.Log(table.String())
}

// green sees that what is named passes as long as nothing is planted.
func green(t *testing.T, tree string, list []bug) {
	t.Helper()
	var seen []string
	for _, b := range list {
		if slices.Contains(seen, b.test) {
			continue
		}
		seen = append(seen, b.test)
		if out, err := goTest(tree, strings.Fields(b.test)); err != nil {
			t.Fatalf("%s is red before anything is planted: %v\n%s", b.test, err, out)
		} else if strings.Contains(out, "no tests to run") {
			t.Fatalf("%s names no test", b.test)
		}
	}
}

// plant says what is wrong with a bug, "" when its test went red.
func plant(tree string, b bug) (verdict string) {
	if out, err := git(tree, "apply", b.path); err != nil {
		return "does not apply: " + out
	}
	defer func() {
		if out, err := git(tree, "apply", "-R", b.path); err != nil {
			verdict += " and cannot be taken back: " + out
		}
	}()
	args := strings.Fields(b.test)
	if out, err := goTest(tree, []string{args[0], "-run", "^$"}); err != nil {
		return "does not compile: " + out
	}
	out, err := goTest(tree, args)
	switch {
	case err == nil:
		return "its test stays green"
	case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:"):
		return "its test ended otherwise: " + out
	}
	return ""
}

// goTest runs the tests of one package; what follows -run's regexp is the
// test binary's.
func goTest(tree string, args []string) (string, error) {
	line := append([]string{"test", buildTags, timeLimit, "-count=1", args[0]}, args[1:]...)
	cmd := exec.Command("go", line...)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	return string(out), err
}
