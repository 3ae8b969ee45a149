package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
)

const (
	demoTopic      = "orders"
	demoMirror     = "dr"
	demoSwapTopic  = "payments" // whose promotions the swapped plugin decides
	demoPartitions = 3
	demoRecord     = 1 << 10
	demoSingles    = 25 // records sent one at a time, for ack_p50_ms
	demoEchoes     = 15
)

type demoOptions struct {
	rtt      time.Duration
	jitter   time.Duration
	width    string
	records  int
	kill     string
	async    bool
	keep     bool
	reactors int
	engine   string
	seed     uint64

	bandwidth    int64 // by width
	destinations int
	plugin       string
	swapTo       swapRequest // by plugin
}

func demoCommand() *cobra.Command {
	o := demoOptions{}
	cmd := &cobra.Command{Use: "demo", Short: "Lose a whole source site and show that no acknowledged record is lost", Args: cobra.NoArgs,
		Long: `Start a source and a destination broker and a line with a set round trip between them, all
in a fresh temporary directory; mirror a topic in SYNC; write to the source with acks=all;
in the middle kill the source and cut the line in the same instant; fail over; write the
rest to the destination; read everything back and compare it byte by byte.

The last line is PASS or FAIL with the counts. ack_p50_ms is the median of the first 25
records, which are sent one at a time; rtt_ms is measured by echoes through the same line.

While records flow, before the kill, the promotion plugin of the destination is swapped: by
the program of plugins/examples if it lies beside this one, else by another process of the
default policy. A second topic is taken to SYNC before the swap and after it, so that there is something
to decide; its verdicts are shown. With --destinations 2 both sites hold each acknowledged
record, and the fail-over goes to the one that is furthest ahead.

With --async nothing waits for the destination: the same test then sees the loss. Flushes
are as the broker's default, flush.ack=appended: the site dies, the machine does not.

Everything it starts ends with it, and its directory is removed, however it ends.`,
		Example: `  lockstep demo
  lockstep demo --rtt 100ms --records 50000
  lockstep demo --async              # the control: FAIL with lost > 0
  lockstep demo --kill destination
  lockstep demo --destinations 2`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), o, cmd.OutOrStdout()) }}
	f := cmd.Flags()
	f.DurationVar(&o.rtt, "rtt", 40*time.Millisecond, "round trip of the line")
	f.DurationVar(&o.jitter, "jitter", 0, "each piece of data takes up to so much longer, each way")
	f.StringVar(&o.width, "bandwidth", "", "bytes per second of the line, such as 20MB or 16MiB; empty = no limit")
	f.IntVar(&o.records, "records", 20_000, "records of 1 KiB")
	f.StringVar(&o.kill, "kill", "source", "what to kill half way: source, destination or none")
	f.BoolVar(&o.async, "async", false, "leave the topic ASYNC")
	f.BoolVar(&o.keep, "keep", false, "keep the directory with data and logs")
	f.IntVar(&o.reactors, "reactors", 0, "ring threads of each broker, 0 = the default")
	f.StringVar(&o.engine, "engine", "auto", "engine of both brokers: auto, io_uring or portable")
	f.IntVar(&o.destinations, "destinations", 1, "destinations, 1 or 2, each behind a line of its own")
	f.StringVar(&o.plugin, "plugin", demoPluginAuto, "promotion plugin to swap to before the kill: a program, default, none, or auto")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the records' bytes, 0 = from the clock")
	return cmd
}

