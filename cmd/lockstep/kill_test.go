package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/wire"
)

var (
	killRounds  = flag.Int("kill.rounds", 2, "kills of the source per flush mode")
	killSeed    = flag.Uint64("kill.seed", 0, "seed of the first round, 0 = from the clock")
	killControl = flag.Bool("kill.control", false, "run the harness against a broker with a planted bug, which it must see")
)

const (
	killPartitions = 2
	killConns      = 4
	killRecord     = 1 << 10
	killBatch      = 10                     // records of a request
	killPace       = 8 * time.Millisecond   // between requests of one connection: 5 MB/s in all
	killFresh      = 100 * time.Millisecond // a kill counts with an acknowledgement this new
)

// ledger is what the producers know: which records were acknowledged, and when.
type ledger struct {
	mu       sync.Mutex
	acked    map[uint64]time.Time
	inFlight atomic.Int64
	last     atomic.Int64 // Unix ns of the newest acknowledgement
	refused  atomic.Int64
}

// load produces 5 MB/s over several pipelined connections until ctx ends or
// the connections do.
func (l *ledger) load(ctx context.Context, addr string, id [16]byte, seed uint64) *sync.WaitGroup {
	var wg sync.WaitGroup
	for n := range uint64(killConns) {
		c, err := dialRaw(addr)
		if err != nil {
			continue
		}
		type sent struct{ first uint64 }
		queue := make(chan sent, 4096)
		wg.Add(2)
		go func() {
			defer wg.Done()
			defer close(queue)
			tick := time.NewTicker(killPace)
			defer tick.Stop()
			for i := uint64(0); ; i += killBatch {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				values := make([][]byte, killBatch)
				for k := range values {
					values[k] = killValue(n<<40|(i+uint64(k)), seed)
				}
				l.inFlight.Add(1)
				if c.send(14, "orders", id, int32(n%killPartitions), 60*time.Second, values...) != nil {
					return
				}
				queue <- sent{n<<40 | i}
			}
		}()
		go func() {
			defer wg.Done()
			defer func() { _ = c.Close() }()
			for s := range queue {
				r, err := c.answer(14, 60*time.Second)
				if err != nil {
					return
				}
				now := time.Now()
				l.inFlight.Add(-1)
				if r.code != wire.ErrNone {
					l.refused.Add(1)
					continue
				}
				l.mu.Lock()
				for k := range uint64(killBatch) {
					l.acked[s.first+k] = now
				}
				l.mu.Unlock()
				l.last.Store(now.UnixNano())
			}
		}()
	}
	return &wg
}

func killValue(id, seed uint64) []byte {
	b := make([]byte, killRecord)
	binary.BigEndian.PutUint64(b, id)
	fill(b[8:], uint32(id>>32), uint32(id), seed)
	return b
}

// read returns the ids of all records of a topic, each checked byte for byte.
func readAll(ctx context.Context, t *testing.T, addr string, seed uint64) map[uint64]bool {
	t.Helper()
	cl := newClient(t, addr, kgo.ConsumeTopics("orders"), kgo.KeepControlRecords())
	var ends kadm.ListedOffsets
	eventually(t, "end offsets", 20*time.Second, func() bool { // not told before the watermark has caught up
		var err error
		ends, err = kadm.NewClient(cl).ListEndOffsets(ctx, "orders")
		return err == nil && ends.Error() == nil
	})
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	got := map[uint64]bool{}
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("reading %s: %v, left %v", addr, err, left)
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				if r.Offset+1 >= left[p.Partition] {
					delete(left, p.Partition)
				}
				if r.Attrs.IsControl() {
					continue // the producer id reset of a fail-over
				}
				if len(r.Value) != killRecord {
					t.Errorf("record of %d bytes at %d/%d", len(r.Value), r.Partition, r.Offset)
					continue
				}
				id := binary.BigEndian.Uint64(r.Value)
				if string(r.Value) != string(killValue(id, seed)) {
					t.Errorf("record %d is corrupt at %d/%d", id, r.Partition, r.Offset)
				}
				got[id] = true
			}
		})
	}
	return got
}

