package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lockstep/internal/cli"
	"lockstep/perf/baseline"
	"lockstep/perf/load"
	"lockstep/perf/peer"
	"lockstep/perf/report"
)

type peersOptions struct {
	pairs                 int
	only, cases           string
	window, latency       time.Duration
	warmUp, jvmWarm       time.Duration
	catchUp               string
	tuned, full, kfake    bool
	binary, dir, giouring string
	out                   string
}

func peersCommand() *cobra.Command {
	o := peersOptions{}
	cmd := &cobra.Command{
		Use: "peers", Short: "Apache Kafka and ours under the same load, in turns", Args: cobra.NoArgs,
		Long: "Fetches Apache Kafka by Maven, starts it and ours, puts the same load on each in turns, and writes what was measured\n" +
			"to a file that `lockstep-perf report` makes a page of. Without a JVM or Maven it says so and exits with 0.",
		Example: "  lockstep-perf peers --pairs 5 --out perf/results/peers.json\n  lockstep-perf peers --only P1,P2 --cases 'acks=all' --pairs 1 --window 2s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.pairs, "pairs", 5, "rounds; in each every side has one turn, in an order that alternates")
	f.StringVar(&o.only, "only", "", "goals, of "+everyGoal+"; empty = "+peersGoals)
	f.StringVar(&o.giouring, "giouring", "", "a lockstep program built with that tag, for the goal engines")
	f.StringVar(&o.cases, "cases", "", "only the cases of P1 and P2 whose name has this in it")
	f.DurationVar(&o.window, "window", 4*time.Second, "time that is counted of a turn at the most that goes")
	f.DurationVar(&o.latency, "latency-window", 10*time.Second, "time that is counted of a turn at a set rate")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "of each turn, not counted")
	f.DurationVar(&o.jvmWarm, "jvm-warm", 30*time.Second, "load on a fresh Kafka before its first turn")
	f.StringVar(&o.catchUp, "catch-up", "2GiB", "bytes of values that P5 reads")
	f.BoolVar(&o.tuned, "tuned", true, "a second Kafka, tuned for the case, beside the one with defaults")
	f.BoolVar(&o.kfake, "kfake", true, "kfake (no disk) beside them in P1")
	f.BoolVar(&o.full, "full-page-cache", true, "fill the memory with the page cache of a file before each turn, as on a machine that has run for long")
	f.StringVar(&o.binary, "binary", "", "the lockstep program; empty = beside this one, or in PATH")
	f.StringVar(&o.dir, "dir", "", "parent of the data directories; empty = the system's for temporary files")
	f.StringVar(&o.out, "out", "", "file to write the JSON to, after each goal; empty = none")
	return cmd
}

// Goals by name: with a peer beside us, and those among ourselves.
const (
	peersGoals = "P1,P2,P4,P5,P7"
	everyGoal  = peersGoals + "," + goalEngines
)

// Names of sides.
const (
	sideOurs  = "lockstep"
	sideKafka = "kafka"
	sideTuned = "kafka-tuned"
	sideKfake = "kfake"
	sideSync  = "fdatasync"
	sideBare  = "bare"
	sideSink  = "sink"
)

// tunedJVM and tunedSettings are what one would do for a broker alone on two
// cores: a larger heap that is there from the start, the collector with the
// least overhead, as many threads as cores, larger socket buffers.
var (
	tunedJVM      = []string{"-Xmx2G", "-Xms2G", "-server", "-XX:+AlwaysPreTouch", "-XX:+UseParallelGC", "-Djava.awt.headless=true"}
	tunedSettings = []string{"num.network.threads=2", "num.io.threads=2", "background.threads=2", "socket.send.buffer.bytes=1048576", "socket.receive.buffer.bytes=1048576"}
)

// produceVersion is of all sides: the newest Produce that Kafka 4.3 speaks, so
// that the same bytes go to each.
const produceVersion = 13

// comparison is a run of peers.
type comparison struct {
	o       peersOptions
	p       *cli.Printer
	dir     string
	binary  string
	libs    string
	catchUp int64
	brokers map[string]*peer.Broker
	topics  int
	doc     *report.Peers
	best    map[string]float64 // case to bytes a second of Kafka's best
	rested  map[string]bool    // sides that were stopped since their last turn
	parts   []float64          // of Kafka's best rate, for the sweep
	cache   *pageCache         // nil = as the machine is
	rest    time.Duration      // between two turns; 0 = none, and the disk is not waited for
	rewarm  time.Duration      // added to the warm-up of a Kafka that was stopped
}

var goals = []struct {
	name string
	run  func(c *comparison, ctx context.Context) error
}{{"P1", (*comparison).saturation}, {"P2", (*comparison).latencies}, {"P4", (*comparison).durable}, {"P5", (*comparison).catchUps}, {"P7", (*comparison).starts}, {goalEngines, (*comparison).engines}}

