package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// exit is an exit code and when a program ends with it.
type exit struct {
	code int
	when string
}

// exitInterrupted is what a shell sees of a program that SIGINT has ended.
const exitInterrupted = 130

// exitCodes are those of all commands.
var exitCodes = []exit{
	{0, "done"},
	{cli.ExitFailed, "failed: refused, no answer, or not found to be as it should"},
	{cli.ExitUsage, "wrong usage: a command, an argument or a flag; nothing was done"},
	{cli.ExitUnhealthy, "unhealthy (cluster health)"},
	{exitInterrupted, "interrupted: Ctrl-C; of a broker the second signal"},
}

// exitsOf are those that mean more for a command, by its path.
var exitsOf = map[string][]exit{
	"lockstep broker": {
		{0, "clean shutdown, after SIGTERM or Ctrl-C"},
		{cli.ExitFailed, "it could not start, or could not go on"},
		{exitInterrupted, "a second signal ended it at once; the next start checks its logs"}},
	"lockstep demo": {
		{0, "PASS"},
		{cli.ExitFailed, "FAIL, or interrupted; the last line says what was found"}},
	"lockstep cluster health": {
		{0, "healthy"},
		{cli.ExitUnhealthy, "unhealthy, or nobody answers"}},
	"lockstep log verify": {
		{0, "no damage"},
		{cli.ExitFailed, "damage was found, or a file could not be read"}},
	"lockstep mirrors add": {
		{cli.ExitFailed, "some topic was refused; the others are being mirrored"}},
	"lockstep mirrors alter": {
		{cli.ExitFailed, "some topic was refused; the others are altered"}},
	"lockstep mirrors stop": {
		{0, "STOPPED on all partitions; with --no-wait: the wish is durable"},
		{cli.ExitFailed, "some topic was refused, or is not STOPPED after --wait; stopping goes on"}},
	"lockstep mirrors describe": {
		{0, "described; with --watch: ended by Ctrl-C"}},
	"lockstep topics create": {
		{cli.ExitFailed, "some topic was refused; the others are created"}},
	"lockstep topics delete": {
		{cli.ExitFailed, "some topic was refused; the others are deleted"}},
	"lockstep topics alter": {
		{cli.ExitFailed, "some topic was refused; the others are altered"}},
	"lockstep plugins swap": {
		{0, "the new program serves"},
		{cli.ExitFailed, "refused; the old program serves on"}},
}

// exitsFor are the codes a command ends with: its own, and those of all
// commands that it has no word for. The program and the topic have them all.
func exitsFor(c *cobra.Command) []exit {
	own := exitsOf[c.CommandPath()]
	list := slices.Clone(own)
	for _, e := range exitCodes {
		its := slices.ContainsFunc(own, func(o exit) bool { return o.code == e.code })
		general := e.code != cli.ExitUnhealthy || !c.HasParent() || !c.Runnable()
		if !its && general {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b exit) int { return a.code - b.code })
	return list
}

// exitTable is codes as text.
func exitTable(list []exit) string {
	var b strings.Builder
	b.WriteString("Exit codes:")
	for _, e := range list {
		fmt.Fprintf(&b, "\n  %-4d %s", e.code, e.when)
	}
	return b.String()
}

// tellExits adds their own exit codes to the help of commands.
func tellExits(root *cobra.Command) {
	eachCommand(root, func(c *cobra.Command) {
		list, ok := exitsOf[c.CommandPath()]
		if !ok {
			return
		}
		if c.Long == "" {
			c.Long = c.Short + "."
		}
		c.Long += "\n\n" + exitTable(list) + "\nOthers as for all commands: see lockstep help exit-codes."
	})
}

// exitCodesTopic is a topic of help, no command.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes of all commands mean",
		Long: exitTable(exitCodes) + `

kafka-cluster-mirrors has 0, 1 and 2 of these. What a command's own help says of a code goes
before this table. Errors are one line on stderr: what failed, why, and what to do next.`,
		Example: "  lockstep cluster health; test $? -ne 10 || lockstep cluster status"}
}
