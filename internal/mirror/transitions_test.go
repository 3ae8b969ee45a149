package mirror

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.transitions anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".transitions")
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs; go test ./internal/mirror -rewrite, and read the diff\n%s", path, got)
	}
}

func TestPartitionTable(t *testing.T) {
	var b bytes.Buffer
	for _, s := range PartitionStates {
		starts := []Partition{{State: s, Previous: Unknown}}
		if s == Failed {
			starts = []Partition{{s, Mirroring, false}, {s, Unknown, false}, {s, Mirroring, true}}
		}
		for _, p := range starts {
			fmt.Fprintf(&b, "%s\n", describe(p))
			for e := range partitionEvents {
				next, effects := p.Step(e)
				if next == p && len(effects) == 0 {
					continue
				}
				fmt.Fprintf(&b, "  %-14v -> %s %v\n", e, describe(next), effects)
			}
		}
	}
	b.WriteString("All other pairs change nothing and do nothing.\n")
	golden(t, "partition", b.Bytes())
}

func describe(p Partition) string {
	if p.State != Failed {
		return p.State.String()
	}
	if p.NonRetryable {
		return fmt.Sprintf("FAILED(was %v, for good)", p.Previous)
	}
	return fmt.Sprintf("FAILED(was %v)", p.Previous)
}

func TestStoppingTable(t *testing.T) {
	var b bytes.Buffer
	for s := range stopSteps {
		fmt.Fprintf(&b, "%v\n", s)
		for e := range stopEvents {
			if next, effects := s.Step(e); next != s || len(effects) > 0 {
				fmt.Fprintf(&b, "  %-16v -> %v %v\n", e, next, effects)
			}
		}
	}
	b.WriteString("All other pairs change nothing and do nothing.\n")
	golden(t, "stopping", b.Bytes())
}

func TestPromotionTable(t *testing.T) {
	var b bytes.Buffer
	for _, p := range []Promotion{
		{},
		{OwedUnregister: 7, SpentEpoch: 7},
		{OwedUnregister: UnknownEpoch},
		{Phase: Pending, Attempts: 2},
		{Phase: Pending, OwedUnregister: 7, SpentEpoch: 7},
		{Phase: Registering, OwedUnregister: UnknownEpoch, SpentEpoch: 7, Attempts: 2},
		{Phase: Registering, OwedUnregister: UnknownEpoch, Recovery: true, ReleaseNumber: 8},
		{Phase: InSync, RegistrationEpoch: 7},
		{Phase: Recovery, Recovery: true, ReleaseNumber: 8, Attempts: 1},
		{Phase: Recovery, OwedUnregister: 7, SpentEpoch: 7},
	} {
		fmt.Fprintf(&b, "%s\n", promotionText(p))
		for k := range promotionEvents {
			for _, e := range numbered(k) {
				next, effects := p.Step(e)
				if next == p && len(effects) == 0 {
					continue
				}
				fmt.Fprintf(&b, "  %-34s -> %-64s %s\n", eventText(e), promotionText(next), effectsText(effects))
			}
		}
	}
	b.WriteString("All other pairs change nothing and do nothing.\n")
	golden(t, "promotion", b.Bytes())
}

// numbered gives an event the numbers that matter: below and above 7 and 8.
func numbered(k PromotionEventKind) []PromotionEvent {
	switch k {
	case RegisterOK, RegisterReleased:
		return []PromotionEvent{{Kind: k, Number: 6}, {Kind: k, Number: 9}}
	case UnregisterAnswered:
		return []PromotionEvent{{Kind: k, Asked: 7}, {Kind: k, Asked: 0}, {Kind: k, Asked: 0, Number: 9}}
	}
	return []PromotionEvent{{Kind: k}}
}

func eventText(e PromotionEvent) string {
	switch e.Kind {
	case RegisterOK, RegisterReleased:
		return fmt.Sprintf("%v(%d)", e.Kind, e.Number)
	case UnregisterAnswered:
		return fmt.Sprintf("%v(asked %d, stands %d)", e.Kind, e.Asked, e.Number)
	}
	return e.Kind.String()
}

