package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/sdk"
)

var (
	swapFor  = flag.Duration("swap.for", 12*time.Second, "how long TestSwapSuite swaps; 2m for every disturbance of every kind")
	swapSeed = flag.Uint64("swap.seed", 0, "seed of TestSwapSuite, 0 = from the clock")
)

const (
	swapEvery   = 2 * time.Second // one of the three kinds, in turn
	swapScripts = 48
	swapPool    = 8                      // topics they register for
	scriptPause = 100 * time.Millisecond // of one script between two requests
	swapEvents  = 100                    // a second, at least, in a run of swapWhole or more; a fifth of it in a short one
	swapWhole   = 2 * time.Minute        // then every disturbance of every kind is done, and a late wish is seen to die
	loadEvery   = 5 * time.Millisecond   // one record of the client, and each fourth time one of the raw connection
)

// disturbance is what is done to a kind of plugin; each ends with a program that
// serves well.
type disturbance struct {
	name string
	do   func(s *swapSuite, k *kindUnderTest)
}

// kindUnderTest is a kind at the broker where it has work.
type kindUnderTest struct {
	n     *node
	kind  sdk.Kind
	r     *rand.Rand
	tape  *tape
	done  map[string]int
	swaps int // that were carried out
}

type swapSuite struct {
	t      *testing.T
	p      *pair
	dir    string
	plugin string
	fenced atomic.Int64 // Registers refused because the plugin was replaced

	mu     sync.Mutex // the three kinds are disturbed at the same time
	failed []string
}

func (s *swapSuite) fail(k *kindUnderTest, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, string(k.kind)+": "+fmt.Sprintf(format, args...))
}

// program is a file that runs a mode of testdata/plugin.
func (s *swapSuite) program(mode string, kind sdk.Kind) string {
	return s.script(mode+"-"+string(kind), "exec "+s.plugin+" "+mode+" "+string(kind))
}

func (s *swapSuite) script(name, text string) string {
	path := filepath.Join(s.dir, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path // a program that is running is not written
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		s.failed = append(s.failed, err.Error())
	}
	return path
}

// plugins runs the CLI and wants text in what it says: one line if it fails.
func (s *swapSuite) plugins(k *kindUnderTest, want string, args ...string) {
	bin, err := brokerBinary()
	if err != nil {
		s.fail(k, "%v", err)
		return
	}
	cmd := exec.Command(bin, append([]string{"plugins", "--timeout", "30s"}, append(args, "--admin-listener", k.n.admin)...)...)
	out, _ := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	good := cmd.ProcessState.ExitCode() == 0
	if wantGood := want == ""; good != wantGood || !strings.Contains(text, want) || !good && strings.Contains(text, "\n") {
		s.fail(k, "plugins %s: exit %d, %q; want %q", strings.Join(args, " "), cmd.ProcessState.ExitCode(), text, want)
	}
	if good {
		k.swaps++
	}
	text = strings.ReplaceAll(text, "\n", "; ")
	s.t.Logf("plugins %s %s: %s", args[0], filepath.Base(args[len(args)-1]), text[:min(len(text), 300)])
}

func (s *swapSuite) swap(k *kindUnderTest, mode string) {
	s.plugins(k, "", "swap", string(k.kind), s.program(mode, k.kind))
}

// well puts a program in that serves well: another one, or the one before.
func (s *swapSuite) well(k *kindUnderTest) {
	mode := "other"
	if k.kind == sdk.Release && k.r.IntN(2) == 0 {
		mode = "hold"
	}
	s.swap(k, mode)
}

// serves waits until a plugin of the kind serves, with a fence.
func (s *swapSuite) serves(k *kindUnderTest) (v pluginView) {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if v = k.view(); v.Phase == "SERVING" && v.Fence != 0 {
			return v
		}
	}
	s.fail(k, "nothing serves: %+v", v)
	return v
}

func (k *kindUnderTest) view() pluginView {
	var list []pluginView
	if json.Unmarshal([]byte(get("http://"+k.n.admin+"/plugins")), &list) == nil {
		for _, v := range list {
			if v.Kind == k.kind {
				return v
			}
		}
	}
	return pluginView{}
}

