package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/config"
	"lockstep/internal/invariant"
)

// shells are those that completionCommand knows, and how each takes a script in.
var shells = []struct {
	name, install string
	write         func(cmd *cobra.Command) error
}{
	{"bash", "source <(lockstep completion bash)", func(c *cobra.Command) error { return c.Root().GenBashCompletionV2(c.OutOrStdout(), true) }},
	{"zsh", `lockstep completion zsh > "${fpath[1]}/_lockstep"`, func(c *cobra.Command) error { return c.Root().GenZshCompletion(c.OutOrStdout()) }},
	{"fish", "lockstep completion fish | source", func(c *cobra.Command) error { return c.Root().GenFishCompletion(c.OutOrStdout(), true) }},
}

func completionCommand() *cobra.Command {
	var names []string
	long := "Write the script by which a shell completes commands, flags, topics, mirrors and plugins.\nNames are asked of --bootstrap-server, for a second at most. To take it in:\n"
	for _, s := range shells {
		names = append(names, s.name)
		long += "\n  " + s.install
	}
	long += "\n\nbash needs the package bash-completion."
	return &cobra.Command{Use: "completion " + strings.Join(names, "|"), Short: "Write the completion script of a shell",
		Long: long, Example: "  source <(lockstep completion bash)", ValidArgs: names, Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.Index(names, args[0])
			return shells[i].write(cmd)
		}}
}

// lookup asks a cluster for names.
type lookup func(ctx context.Context, s *cli.Session, args []string) ([]string, error)

func topicNames(ctx context.Context, s *cli.Session, _ []string) ([]string, error) {
	return s.Topics(ctx)
}

func mirrorNames(ctx context.Context, s *cli.Session, _ []string) (names []string, err error) {
	list, err := s.Mirrors.ListMirrors(ctx)
	for _, m := range list {
		names = append(names, m.Name)
	}
	return names, err
}

// mirroredTopics are the topics of the mirror that is named, or of all.
func mirroredTopics(ctx context.Context, s *cli.Session, args []string) (names []string, err error) {
	list, err := s.Mirrors.ListMirrors(ctx)
	for _, m := range list {
		if len(args) == 0 || slices.Contains(args, m.Name) {
			names = append(names, m.Topics...)
		}
	}
	return names, err
}

// describedTopics are those too that have stopped.
func describedTopics(ctx context.Context, s *cli.Session, args []string) (names []string, err error) {
	d, err := s.Mirrors.DescribeMirrors(ctx, args...)
	for _, m := range d.Mirrors {
		for _, t := range m.Topics {
			names = append(names, t.Topic)
		}
	}
	return names, err
}

// sourceTopics are the topics of the source of the mirror that is named.
func sourceTopics(ctx context.Context, s *cli.Session, args []string) ([]string, error) {
	list, err := s.Mirrors.ListMirrors(ctx)
	for _, m := range list {
		if len(args) > 0 && m.Name == args[0] {
			src, err := cli.Dial(ctx, strings.Split(m.SourceBootstrap, ","), "lockstep-cli", completeWait)
			if err != nil {
				return nil, err
			}
			defer src.Close()
			return src.Topics(ctx)
		}
	}
	return nil, err
}

// registered are the mirrors that a source waits for, and their topics.
func registered(topics bool) lookup {
	return func(ctx context.Context, s *cli.Session, args []string) (names []string, err error) {
		d, err := s.Mirrors.DescribeMirrors(ctx)
		for _, r := range d.Registrations {
			switch {
			case r.Released:
			case !topics:
				names = append(names, r.Mirror)
			case len(args) > 0 && args[0] == r.Mirror:
				names = append(names, r.Topic)
			}
		}
		return names, err
	}
}

// ask runs a lookup within completeWait. A cluster that does not answer offers
// nothing: a shell has no place for errors.
func ask(ctx context.Context, o *cli.Options, look lookup, args []string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	quick := *o
	quick.Timeout = completeWait
	s, err := quick.Connect(ctx)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil
	}
	defer s.Close()
	names, err := look(ctx, s, args)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// oneOf completes the first argument, manyOf each.
func oneOf(o *cli.Options, look lookup) cobra.CompletionFunc { return offered(o, look, 1) }

