// Command kafka-cluster-mirrors manages cluster mirrors with the flags of
// Kafka's kafka-cluster-mirrors.sh. Everything it does, lockstep mirrors does
// too; internal/cli holds what both share.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// stopWait bounds the wait for STOPPED after --stop and --remove.
const stopWait = time.Minute

func main() { os.Exit(run(os.Args[1:])) }

// run is the whole program; it returns the exit code.
func run(args []string) int {
	cmd, ran := command(execute)
	cmd.SetArgs(args)
	return cli.Report(cmd.ErrOrStderr(), "kafka-cluster-mirrors", cmd.ExecuteContext(context.Background()), *ran)
}

// command makes the one command there is. ran becomes true when the flags are
// accepted and do begins.
func command(do func(context.Context, *request, *cli.Printer) error) (cmd *cobra.Command, ran *bool) {
	ran = new(bool)
	f := &flags{}
	cmd = &cobra.Command{
		Use:   "kafka-cluster-mirrors --bootstrap-server HOST:PORT ACTION [OPTIONS]",
		Short: "Manage cluster mirrors",
		Long: `Manage cluster mirrors. Exactly one action is given. A mirror lives on the destination
cluster, and so do all actions but --release-sync, which runs on the source.

TOPICS are regular expressions separated by commas; each must fit a whole name. They are
resolved on the source for --add, on the destination for the other actions, and among the
registrations of this cluster for --release-sync.

Before --add --sync and --alter --sync the source is asked whether it supports SYNC. One
that does not ends the command with nothing changed; one that does not answer is a warning.

Exit codes: 0 done, 1 failed (each error says what to do next), 2 wrong usage.`,
		Example: `  kafka-cluster-mirrors --bootstrap-server localhost:9092 --create --mirror dr --mirror-config dr.properties
  kafka-cluster-mirrors --bootstrap-server localhost:9092 --add --topic '.*' --mirror dr --sync
  kafka-cluster-mirrors --bootstrap-server localhost:9092 --alter --topic '.*' --mirror dr --async
  kafka-cluster-mirrors --bootstrap-server localhost:9092 --describe --mirror dr
  kafka-cluster-mirrors --bootstrap-server localhost:9092 --stop --topics 'orders-.*' --mirror dr
  kafka-cluster-mirrors --bootstrap-server source:9092 --release-sync --mirror dr --topics 'orders-.*'`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.request(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			*ran = true
			return do(cmd.Context(), r, &cli.Printer{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), JSON: f.json})
		},
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	f.bind(cmd)
	return cmd, ran
}

// execute carries a request out against a cluster.
func execute(ctx context.Context, r *request, p *cli.Printer) error {
	if r.action == "pause" || r.action == "resume" {
		return cli.Fail("--"+r.action, errors.New("pause and resume come with a later release"), "leave the topics running, or stop them")
	}
	s, err := r.options.Connect(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	m := &cli.Mirrors{S: s, P: p, Now: time.Now}
	switch r.action {
	case "create":
		return m.Create(ctx, r.mirror, r.mirrorConfig)
	case "add":
		return m.Add(ctx, r.mirror, *r.topics, r.sync)
	case "alter":
		return m.Alter(ctx, r.mirror, *r.topics, r.sync)
	case "stop", "remove":
		return m.Stop(ctx, r.mirror, *r.topics, stopWait)
	case "release-sync":
		return m.ReleaseSync(ctx, r.mirror, r.topics)
	case "delete":
		return m.Delete(ctx, r.mirror)
	case "list":
		return m.List(ctx)
	}
	view, names := cli.ViewKIP, []string(nil)
	if r.failed {
		view = cli.ViewFailed
	}
	if r.mirror != "" {
		names = []string{r.mirror}
	}
	return m.Describe(ctx, names, r.topics, view)
}
