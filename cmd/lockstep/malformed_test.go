package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
)

var (
	malformedFrames = flag.Int("malformed.frames", 3000, "malformed frames per engine: make malformed sends 100,000")
	malformedSeed   = flag.Uint64("malformed.seed", 0, "seed, 0 = from the clock")
)

const (
	attackers     = 6
	goodEvery     = 1000
	answerWait    = 250 * time.Millisecond // for a whole answer; a parked request may take longer and is let go
	silenceWait   = 15 * time.Millisecond  // for the end of what promises more bytes than it brings
	malformedHWM  = 256 << 20
	malformedRest = 4 // goroutines more than before that do not count as a leak
)

// TestMalformedFrames sends a broker requests of every key and version with
// something wrong in them. Nothing of it may end the broker, take memory, leave
// a connection or a goroutine behind, or disturb who behaves.
func TestMalformedFrames(t *testing.T) {
	seed := *malformedSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	made := bombs()
	for _, engine := range []string{"io_uring", "portable"} {
		t.Run(engineNames[engine], func(t *testing.T) {
			t.Logf("-malformed.seed=%d -malformed.frames=%d", seed, *malformedFrames)
			malformed(t, engine, seed, made)
		})
	}
}

// fate counts what became of a class of attacks.
type fate struct{ sent, answered, closed, silent int }

// siege is one broker under attack.
type siege struct {
	t     *testing.T
	n     *node
	good  *goodClient
	count atomic.Int64 // frames sent
	mu    sync.Mutex
	seen  map[string]*fate
	known int
}

func malformed(t *testing.T, engine string, seed uint64, made [][]byte) {
	n := startNode(t, "lockstep.io.engine="+engine, "log.segment.bytes=16777216")
	ctx := ctxFor(t, 20*time.Minute)
	malID, bigID := besieged(ctx, t, n)
	connections, goroutines := n.metric("kafka_server_broker_connections"), n.rest()
	s := &siege{t: t, n: n, good: newGoodClient(ctx, t, n), seen: map[string]*fate{}}
	var wg sync.WaitGroup
	for w := range attackers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a := &attacker{Rand: rand.New(rand.NewPCG(seed, uint64(w))), malID: malID, bigID: bigID, bombs: made}
			s.attack(ctx, a)
		}()
	}
	wg.Wait()
	s.good.exchange(ctx, t)
	s.report()
	for topic, id := range map[string][16]byte{"mal": malID, "big": bigID} {
		if d, err := kadm.NewClient(s.good.cl).ListTopics(ctx, topic); err != nil || [16]byte(d[topic].ID) != id {
			t.Errorf("topic %s is gone: the attack did not meet what it should (%v)", topic, err)
		}
	}
	s.good.cl.Close()
	if log := n.whole(); strings.Contains(log, "panic") || strings.Contains(log, "fatal error") || strings.Contains(log, "goroutine ") {
		t.Errorf("the broker's log:\n%s", n.tail())
	}
	eventually(t, "the connections are gone", 10*time.Second, func() bool { return n.metric("kafka_server_broker_connections") <= connections })
	for until := time.Now().Add(10 * time.Second); n.goroutines() > goroutines+malformedRest; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines before, %d after:\n%s", goroutines, n.goroutines(), get("http://"+n.admin+"/debug/pprof/goroutine?debug=1"))
		}
	}
	hwm := n.hwm()
	t.Logf("VmHWM %d MiB, goroutines %d before and %d after, broker %s", hwm>>20, goroutines, n.goroutines(), strings.Join(n.args, " "))
	if !raceEnabled && !*e2eRace && hwm > malformedHWM {
		t.Errorf("VmHWM is %d MiB, more than %d", hwm>>20, malformedHWM>>20)
	}
	n.stop()
}

// besieged makes what the attacks aim at: topics, and a mirror of a source that
// is gone. It returns when the broker is at rest.
func besieged(ctx context.Context, t *testing.T, n *node) (mal, big [16]byte) {
	cl, err := kgo.NewClient(append(kafkareq.Options(), kgo.SeedBrokers(n.addr))...)
	if err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(cl)
	source := startNode(t, "node.id=2")
	defer source.kill()
	size, boot := "8388608", source.addr
	for name, configs := range map[string]map[string]*string{"good": nil, "mal": nil, "big": {"max.message.bytes": &size}} {
		r, err := adm.CreateTopic(ctx, 2, 1, configs, name)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "mal":
			mal = r.ID
		case "big":
			big = r.ID
		}
	}
	var created msg.CreateClusterMirrorResponse
	if err := kafkareq.Do(ctx, cl, &msg.CreateClusterMirrorRequest{MirrorName: "mir",
		Config: []msg.CreateClusterMirrorRequestMirrorConfig{{Name: "bootstrap.servers", Value: &boot}}}, &created); err != nil || created.ErrorCode != 0 {
		t.Fatalf("create mirror: %v, code %d", err, created.ErrorCode)
	}
	cl.Close()
	eventually(t, "no connections", 5*time.Second, func() bool { return n.metric("kafka_server_broker_connections") == 0 })
	return mal, big
}

