package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/cli"
	"lockstep/perf/report"
	"lockstep/perf/soak"
)

// TestSoak runs the whole thing, short, with a leak of five goroutines a sample:
// the run is red for it, and without what was leaked the same samples are not.
func TestSoak(t *testing.T) {
	const each = 5
	out := filepath.Join(t.TempDir(), "soak.json")
	var said bytes.Buffer
	o := soakOptions{out: out, Options: soak.Options{Binary: program(t), Dir: quickDir(t), RTT: 5 * time.Millisecond, Fill: true, WarmUp: 3 * time.Second, Duration: 12 * time.Second, Every: 250 * time.Millisecond,
		Leak: func(n int, figures map[string]float64) { figures["goroutines"] += float64(each * n) }}}
	err := o.run(context.Background(), &cli.Printer{Out: &said, Err: &said})
	if err == nil || !strings.Contains(err.Error(), "source: goroutines is growing") || !strings.Contains(err.Error(), "destination: goroutines is growing") {
		t.Errorf("a leak of %d goroutines a sample: %v\n%s", each, err, &said)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Soak
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Errors) > 0 {
		t.Errorf("errors: %v", doc.Errors)
	}
	for _, what := range []string{"records written", "records read at the tail", "topics made and deleted", "triples of connections", "rounds of questions"} {
		if doc.Did[what] == 0 {
			t.Errorf("nothing of: %s (%v)", what, doc.Did)
		}
	}
	for _, b := range doc.Brokers {
		points := b.Points("goroutines")
		for n := range points {
			points[n].Y -= float64(each * n)
		}
		if x := report.NewTrend("goroutines", points, 6, 30); x.Verdict == report.Growing {
			t.Errorf("%s: red without the leak: %+v", b.Name, x)
		}
		for name, least := range map[string]float64{"RSS, MiB": 10, "RSS without files, MiB": 5, "resident of no file, MiB": 3, "live heap aimed at, MiB": 4, "descriptors": 10, "goroutines": 10, "threads": 3, "maps": 20, "files on disk": 5} {
			for _, s := range b.Samples {
				if s.Figures[name] < least {
					t.Fatalf("%s: %s is %v", b.Name, name, s.Figures[name])
				}
			}
		}
	}
	t.Log(said.String())
}
