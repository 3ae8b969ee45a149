package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"lockstep/internal/wire"
)

var (
	crashKills = flag.Int("crash.kills", 0, "kills of a broker under load, half of them with each flush.ack")
	crashSeed  = flag.Uint64("crash.seed", 0, "seed of the kills, 0 = a new one")
)

const (
	crashPerDir = 20 // kills of one log directory; each start finds all that came before
	crashConns  = 3
	crashBatch  = 4
)

// crashLoad produces over several connections until the broker is gone, and
// enters what was acknowledged.
func crashLoad(addr string, topic [16]byte, seed uint64, life int, enter func(first uint64)) *sync.WaitGroup {
	var wg sync.WaitGroup
	for n := range uint64(crashConns) {
		c, err := dialRaw(addr)
		if err != nil {
			continue
		}
		sent := make(chan uint64, 16) // what is in flight
		wg.Add(2)
		go func() {
			defer wg.Done()
			defer close(sent)
			for i := uint64(0); ; i += crashBatch {
				first := n<<40 | uint64(life)<<24 | i
				values := make([][]byte, crashBatch)
				for k := range values {
					values[k] = killValue(first+uint64(k), seed)
				}
				if c.send(14, "orders", topic, int32(n%killPartitions), 60*time.Second, values...) != nil {
					return
				}
				sent <- first
				time.Sleep(2 * time.Millisecond)
			}
		}()
		go func() {
			defer wg.Done()
			defer func() { _ = c.Close() }()
			for first := range sent {
				r, err := c.answer(14, 60*time.Second)
				if err != nil {
					for range sent { // the sender ends by itself
					}
					return
				}
				if r.code == wire.ErrNone {
					enter(first)
				}
			}
		}()
	}
	return &wg
}

// TestCrashKills kills a broker under load by kill -9 and starts it again, many
// times over one log directory: everything acknowledged so far is there, byte
// for byte, with either flush.ack and on either engine.
func TestCrashKills(t *testing.T) {
	if *crashKills == 0 {
		t.Skip("kill -9 loops of a broker under load: make crash")
	}
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("-crash.seed=%d", seed)
	began := time.Now()
	kills, checked, lost := 0, 0, 0
	for group := 0; kills < *crashKills; group++ {
		ack := []string{"durable", "appended"}[group%2]
		engine := []string{"io_uring", "portable"}[group/2%2]
		t.Run(ack+"/"+engineNames[engine], func(t *testing.T) {
			n, c, l := crashGroup(t, seed+uint64(group), ack, engine, min(crashPerDir, *crashKills-kills))
			kills, checked, lost = kills+n, checked+c, lost+l
		})
		if t.Failed() {
			break
		}
	}
	line, err := json.Marshal(map[string]any{"kind": "kill -9", "seed": seed, "seconds": int(time.Since(began).Seconds()),
		"crash_points": kills, "acked_checked": checked, "acked_lost": lost})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "CRASH %s\n", line)
}

func crashGroup(t *testing.T, seed uint64, ack, engine string, kills int) (done, checked, lost int) {
	r := rand.New(rand.NewPCG(seed, 3))
	ctx := ctxFor(t, 5*time.Minute)
	n := startNode(t, "lockstep.flush.ack="+ack, "lockstep.io.engine="+engine)
	created, err := kadm.NewClient(newClient(t, n.addr)).CreateTopic(ctx, killPartitions, 1, nil, "orders")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked := map[uint64]bool{}
	for ; done < kills && !t.Failed(); done++ {
		mu.Lock()
		before := len(acked)
		mu.Unlock()
		wg := crashLoad(n.addr, created.ID, seed, done, func(first uint64) {
			mu.Lock()
			defer mu.Unlock()
			for k := range uint64(crashBatch) {
				acked[first+k] = true
			}
		})
		eventually(t, "an acknowledgement", 20*time.Second, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acked) > before
		})
		time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond)
		n.crash()
		wg.Wait()
		n.start()
		there := readLife(ctx, t, n.addr, seed)
		for id := range acked {
			if !there[id] {
				lost++
				t.Errorf("seed %d, kill %d with flush.ack=%s: record %d was acknowledged and is gone", seed, done, ack, id)
			}
		}
		checked += len(acked) - before
	}
	return done, checked, lost
}

// readLife reads everything with a client of its own.
func readLife(ctx context.Context, t *testing.T, addr string, seed uint64) map[uint64]bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return readAll(ctx, t, addr, seed)
}
