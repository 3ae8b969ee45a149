package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/perf/report"
	"lockstep/perf/soak"
)

type soakOptions struct {
	soak.Options
	out string
}

func soakCommand() *cobra.Command {
	o := soakOptions{}
	cmd := &cobra.Command{
		Use: "soak", Short: "A pair of clusters under a modest mixed load for long: what each broker takes must stay level", Args: cobra.NoArgs,
		Long: "Starts two clusters with a line between them and loads them with writers, readers, topics, connections, plugin swaps and\n" +
			"questions. Memory, descriptors, goroutines, threads, maps and files of each broker are sampled and a line is put through\n" +
			"each: one that grows by more than its bound, or that scatters so much that growth would hide in it, is exit 1.",
		Example: "  lockstep-perf soak --duration 30m --out perf/results/soak.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Duration, "duration", 30*time.Minute, "time that is sampled")
	f.DurationVar(&o.WarmUp, "warm-up", 30*time.Minute, "time before, under the same load")
	f.DurationVar(&o.Every, "every", 10*time.Second, "between two samples")
	f.DurationVar(&o.RTT, "rtt", 10*time.Millisecond, "round trip of the line")
	f.BoolVar(&o.Fill, "fill", true, "make what is bounded resident first: 400 MB of large requests to each broker, frames of each size")
	f.StringVar(&o.Binary, "binary", "", "the lockstep program; empty = beside this one, or in PATH")
	f.StringVar(&o.Dir, "dir", "", "parent of the data directories; empty = the system's for temporary files")
	f.StringVar(&o.out, "out", "", "file to write the samples and slopes to; empty = none")
	return cmd
}

func (o *soakOptions) run(ctx context.Context, p *cli.Printer) error {
	switch {
	case o.Duration <= 0 || o.WarmUp < 0 || o.Every <= 0 || o.Every > o.Duration:
		return cli.Usage("--duration and --every are positive, --every the shorter, and --warm-up is not negative")
	case o.RTT <= 0 || o.RTT > maxRTT:
		return cli.Usage("--rtt: up to %v, not %v", maxRTT, o.RTT)
	}
	var err error
	if o.Binary, err = findBinary(o.Binary); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	o.OwnCPU, o.Note = ownCPU, p.Note
	when := time.Now().UTC().Format("2006-01-02 15:04")
	doc, err := soak.Run(ctx, o.Options)
	if err != nil {
		return cli.Fail("the soak run", err, "")
	}
	doc.Commit, doc.When, doc.Command, doc.Machine = buildCommit(), when, command(os.Args[1:]), machineFacts(cmp.Or(o.Dir, os.TempDir()))
	if o.out != "" {
		if err := writeJSON(o.out, doc); err != nil {
			return err
		}
	}
	p.Table(cli.Columns(report.SoakColumns...), doc.Rows())
	if failed := doc.Failed(); len(failed) > 0 {
		return cli.Fail("staying level", errors.New(strings.Join(failed, "\n  ")), "")
	}
	return nil
}
