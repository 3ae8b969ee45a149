package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// keptBytes is what a broker's live heap may be larger by after rounds of one
// kind. It scatters by some 10 KiB; a topic's name and a pointer that stay are 80
// KiB in 400 rounds.
const keptBytes = 40 << 10

// TestNothingIsKept: what comes and goes leaves nothing on the heap of a broker. A
// soak sees growth of a MiB an hour, this 70 to 270 bytes for each that came.
func TestNothingIsKept(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector keeps more")
	}
	n := startNode(t, "producer.id.expiration.ms=1", "auto.create.topics.enable=false", "log.retention.check.interval.ms=500", "log.segment.delete.delay.ms=1")
	n.stop() // clean: a directory knows more of its logs then
	n.start()
	ctx := ctxFor(t, 5*time.Minute)
	adm := kadm.NewClient(newClient(t, n.addr))
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "stays"); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		what   string
		rounds int
		do     func(i int) error
	}{
		{"topics", 400, func(i int) error {
			return briefTopic(ctx, adm, fmt.Sprintf("brief-%d", i), func(string) error { return nil })
		}},
		{"written topics", 150, func(i int) error {
			return briefTopic(ctx, adm, fmt.Sprintf("written-%d", i), func(topic string) error { return briefProducer(ctx, n.addr, topic) })
		}},
		{"connections", 600, func(int) error {
			c, err := net.Dial("tcp", n.addr)
			if err != nil {
				return err
			}
			return c.Close()
		}},
		{"producers", 150, func(int) error { return briefProducer(ctx, n.addr, "stays") }},
		{"readers", 300, func(int) error {
			c, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.ConsumeTopics("stays"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				return err
			}
			defer c.Close()
			return c.PollRecords(ctx, 1).Err()
		}},
	} {
		if testing.Short() && k.what != "topics" { // fewer rounds of the others would see nothing
			continue
		}
		var live [2]float64
		for half := range live {
			for i := range k.rounds {
				if err := k.do(half*k.rounds + i); err != nil {
					t.Fatalf("%s: %v", k.what, err)
				}
			}
			live[half] = n.liveHeap()
		}
		if grown := live[1] - live[0]; grown > keptBytes {
			t.Errorf("%d %s more, and %.0f bytes more on the heap, which was %.0f", k.rounds, k.what, grown, live[0])
		} else {
			t.Logf("%d %s more, %.0f bytes more", k.rounds, k.what, grown)
		}
	}
}

// briefTopic makes a topic, uses it and deletes it.
func briefTopic(ctx context.Context, adm *kadm.Client, name string, use func(topic string) error) error {
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, name); err != nil {
		return err
	}
	if err := use(name); err != nil {
		return err
	}
	_, err := adm.DeleteTopic(ctx, name)
	return err
}

// briefProducer writes one record and goes.
func briefProducer(ctx context.Context, addr, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr()
}

// liveHeap is what is on the heap after collections, once what ends late has
// ended: files go, producers are forgotten.
func (n *node) liveHeap() float64 {
	time.Sleep(1500 * time.Millisecond)
	page := ""
	for range 3 { // what pools keep goes in the second
		page = get("http://" + n.admin + "/debug/pprof/heap?gc=1&debug=1")
	}
	_, rest, _ := strings.Cut(page, "# HeapAlloc = ")
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(line, 64)
	if err != nil {
		n.t.Fatalf("no HeapAlloc in %.200q", page)
	}
	return v
}
