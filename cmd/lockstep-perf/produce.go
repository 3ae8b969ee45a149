package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/perf/baseline"
	"lockstep/perf/load"
	"lockstep/perf/report"
)

// produceOptions are the flags that produce and mixed share.
type produceOptions struct {
	own               ownOptions
	bootstrap, topic  string
	client, acks      string
	recordSize, batch string
	rate              string
	max               bool
	inFlight          int
	conns             int
	partitions        int32
	warmUp, duration  time.Duration
	pid               int
	admin, dir        string
	mallocs, json     bool
	seed              uint64
	readers           int // of mixed
	maxBytes          string
}

func produceCommand() *cobra.Command {
	o := produceOptions{}
	cmd := &cobra.Command{
		Use: "produce", Short: "Latency and throughput of produce, against any broker that speaks Kafka's protocol", Args: cobra.NoArgs,
		Long: "Writes to a topic: an open loop at --rate, which counts from when a record was due, or with --max a closed loop\n" +
			"with --in-flight requests under way on each connection, for the most that goes. perf/README.md says what the figures mean.",
		Example: "  lockstep-perf produce --bootstrap localhost:9092 --rate 20MB --batch 16KiB --acks all\n" +
			"  lockstep-perf produce --bootstrap localhost:9092 --max --in-flight 5 --record-size 100 --batch 1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), JSON: o.json})
		},
	}
	o.bind(cmd)
	return cmd
}

func mixedCommand() *cobra.Command {
	o := produceOptions{}
	cmd := &cobra.Command{
		Use: "mixed", Short: "The same as produce, with consumers that follow", Args: cobra.NoArgs,
		Example: "  lockstep-perf mixed --bootstrap localhost:9092 --rate 20MB --readers 2",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.readers < 1 || o.readers > maxConnections {
				return cli.Usage("--readers: from 1 to %d", maxConnections)
			}
			return o.run(cmd.Context(), &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), JSON: o.json})
		},
	}
	o.bind(cmd)
	cmd.Flags().IntVar(&o.readers, "readers", 1, "connections that read what is written")
	cmd.Flags().StringVar(&o.maxBytes, "max-bytes", "1MiB", "bytes of a fetch's answer")
	return cmd
}

func (o *produceOptions) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.bootstrap, "bootstrap", "localhost:9092", "a broker")
	o.own.bind(cmd)
	f.StringVar(&o.topic, "topic", "", "the topic, made if it is not there; empty = one of our own, deleted at the end")
	f.StringVar(&o.client, "client", "raw", "raw = our own codec, kgo = that client library, which makes the batches itself")
	f.StringVar(&o.acks, "acks", "all", "1 or all")
	f.StringVar(&o.recordSize, "record-size", "1KiB", "bytes of a value")
	f.StringVar(&o.batch, "batch", "16KiB", "bytes of a request's batch; 1 = one record")
	f.StringVar(&o.rate, "rate", "10MB", "bytes of values a second, over all connections")
	f.BoolVar(&o.max, "max", false, "as much as goes, in place of --rate")
	f.IntVar(&o.inFlight, "in-flight", 5, "with --max: requests under way on each connection")
	f.IntVar(&o.conns, "connections", 4, "connections")
	f.Int32Var(&o.partitions, "partitions", 4, "partitions of a topic that is made")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "time before the count begins")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "time that is counted")
	f.IntVar(&o.pid, "pid", 0, "process id of the broker, for its processor time")
	f.StringVar(&o.admin, "admin", "", "our broker's admin listener, for its engine and --mallocs")
	f.StringVar(&o.dir, "dir", "", "a directory on the broker's file system, for the raw fdatasync; empty = the system's for temporary files")
	f.BoolVar(&o.mallocs, "mallocs", false, "count what the broker allocates for a request; needs --admin")
	f.BoolVar(&o.json, "json", false, "write JSON")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the values' bytes")
}

