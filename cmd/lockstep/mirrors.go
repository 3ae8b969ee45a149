package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

func mirrorsCommand(o *cli.Options) *cobra.Command {
	return group("mirrors", "Mirror topics from other clusters, and fail over",
		`  lockstep mirrors create dr --config bootstrap.servers=source:9092
  lockstep mirrors add dr --topics 'orders-.*' --sync
  lockstep mirrors describe
  lockstep mirrors stop dr --topics '.*'`,
		mirrorsCreate(o), mirrorsDelete(o), mirrorsAdd(o), mirrorsAlter(o), mirrorsStop(o), mirrorsRelease(o), mirrorsList(o), mirrorsDescribe(o))
}

// onMirrors wraps the body of a verb on mirrors.
func onMirrors(o *cli.Options, f func(ctx context.Context, m *cli.Mirrors, args []string) error) func(*cobra.Command, []string) error {
	return talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, args []string) error {
		return f(ctx, &cli.Mirrors{S: s, P: p, Now: time.Now}, args)
	})
}

// topicsFlag adds --topics.
func topicsFlag(cmd *cobra.Command, list *string, usage string) {
	cmd.Flags().StringVar(list, "topics", "", usage)
}

const patternUsage = "topics: regular expressions that fit the whole name, separated by commas"

func mirrorsCreate(o *cli.Options) *cobra.Command {
	var file string
	var configs []string
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a mirror here, on the destination", Args: cobra.ExactArgs(1),
		Example: "  lockstep mirrors create dr --config bootstrap.servers=source-1:9092,source-2:9092",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			set := map[string]string{}
			if file != "" {
				var err error
				if set, err = cli.ReadProperties(file); err != nil {
					return err
				}
			}
			given, err := pairs(configs)
			if err != nil {
				return err
			}
			for k, v := range given {
				set[k] = *v
			}
			return m.CreateWith(ctx, args[0], set)
		})}
	cmd.Flags().StringVar(&file, "mirror-config", "", "properties `FILE` with the mirror's settings")
	cmd.Flags().StringArrayVar(&configs, "config", nil, "a setting over the file's, `NAME=VALUE`; may be given again")
	return cmd
}

func mirrorsDelete(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Delete a mirror whose topics are all stopped", Args: cobra.ExactArgs(1),
		Example: "  lockstep mirrors delete dr",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			return m.Delete(ctx, args[0])
		})}
}

func mirrorsAdd(o *cli.Options) *cobra.Command {
	var topics string
	var sync bool
	cmd := &cobra.Command{Use: "add NAME --topics PATTERNS [--sync]", Short: "Begin to mirror topics of the source", Args: cobra.ExactArgs(1),
		Long: `Begin to mirror topics. Patterns are resolved at the source. With --sync a topic starts
ASYNC and becomes SYNC by itself when it has caught up; from then on acks=all at the
source waits for this cluster too.`,
		Example: "  lockstep mirrors add dr --topics 'orders-.*' --sync",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			p, err := cli.ParsePatterns(topics)
			if err != nil {
				return err
			}
			return m.Add(ctx, args[0], p, sync)
		})}
	topicsFlag(cmd, &topics, patternUsage)
	cmd.Flags().BoolVar(&sync, "sync", false, "SYNC as soon as they have caught up")
	return cmd
}

func mirrorsAlter(o *cli.Options) *cobra.Command {
	var topics string
	var sync, async bool
	cmd := &cobra.Command{Use: "alter NAME --topics PATTERNS --sync|--async", Short: "Change topics to SYNC or ASYNC", Args: cobra.ExactArgs(1),
		Long: `Change the mirror type of topics that are being mirrored. ASYNC takes effect at once: what
the source acknowledges from then on may be lost with it. SYNC waits until a topic has
caught up.`,
		Example: "  lockstep mirrors alter dr --topics orders-eu --async",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			if sync == async {
				return cli.Usage("give one of --sync and --async")
			}
			p, err := cli.ParsePatterns(topics)
			if err != nil {
				return err
			}
			return m.Alter(ctx, args[0], p, sync)
		})}
	topicsFlag(cmd, &topics, patternUsage)
	cmd.Flags().BoolVar(&sync, "sync", false, "to SYNC")
	cmd.Flags().BoolVar(&async, "async", false, "to ASYNC")
	return cmd
}

func mirrorsStop(o *cli.Options) *cobra.Command {
	var topics string
	var noWait bool
	var wait time.Duration
	cmd := &cobra.Command{Use: "stop NAME --topics PATTERNS", Short: "Fail over: end the mirroring of topics and make them writable here", Args: cobra.ExactArgs(1),
		Long: `Fail over. It works from every state and with the source out of reach. Make sure that
nobody writes to the old source any more: the two logs part here. Each state on the way
is shown; the command ends when all partitions are STOPPED.`,
		Example: "  lockstep mirrors stop dr --topics '.*'",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			p, err := cli.ParsePatterns(topics)
			if err != nil {
				return err
			}
			if noWait {
				wait = 0
			}
			return m.Stop(ctx, args[0], p, wait)
		})}
	topicsFlag(cmd, &topics, patternUsage)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the wish is durable")
	cmd.Flags().DurationVar(&wait, "wait", stopWait, "bound of the wait for STOPPED")
	return cmd
}

func mirrorsRelease(o *cli.Options) *cobra.Command {
	var topics string
	cmd := &cobra.Command{Use: "release-sync NAME [--topics PATTERNS]", Short: "On the source: stop waiting for a destination that is out of reach", Args: cobra.ExactArgs(1),
		Long: `Run this on the source cluster. Its acks=all then no longer waits for the mirror; what has
not reached the destination is lost if this cluster is lost. The destination becomes SYNC
again by itself when it is back and has caught up. Without --topics everything the mirror
has registered is released.`,
		Example: "  lockstep mirrors release-sync dr --topics 'orders-.*' --bootstrap-server source:9092",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			p, err := optionalPatterns(topics)
			if err != nil {
				return err
			}
			return m.ReleaseSync(ctx, args[0], p)
		})}
	topicsFlag(cmd, &topics, patternUsage+"; none = all")
	return cmd
}

func optionalPatterns(list string) (*cli.Patterns, error) {
	if list == "" {
		return nil, nil
	}
	p, err := cli.ParsePatterns(list)
	return &p, err
}

func mirrorsList(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the mirrors of this cluster", Args: cobra.NoArgs,
		Example: "  lockstep mirrors list",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, _ []string) error {
			return m.List(ctx)
		})}
}

func mirrorsDescribe(o *cli.Options) *cobra.Command {
	var topics string
	var failed bool
	cmd := &cobra.Command{Use: "describe [NAME...]", Short: "Show mirrored partitions, their lag and type, and registrations",
		Example: "  lockstep mirrors describe dr --topics 'orders-.*'",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			p, err := optionalPatterns(topics)
			if err != nil {
				return err
			}
			view := cli.ViewFull
			if failed {
				view = cli.ViewFailed
			}
			return m.Describe(ctx, args, p, view)
		})}
	topicsFlag(cmd, &topics, patternUsage+"; none = all")
	cmd.Flags().BoolVar(&failed, "failed", false, "only failed partitions, and why")
	return cmd
}
