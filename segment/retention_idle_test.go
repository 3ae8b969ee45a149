package segment

import "testing"

// A log nobody writes to any more gives up its last segment too.
func TestIdleLogExpires(t *testing.T) {
	cfg := smallConfig
	cfg.RetentionMs = 1000
	_, _, l := memLog(t, cfg)
	s := plain(0, 1, 10)
	s.ts = 5000
	put(t, l, s)
	if l.SealExpired(5500) || l.SealExpired(6000) {
		t.Fatal("sealed before its time")
	}
	if !l.SealExpired(6001) {
		t.Fatal("not sealed when every record had expired")
	}
	g, ok := l.GrowPlan(6001)
	if !ok {
		t.Fatal("no roll")
	}
	g.Do()
	if err := l.Grown(g); err != nil {
		t.Fatal(err)
	}
	if n := l.RetentionPlan(6001, l.End()); n != 0 {
		t.Fatalf("%d segments may go that are not flushed: left behind torn they would be a hole", n)
	}
	flush(t, l)
	n := l.RetentionPlan(6001, l.End())
	if err := drop(l, n); err != nil {
		t.Fatal(err)
	}
	if n != 1 || l.Start() != 1 || l.End() != 1 {
		t.Fatalf("%d segments dropped, start %d end %d", n, l.Start(), l.End())
	}
	if l.SealExpired(9000) {
		t.Fatal("an empty log was sealed")
	}
	put(t, l, plain(1, 1, 10))
}