// produceResult is the JSON answer.
type produceResult struct {
	report.Run
	Engine   string           `json:"engine"` // of our broker; unknown without --admin
	Mallocs  *mallocs         `json:"mallocs,omitempty"`
	Read     *consumeFigures  `json:"read,omitempty"`
	Baseline baseline.Figures `json:"baseline"` // of the same minute
	Machine  report.Machine   `json:"machine"`
	Commit   string           `json:"commit"`
}

// load makes the options of the load, without its targets.
func (o *produceOptions) load() (lo load.Options, err error) {
	size, err := cli.ParseBytes(o.recordSize)
	if err != nil || size < 1 || size > maxRecord {
		return lo, cli.Usage("--record-size: from 1 to 512KiB, not %q", o.recordSize)
	}
	batch, err := cli.ParseBytes(o.batch)
	if err != nil || batch < 1 || batch > maxBatch {
		return lo, cli.Usage("--batch: from 1 to 1MiB, not %q", o.batch)
	}
	rate, err := cli.ParseBytes(o.rate)
	acks := map[string]int16{"1": 1, "all": -1}[o.acks]
	switch {
	case err != nil || rate < 1:
		return lo, cli.Usage("--rate: bytes a second such as 20MB, not %q", o.rate)
	case acks == 0:
		return lo, cli.Usage("--acks: 1 or all, not %q", o.acks)
	case o.client != "raw" && o.client != "kgo":
		return lo, cli.Usage("--client: raw or kgo, not %q", o.client)
	case o.conns < 1 || o.conns > maxConnections || o.partitions < 1 || o.duration <= 0 || o.warmUp < 0 || o.inFlight < 1 || o.inFlight > maxConnections:
		return lo, cli.Usage("--connections, --partitions, --in-flight and --duration are positive")
	case o.mallocs && o.admin == "" && !o.own.on:
		return lo, cli.Usage("--mallocs needs --admin or --start")
	}
	lo = load.Options{Connections: o.conns, RecordSize: int(size), Batch: load.BatchFor(int(size), int(batch)), Rate: rate, WarmUp: o.warmUp, Duration: o.duration,
		Acks: acks, Timeout: ackTimeout, Seed: o.seed}
	if o.max {
		lo.InFlight, lo.Rate = o.inFlight, 0
	}
	return lo, nil
}

// interruptible is a context that ends with a signal.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

func (o *produceOptions) run(ctx context.Context, p *cli.Printer) error {
	lo, err := o.load()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	dir := cmp.Or(o.dir, os.TempDir())
	end, err := o.own.start(ctx, dir, &o.bootstrap, &o.admin, &o.pid)
	if err != nil {
		return err
	}
	defer end()
	if o.topic == "" {
		o.topic = ownTopic()
	}
	t, err := openTarget(ctx, o.bootstrap, o.topic, o.partitions, load.Version, nil)
	if err != nil {
		return err
	}
	r := &produceResult{Engine: engineOf(o.admin), Machine: machineFacts(dir), Commit: buildCommit()}
	err = o.measure(ctx, r, t, lo)
	if err := errors.Join(err, t.close(context.WithoutCancel(ctx))); err != nil {
		return cli.Fail("measuring", err, "")
	}
	if r.Baseline, err = baseline.Measure(dir, lo.RecordSize*lo.Batch); err != nil {
		return cli.Fail("measuring the machine", err, "name a directory that can be written by --dir")
	}
	return r.write(p)
}

// measure runs the load, and the readers of mixed beside it.
func (o *produceOptions) measure(ctx context.Context, r *produceResult, t *target, lo load.Options) error {
	lo.Addr, lo.Targets, lo.Version = t.addr, t.targets, t.produce
	var counted func() (*mallocs, error)
	if o.mallocs {
		mark, result, err := counting(o.admin, "Produce")
		if err != nil {
			return err
		}
		lo.Mark, counted = mark, result
	}
	read := func() error { return nil }
	if o.readers > 0 {
		var err error
		if read, err = o.follow(ctx, r, t); err != nil {
			return err
		}
	}
	run, _, err := measured(ctx, lo, o.client, o.pid)
	if err := errors.Join(err, read(), ctx.Err()); err != nil {
		return err
	}
	run.Broker, run.FlushAck = o.bootstrap, t.flush
	r.Run = run
	if counted != nil {
		r.Mallocs, err = counted()
	}
	return err
}

