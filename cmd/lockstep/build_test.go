package main

import (
	"debug/elf"
	"strings"
	"testing"
)

// TestStaticProgram: the program needs no library of the system it runs on.
func TestStaticProgram(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs libc")
	}
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 || f.Section(".interp") != nil {
		t.Errorf("libraries %v, error %v, interpreter %v", libs, err, f.Section(".interp"))
	}
}

// TestHeapProfile: allocations are sampled when GODEBUG asks for it, not otherwise.
func TestHeapProfile(t *testing.T) {
	for _, c := range []struct{ godebug, want string }{{"", "@ heap/0\n"}, {"memprofilerate=4096", "@ heap/8192\n"}} {
		t.Setenv("GODEBUG", c.godebug)
		n := startNode(t)
		page := get("http://" + n.admin + "/debug/pprof/heap?debug=1")
		if first, _, _ := strings.Cut(page, "["); !strings.Contains(page, c.want) || c.godebug != "" && strings.HasPrefix(first, "heap profile: 0:") {
			t.Errorf("GODEBUG=%s: %.100q, want %q", c.godebug, page, c.want)
		}
		n.stop()
	}
}