func (o *demoOptions) check() error {
	switch {
	case o.kill != "source" && o.kill != "destination" && o.kill != "none":
		return cli.Usage("--kill is source, destination or none, not %q", o.kill)
	case o.records < 2*demoWindow || o.records > demoMaxRecords:
		return cli.Usage("--records is from %d to %d", 2*demoWindow, demoMaxRecords)
	case o.rtt < 0 || o.rtt > demoMaxRTT, o.jitter < 0 || o.jitter > demoMaxRTT:
		return cli.Usage("--rtt and --jitter are from 0 to %v", demoMaxRTT)
	case o.destinations < 1 || o.destinations > 2:
		return cli.Usage("--destinations is 1 or 2")
	case o.destinations > 1 && o.kill != "source":
		return cli.Usage("--destinations 2 goes with --kill source: it shows which of the two takes over")
	case o.async && o.kill == "destination":
		return cli.Usage("--async with --kill destination shows nothing: nobody waits for the destination")
	}
	var err error
	if o.bandwidth, err = cli.ParseBandwidth(o.width); err != nil {
		return err
	}
	if o.swapTo, err = demoPlugin(o.plugin); err != nil {
		return cli.Fail("--plugin", err, "build the examples by `make build`, or say default")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	return nil
}

// runDemo runs the demo and writes the verdict as the last line.
func runDemo(ctx context.Context, o demoOptions, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	d := &demo{o: o, out: out, began: time.Now(), led: newDemoLedger(o.records, o.seed)}
	err := d.run(ctx)
	if ctx.Err() != nil && err != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	v := d.verdict(err)
	fmt.Fprintln(out, v.line)
	if !v.pass {
		return &cli.Error{Code: cli.ExitFailed} // the line has said it
	}
	return nil
}

// demo is one run.
type demo struct {
	o     demoOptions
	out   io.Writer
	began time.Time
	last  time.Time
	steps [][]string
	c     *testcluster.Cluster
	id    [16]byte // of the topic
	led   *demoLedger
	found []demoFindings // one per cluster that was read
	rtt   time.Duration
}

// step notes that something was done and shows it.
func (d *demo) step(format string, args ...any) {
	now := time.Now()
	if d.last.IsZero() {
		d.last = d.began
	}
	text := fmt.Sprintf(format, args...)
	d.steps = append(d.steps, []string{fmt.Sprintf("%7.3f", now.Sub(d.began).Seconds()), fmt.Sprintf("%7.3f", now.Sub(d.last).Seconds()), text})
	d.last = now
	fmt.Fprintf(d.out, "%8.3f s  %s\n", now.Sub(d.began).Seconds(), text)
}

// table repeats the steps with their times.
func (d *demo) table() {
	fmt.Fprintln(d.out)
	(&cli.Printer{Out: d.out}).Table(cli.Columns("AT (s)", "TOOK (s)", "STEP"), d.steps)
	fmt.Fprintln(d.out)
}

func (d *demo) run(ctx context.Context) (err error) {
	overrides := []string{"lockstep.io.engine=" + d.o.engine, fmt.Sprintf("lockstep.io.reactors=%d", d.o.reactors)}
	fmt.Fprintf(d.out, "seed %d: %d records of 1 KiB, round trip %v, kill %s, %s\n", d.o.seed, d.o.records, d.o.rtt, d.o.kill, d.mode())
	more := make([]time.Duration, d.o.destinations-1)
	for i := range more {
		more[i] = d.o.rtt * 3 / 4 // nearer: it is ahead of the first when the source dies
	}
	c, err := testcluster.Start(ctx, testcluster.Options{Keep: d.o.keep, RTT: d.o.rtt, More: more, Jitter: d.o.jitter, Bandwidth: d.o.bandwidth, Overrides: overrides})
	if err != nil {
		return err
	}
	d.c = c
	defer func() {
		err = errors.Join(err, c.Close())
		if d.o.keep {
			fmt.Fprintf(d.out, "kept: %s\n", c.Dir)
		}
	}()
	d.step("source (pid %d) and destination (pid %d) are up, engine %s", c.Source.Pid(), c.Destination.Pid(), c.Source.Engine(ctx))
	for _, s := range c.More {
		d.step("%s (pid %d) is up, behind a line of %v", s.Name, s.Pid(), d.o.rtt*3/4)
	}
	if err := d.echo(); err != nil {
		return err
	}
	if err := d.mirror(ctx); err != nil {
		return err
	}
	switch d.o.kill {
	case "source":
		err = d.loseSource(ctx)
	case "destination":
		err = d.loseDestination(ctx)
	default:
		err = d.loseNothing(ctx)
	}
	d.table()
	return err
}

func (d *demo) mode() string {
	if d.o.async {
		return "ASYNC"
	}
	return "SYNC"
}

// echo measures the line.
func (d *demo) echo() error {
	e, err := d.c.NewEcho()
	if err != nil {
		return err
	}
	defer e.Close()
	for range demoEchoes {
		if _, err := e.Once(); err != nil {
			return err
		}
	}
	d.rtt = e.P50()
	d.step("line is up: an echo takes %.2f ms", ms(d.rtt))
	return nil
}

// mirror makes topic and mirror and waits until they are in step.
func (d *demo) mirror(ctx context.Context) error {
	t := testcluster.Topic{Name: demoTopic, Mirror: demoMirror, Partitions: demoPartitions, Sync: !d.o.async}
	var err error
	if d.id, err = d.c.Add(ctx, t); err != nil {
		return err
	}
	d.step("topic %s has %d partitions, mirror %s is made, the topic is added %s", demoTopic, demoPartitions, demoMirror, t.Type())
	if err := d.c.Await(ctx, t); err != nil {
		return err
	}
	d.step("mirroring, and %s in effect", t.Type())
	return nil
}

// demoVerdict is the outcome in one line.
type demoVerdict struct {
	pass bool
	line string
}

func (d *demo) verdict(err error) demoVerdict {
	var f demoFindings
	for _, x := range d.found {
		f.lost, f.corrupted, f.outOfOrder = max(f.lost, x.lost), max(f.corrupted, x.corrupted), max(f.outOfOrder, x.outOfOrder)
	}
	acked := d.led.ackedCount()
	line := fmt.Sprintf("acked=%d lost=%d corrupted=%d out_of_order=%d ack_p50_ms=%.1f rtt_ms=%.0f", acked, f.lost, f.corrupted, f.outOfOrder,
		ms(d.led.singleP50()), math.Round(ms(d.rtt)))
	if err == nil && len(d.found) > 0 && acked == d.o.records && f.lost+f.corrupted+f.outOfOrder == 0 {
		return demoVerdict{true, "PASS " + line}
	}
	if err != nil {
		line += "  " + strings.Join(strings.Fields(err.Error()), " ")
	}
	return demoVerdict{false, "FAIL " + line}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// demoProducer makes the client that writes to a broker: stock settings of an
// idempotent producer, acks=all, small batches so that several are under way.
func demoProducer(addr string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("lockstep-demo"), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(64<<10), kgo.ProduceRequestTimeout(5*time.Second), kgo.MaxBufferedRecords(4*demoWindow), kgo.WithLogger(nil))
}