func manyOf(o *cli.Options, look lookup) cobra.CompletionFunc { return offered(o, look, 1<<30) }

func offered(o *cli.Options, look lookup, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := ask(cmd.Context(), o, look, nil)
		return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begun) || slices.Contains(args, n) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// listOf completes the last element of a comma list.
func listOf(o *cli.Options, look lookup) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (out []string, d cobra.ShellCompDirective) {
		at := strings.LastIndexByte(begun, ',') + 1
		have := strings.Split(begun[:at], ",")
		for _, n := range ask(cmd.Context(), o, look, args) {
			if strings.HasPrefix(n, begun[at:]) && !slices.Contains(have, n) {
				out = append(out, begun[:at]+n)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// settings completes NAME= of a setting.
func settings(names []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) (out []string, d cobra.ShellCompDirective) {
		for _, n := range names {
			if strings.HasPrefix(n, begun) {
				out = append(out, n+"=")
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// kindThen completes a kind of plugin, and then what follows it.
func kindThen(then cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (out []string, d cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, then
		}
		for _, k := range kinds {
			out = append(out, string(k))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// complete gives every argument and flag its completion. What is not named here
// completes to nothing rather than to files.
func complete(root *cobra.Command, o *cli.Options) {
	const none, files, ext = cobra.ShellCompDirectiveNoFileComp, cobra.ShellCompDirectiveDefault, cobra.ShellCompDirectiveFilterFileExt
	root.CompletionOptions.DisableDefaultCmd = true
	root.CompletionOptions.SetDefaultShellCompDirective(none)
	anyFile := cobra.FixedCompletions(nil, files)
	properties := cobra.FixedCompletions([]string{"properties"}, ext)
	words := func(list ...string) cobra.CompletionFunc { return cobra.FixedCompletions(list, none) }
	topics, mirrors := manyOf(o, topicNames), oneOf(o, mirrorNames)
	arguments := map[string]cobra.CompletionFunc{
		"broker": properties, "log dump": anyFile, "log verify": anyFile,
		"topics delete": topics, "topics describe": topics, "topics alter": topics,
		"mirrors delete": mirrors, "mirrors add": mirrors, "mirrors alter": mirrors, "mirrors stop": mirrors,
		"mirrors describe": manyOf(o, mirrorNames), "mirrors release-sync": oneOf(o, registered(false)),
		"plugins swap": kindThen(files), "plugins rollback": kindThen(none), "plugins journal": kindThen(none),
		"man": helpCommand().ValidArgsFunction,
	}
	flags := map[[2]string]cobra.CompletionFunc{
		{"", "command-config"}: properties, {"broker", "log-level"}: words("debug", "info", "warn", "error"),
		{"demo", "engine"}: words("auto", "io_uring", "portable"), {"demo", "kill"}: words("source", "destination", "none"),
		{"man", "dir"}:               cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		{"mirrors create", "config"}: settings(config.MirrorNames()), {"mirrors create", "mirror-config"}: properties,
		{"topics create", "config"}: settings(config.TopicNames()), {"topics alter", "config"}: settings(config.TopicNames()),
		{"topics alter", "delete-config"}: words(config.TopicNames()...),
		{"mirrors add", "topics"}:         listOf(o, sourceTopics), {"mirrors alter", "topics"}: listOf(o, mirroredTopics), {"mirrors stop", "topics"}: listOf(o, mirroredTopics),
		{"mirrors describe", "topics"}: listOf(o, describedTopics), {"mirrors release-sync", "topics"}: listOf(o, registered(true)),
	}
	for path, f := range arguments {
		at(root, path).ValidArgsFunction = f
	}
	for key, f := range flags {
		err := at(root, key[0]).RegisterFlagCompletionFunc(key[1], f)
		invariant.Check(err == nil, "CompletionsName", "a flag of the tree", key)
	}
}

// at is the command at a path below root.
func at(root *cobra.Command, path string) *cobra.Command {
	c, rest, err := root.Find(strings.Fields(path))
	invariant.Check(err == nil && len(rest) == 0, "CompletionsName", "a command of the tree", path)
	return c
}
