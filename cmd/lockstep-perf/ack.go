package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
	"lockstep/perf/load"
	"lockstep/perf/report"
)

const (
	ackTopic  = "perf"
	ackMirror = "perf"
)

type ackOptions struct {
	rtt        time.Duration
	jitter     time.Duration
	width      string
	single     bool
	async      bool
	rate       string
	recordSize string
	warmUp     time.Duration
	duration   time.Duration
	linger     time.Duration
	max        bool
	batch      string
	inFlight   int
	fetches    int
	flushAck   string
	json       bool
	reactors   int
	engine     string
	conns      int
	partitions int32
	binary     string
	dir        string
	seed       uint64
}

func ackCommand() *cobra.Command {
	o := ackOptions{}
	cmd := &cobra.Command{Use: "ack", Short: "Acknowledgement latency of SYNC mirroring over a line with a set round trip", Args: cobra.NoArgs,
		Long: `Start a source, a destination and the line between them, mirror a topic in SYNC, write to
the source with acks=all, and show how long acknowledgements take beside the round trip
that echoes through the same line took during the run.

Latency counts from when a record was due by the schedule, so a stall is charged to every
record it delays; with --one-in-flight it counts from the sending. Exit 3: the round trip
was more than 1 ms off what was asked, and the run is void.`,
		Example: `  lockstep-perf ack --rtt 40ms --one-in-flight
  lockstep-perf ack --rtt 40ms --rate 20MB --duration 20s --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAck(cmd.Context(), o, &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), JSON: o.json})
		}}
	f := cmd.Flags()
	f.DurationVar(&o.rtt, "rtt", 40*time.Millisecond, "round trip of the line, 0 = no line")
	f.DurationVar(&o.jitter, "jitter", 0, "each piece of data takes up to so much longer, each way")
	f.StringVar(&o.width, "bandwidth", "", "bytes per second of the line, such as 20MB or 16MiB; empty = no limit")
	f.BoolVar(&o.single, "one-in-flight", false, "one record under way instead of a rate")
	f.BoolVar(&o.max, "max", false, "as much as goes, in place of --rate: a closed loop of --in-flight requests")
	f.StringVar(&o.batch, "batch", "64KiB", "with --max: bytes of a request's batch")
	f.IntVar(&o.inFlight, "in-flight", 128, "with --max: requests under way on each connection")
	f.IntVar(&o.fetches, "fetches", 63, "fetches of a mirror that may be under way; 1 shows what a line costs without many")
	f.BoolVar(&o.async, "async", false, "leave the topic ASYNC")
	f.StringVar(&o.rate, "rate", "20MB", "bytes of values per second, such as 500KB, 20MB, 16MiB")
	f.StringVar(&o.recordSize, "record-size", "1KiB", "bytes of a value")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "time before the count begins")
	f.DurationVar(&o.duration, "duration", 20*time.Second, "time that is counted")
	f.DurationVar(&o.linger, "linger", time.Millisecond, "least time between two requests of a connection")
	f.StringVar(&o.flushAck, "flush-ack", "appended", "when a replica counts a record: appended or durable")
	f.BoolVar(&o.json, "json", false, "write JSON")
	f.IntVar(&o.reactors, "reactors", 0, "ring threads of each broker, 0 = the default")
	f.StringVar(&o.engine, "engine", "auto", "engine of both brokers: auto, io_uring or portable")
	f.IntVar(&o.conns, "connections", 4, "connections of the load")
	f.Int32Var(&o.partitions, "partitions", 4, "partitions of the topic")
	f.StringVar(&o.binary, "binary", "", "the lockstep program; empty = beside this one, or in PATH")
	f.StringVar(&o.dir, "dir", "", "parent of the data directory; empty = the system's for temporary files")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the values' bytes")
	return cmd
}

// ackResult is the JSON answer. Latencies are milliseconds.
type ackResult struct {
	RTTAskedMs float64        `json:"rtt_asked_ms"`
	RTTMs      float64        `json:"rtt_ms"` // p50 of echoes through the line, or over loopback without one
	Mode       string         `json:"mode"`
	AckP50     float64        `json:"ack_p50_ms"`
	AckP99     float64        `json:"ack_p99_ms"`
	AckP999    float64        `json:"ack_p999_ms"`
	MBPerS     float64        `json:"mb_per_s"` // 10^6 bytes of values, acknowledged
	Records    int64          `json:"records"`
	Errors     int64          `json:"errors"`
	FirstError string         `json:"first_error,omitempty"`
	Type       string         `json:"mirror_type"`
	CPU        cpuUse         `json:"cpu_s"`
	Engine     string         `json:"engine"`
	Reactors   int            `json:"reactors"`
	FlushAck   string         `json:"flush_ack"`
	Fetches    int            `json:"fetches"` // of the mirror that may be under way
	RecordSize int            `json:"record_size"`
	Machine    report.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Void       []string       `json:"void"` // why the run does not count
}

type cpuUse struct {
	Source      float64 `json:"source"`
	Destination float64 `json:"destination"`
	Load        float64 `json:"load"` // and the line, which runs in the same process
}

func runAck(ctx context.Context, o ackOptions, p *cli.Printer) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	r, err := o.once(ctx)
	if err != nil {
		return err
	}
	if err := r.write(p); err != nil {
		return err
	}
	if len(r.Void) > 0 {
		return &cli.Error{What: "void", Why: errors.New(strings.Join(r.Void, "; ")), Code: cli.ExitVoid, Do: "run again on a quiet machine"}
	}
	return nil
}

// once starts everything, measures, and ends it.
func (o *ackOptions) once(ctx context.Context) (*ackResult, error) {
	lo, err := o.load()
	if err != nil {
		return nil, err
	}
	bandwidth, err := cli.ParseBandwidth(o.width)
	if err != nil {
		return nil, err
	}
	binary, err := findBinary(o.binary)
	if err != nil {
		return nil, err
	}
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: binary, Dir: o.dir, RTT: o.rtt, Jitter: o.jitter, Bandwidth: bandwidth, NoLink: o.rtt == 0, LogLevel: "warn", Overrides: []string{
		"lockstep.io.engine=" + o.engine, fmt.Sprintf("lockstep.io.reactors=%d", o.reactors), "lockstep.flush.ack=" + o.flushAck,
		fmt.Sprintf("lockstep.mirror.fetches=%d", o.fetches)}})
	if err != nil {
		return nil, err
	}
	r, err := o.measure(ctx, c, lo)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, cli.Fail("measuring", err, "")
	}
	return r, nil
}

// load makes the options of the load, without its targets.
func (o *ackOptions) load() (load.Options, error) {
	rate, err := cli.ParseBytes(o.rate)
	if err != nil {
		return load.Options{}, cli.Usage("--rate: %v", err)
	}
	size, err := cli.ParseBytes(o.recordSize)
	if err != nil || size < 1 || size > maxRecord {
		return load.Options{}, cli.Usage("--record-size: from 1 to 512KiB, not %q", o.recordSize)
	}
	batch, err := cli.ParseBytes(o.batch)
	if o.max && (err != nil || batch < 1 || batch > maxBatch) {
		return load.Options{}, cli.Usage("--batch: from 1 to 1MiB, not %q", o.batch)
	}
	switch {
	case o.max && (o.single || o.inFlight < 1 || o.inFlight > maxConnections):
		return load.Options{}, cli.Usage("--max goes with --in-flight from 1 to %d, not with --one-in-flight", maxConnections)
	case o.fetches < 1 || o.fetches > 63:
		return load.Options{}, cli.Usage("--fetches is from 1 to 63")
	case o.rtt < 0 || o.rtt > maxRTT:
		return load.Options{}, cli.Usage("--rtt is from 0 to %v", maxRTT)
	case o.flushAck != "appended" && o.flushAck != "durable":
		return load.Options{}, cli.Usage("--flush-ack is appended or durable, not %q", o.flushAck)
	case o.conns < 1 || o.conns > maxConnections || o.partitions < 1 || o.duration <= 0 || o.warmUp < 0 || o.linger < 0 || rate < 1:
		return load.Options{}, cli.Usage("--connections, --partitions, --duration and --rate are positive")
	}
	lo := load.Options{Connections: o.conns, RecordSize: int(size), Rate: rate, OneInFlight: o.single, Linger: o.linger,
		WarmUp: o.warmUp, Duration: o.duration, Acks: -1, Timeout: ackTimeout, Seed: o.seed}
	if o.max {
		lo.InFlight, lo.Batch = o.inFlight, load.BatchFor(int(size), int(batch))
	}
	return lo, nil
}

// findBinary finds the lockstep program.
func findBinary(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "lockstep")
		if info, err := os.Stat(beside); err == nil && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	found, err := exec.LookPath("lockstep")
	if err != nil {
		return "", cli.Fail("finding the lockstep program", err, "make build puts it beside this one; or name it by --binary")
	}
	return found, nil
}

// measure runs the load and the echoes at the same time.
func (o *ackOptions) measure(ctx context.Context, c *testcluster.Cluster, lo load.Options) (*ackResult, error) {
	topic := testcluster.Topic{Name: ackTopic, Mirror: ackMirror, Partitions: o.partitions, Sync: !o.async}
	id, err := c.Add(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := c.Await(ctx, topic); err != nil {
		return nil, err
	}
	lo.Addr = c.Source.Addr
	for i := range o.partitions {
		lo.Targets = append(lo.Targets, load.Target{ID: id, Partition: i})
	}
	echo, err := c.NewEcho()
	if err != nil {
		return nil, err
	}
	defer echo.Close()
	r := &ackResult{RTTAskedMs: ms(o.rtt), Mode: "open loop, " + o.rate + "/s", Type: topic.Type(), Engine: c.Source.Engine(ctx), Reactors: c.Source.Reactors(ctx), FlushAck: o.flushAck, Fetches: o.fetches,
		RecordSize: lo.RecordSize, Machine: machineFacts(c.Dir), Commit: buildCommit(), Void: []string{}}
	switch {
	case o.single:
		r.Mode = report.ModeOne
	case o.max:
		r.Mode = fmt.Sprintf("as much as goes, %d partitions, %d requests of %d records under way on each of %d connections", o.partitions, lo.InFlight, lo.Batch, lo.Connections)
	}
	echoing, done := context.WithCancel(ctx)
	echoed := make(chan error, 1)
	go func() { echoed <- echo.Run(echoing, echoPause) }()
	before := [3]time.Duration{c.Source.CPU(), c.Destination.CPU(), ownCPU()}
	res, err := load.Run(ctx, lo)
	r.CPU = cpuUse{(c.Source.CPU() - before[0]).Seconds(), (c.Destination.CPU() - before[1]).Seconds(), (ownCPU() - before[2]).Seconds()}
	done()
	if err := errors.Join(err, <-echoed, ctx.Err()); err != nil {
		return nil, err
	}
	r.fill(res, lo, echo.P50())
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *ackResult) fill(res *load.Result, lo load.Options, rtt time.Duration) {
	r.RTTMs, r.AckP50, r.AckP99, r.AckP999 = round(ms(rtt)), round(res.Ms(50)), round(res.Ms(99)), round(res.Ms(99.9))
	r.Records, r.Errors = res.Records, res.Errors
	r.MBPerS = round(float64(res.Records) * float64(lo.RecordSize) / 1e6 / res.Elapsed.Seconds())
	if res.FirstError != nil {
		r.FirstError = res.FirstError.Error()
	}
	off := math.Abs(ms(rtt) - r.RTTAskedMs)
	if lo.InFlight > 0 { // echoes wait for the processor too, on a machine that does all it can
		off = r.RTTAskedMs - ms(rtt)
	}
	if r.RTTAskedMs > 0 && off > ms(rttSlack) {
		r.Void = append(r.Void, fmt.Sprintf("the round trip was %.2f ms, asked were %g", ms(rtt), r.RTTAskedMs))
	}
	if res.Records == 0 {
		r.Void = append(r.Void, "no record was acknowledged")
	}
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

func (r *ackResult) write(p *cli.Printer) error {
	if p.JSON {
		return p.Document(r)
	}
	p.Line("%s, %s, flush.ack=%s, engine %s, commit %s", r.Mode, r.Type, r.FlushAck, r.Engine, r.Commit)
	p.Line("%s, %d cores, Linux %s, %d MB, %s, %s", r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.MemMB, r.Machine.Go, r.Machine.FS)
	what := "rtt"
	if r.RTTAskedMs == 0 {
		what = "loopback echo"
	}
	p.Line("%s %.3f ms (p50)", what, r.RTTMs)
	p.Table(cli.Columns("ACK p50 (ms)", "p99", "p99.9", "MB/s", "RECORDS", "ERRORS", "CPU source (s)", "destination", "load and line"), [][]string{{
		fmt.Sprintf("%.3f", r.AckP50), fmt.Sprintf("%.3f", r.AckP99), fmt.Sprintf("%.3f", r.AckP999), fmt.Sprintf("%.2f", r.MBPerS),
		strconv.FormatInt(r.Records, 10), strconv.FormatInt(r.Errors, 10), fmt.Sprintf("%.2f", r.CPU.Source), fmt.Sprintf("%.2f", r.CPU.Destination), fmt.Sprintf("%.2f", r.CPU.Load)}})
	if r.FirstError != "" {
		p.Note("first error: %s", r.FirstError)
	}
	return nil
}
