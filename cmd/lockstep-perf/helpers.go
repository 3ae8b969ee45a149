package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"lockstep/perf/load"
)

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
