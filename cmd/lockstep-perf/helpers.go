package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"lockstep/internal/cli"
	"lockstep/perf/load"
	"lockstep/perf/peer"
)

// ownOptions start a broker of ours for one measurement.
type ownOptions struct {
	on       bool
	flushAck string
	binary   string
}

func (o *ownOptions) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.on, "start", false, "start a broker of ours for this, in place of --bootstrap, --admin and --pid")
	f.StringVar(&o.flushAck, "flush-ack", "appended", "with --start: its lockstep.flush.ack, appended or durable")
	f.StringVar(&o.binary, "binary", "", "with --start: the lockstep program; empty = beside this one, or in PATH")
}

// start starts it, if it is wanted, and says where it is.
func (o *ownOptions) start(ctx context.Context, dir string, bootstrap, admin *string, pid *int) (end func(), err error) {
	if !o.on {
		return func() {}, nil
	}
	binary, err := findBinary(o.binary)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(dir, "lockstep-perf-")
	if err != nil {
		return nil, err
	}
	b, err := peer.Lockstep(work, "broker", binary, "lockstep.flush.ack="+o.flushAck)
	if err == nil {
		err = b.Start(ctx)
	}
	end = func() {
		if b != nil {
			b.Kill()
		}
		os.RemoveAll(work)
	}
	if err != nil {
		end()
		return nil, cli.Fail("starting a broker", err, "")
	}
	*bootstrap, *admin, *pid = b.Addr, b.Admin, b.Pid()
	return end, nil
}

// These commands are for this program itself: it runs them as processes, so that
// their processor time is not the load's.

func helper(use string, run func(ctx context.Context, addr string) error) *cobra.Command {
	return &cobra.Command{Use: use + " ADDRESS", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return run(ctx, args[0])
	}}
}

// bareCommand sends bytes out of memory.
func bareCommand() *cobra.Command {
	return helper("bare", func(ctx context.Context, addr string) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		return load.ServeBare(ctx, ln)
	})
}

// sinkCommand takes produce requests and does as little as can be.
func sinkCommand() *cobra.Command {
	return helper("sink", func(ctx context.Context, addr string) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		return load.ServeSink(ctx, ln, "", produceVersion) // TMPDIR is its directory
	})
}

// kfakeCommand is a broker without a disk: an upper bound for a program in Go.
func kfakeCommand() *cobra.Command {
	return helper("kfake", func(ctx context.Context, addr string) error {
		_, text, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port))
		if err != nil {
			return errors.Join(err, os.ErrInvalid)
		}
		defer c.Close()
		<-ctx.Done()
		return nil
	})
}
