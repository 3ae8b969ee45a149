package dataplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockstep/internal/wire"
)

// superseded is a batch of two records with one key.
func superseded(i int) []byte {
	v := make([]byte, 200)
	copy(v, fmt.Sprint(i))
	return wire.BuildBatch(nil, wire.PlainParams(1_700_000_000_000), wire.Record{Key: []byte("k"), Value: v}, wire.Record{Key: []byte("k"), Value: v})
}

// held reads what the log has of offsets from 0 to end: how many records, and
// how many offsets.
func (r *rig) held(p *Partition) (records, offsets int64) {
	r.t.Helper()
	for at := p.log.Start(); at < p.log.End(); {
		s, err := p.log.Read(at, 1<<20, p.log.End(), true)
		if err != nil || s.Next <= at {
			r.t.Fatal(err, at, s.Next)
		}
		for b, rest, ok := wire.NextBatch(s.Bytes); ok; b, rest, ok = wire.NextBatch(rest) {
			records += int64(b.RecordCount())
			offsets += b.NextOffset() - b.BaseOffset()
		}
		at = s.Next
		s.Release()
	}
	return records, offsets
}

// The KIP's safety claim: nothing is compacted or deleted at the source that a
// registered destination has not got.
func TestNothingGoesThatADestinationLacks(t *testing.T) {
	for _, policy := range []string{"compact", "delete"} {
		r := newRig(t, 1)
		r.facts.topic(t, "t", 1, "cleanup.policy", policy, "segment.bytes", "2048", "retention.bytes", "1")
		epoch := r.facts.register(t, "m", "t")
		r.publish()
		x, m, p := r.dial(0), r.dial(0), r.partition("t")
		for i := range 60 {
			r.produce(x, 14, 1, 1000, "t", part{0, superseded(i)})
			want(t, "produced", r.produced(x, 14)[0].code, wire.ErrNone)
		}
		tidy := func() {
			r.e.Clean()
			r.e.Retain()
			r.settle()
		}
		has := func(leo int64) {
			r.fetch(m, 20, mirrorParams(), []wire.Report{report("t", 0, epoch, leo+1, leo)})
			r.fetched(m, 20)
		}
		tidy()
		records, _ := r.held(p)
		want(t, policy+": records kept while the destination has none", records, 120)
		has(41)
		want(t, "mark", p.high.Load(), 41)
		tidy()
		if p.log.Start() > 41 || p.log.CleanedTo() > 41 {
			t.Fatalf("%s: start %d, clean to %d, and the destination has 41", policy, p.log.Start(), p.log.CleanedTo())
		}
		records, offsets := r.held(p)
		if records == 120 || records < 120-41 || offsets != 120-p.log.Start() {
			t.Fatalf("%s: %d records over %d offsets from %d", policy, records, offsets, p.log.Start())
		}
		has(120)
		tidy()
		if now, _ := r.held(p); now >= records {
			t.Fatalf("%s: %d records, had %d", policy, now, records)
		}
		r.fetch(x, 13, consume(0, 0), nil, target("t", 0, p.log.Start()))
		if _, got := r.fetched(x, 13); got[0].code != wire.ErrNone || got[0].next <= p.log.Start() {
			t.Fatalf("%s: a consumer gets %+v", policy, got)
		}
	}
}

// A source that is compacted has gaps; ours has an empty batch for each, so
// that the next record lies where it lies there.
func TestGapsOfTheSourceAreFilled(t *testing.T) {
	r := newRig(t, 1, "t")
	p, c := r.partition("t"), r.core(0)
	var source []byte
	for _, base := range []int64{3, 5, 6, 4_000_000_000} {
		b := wire.Batch(superseded(int(base)))
		b.SetBaseOffset(base)
		b.SetPartitionLeaderEpoch(0)
		source = append(source, b...)
		switch base {
		case 5:
			source = source[:len(source)-len(b)]
		case 6: // cleaned meanwhile: our log ends inside
			source = wire.EmptyBatch(source, 4, 15, 0)
		}
	}
	p.down = &downstream{}
	f := c.newFrame(nil)
	for left, stalled := source, true; stalled; r.settle() {
		p.lock()
		left, stalled = c.queueMirrored(p, p.role.Load(), left, f)
		p.unlock()
		c.touch(p)
		r.step(0)
		if !stalled && len(left) > 0 {
			t.Fatalf("%d bytes left: %s", len(left), p.down.lastError)
		}
	}
	p.down = nil
	records, offsets := r.held(p)
	want(t, "records", records, 6)
	want(t, "offsets", offsets, 4_000_000_002)
	want(t, "log end", p.log.End(), 4_000_000_002)
}

// A stop does not wait for the end of a pass, and is clean all the same.
func TestCloseEndsACleaning(t *testing.T) {
	r := newRig(t, 1)
	r.facts.topic(t, "t", 1, "cleanup.policy", "compact", "segment.bytes", "2048")
	r.publish()
	x, p := r.dial(0), r.partition("t")
	for i := range 40 {
		r.produce(x, 14, 1, 1000, "t", part{0, superseded(i)})
		r.produced(x, 14)
	}
	stopped := make(chan bool)
	first := true
	r.disk.SetFault(func(op, name string) error {
		if first && op == "create" && strings.HasSuffix(name, ".new") {
			first = false
			go func() { close(r.e.stop); r.e.stopCleaning(); close(stopped) }()
			<-time.After(50 * time.Millisecond) // it asks every other millisecond
		}
		return nil
	})
	r.e.Clean()
	<-stopped
	want(t, "clean to", p.log.CleanedTo(), 0)
	r.disk.SetFault(nil)
	if err := p.log.SealClean(); err != nil {
		t.Fatal(err)
	}
}
