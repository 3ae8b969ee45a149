// Command lockstep-perf measures brokers. Method and meaning of the figures
// are in perf/README.md.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// commit is set at link time.
var commit string

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ran := false
	root := &cobra.Command{
		Use: "lockstep-perf", Short: "Measure brokers: open-loop load, latency by percentile, machine facts",
		Example:      "  lockstep-perf ack --rtt 40ms --one-in-flight",
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) { ran = true },
	}
	root.AddCommand(ackCommand(), ackTableCommand(), produceCommand(), consumeCommand(), mixedCommand(), soakCommand(), peersCommand(), reportCommand(), bareCommand(), sinkCommand(), kfakeCommand())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(args)
	return cli.Report(root.ErrOrStderr(), "lockstep-perf", root.ExecuteContext(context.Background()), ran)
}