// says waits for a line of the broker's log, after the first from bytes of it,
// that is about the kind and has all of the texts.
func (s *swapSuite) says(k *kindUnderTest, from int, texts ...string) {
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for line := range strings.Lines(k.n.whole()[from:]) {
			if strings.Contains(line, "kind="+string(k.kind)) && !slices.ContainsFunc(texts, func(x string) bool { return !strings.Contains(line, x) }) {
				return
			}
		}
	}
	s.fail(k, "no line says %q", texts)
}

func (s *swapSuite) waitFor(k *kindUnderTest, what string, limit time.Duration, cond func() bool) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	s.fail(k, "%s: not within %v", what, limit)
}

var disturbances = []disturbance{
	{"swap", func(s *swapSuite, k *kindUnderTest) { s.well(k) }},
	{"rollback", func(s *swapSuite, k *kindUnderTest) {
		s.well(k)
		s.plugins(k, "", "rollback", string(k.kind))
	}},
	{"kill -9, three times", func(s *swapSuite, k *kindUnderTest) {
		from := len(k.n.whole())
		for range 3 { // the first may bring back the program before
			pid := s.serves(k).Pid
			_ = syscall.Kill(pid, syscall.SIGKILL)
			s.waitFor(k, "it is gone", 3*time.Second, func() bool { return gone(pid) })
			s.waitFor(k, "it is seen", 3*time.Second, func() bool { return k.view().Pid != pid })
		}
		s.says(k, from, "plugin ended", `why="signal: killed"`, "in_a_row=2", "starts_again_in=200ms")
		if v := s.serves(k); v.Last != "signal: killed" {
			s.fail(k, "last end %q", v.Last)
		}
		s.well(k)
	}},
	{"SIGSTOP, swap, late SIGCONT", func(s *swapSuite, k *kindUnderTest) {
		pid := s.serves(k).Pid
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		s.well(k)
		time.Sleep(time.Duration(k.r.IntN(1500)) * time.Millisecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		s.waitFor(k, "the old one is gone", 6*time.Second, func() bool { return gone(pid) })
	}},
	{"SIGSTOP, late SIGCONT", func(s *swapSuite, k *kindUnderTest) {
		v := s.serves(k)
		_ = syscall.Kill(v.Pid, syscall.SIGSTOP)
		time.Sleep(time.Second)
		_ = syscall.Kill(v.Pid, syscall.SIGCONT)
		if k.kind == sdk.Release { // the one that is always asked
			s.waitFor(k, "the late answer is counted", 3*time.Second, func() bool { return k.view().Late > v.Late })
			k.tape.read()
			if !k.tape.some(v.Name, "did not answer in time") {
				s.fail(k, "the journal does not say that %s was silent", v.Name)
			}
		}
		s.well(k)
	}},
	{"crash loop", func(s *swapSuite, k *kindUnderTest) {
		from := len(k.n.whole())
		s.swap(k, "dies")
		s.says(k, from, "plugin ended", "dies-", `why="exit status 9"`)
		s.says(k, from, "did not last its probation", "dies-")
		s.serves(k)
		s.well(k)
	}},
	{"garbage on the pipe", func(s *swapSuite, k *kindUnderTest) {
		s.plugins(k, "/noise: ", "swap", string(k.kind), s.script("noise", "head -c 3000000 /dev/urandom; exec sleep 5"))
		s.well(k)
	}},
	{"garbage for answers", func(s *swapSuite, k *kindUnderTest) { s.spoilt(k, "garbage", "unmarshal") }},
	{"1 GiB for an answer", func(s *swapSuite, k *kindUnderTest) {
		s.spoilt(k, "giant", "received message larger than max (1073741824 vs. 4194304)")
	}},
	{"wrong protocol", func(s *swapSuite, k *kindUnderTest) {
		s.plugins(k, "incompatible API version", "swap", string(k.kind), s.program("future", k.kind))
		s.well(k)
	}},
	{"wrong checksum", func(s *swapSuite, k *kindUnderTest) {
		s.plugins(k, "SHA-256 is not the one given", "swap", "--sha256", strings.Repeat("0", 64), string(k.kind), s.program("other", k.kind))
		s.well(k)
	}},
}

// spoilt lets a program serve whose answers cannot be read, and goes back. What
// it was asked has no decision, and the journal says why.
func (s *swapSuite) spoilt(k *kindUnderTest, mode, why string) {
	s.swap(k, mode)
	if k.kind == sdk.Release {
		s.waitFor(k, "the journal says "+why, 3*time.Second, func() bool { k.tape.read(); return k.tape.some(mode, why) })
	}
	s.plugins(k, "", "rollback", string(k.kind))
}

// lateWishes lets an old instance be asked before the cut-over and answer after
// it, in its time, under its old number: the quorum refuses what it wishes.
func lateWishes(s *swapSuite, k *kindUnderTest) {
	before, tries := s.fenced.Load(), 2
	if *swapFor >= swapWhole {
		tries = 8
	}
	for range tries {
		s.swap(k, "slow")
		old := s.serves(k).Pid
		over := make(chan struct{})
		go func() { defer close(over); s.swap(k, "hold") }()
		s.waitFor(k, "the cut-over", 15*time.Second, func() bool { return k.view().Pid != old })
		_ = syscall.Kill(old, syscall.SIGSTOP)
		time.Sleep(60 * time.Millisecond) // the new one gets its number
		_ = syscall.Kill(old, syscall.SIGCONT)
		<-over
		s.waitFor(k, "the old one is gone", 6*time.Second, func() bool { return gone(old) })
		if s.fenced.Load() > before {
			return
		}
	}
	if *swapFor >= swapWhole { // a busy machine may be too slow for a few tries
		s.fail(k, "no wish of a replaced plugin died by the fence")
	}
}

// disturb works through its deck, one disturbance a turn of the three kinds.
func (s *swapSuite) disturb(k *kindUnderTest, first time.Duration, over <-chan struct{}) {
	deck := []disturbance{}
	if k.kind == sdk.Release {
		deck = append(deck, disturbance{"late wishes", lateWishes})
	}
	next := time.Now().Add(first)
	for {
		if len(deck) == 0 {
			deck = slices.Clone(disturbances)
			k.r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		select {
		case <-over:
			return
		case <-time.After(time.Until(next)):
		}
		began := time.Now()
		deck[0].do(s, k)
		k.done[deck[0].name]++
		deck = deck[1:]
		next = began.Add(time.Duration(len(kinds)) * swapEvery)
	}
}

// swapLoad is acks=all traffic to the SYNC topic: a client's, and a connection that
// retries nothing.
type swapLoad struct {
	acked  map[string][2]int64 // value → partition and offset
	errs   []string
	took   []time.Duration
	mu     sync.Mutex
	before string // of every value
}

func (l *swapLoad) err(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Sprintf(format, args...))
}

func (l *swapLoad) ack(value string, partition int32, offset int64, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[value] = [2]int64{int64(partition), offset}
	l.took = append(l.took, took)
}

func (l *swapLoad) run(ctx context.Context, cl *kgo.Client, addr, topic string, id [16]byte, over <-chan struct{}) {
	var raw sync.WaitGroup
	raw.Go(func() {
		c, err := dialRaw(addr)
		if err != nil {
			l.err("%v", err)
			return
		}
		defer c.Close()
		for i := 0; !closed(over); i++ {
			value, began := l.before+"raw "+strconv.Itoa(i), time.Now()
			r, err := c.produce(14, topic, id, int32(i%4), 5*time.Second, []byte(value))
			if err != nil || r.code != wire.ErrNone {
				l.err("produce %d: %+v %v", i, r, err)
				return
			}
			l.ack(value, int32(i%4), r.base, time.Since(began))
			time.Sleep(4 * loadEvery)
		}
	})
	t := time.NewTicker(loadEvery)
	defer t.Stop()
	for i := 0; !closed(over); i++ {
		<-t.C
		value, began := l.before+"client "+strconv.Itoa(i), time.Now()
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte(value), Partition: int32(i % 4)}, func(r *kgo.Record, err error) {
			if err != nil {
				l.err("produce of the client: %v", err)
				return
			}
			l.ack(value, r.Partition, r.Offset, time.Since(began))
		})
	}
	raw.Wait()
	if err := cl.Flush(ctx); err != nil {
		l.err("flush: %v", err)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// there reads a cluster's copy: every acknowledged record is in its place, once.
func (l *swapLoad) there(ctx context.Context, t *testing.T, addr, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cl := newClient(t, addr, kgo.ConsumeTopics(topic))
	seen := map[string]bool{}
	for n := 0; n < len(l.acked); {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Errorf("%s: %d of %d acknowledged records are there: %v", addr, n, len(l.acked), err)
			return
		}
		fs.EachRecord(func(r *kgo.Record) {
			at, ok := l.acked[string(r.Value)]
			switch {
			case seen[string(r.Value)]:
				t.Errorf("%s: %q is there twice", addr, r.Value)
			case ok && at != [2]int64{int64(r.Partition), r.Offset}:
				t.Errorf("%s: %q is at %d/%d, acknowledged at %v", addr, r.Value, r.Partition, r.Offset, at)
			case ok:
				n++
			}
			seen[string(r.Value)] = true
		})
	}
}

