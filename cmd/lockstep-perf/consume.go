package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
	"lockstep/perf/baseline"
	"lockstep/perf/load"
	"lockstep/perf/peer"
	"lockstep/perf/report"
)

type consumeOptions struct {
	own              ownOptions
	bootstrap, topic string
	fill, maxBytes   string
	recordSize       string
	conns            int
	partitions       int32
	again, warmUp    time.Duration
	pid              int
	admin, dir       string
	bare             bool
	mallocs, json    bool
}

func consumeCommand() *cobra.Command {
	o := consumeOptions{}
	cmd := &cobra.Command{
		Use: "consume", Short: "Throughput of reading a topic from its beginning, against any broker that speaks Kafka's protocol", Args: cobra.NoArgs,
		Long: "Reads a topic once from its beginning to its end, one fetch under way on each connection. Without --topic one is\n" +
			"filled first and deleted at the end. With --again the reading goes round and round for so long.",
		Example: "  lockstep-perf consume --bootstrap localhost:9092 --fill 1GiB --bare",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), JSON: o.json})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.bootstrap, "bootstrap", "localhost:9092", "a broker")
	o.own.bind(cmd)
	f.StringVar(&o.topic, "topic", "", "the topic; empty = one of our own")
	f.StringVar(&o.fill, "fill", "1GiB", "bytes of values that our own topic is filled with")
	f.StringVar(&o.recordSize, "record-size", "1KiB", "bytes of a value in it")
	f.StringVar(&o.maxBytes, "max-bytes", "1MiB", "bytes of a fetch's answer")
	f.IntVar(&o.conns, "connections", 2, "connections, each with partitions of its own")
	f.Int32Var(&o.partitions, "partitions", 2, "partitions of our own topic")
	f.DurationVar(&o.again, "again", 0, "read again and again for so long; 0 = once")
	f.DurationVar(&o.warmUp, "warm-up", time.Second, "with --again: time before the count begins")
	f.IntVar(&o.pid, "pid", 0, "process id of the broker, for its processor time")
	f.StringVar(&o.admin, "admin", "", "our broker's admin listener, for its engine and --mallocs")
	f.StringVar(&o.dir, "dir", "", "a directory on the broker's file system, for the raw fdatasync; empty = the system's for temporary files")
	f.BoolVar(&o.bare, "bare", false, "also send as many bytes over loopback with no broker")
	f.BoolVar(&o.mallocs, "mallocs", false, "count what the broker allocates for a request; needs --admin and --again")
	f.BoolVar(&o.json, "json", false, "write JSON")
	return cmd
}

// consumeFigures are of one reading.
type consumeFigures struct {
	Records    int64   `json:"records"`
	Bytes      int64   `json:"bytes"` // of batches
	Requests   int64   `json:"requests"`
	MBPerS     float64 `json:"mb_s"`
	FetchP50   float64 `json:"fetch_p50_ms"`
	FetchP99   float64 `json:"fetch_p99_ms"`
	FirstError string  `json:"first_error,omitempty"`
}

func figuresOf(c *load.Consumed) *consumeFigures {
	f := &consumeFigures{Records: c.Records, Bytes: c.Bytes, Requests: c.Requests, MBPerS: round(c.MBPerS()),
		FetchP50: round(float64(c.Latency.ValueAtPercentile(50)) / 1000), FetchP99: round(float64(c.Latency.ValueAtPercentile(99)) / 1000)}
	if c.FirstError != nil {
		f.FirstError = c.FirstError.Error()
	}
	return f
}

func (f *consumeFigures) write(p *cli.Printer) {
	p.Line("read: %.1f MB/s of batches, %d records, %d MB in %d fetches, p50 %.3f ms, p99 %.3f ms", f.MBPerS, f.Records, f.Bytes/1e6, f.Requests, f.FetchP50, f.FetchP99)
	if f.FirstError != "" {
		p.Note("first error of the reading: %s", f.FirstError)
	}
}

// consumeResult is the JSON answer.
type consumeResult struct {
	consumeFigures
	Connections int              `json:"connections"`
	Partitions  int              `json:"partitions"`
	MaxBytes    int              `json:"max_bytes"`
	FlushAck    string           `json:"flush_ack"`
	LoadCPU     float64          `json:"load_cpu_s"`
	BrokerCPU   float64          `json:"broker_cpu_s"` // 0 = not known
	Bare        float64          `json:"bare_mb_s"`    // the same bytes with no broker; 0 = not measured
	Mallocs     *mallocs         `json:"mallocs,omitempty"`
	Engine      string           `json:"engine"`
	Baseline    baseline.Figures `json:"baseline"`
	Machine     report.Machine   `json:"machine"`
	Commit      string           `json:"commit"`
}

