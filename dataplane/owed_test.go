package dataplane

import "testing"

// Requests that wait for their answers are bounded over all connections of a
// shard: past the bound nothing more is parsed until some are answered.
func TestOwedAnswersAreBounded(t *testing.T) {
	r := newRig(t, 1, "t")
	x := r.dial(0)
	r.core(0).owed += maxOwed
	r.fetch(x, 12, consume(0, 0), nil, target("t", 0, 0))
	r.none(x, "the shard owes too many answers")
	r.core(0).owed -= maxOwed
	r.pass(1e6)
	if _, out := r.fetched(x, 12); len(out) != 1 {
		t.Fatalf("%d partitions answered", len(out))
	}
	r.eof(x)
	want(t, "answers owed", r.core(0).owed, 0)
}
