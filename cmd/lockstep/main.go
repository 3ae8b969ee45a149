package main

import (
	"context"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// commit is set at link time.
var commit string

func main() {
	if !strings.Contains(os.Getenv("GODEBUG"), "memprofilerate=") {
		// A place in memory for each stack that ever allocated, 1.5 MiB in the course
		// of days: too much of a broker that takes 12, and too like a leak.
		runtime.MemProfileRate = 0
	}
	os.Exit(run(os.Args[1:]))
}

// run is the whole program; it returns the exit code.
func run(args []string) int {
	root, ran := rootCommand()
	root.SetArgs(args)
	return cli.Report(root.ErrOrStderr(), "lockstep", root.ExecuteContext(context.Background()), *ran)
}

// rootCommand makes the tree of commands. ran becomes true when a command
// begins: errors before that are errors of usage.
func rootCommand() (root *cobra.Command, ran *bool) {
	ran = new(bool)
	o := &cli.Options{}
	root = &cobra.Command{
		Use:   "lockstep",
		Short: "A Kafka-protocol broker that mirrors topics to other clusters in step",
		Long: `Lockstep is a broker that speaks the Kafka protocol. A topic mirrored in SYNC mode
acknowledges a record (acks=all) only when the in-sync replicas of this cluster and of
every registered destination cluster hold it.

` + exitTable(exitCodes),
		Example: `  lockstep broker --override log.dirs=/data/lockstep
  lockstep topics create orders --partitions 6
  lockstep demo`,
		SilenceUsage: true, SilenceErrors: true, Args: noSuch, DisableFlagsInUseLine: true,
		PersistentPreRun: func(*cobra.Command, []string) { *ran = true },
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.Bind(root)
	root.AddCommand(brokerCommand(), demoCommand(), topicsCommand(o), mirrorsCommand(o), clusterCommand(o),
		logCommand(o), metadataCommand(o), pluginsCommand(o), pluginCommand(), versionCommand(o),
		completionCommand(), manCommand(), exitCodesTopic())
	root.SetHelpCommand(helpCommand())
	tellUsage(root)
	tellExits(root)
	complete(root, o)
	return root, ran
}

// printer writes where cmd writes.
func printer(cmd *cobra.Command, o *cli.Options) *cli.Printer {
	return &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), JSON: o.JSON}
}

// talk wraps the body of a command that needs a connection.
func talk(o *cli.Options, f func(ctx context.Context, s *cli.Session, p *cli.Printer, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := o.Connect(cmd.Context())
		if err != nil {
			return err
		}
		defer s.Close()
		return f(cmd.Context(), s, printer(cmd, o), args)
	}
}