func (o *consumeOptions) run(ctx context.Context, p *cli.Printer) error {
	fill, ferr := cli.ParseBytes(o.fill)
	size, serr := cli.ParseBytes(o.recordSize)
	most, merr := cli.ParseBytes(o.maxBytes)
	switch {
	case errors.Join(ferr, serr, merr) != nil || fill < 1 || size < 1 || size > maxRecord || most < 1 || most > maxFetch:
		return cli.Usage("--fill, --record-size (to 512KiB) and --max-bytes (to 16MiB) are sizes such as 1MiB")
	case o.conns < 1 || o.conns > maxConnections || o.partitions < 1 || o.again < 0 || o.warmUp < 0:
		return cli.Usage("--connections and --partitions are positive")
	case o.mallocs && (o.admin == "" && !o.own.on || o.again == 0):
		return cli.Usage("--mallocs needs --again, and --admin or --start")
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	dir := cmp.Or(o.dir, os.TempDir())
	end, err := o.own.start(ctx, dir, &o.bootstrap, &o.admin, &o.pid)
	if err != nil {
		return err
	}
	defer end()
	r, err := o.measure(ctx, int64(fill), int(size), int(most))
	if err != nil {
		return cli.Fail("measuring", err, "")
	}
	r.Engine, r.Machine, r.Commit = engineOf(o.admin), machineFacts(dir), buildCommit()
	if o.bare {
		if r.Bare, err = bareMBPerS(ctx, dir, r.Bytes, int(most), o.conns); err != nil {
			return cli.Fail("sending without a broker", err, "")
		}
	}
	if r.Baseline, err = baseline.Measure(dir, int(size)); err != nil {
		return cli.Fail("measuring the machine", err, "name a directory that can be written by --dir")
	}
	return r.write(p)
}

func (o *consumeOptions) measure(ctx context.Context, fill int64, size, most int) (r *consumeResult, err error) {
	name := o.topic
	if name == "" {
		name = ownTopic()
	}
	t, err := openTarget(ctx, o.bootstrap, name, o.partitions, load.Version, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close(context.WithoutCancel(ctx))) }()
	if t.made {
		if err := t.fillUp(ctx, fill, size); err != nil {
			return nil, err
		}
	}
	spans, err := t.spans(ctx)
	if err != nil {
		return nil, err
	}
	co := load.ConsumeOptions{Addr: t.addr, Spans: spans, Connections: o.conns, Version: t.fetch, MaxBytes: most, Again: o.again, WarmUp: o.warmUp}
	var counted func() (*mallocs, error)
	if o.again == 0 {
		co.WarmUp = 0
	}
	if o.mallocs {
		if co.Mark, counted, err = counting(o.admin, "Fetch"); err != nil {
			return nil, err
		}
	}
	own, broker := ownCPU(), testcluster.ProcCPU(o.pid)
	c, err := load.Consume(ctx, co)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	r = &consumeResult{consumeFigures: *figuresOf(c), Connections: o.conns, Partitions: len(t.targets), MaxBytes: most, FlushAck: t.flush,
		LoadCPU: round((ownCPU() - own).Seconds()), BrokerCPU: round((testcluster.ProcCPU(o.pid) - broker).Seconds())}
	if counted != nil {
		r.Mallocs, err = counted()
	}
	return r, err
}

// fillUp writes so many bytes of values, in batches of 16 KiB.
func (t *target) fillUp(ctx context.Context, bytes int64, size int) error {
	lo := load.Options{Addr: t.addr, Targets: t.targets, Version: t.produce, Connections: len(t.targets), RecordSize: size, Batch: load.BatchFor(size, 16<<10), InFlight: 5,
		Acks: -1, Timeout: ackTimeout, Seed: 1, Bytes: bytes, Duration: fillTimeout}
	r, err := load.Run(ctx, lo)
	if err == nil && r.Errors > 0 {
		err = fmt.Errorf("filling the topic: %w", r.FirstError)
	}
	return errors.Join(err, ctx.Err())
}

// bareMBPerS sends bytes out of another process's memory.
func bareMBPerS(ctx context.Context, dir string, bytes int64, frame, conns int) (float64, error) {
	b, end, err := ownHelper(ctx, dir, "bare")
	if err != nil {
		return 0, err
	}
	defer end()
	took, err := load.Bare(b.Addr, bytes, frame, conns)
	if err != nil {
		return 0, err
	}
	return round(float64(bytes) / 1e6 / took.Seconds()), nil
}

// ownHelper runs one of this program's helpers.
func ownHelper(ctx context.Context, dir, name string) (b *peer.Broker, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	work, err := os.MkdirTemp(dir, "lockstep-"+name+"-")
	if err != nil {
		return nil, nil, err
	}
	end = func() { os.RemoveAll(work) }
	if b, err = peer.Program(work, name, self, name); err == nil {
		err = b.Spawn()
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	end = func() {
		b.Kill()
		os.RemoveAll(work)
	}
	if err := listening(ctx, b.Addr); err != nil {
		end()
		return nil, nil, err
	}
	return b, end, nil
}

// listening waits until something listens.
func listening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	for {
		if c, err := load.Dial(addr); err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on %s", addr)
		case <-time.After(ledPoll):
		}
	}
}

func (r *consumeResult) write(p *cli.Printer) error {
	if p.JSON {
		return p.Document(r)
	}
	p.Line("%d connections, %d partitions, answers of %d B, flush.ack=%s, engine %s, commit %s", r.Connections, r.Partitions, r.MaxBytes, r.FlushAck, r.Engine, r.Commit)
	writeMachine(p, r.Machine, r.Baseline)
	r.consumeFigures.write(p)
	p.Line("CPU: load %.2f s, broker %s s", r.LoadCPU, unknown(r.BrokerCPU, "%.2f"))
	if r.Bare > 0 {
		p.Line("bare loopback send of the same bytes: %.1f MB/s; the broker's part of it: %.2f", r.Bare, r.MBPerS/r.Bare)
	}
	r.Mallocs.write(p)
	return nil
}