// Under acks=all load and at least 100 scripted events a second one of the three
// kinds of plugin is swapped every 2 s, and in between killed, stopped, replaced
// by programs that crash, babble, answer 1 GiB, speak another protocol or are
// not the file that was named. No produce fails and no acknowledged record is
// missing; each event has exactly one line in the journal; what the journal says
// was accepted is what was applied, no more and no less; each disturbance has
// its line.
func TestSwapSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("20 s: not with -short, as make check and make race say; make test runs 12 s of it, make swap-suite 2 minutes")
	}
	seed := *swapSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (-swap.seed), %v", seed, *swapFor)
	ctx := ctxFor(t, *swapFor+5*time.Minute)
	s := &swapSuite{t: t, dir: t.TempDir()}
	s.plugin = filepath.Join(s.dir, "plugin")
	if out, err := exec.Command("go", "build", "-o", s.plugin, "./testdata/plugin").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	s.p = startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=1000")
	id := s.p.topic(ctx, "orders", 4, nil)
	togglers := []*toggler{{topic: "toggle-0"}, {topic: "toggle-1"}, {}}
	names := []string{"orders"}
	for i, g := range togglers {
		g.p, g.r = s.p, rand.New(rand.NewPCG(seed, uint64(i)))
		if g.topic != "" {
			s.p.topic(ctx, g.topic, 1, nil)
			names = append(names, g.topic)
		}
	}
	s.p.src.plugins()
	s.p.dst.plugins()
	s.p.mirror(ctx, true, names...)
	s.p.until(ctx, "SYNC", 20*time.Second, inSync)
	scripts := s.scripts(ctx, seed)
	all := []*kindUnderTest{{n: s.p.src, kind: sdk.Release}, {n: s.p.dst, kind: sdk.Promotion}, {n: s.p.dst, kind: sdk.Coordinator}}
	for i, k := range all {
		k.r, k.done, k.tape = rand.New(rand.NewPCG(seed, 100+uint64(i))), map[string]int{}, newTape(k.n, k.kind)
	}
	l := &swapLoad{acked: map[string][2]int64{}}
	took := s.run(ctx, all, scripts, togglers, l, id)
	s.check(ctx, all, scripts, togglers, took)
	for _, e := range append(l.errs, s.failed...) {
		t.Error(e)
	}
	l.there(ctx, t, s.p.src.addr, "orders")
	l.there(ctx, t, s.p.dst.addr, "orders")
	slices.Sort(l.took)
	t.Logf("%d produces, errors %d, p50 %v, p99 %v, most %v", len(l.took), len(l.errs), l.took[len(l.took)/2], l.took[len(l.took)*99/100], l.took[len(l.took)-1])
}

