package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// group makes a command that only holds others.
func group(use, short, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example, Args: noSuch, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usage("%s: name what to do: %s", called(cmd), strings.Join(subNames(cmd), ", "))
		}}
	cmd.AddCommand(subs...)
	return cmd
}

func subNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// noSuch refuses the argument of a command that only holds others, and names
// what was meant.
func noSuch(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	what := strings.TrimSpace(called(cmd) + " " + args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return cli.Usage("%q is no command: did you mean %s", what, strings.Join(near, " or "))
	}
	return cli.Usage("%q is no command: there are %s", what, strings.Join(subNames(cmd), ", "))
}

// called is a command as a person calls it, without the program's name, which
// begins every error.
func called(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// tellUsage makes the errors of wrong arguments and flags name the command, and
// the arguments it wants.
func tellUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() {
			if wrong := noSuch(cmd, cmd.Flags().Args()); wrong != nil { // what came before the flag
				return wrong
			}
		}
		return cli.Usage("%s", strings.TrimPrefix(called(cmd)+": "+err.Error(), ": "))
	})
	eachCommand(root, func(c *cobra.Command) {
		check := c.Args
		if check == nil || c.HasSubCommands() {
			return
		}
		c.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) == nil {
				return nil
			}
			_, wants, _ := strings.Cut(cmd.Use, " ")
			if wants == "" {
				return cli.Usage("%s takes no arguments, not %s", called(cmd), strings.Join(args, " "))
			}
			return cli.Usage("%s wants %s, and got %s", called(cmd), wants, got(args))
		}
	})
}

func got(args []string) string {
	if len(args) == 0 {
		return "no argument"
	}
	return fmt.Sprintf("%q", args)
}

// eachCommand visits cmd and all below it, the hidden ones too.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, f)
	}
}

// helpCommand is cobra's, but an unknown topic is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND...]", Short: "Help about a command or a topic",
		Example: "  lockstep help mirrors stop\n  lockstep help exit-codes",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range about.Commands() {
				if !sub.Hidden {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && about.HasSubCommands() {
				return noSuch(about, slices.Clip(rest))
			}
			about.InitDefaultHelpFlag() // shown among the flags
			return about.Help()
		}}
}