func (o *peersOptions) run(ctx context.Context, p *cli.Printer) error {
	catchUp, err := cli.ParseBytes(o.catchUp)
	only := strings.Split(o.only, ",")
	if o.only == "" {
		only = strings.Split(peersGoals, ",")
	}
	switch {
	case err != nil || catchUp < 1<<20:
		return cli.Usage("--catch-up is at least 1MiB")
	case o.pairs < 1 || o.window <= 0 || o.latency <= 0 || o.warmUp < 0 || o.jvmWarm < 0:
		return cli.Usage("--pairs, --window and --latency-window are positive")
	case slices.ContainsFunc(only, func(g string) bool { return !slices.Contains(strings.Split(everyGoal, ","), g) }):
		return cli.Usage("--only: of %s, not %q", everyGoal, o.only)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	c := &comparison{o: *o, p: p, catchUp: int64(catchUp), brokers: map[string]*peer.Broker{}, best: map[string]float64{}, rested: map[string]bool{}, parts: sweepParts, rest: settle, rewarm: rewarm}
	if !slices.Equal(only, []string{goalEngines}) {
		if c.libs, err = peer.Jars(ctx); errors.Is(err, peer.ErrMissing) {
			p.Line("skipped: %v", err)
			return nil
		} else if err != nil {
			return cli.Fail("fetching Kafka", err, "")
		}
	}
	if c.binary, err = findBinary(o.binary); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp(o.dir, "lockstep-peers-"); err != nil {
		return err
	}
	if o.full {
		if c.cache, err = newPageCache(c.dir); err == nil {
			err = c.cache.fill(ctx)
			defer c.cache.close()
		}
	}
	if err == nil {
		err = c.run(ctx, only)
	}
	for _, b := range c.brokers {
		b.Kill()
	}
	if err := errors.Join(err, ctx.Err(), os.RemoveAll(c.dir)); err != nil {
		return cli.Fail("comparing", err, "")
	}
	return nil
}

func (c *comparison) run(ctx context.Context, only []string) error {
	c.doc = &report.Peers{Part: report.Part{Commit: buildCommit(), When: time.Now().UTC().Format("2006-01-02 15:04"), Command: command(os.Args[1:])}, Machine: machineFacts(c.dir)}
	if c.o.out != "" {
		old, err := readJSON[report.Peers](c.o.out)
		if err != nil {
			return err
		}
		c.doc.Keep(old, only)
	}
	for _, g := range goals {
		if !slices.Contains(only, g.name) {
			continue
		}
		if err := g.run(c, ctx); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		if err := c.save(); err != nil {
			return err
		}
	}
	c.print()
	return nil
}

func (c *comparison) save() error {
	if c.o.out == "" {
		return nil
	}
	return writeJSON(c.o.out, c.doc)
}

// writeJSON writes a file, and the directory it is in if that is not there.
func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// sides that take turns under a load.
func (c *comparison) sides() []string {
	if c.o.tuned {
		return []string{sideOurs, sideKafka, sideTuned}
	}
	return []string{sideOurs, sideKafka}
}

// order of a round: forth, and back in the next.
func order(sides []string, round int) []string {
	s := slices.Clone(sides)
	if round%2 == 1 {
		slices.Reverse(s)
	}
	return s
}

// broker starts a side when it is first needed. A Kafka is put under load then,
// for its compiler.
func (c *comparison) broker(ctx context.Context, side string) (*peer.Broker, error) {
	if b := c.brokers[side]; b != nil {
		return b, nil
	}
	b, what, err := c.make(ctx, side, side)
	if err != nil {
		return nil, err
	}
	if err := b.Start(ctx); err != nil {
		return nil, err
	}
	c.brokers[side] = b
	if !slices.ContainsFunc(c.doc.Sides, func(s report.Side) bool { return s.Name == side }) {
		c.doc.Sides = append(c.doc.Sides, report.Side{Name: side, What: what, Settings: b.Settings})
		c.p.Note("%s: %s", side, what)
	}
	if side != sideKafka && side != sideTuned {
		return b, nil
	}
	for i, pc := range []produceCase{{-1, 100, 1}, {-1, 1024, 16 << 10}, {1, 100, 16 << 10}} {
		lo := c.most(pc)
		lo.WarmUp, lo.Duration = 0, max(c.o.jvmWarm/3, time.Millisecond)
		if _, _, err := c.turn(ctx, side, nil, pc.partitions(), lo); err != nil {
			return nil, fmt.Errorf("warming %s, load %d: %w", side, i, err)
		}
	}
	return b, nil
}

// make makes a broker of a kind of side.
func (c *comparison) make(ctx context.Context, side, name string) (b *peer.Broker, what string, err error) {
	switch side {
	case sideKafka:
		b, err = peer.Kafka(ctx, c.dir, name, c.libs, peer.ScriptJVM)
		what = "Apache Kafka " + peer.Version + ", one KRaft node, defaults of its settings and of its start script"
	case sideTuned:
		b, err = peer.Kafka(ctx, c.dir, name, c.libs, tunedJVM, tunedSettings...)
		what = "Apache Kafka " + peer.Version + ", one KRaft node, tuned for two cores"
	case sideKfake:
		self, e := os.Executable()
		if e != nil {
			return nil, "", e
		}
		b, err = peer.Program(c.dir, name, self, "kfake")
		what = "kfake of franz-go: the protocol, no disk"
	default:
		binary, overrides := c.variant(side)
		b, err = peer.Lockstep(c.dir, name, binary, overrides...)
		what = "lockstep, defaults"
		if side != sideOurs {
			what = "lockstep, " + side
		}
	}
	return b, what, err
}

// turn puts a load on a side, on a topic of its own.
func (c *comparison) turn(ctx context.Context, side string, configs map[string]string, partitions int32, lo load.Options) (report.Run, *load.Result, error) {
	b, err := c.broker(ctx, side)
	if err != nil {
		return report.Run{}, nil, err
	}
	set := map[string]*string{}
	if side != sideKfake { // a log that is deleted leaves the disk to the next turn
		delay := "100"
		set["file.delete.delay.ms"] = &delay
	}
	for k, v := range configs {
		set[k] = &v
	}
	c.topics++
	t, err := openTarget(ctx, b.Addr, fmt.Sprintf("perf-%d", c.topics), partitions, produceVersion, set)
	if err != nil {
		return report.Run{}, nil, err
	}
	lo.Addr, lo.Targets, lo.Version = t.addr, t.targets, t.produce
	r, res, err := c.measured(ctx, side, lo, b.Pid())
	r.Broker, r.FlushAck = side, t.flush
	if err := errors.Join(err, t.close(context.WithoutCancel(ctx)), ctx.Err()); err != nil {
		return r, nil, fmt.Errorf("%s: %w", side, err)
	}
	if r.Errors > 0 {
		return r, nil, fmt.Errorf("%s: %d records were not acknowledged, the first: %s", side, r.Errors, r.FirstError)
	}
	return r, res, c.ready(ctx)
}

// measured puts a load on a side while each Kafka that is not at turn is
// stopped: one that rests takes 3 % of a core, in pieces of milliseconds. One that
// was stopped has a longer warm-up, for all that it does late then.
func (c *comparison) measured(ctx context.Context, side string, lo load.Options, pid int) (r report.Run, res *load.Result, err error) {
	for name, b := range c.brokers {
		if name == side || name != sideKafka && name != sideTuned {
			continue
		}
		if err := b.Pause(); err != nil {
			return r, nil, err
		}
		c.rested[name] = true
		defer func() { err = errors.Join(err, b.Resume()) }()
	}
	if c.rested[side] {
		lo.WarmUp += c.rewarm
		c.rested[side] = false
	}
	return measured(ctx, lo, "raw", pid)
}

// ready lets deleted logs go, what is dirty be written and the page cache be
// full, so that no turn pays for the one before.
func (c *comparison) ready(ctx context.Context) error {
	if err := c.settle(ctx); err != nil || c.cache == nil {
		return err
	}
	return c.cache.fill(ctx)
}

func (c *comparison) settle(ctx context.Context) error {
	if c.rest == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.rest):
	}
	d, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// baseline takes the machine's figures of this minute.
