package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEntryCounts(t *testing.T) {
	e := &entry{ByKind: map[string]kind{}, Skipped: map[string]string{}}
	for _, line := range []string{
		`CRASH {"kind":"sweep","crash_points":10,"acked_checked":7}`,
		`CRASH {"kind":"power-cut ext4","power_cuts":3,"acked_checked":5,"acked_lost":1}`,
		`CRASH {"kind":"power-cut ext4 control","power_cuts":3,"acked_checked":5,"acked_lost":4}`,
		`CRASH {"kind":"power-cut xfs","skipped":"mkfs.xfs is not installed"}`,
		`CRASH {"kind":"blind control"}`,
		`CRASH nonsense`, `ok`,
	} {
		if k, ok := parse(line); ok {
			e.add(k)
		}
	}
	if e.Points != 10 || e.Cuts != 3 || e.Checked != 12 || e.Lost != 1 {
		t.Errorf("%+v", e)
	}
	if len(e.Failed) != 1 || !strings.HasPrefix(e.Failed[0], "blind control") || e.Skipped["power-cut xfs"] == "" || len(e.ByKind) != 4 {
		t.Errorf("%+v", e)
	}
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	for range 2 {
		if err := e.write(path); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), "\n") != 2 || !strings.Contains(string(data), `"acked_lost":1`) {
		t.Errorf("%s %v", data, err)
	}
}

// TestSuitesSayWhatTheyNeed keeps the README's table and the suites together.
func TestSuitesSayWhatTheyNeed(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if !strings.Contains(string(readme), "| "+s.name+" | "+s.needs+" |") {
			t.Errorf("README.md has no row for %s with what it needs: %s", s.name, s.needs)
		}
	}
}