func (s *siege) attack(ctx context.Context, a *attacker) {
	var c net.Conn
	for !s.t.Failed() {
		i := s.count.Add(1)
		if i > int64(*malformedFrames) {
			break
		}
		if i%goodEvery == 0 {
			s.good.exchange(ctx, s.t)
		}
		if c == nil {
			var err error
			if c, err = net.DialTimeout("tcp", s.n.addr, 5*time.Second); err != nil {
				s.t.Errorf("frame %d: %v", i, err)
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // ports are few
		}
		x := a.next()
		answers, err := send(c, x)
		var liar *answerError
		if errors.As(err, &liar) {
			s.t.Errorf("frame %d, %s: %v: % x", i, x.class, err, x.bytes[:min(len(x.bytes), 400)])
		}
		s.note(x, answers, err)
		if err != nil || x.half || x.waits {
			_ = c.Close()
			c = nil
		}
	}
	if c != nil {
		_ = c.Close()
	}
}

// answerError is an answer that is none to what was asked.
type answerError struct{ what string }

func (e *answerError) Error() string { return e.what }

// send sends an attack and reads as many answers as there are requests in it,
// or until the broker closes or is silent for too long.
func send(c net.Conn, x attack) (answers int, err error) {
	wait := answerWait
	if x.waits {
		wait = silenceWait
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if x.single {
		for i := range x.bytes {
			if _, err := c.Write(x.bytes[i : i+1]); err != nil {
				return 0, err
			}
		}
	} else if _, err := c.Write(x.bytes); err != nil {
		return 0, err
	}
	if x.half {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	r := bufio.NewReader(c)
	for len(x.corr) > answers || x.waits {
		_ = c.SetReadDeadline(time.Now().Add(wait))
		corr, err := readAnswer(r)
		if err != nil {
			return answers, err
		}
		if answers < len(x.corr) && !slices.Contains(x.corr[answers:], corr) { // acks=0 has no answer
			return answers, &answerError{fmt.Sprintf("an answer to %d, asked %v", corr, x.corr)}
		}
		answers++
	}
	return answers, nil
}

func readAnswer(r *bufio.Reader) (int32, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > 100<<20 {
		return 0, &answerError{fmt.Sprintf("an answer of %d bytes", size)}
	}
	_, err := io.CopyN(io.Discard, r, int64(size)-4)
	return int32(binary.BigEndian.Uint32(head[4:])), err
}

func (s *siege) note(x attack, answers int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.seen[x.class]
	if o == nil {
		o = &fate{}
		s.seen[x.class] = o
	}
	o.sent++
	if x.known {
		s.known++
	}
	switch {
	case answers > 0:
		o.answered++
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.silent++
	case err != nil:
		o.closed++
	}
}

// report prints the counts and holds the attack itself to what it claims.
func (s *siege) report() {
	total := fate{}
	for _, class := range slices.Sorted(maps.Keys(s.seen)) {
		o := s.seen[class]
		s.t.Logf("%-30s %6d sent: %6d answered, %6d closed, %6d let go in silence", class, o.sent, o.answered, o.closed, o.silent)
		total.sent += o.sent
		total.answered += o.answered
		total.closed += o.closed
		total.silent += o.silent
	}
	s.t.Logf("%-30s %6d sent: %6d answered, %6d closed, %6d let go in silence; %d%% mutated from valid requests, good exchanges %d",
		"all", total.sent, total.answered, total.closed, total.silent, 100*s.known/max(1, total.sent), s.good.done)
	if 2*s.known < total.sent || total.answered < total.sent/20 || total.closed < total.sent/20 {
		s.t.Error("the attack is not what it should be: half mutated from valid requests, some answered, some refused")
	}
}

// goodClient produces to a topic of its own and reads it back.
type goodClient struct {
	mu   sync.Mutex
	cl   *kgo.Client
	done int

	stacks func() string // of the broker
}

func newGoodClient(ctx context.Context, t *testing.T, n *node) *goodClient {
	g := &goodClient{stacks: func() string { return get("http://" + n.admin + "/debug/pprof/goroutine?debug=2") },
		cl: newClient(t, n.addr, kgo.DefaultProduceTopic("good"), kgo.ConsumeTopics("good"), kgo.FetchMaxWait(100*time.Millisecond))}
	g.exchange(ctx, t)
	return g
}

// exchange must bring back exactly the record that was sent.
func (g *goodClient) exchange(ctx context.Context, t *testing.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	want := fmt.Sprintf("good %d", g.done)
	stuck := time.AfterFunc(5*time.Second, func() { t.Logf("a good exchange takes long; the broker:\n%s", g.stacks()) })
	defer stuck.Stop()
	if err := g.cl.ProduceSync(ctx, kgo.StringRecord(want)).FirstErr(); err != nil {
		t.Errorf("a good produce failed: %v", err)
		return
	}
	fs := g.cl.PollFetches(ctx)
	for fs.NumRecords() == 0 && fs.Err() == nil {
		fs = g.cl.PollFetches(ctx)
	}
	if r := fs.Records(); fs.Err() != nil || len(r) != 1 || string(r[0].Value) != want {
		t.Errorf("a good fetch: %v, %d records, want one of %q", fs.Err(), len(r), want)
	}
	g.done++
}

var vmHWM = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// rest is the number of goroutines once it has not changed for a second: the
// plugins are up by then.
func (n *node) rest() int {
	last, since := n.goroutines(), time.Now()
	for time.Since(since) < time.Second {
		time.Sleep(50 * time.Millisecond)
		if now := n.goroutines(); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// hwm is the most memory the broker has had, in bytes.
func (n *node) hwm() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		n.t.Fatalf("the broker is gone: %v\n%s", err, n.tail())
	}
	m := vmHWM.FindSubmatch(b)
	if m == nil {
		n.t.Fatal("no VmHWM")
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}