func (s *swapSuite) scripts(ctx context.Context, seed uint64) (list []*script) {
	ids := map[string][16]byte{}
	for i := range swapScripts {
		x := &script{mirror: fmt.Sprintf("script-%02d", i), topic: fmt.Sprintf("pool-%d", i%swapPool), r: rand.New(rand.NewPCG(seed, 200+uint64(i)))}
		if _, ok := ids[x.topic]; !ok {
			ids[x.topic] = s.p.topic(ctx, x.topic, 1, nil)
		}
		x.id, x.cl = ids[x.topic], newClient(s.t, s.p.src.addr)
		list = append(list, x)
	}
	return list
}

// run lets everything go on for its time, then ends it from the top: what is
// disturbed, what is scripted, traffic.
func (s *swapSuite) run(ctx context.Context, all []*kindUnderTest, scripts []*script, togglers []*toggler, l *swapLoad, id [16]byte) time.Duration {
	var disturbing, working, traffic sync.WaitGroup
	calm, idle, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	began := time.Now()
	traffic.Go(func() {
		cl := newClient(s.t, s.p.src.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()))
		l.run(ctx, cl, s.p.src.addr, "orders", id, over)
	})
	for _, x := range scripts {
		working.Go(func() {
			for next := time.Now(); !closed(idle) && len(x.faults) == 0; time.Sleep(time.Until(next)) {
				x.step(ctx, &s.fenced)
				if next = next.Add(scriptPause); next.Before(time.Now()) {
					next = time.Now()
				}
			}
		})
	}
	for _, g := range togglers {
		working.Go(func() {
			for !closed(idle) && g.fault == "" {
				if strings.HasPrefix(g.topic, "toggle") {
					g.promotions(ctx)
				} else {
					g.flows(ctx)
				}
				time.Sleep(time.Duration(g.r.IntN(200)) * time.Millisecond)
			}
		})
	}
	working.Go(func() {
		for !closed(idle) {
			for _, k := range all {
				k.tape.read()
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	for i, k := range all {
		disturbing.Go(func() { s.disturb(k, time.Duration(i)*swapEvery, calm) })
	}
	time.Sleep(*swapFor)
	close(calm)
	disturbing.Wait()
	close(idle)
	working.Wait()
	took := time.Since(began)
	close(over)
	traffic.Wait()
	return took
}

func (s *swapSuite) check(ctx context.Context, all []*kindUnderTest, scripts []*script, togglers []*toggler, took time.Duration) {
	s.p.until(ctx, "SYNC at the end", 30*time.Second, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
		return inSync(x) || strings.HasPrefix(x.TopicName, "flow-") && stopped(x)
	})
	swaps := 0
	for _, k := range all {
		s.waitFor(k, "every event has its line", 5*time.Second, func() bool { k.tape.read(); return k.tape.whole == k.view().Seq })
		for _, f := range k.tape.faults {
			s.fail(k, "%s", f)
		}
		swaps += k.swaps
		s.t.Logf("%s: %d events, %d swaps, late answers %d, %v", k.kind, k.tape.whole, k.swaps, k.view().Late, k.done)
		for _, d := range disturbances {
			if *swapFor >= swapWhole && k.done[d.name] == 0 {
				s.fail(k, "%q was never done", d.name)
			}
		}
	}
	if want := int(*swapFor/swapEvery) - len(all); swaps < want { // each kind has one under way at the end
		s.failed = append(s.failed, fmt.Sprintf("%d swaps, want at least %d", swaps, want))
	}
	s.checkScripts(ctx, all[0].tape.all(), scripts, took)
	s.checkTogglers(all, togglers)
}

func (s *swapSuite) checkScripts(ctx context.Context, events []journalView, scripts []*script, took time.Duration) {
	var resp msg.DescribeClusterMirrorsResponse
	if err := kafkareq.Do(ctx, s.p.srcCl, &msg.DescribeClusterMirrorsRequest{}, &resp); err != nil {
		s.failed = append(s.failed, err.Error())
	}
	of := map[string][]journalView{}
	for _, e := range events {
		if e.Event == sdk.RegisterAsked {
			of[e.Mirror] = append(of[e.Mirror], e)
		}
	}
	registers, holds, acceptedHolds := 0, 0, 0
	for _, x := range scripts {
		holds, registers = holds+x.account(of[x.mirror]), registers+len(x.registers)
		for _, e := range of[x.mirror] {
			acceptedHolds += accepted(e, sdk.Hold)
		}
		at := slices.IndexFunc(resp.Registrations, func(g msg.DescribeClusterMirrorsResponseRegistration) bool { return g.MirrorName == x.mirror })
		if at < 0 {
			x.stands(nil)
		} else {
			x.stands(&resp.Registrations[at])
		}
		s.failed = append(s.failed, x.faults...)
	}
	rate := float64(registers) / took.Seconds()
	s.t.Logf("%d scripted events in %v: %.0f a second; holds accepted %d, applied %d; refused by the fence %d",
		registers, took.Round(time.Second), rate, acceptedHolds, holds, s.fenced.Load())
	want := float64(swapEvents)
	if *swapFor < swapWhole {
		want /= 5
	}
	if rate < want {
		s.failed = append(s.failed, fmt.Sprintf("%.0f scripted events a second, want %.0f", rate, want))
	}
	if acceptedHolds != holds || holds == 0 {
		s.failed = append(s.failed, fmt.Sprintf("%d holds accepted, %d applied", acceptedHolds, holds))
	}
}

// checkTogglers: each Register that the promotion plugin was granted had one
// outcome, and reached the source (which may be asked again, for an answer can
// be lost); each release was one fall to ASYNC, by a demotion that was accepted or
// because a Register asked again heard of it; each step of the coordinator that
// was accepted was one change of state, and they follow each other.
func (s *swapSuite) checkTogglers(all []*kindUnderTest, togglers []*toggler) {
	asked := map[string]int{}
	for _, e := range all[0].tape.all() {
		if e.Event == sdk.RegisterAsked && e.Mirror == mirrorName {
			asked[e.Topic]++
		}
	}
	registers, demotes, steps := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range all[1].tape.all() {
		registers[e.Topic] += accepted(e, sdk.Register)
		demotes[e.Topic] += accepted(e, sdk.Demote)
	}
	for _, e := range all[2].tape.all() {
		steps[e.Topic] += accepted(e, sdk.StepPartition)
	}
	log := s.p.dst.whole()
	for _, g := range togglers {
		if g.fault != "" || g.rounds == 0 {
			s.failed = append(s.failed, fmt.Sprintf("%s after %d rounds: %s", g.topic, g.rounds, g.fault))
		}
		if !strings.HasPrefix(g.topic, "toggle") {
			for i := range g.rounds {
				s.checkSteps(log, fmt.Sprintf("flow-%d", i), steps)
			}
			s.t.Logf("%d topics mirrored and failed over, the slowest in %v", g.rounds, g.slowest)
			continue
		}
		s.checkSteps(log, g.topic, steps)
		outcomes, fell, told := 0, 0, 0
		for line := range strings.Lines(log) {
			if !strings.Contains(line, " topic="+g.topic+" ") {
				continue
			}
			switch {
			case strings.Contains(line, `msg="topic fell back to ASYNC`):
				fell++
				if strings.Contains(line, wire.ErrMirrorSyncReleasedRequiresFreshPromotion.Name()) {
					told++
				}
			case strings.Contains(line, `msg="topic is in SYNC`), strings.Contains(line, `msg="source had released the topic`),
				strings.Contains(line, `msg="source did not take the registration`):
				outcomes++
			}
		}
		said := fmt.Sprintf("%s: %d rounds, Registers accepted %d, with an outcome %d, at the source %d; releases %d, falls to ASYNC %d, of them by demotions accepted %d, by the source's word %d",
			g.topic, g.rounds, registers[g.topic], outcomes, asked[g.topic], g.releases, fell, demotes[g.topic], told)
		s.t.Log(said)
		if registers[g.topic] != outcomes || asked[g.topic] < outcomes || fell != g.releases || demotes[g.topic] != fell-told {
			s.failed = append(s.failed, said)
		}
	}
}

// checkSteps compares the accepted steps of a topic with one partition with the
// changes of state the log tells of, each beginning where the one before ended.
// What a stop does without its policy is no step of it.
func (s *swapSuite) checkSteps(log, topic string, steps map[string]int) {
	at, changes := "", 0
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `msg="mirror partition"`) || !strings.Contains(line, "topic="+topic+" ") {
			continue
		}
		_, rest, _ := strings.Cut(line, " from=")
		from, rest, _ := strings.Cut(rest, " to=")
		to, reason, ok := strings.Cut(rest, " reason=")
		if !ok || at != "" && from != at {
			s.failed = append(s.failed, fmt.Sprintf("%s: from %s to %s, but it was %s", topic, from, to, at))
		}
		if at = to; strings.TrimSpace(reason) != `"built-in rule"` {
			changes++
		}
	}
	if changes != steps[topic] || at == "" {
		s.failed = append(s.failed, fmt.Sprintf("%s: %d steps accepted, %d changes of state, the last to %q", topic, steps[topic], changes, at))
	}
}