func (c *comparison) baseline(size int) (baseline.Figures, error) {
	f, err := baseline.Measure(c.dir, size)
	c.doc.Baselines = append(c.doc.Baselines, f)
	return f, err
}

// add appends a series for each base that took part.
func (c *comparison) add(s report.Series, bases ...string) {
	for _, base := range bases {
		one := s
		one.Base = base
		if len(s.Rounds) > 0 {
			if _, took := s.Rounds[0][base]; !took && base != "" {
				continue
			}
		}
		c.doc.Series = append(c.doc.Series, &one)
	}
}

func (c *comparison) print() {
	for _, b := range c.doc.Baselines[:min(1, len(c.doc.Baselines))] {
		writeMachine(c.p, c.doc.Machine, b)
	}
	c.p.Table(cli.Columns("GOAL", "CASE", "FIGURE", "OURS", "BASE", "RATIO", "LEAST", "MOST", "WANTED"), report.Rows(c.doc.Series))
}

// command is how a page says what was run: without the places of this machine.
func command(args []string) string {
	list := []string{"lockstep-perf"}
	for i := 0; i < len(args); i++ {
		switch name, _, joined := strings.Cut(args[i], "="); name {
		case "--dir", "--binary", "--giouring", "--out":
			if !joined {
				i++
			}
		default:
			list = append(list, args[i])
		}
	}
	return strings.Join(list, " ")
}