// follow starts the readers; the returned function ends them.
func (o *produceOptions) follow(ctx context.Context, r *produceResult, t *target) (end func() error, err error) {
	most, err := cli.ParseBytes(o.maxBytes)
	if err != nil || most < 1 || most > maxFetch {
		return nil, cli.Usage("--max-bytes: from 1 to 16MiB, not %q", o.maxBytes)
	}
	spans, err := t.spans(ctx)
	if err != nil {
		return nil, err
	}
	for i := range spans {
		spans[i].Begin = spans[i].End
	}
	reading, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		c, err := load.Consume(reading, load.ConsumeOptions{Addr: t.addr, Spans: spans, Connections: o.readers, Version: t.fetch, MaxBytes: int(most), Follow: true})
		if err == nil {
			r.Read, err = figuresOf(c), c.FirstError
		}
		done <- err
	}()
	return func() error { cancel(); return <-done }, nil
}

func (r *produceResult) write(p *cli.Printer) error {
	if p.JSON {
		return p.Document(r)
	}
	how := fmt.Sprintf("open loop at %g MB/s", r.RateMBPerS)
	if r.InFlight > 0 {
		how = fmt.Sprintf("closed loop, %d requests under way on each of %d connections", r.InFlight, r.Connections)
	}
	acks := "1"
	if r.Acks == -1 {
		acks = "all"
	}
	p.Line("%s, acks=%s, %d B records, %d a request, %d partitions, client %s", how, acks, r.RecordSize, r.Batch, r.Partitions, r.Client)
	p.Line("flush.ack=%s, engine %s, commit %s", r.FlushAck, r.Engine, r.Commit)
	writeMachine(p, r.Machine, r.Baseline)
	p.Table(cli.Columns("p50 (ms)", "p99", "p99.9", "max", "RECORDS/s", "MB/s", "RECORDS", "ERRORS", "CPU load (s)", "broker (s)", "RECORDS/CPU-s"), [][]string{{
		fmt.Sprintf("%.3f", r.P50), fmt.Sprintf("%.3f", r.P99), fmt.Sprintf("%.3f", r.P999), fmt.Sprintf("%.3f", r.Max), fmt.Sprintf("%.0f", r.RecordsPerS), fmt.Sprintf("%.2f", r.MBPerS),
		fmt.Sprint(r.Records), fmt.Sprint(r.Errors), fmt.Sprintf("%.2f", r.LoadCPU), unknown(r.BrokerCPU, "%.2f"), unknown(r.PerCPU, "%.0f")}})
	if r.Read != nil {
		r.Read.write(p)
	}
	r.Mallocs.write(p)
	if r.FirstError != "" {
		p.Note("first error: %s", r.FirstError)
	}
	return nil
}

func (m *mallocs) write(p *cli.Printer) {
	if m != nil {
		p.Line("%.4f mallocs a request (%d in %d requests)", m.PerRequest, m.Mallocs, m.Requests)
	}
}

func writeMachine(p *cli.Printer, m report.Machine, b baseline.Figures) {
	p.Line("%s, %d cores, Linux %s, %d MB, %s, %s", m.CPU, m.Cores, m.Kernel, m.MemMB, m.Go, m.FS)
	p.Line("in the same minute: fdatasync of %d B p50 %.3f ms, p99 %.3f ms; one byte over loopback and back p50 %.3f ms", b.FdatasyncOf, b.FdatasyncP50, b.FdatasyncP99, b.LoopbackP50)
}

// unknown shows a figure that may be missing.
func unknown(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func ownTopic() string {
	return fmt.Sprintf("lockstep-perf-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9)
}
