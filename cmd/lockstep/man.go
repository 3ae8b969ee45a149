package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// manCommand writes the manual from the tree of commands: what --help says, and
// nothing that changes from day to day.
func manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: "man [COMMAND...]", Short: "Write the manual page of a command, or all of them into a directory",
		Example: "  lockstep man mirrors stop | man -l -\n  lockstep man --dir /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			switch {
			case dir != "" && len(args) > 0:
				return cli.Usage("lockstep man --dir writes all pages: name no command")
			case dir != "":
				return writeManual(cmd.Root(), dir)
			case err != nil || len(rest) > 0:
				return cli.Usage("there is no command %q", strings.Join(args, " "))
			}
			_, err = cmd.OutOrStdout().Write(manPage(about))
			return err
		}}
	cmd.Flags().StringVar(&dir, "dir", "", "write every page into `DIR`, which is made if need be")
	return cmd
}

// inManual tells whether a command has a page: all that help shows.
func inManual(c *cobra.Command) bool { return !c.Hidden }

func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cli.Fail("making "+dir, err, "name a directory that you may write to")
	}
	var failed error
	eachCommand(root, func(c *cobra.Command) {
		if failed == nil && inManual(c) {
			failed = os.WriteFile(filepath.Join(dir, manName(c)+".1"), manPage(c), 0o644)
		}
	})
	if failed != nil {
		return cli.Fail("writing the manual", failed, "name a directory that you may write to")
	}
	return nil
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command in the man macros of roff.
func manPage(c *cobra.Command) []byte {
	c.InitDefaultHelpFlag()
	var p roff
	p.line(".TH %s 1 \"\" \"lockstep %s\" \"Lockstep\"", roffText(strings.ToUpper(manName(c))), version)
	p.section("NAME")
	p.line("%s \\- %s", roffText(manName(c)), roffText(lowerFirst(c.Short)))
	if c.Runnable() {
		p.section("SYNOPSIS")
		p.line(".B %s", roffText(c.UseLine()))
	}
	if c.HasAvailableSubCommands() {
		p.line(".br\n.B %s COMMAND", roffText(c.CommandPath()))
	}
	p.section("DESCRIPTION")
	p.prose(c)
	if c.HasAvailableSubCommands() || c.HasHelpSubCommands() {
		p.section("COMMANDS")
		for _, sub := range c.Commands() {
			if inManual(sub) {
				p.entry(manName(sub)+"(1)", sub.Short)
			}
		}
	}
	if c.Runnable() {
		p.flags("OPTIONS", c.NonInheritedFlags().FlagUsages())
		p.flags("GLOBAL OPTIONS", c.InheritedFlags().FlagUsages())
	}
	p.section("EXIT STATUS")
	for _, e := range exitsFor(c) {
		p.entry(fmt.Sprint(e.code), e.when)
	}
	p.section("EXAMPLES")
	p.verbatim(c.Example)
	p.section("SEE ALSO")
	p.line("%s", roffText(strings.Join(seeAlso(c), ", ")))
	return []byte(p.String())
}

func lowerFirst(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

// seeAlso names the command above, those beside, and the exit codes.
func seeAlso(c *cobra.Command) (names []string) {
	if c.HasParent() {
		names = append(names, manName(c.Parent())+"(1)")
		for _, x := range c.Parent().Commands() {
			if x != c && inManual(x) && c.Parent().HasParent() {
				names = append(names, manName(x)+"(1)")
			}
		}
	}
	if c.Name() != "exit-codes" {
		names = append(names, "lockstep-exit-codes(1)")
	}
	return names
}

// roff is a page that grows.
type roff struct{ strings.Builder }

func (p *roff) line(format string, args ...any) { fmt.Fprintf(&p.Builder, format+"\n", args...) }

func (p *roff) section(name string) { p.line(".SH %s", name) }

func (p *roff) entry(name, text string) { p.line(".TP\n.B %s\n%s", roffText(name), roffText(text)) }

func (p *roff) verbatim(text string) {
	p.line(".nf")
	for _, l := range strings.Split(text, "\n") {
		p.line("%s", roffText(l))
	}
	p.line(".fi")
}

// prose is the long help by paragraphs; those that are indented keep their
// lines, and exit codes have a section of their own.
func (p *roff) prose(c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	for _, par := range strings.Split(text, "\n\n") {
		switch {
		case strings.HasPrefix(par, "Exit codes:"):
		case strings.HasPrefix(par, " "):
			p.verbatim(par)
		default:
			p.line(".PP\n%s", roffText(par))
		}
	}
}

// flags is a section of what pflag prints: a flag, at least three blanks, what
// it is for.
func (p *roff) flags(section, usages string) {
	if strings.TrimSpace(usages) == "" {
		return
	}
	p.section(section)
	for _, l := range strings.Split(strings.TrimRight(usages, "\n"), "\n") {
		name, text, _ := strings.Cut(strings.TrimSpace(l), "   ")
		p.entry(name, strings.TrimSpace(text))
	}
}

// roffText makes text safe: no line is a request, a dash is one that can be
// copied, what is not ASCII is named by its number.
func roffText(s string) string {
	var b strings.Builder
	atStart := true
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case (r == '.' || r == '\'') && atStart:
			b.WriteString(`\&` + string(r))
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
		atStart = r == '\n'
	}
	return b.String()
}