func promotionText(p Promotion) string {
	s := p.Phase.String()
	if p.RegistrationEpoch != 0 {
		s += fmt.Sprintf(" epoch=%d", p.RegistrationEpoch)
	}
	if p.Recovery {
		s += fmt.Sprintf(" released=%d", p.ReleaseNumber)
	}
	if p.OwedUnregister != 0 {
		s += fmt.Sprintf(" owed=%d", p.OwedUnregister)
	}
	if p.SpentEpoch != 0 {
		s += fmt.Sprintf(" spent=%d", p.SpentEpoch)
	}
	if p.Attempts != 0 {
		s += fmt.Sprintf(" attempts=%d", p.Attempts)
	}
	return s
}

func effectsText(effects []PromotionEffect) string {
	s := ""
	for _, e := range effects {
		switch {
		case e.Kind == CommitRegistering:
			s += fmt.Sprintf("%v ", e.Kind)
		case e.Kind == SendRegister && e.Recovery:
			s += fmt.Sprintf("%v(recovery, release %d) ", e.Kind, e.Number)
		case e.Kind == SendRegister:
			s += fmt.Sprintf("%v ", e.Kind)
		default:
			s += fmt.Sprintf("%v(%d) ", e.Kind, e.Number)
		}
	}
	return s[:max(0, len(s)-1)]
}

func TestLedgerTable(t *testing.T) {
	var b bytes.Buffer
	on := LedgerFacts{Index: 20, SyncOn: true}
	entries := []struct {
		name   string
		r      Registration
		exists bool
	}{
		{"absent", Registration{}, false},
		{"registered(c1, 7)", Registration{Mirror: "m", ClusterID: "c1", Epoch: 7}, true},
		{"released(c1, number 9)", Registration{Mirror: "m", ClusterID: "c1", Epoch: 7, Released: true, ReleaseNumber: 9}, true},
	}
	for _, e := range entries {
		fmt.Fprintf(&b, "%s\n", e.name)
		put := func(what string, d Decision) {
			after := "absent"
			if d.Exists && d.Entry.Released {
				after = fmt.Sprintf("released(%s, number %d)", d.Entry.ClusterID, d.Entry.ReleaseNumber)
			} else if d.Exists {
				after = fmt.Sprintf("registered(%s, %d)", d.Entry.ClusterID, d.Entry.Epoch)
			}
			warn := ""
			if d.WarnUnnumbered {
				warn = " WARN"
			}
			fmt.Fprintf(&b, "  %-40s -> %-15v %s%s\n", what, d.Code, after, warn)
		}
		for _, c := range []string{"c1", "c2"} {
			put("Register("+c+")", Register(e.r, e.exists, RegisterRequest{"m", c, false, -1}, on))
			put("Register("+c+", recovery)", Register(e.r, e.exists, RegisterRequest{"m", c, true, -1}, on))
			put("Register("+c+", recovery, release 8)", Register(e.r, e.exists, RegisterRequest{"m", c, true, 8}, on))
			put("Register("+c+", recovery, release 9)", Register(e.r, e.exists, RegisterRequest{"m", c, true, 9}, on))
			put("Unregister("+c+", epoch 7)", Unregister(e.r, e.exists, c, 7))
			put("Unregister("+c+", epoch 6)", Unregister(e.r, e.exists, c, 6))
			put("Unregister("+c+", any)", Unregister(e.r, e.exists, c, AnyEpoch))
			put("Unregister("+c+", ask)", Unregister(e.r, e.exists, c, 0))
		}
		put("Register, policy holds", Register(e.r, e.exists, RegisterRequest{"m", "c1", true, 9}, LedgerFacts{Index: 20, SyncOn: true, Held: true}))
		put("Register, topic is mirrored", Register(e.r, e.exists, RegisterRequest{"m", "c1", true, 9}, LedgerFacts{Index: 20, SyncOn: true, Mirrored: true}))
		put("Register, feature off", Register(e.r, e.exists, RegisterRequest{"m", "c1", true, 9}, LedgerFacts{Index: 20}))
		put("Release", Release(e.r, e.exists, AnyEpoch, 20))
	}
	golden(t, "ledger", b.Bytes())
}