// killRound is one kill. It returns the acknowledged records that are missing
// at the destination, and in the restarted source.
func killRound(t *testing.T, seed uint64, ack string, promoting bool) (acked, lostThere, lostHere int) {
	r := rand.New(rand.NewPCG(seed, 1))
	ctx := ctxFor(t, 3*time.Minute)
	p := startPair(t, 10*time.Millisecond, "lockstep.flush.ack="+ack)
	id := p.topic(ctx, "orders", killPartitions, nil)
	l := &ledger{acked: map[uint64]time.Time{}}
	run, stop := context.WithCancel(ctx)
	defer stop()
	var wg *sync.WaitGroup
	var promised time.Time // acknowledgements after it must be at the destination
	if promoting {
		wg = l.load(run, p.src.addr, id, seed)
		time.Sleep(100 * time.Millisecond)
		p.mirror(ctx, true, "orders")
		for end := time.Now().Add(time.Duration(r.IntN(700)) * time.Millisecond); time.Now().Before(end); {
			if promised.IsZero() && p.src.metric(`lockstep_sync_registration{mirror="dr",topic="orders"}`) == 1 {
				promised = time.Now()
			}
		}
	} else {
		p.mirror(ctx, true, "orders")
		p.until(ctx, "SYNC", 20*time.Second, inSync)
		promised = time.Now()
		wg = l.load(run, p.src.addr, id, seed)
		time.Sleep(300*time.Millisecond + time.Duration(r.IntN(1200))*time.Millisecond)
	}
	eventually(t, "a fresh acknowledgement and one in flight", 20*time.Second, func() bool {
		return time.Since(time.Unix(0, l.last.Load())) < killFresh && l.inFlight.Load() > 0
	})
	p.src.crash()
	p.link.Cut()
	stop()
	wg.Wait()
	p.failOver(ctx, "orders")
	there := readAll(ctx, t, p.dst.addr, seed)
	p.link.Restore()
	p.src.start()
	// The restarted source gates on the dead registration; the operator lets go.
	p.release(ctx)
	time.Sleep(50 * time.Millisecond)
	here := readAll(ctx, t, p.src.addr, seed)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.acked {
		if !here[id] {
			lostHere++
		}
		if !promised.IsZero() && at.After(promised) {
			acked++
			if !there[id] {
				lostThere++
			}
		}
	}
	t.Logf("seed %d %s promoting=%v: acked %d (promised %d), in flight at the kill %d, at destination %d, in source %d, lost %d there %d here",
		seed, ack, promoting, len(l.acked), acked, l.inFlight.Load(), len(there), len(here), lostThere, lostHere)
	return acked, lostThere, lostHere
}

// TestKillSource kills the source under load, again and again, in both flush
// modes, some of the times during register or promotion: nothing acknowledged
// is lost, at the destination or in the restarted source.
func TestKillSource(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for _, ack := range []string{"appended", "durable"} {
		total, lost := 0, 0
		for i := range *killRounds {
			t.Run(ack, func(t *testing.T) {
				acked, there, here := killRound(t, seed+uint64(i), ack, i%4 == 1)
				total, lost = total+acked, lost+there+here
				if there+here > 0 {
					t.Errorf("lost %d at the destination, %d in the source", there, here)
				}
			})
		}
		t.Logf("%s: %d kills, %d promised acknowledgements checked, lost %d", ack, *killRounds, total, lost)
	}
}

// TestKillControl runs the same harness against a broker whose gate forgets the
// mirrors: an acknowledgement before the report. It must see loss.
func TestKillControl(t *testing.T) {
	if !*killControl {
		t.Skip("builds a broker with a planted bug: make kill-control")
	}
	good, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	plant(t, good)
	lost := 0
	for i := range 5 {
		t.Run("planted", func(t *testing.T) {
			_, there, _ := killRound(t, uint64(1000+i), "appended", false)
			lost += there
		})
		if lost > 0 {
			t.Logf("the harness sees the planted bug: %d acknowledged records lost", lost)
			return
		}
	}
	t.Fatal("the harness does not see an acknowledgement before the report")
}

// plant replaces the broker's binary by one whose gate ignores its mirrors.
func plant(t *testing.T, binary string) {
	t.Helper()
	const file = "../../dataplane/partition.go"
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(string(src), "watermark.Source(mark, leo, p.local, p.mirrors)", "watermark.Source(mark, leo, p.local, nil)", 1)
	if bad == string(src) {
		t.Fatal("the line to plant the bug in is gone")
	}
	dir := t.TempDir()
	planted, overlay := filepath.Join(dir, "partition.go"), filepath.Join(dir, "overlay.json")
	abs, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {abs: planted}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{planted: bad, overlay: string(list)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build with the planted bug: %v: %s", err, out)
	}
}
