package main

import (
	"context"
	"strings"
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

// topicsFlag is --topics of a verb: parsed before anybody is asked.
type topicsFlag struct {
	list     string
	patterns *cli.Patterns // nil = not given
}

func (f *topicsFlag) bind(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.list, "topics", "", usage)
}

// required is the check of a verb that needs --topics.
func (f *topicsFlag) required(cmd *cobra.Command, args []string) error {
	if f.list == "" {
		return cli.Usage("%s: name the topics: --topics 'orders-.*', or '.*' for all", called(cmd))
	}
	return f.optional(cmd, args)
}

func (f *topicsFlag) optional(*cobra.Command, []string) error {
	if f.list == "" {
		return nil
	}
	p, err := cli.ParsePatterns(f.list)
	f.patterns = &p
	return err
}

const patternUsage = "topics: `PATTERNS`, regular expressions that fit the whole name, separated by commas"

func mirrorsCreate(o *cli.Options) *cobra.Command {
	var file string
	var configs []string
	set := map[string]string{}
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a mirror here, on the destination", Args: cobra.ExactArgs(1),
		Example: "  lockstep mirrors create dr --config bootstrap.servers=source-1:9092,source-2:9092",
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			if file != "" {
				if set, err = cli.ReadProperties(file); err != nil {
					return err
				}
			}
			given, err := pairs(configs)
			for k, v := range given {
				set[k] = *v
			}
			if err == nil && set["bootstrap.servers"] == "" {
				return cli.Usage("%s: name the source's brokers: --config bootstrap.servers=HOST:PORT", called(cmd))
			}
			return err
		},
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
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
	var topics topicsFlag
	var sync bool
	cmd := &cobra.Command{Use: "add NAME --topics PATTERNS [--sync]", Short: "Begin to mirror topics of the source", Args: cobra.ExactArgs(1),
		Long: `Begin to mirror topics. Patterns are resolved at the source. With --sync a topic starts
ASYNC and becomes SYNC by itself when it has caught up; from then on acks=all at the
source waits for this cluster too.`,
		Example: "  lockstep mirrors add dr --topics 'orders-.*' --sync",
		PreRunE: topics.required,
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			return m.Add(ctx, args[0], *topics.patterns, sync)
		})}
	topics.bind(cmd, patternUsage)
	cmd.Flags().BoolVar(&sync, "sync", false, "SYNC as soon as they have caught up")
	return cmd
}

func mirrorsAlter(o *cli.Options) *cobra.Command {
	var topics topicsFlag
	var sync, async bool
	cmd := &cobra.Command{Use: "alter NAME --topics PATTERNS --sync|--async", Short: "Change topics to SYNC or ASYNC", Args: cobra.ExactArgs(1),
		Long: `Change the mirror type of topics that are being mirrored. ASYNC takes effect at once: what
the source acknowledges from then on may be lost with it. SYNC waits until a topic has
caught up.`,
		Example: "  lockstep mirrors alter dr --topics orders-eu --async",
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if sync == async {
				return cli.Usage("%s: give one of --sync and --async", called(cmd))
			}
			return topics.required(cmd, args)
		},
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			return m.Alter(ctx, args[0], *topics.patterns, sync)
		})}
	topics.bind(cmd, patternUsage)
	cmd.Flags().BoolVar(&sync, "sync", false, "to SYNC")
	cmd.Flags().BoolVar(&async, "async", false, "to ASYNC")
	return cmd
}

func mirrorsStop(o *cli.Options) *cobra.Command {
	var topics topicsFlag
	var noWait bool
	var wait time.Duration
	cmd := &cobra.Command{Use: "stop NAME --topics PATTERNS", Short: "Fail over: end the mirroring of topics and make them writable here", Args: cobra.ExactArgs(1),
		Long: `Fail over. It works from every state and with the source out of reach. Make sure that
nobody writes to the old source any more: the two logs part here. Each state on the way
is shown; the command ends when all partitions are STOPPED.`,
		Example: "  lockstep mirrors stop dr --topics '.*'",
		PreRunE: topics.required,
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			if noWait {
				wait = 0
			}
			return m.Stop(ctx, args[0], *topics.patterns, wait)
		})}
	topics.bind(cmd, patternUsage)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the wish is durable")
	cmd.Flags().DurationVar(&wait, "wait", stopWait, "bound of the wait for STOPPED")
	return cmd
}

func mirrorsRelease(o *cli.Options) *cobra.Command {
	var topics topicsFlag
	cmd := &cobra.Command{Use: "release-sync NAME [--topics PATTERNS]", Short: "On the source: stop waiting for a destination that is out of reach", Args: cobra.ExactArgs(1),
		Long: `Run this on the source cluster. Its acks=all then no longer waits for the mirror; what has
not reached the destination is lost if this cluster is lost. The destination becomes SYNC
again by itself when it is back and has caught up. Without --topics everything the mirror
has registered is released.`,
		Example: "  lockstep mirrors release-sync dr --topics 'orders-.*' --bootstrap-server source:9092",
		PreRunE: topics.optional,
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, args []string) error {
			return m.ReleaseSync(ctx, args[0], topics.patterns)
		})}
	topics.bind(cmd, patternUsage+"; none = all")
	return cmd
}

func mirrorsList(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the mirrors of this cluster", Args: cobra.NoArgs,
		Example: "  lockstep mirrors list",
		RunE: onMirrors(o, func(ctx context.Context, m *cli.Mirrors, _ []string) error {
			return m.List(ctx)
		})}
}

func mirrorsDescribe(o *cli.Options) *cobra.Command {
	var topics topicsFlag
	var failed, again bool
	var every time.Duration
	cmd := &cobra.Command{Use: "describe [NAME...]", Short: "Show mirrored partitions, their lag and type, and registrations",
		Long: `Show mirrored partitions, their lag and type, remarks on what holds and what is waited for,
and the registrations of destinations with this cluster.

With --watch it is shown again at every --interval until Ctrl-C: redrawn on a terminal, block
after block elsewhere, with --json one object a line. A cluster that does not answer is said,
and asked again.`,
		Example: "  lockstep mirrors describe dr --topics 'orders-.*'\n  lockstep mirrors describe --watch\n  lockstep mirrors describe --failed --json",
	}
	show := func(ctx context.Context, m *cli.Mirrors, args []string) error {
		view := cli.ViewFull
		if failed {
			view = cli.ViewFailed
		}
		return m.Describe(ctx, args, topics.patterns, view)
	}
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Flags().Changed("interval") && !again:
			return cli.Usage("--interval goes with --watch")
		case every < watchMin:
			return cli.Usage("--interval %v: want %v at least", every, watchMin)
		}
		return topics.optional(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !again {
			return onMirrors(o, show)(cmd, args)
		}
		w := &watch{o: *o, p: printer(cmd, o), title: strings.Join(append([]string{cmd.CommandPath()}, args...), " "), every: every,
			show: func(ctx context.Context, m *cli.Mirrors) error { return show(ctx, m, args) }}
		return w.run(cmd.Context())
	}
	topics.bind(cmd, patternUsage+"; none = all")
	f := cmd.Flags()
	f.BoolVar(&failed, "failed", false, "only failed partitions, and why")
	f.BoolVar(&again, "watch", false, "show it again and again, until Ctrl-C")
	f.DurationVar(&every, "interval", time.Second, "pause between two looks of --watch")
	return cmd
}
