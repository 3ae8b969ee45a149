package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// unroff undoes roffText.
var unroff = strings.NewReplacer(`\-`, "-", `\&`, "", `\e`, `\`, `\[u2026]`, "…")

// TestManual: every command has a page with a summary, an example and its exit
// codes; what is a request to roff is one that is meant; two runs are equal.
func TestManual(t *testing.T) {
	dirs := [2]string{t.TempDir(), filepath.Join(t.TempDir(), "made", "too")}
	for _, d := range dirs {
		if code, _, errs := lockstep("man", "--dir", d); code != 0 {
			t.Fatalf("exit %d, %s", code, errs)
		}
	}
	root, _ := rootCommand()
	root.InitDefaultHelpCmd() // as execution does
	pages := 0
	eachCommand(root, func(c *cobra.Command) {
		name := manName(c) + ".1"
		data, err := os.ReadFile(filepath.Join(dirs[0], name))
		if c.Hidden {
			if err == nil {
				t.Errorf("%s: a page of a hidden command", name)
			}
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		pages++
		if again, err := os.ReadFile(filepath.Join(dirs[1], name)); err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s: another run wrote another page, err %v", name, err)
		}
		checkPage(t, c, name, string(data))
	})
	if files, _ := os.ReadDir(dirs[0]); len(files) != pages || pages < 30 {
		t.Errorf("%d files for %d pages", len(files), pages)
	}
	if code, out, _ := lockstep("man", "cluster", "health"); code != 0 || !strings.Contains(out, ".SH EXIT STATUS") {
		t.Errorf("one page: exit %d, %s", code, out)
	}
}

var (
	request = regexp.MustCompile(`^\.(TH|SH|TP|B|PP|br|nf|fi)( |$)`)
	aFlag   = regexp.MustCompile(`--[a-z0-9-]+`)
	aDate   = regexp.MustCompile(`\b20[0-9][0-9]\b`)
)

func checkPage(t *testing.T, c *cobra.Command, name, page string) {
	text := unroff.Replace(page)
	for _, want := range []string{".SH NAME\n", ".SH DESCRIPTION\n.PP\n", ".SH EXIT STATUS\n", ".SH EXAMPLES\n", c.Example, ".SH SEE ALSO\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q", name, want)
		}
	}
	for _, e := range exitsFor(c) {
		if !strings.Contains(text, e.when+"\n") {
			t.Errorf("%s: exit code %d is not there", name, e.code)
		}
	}
	for _, flag := range aFlag.FindAllString(c.NonInheritedFlags().FlagUsages()+c.InheritedFlags().FlagUsages(), -1) {
		if c.Runnable() && !strings.Contains(text, flag) {
			t.Errorf("%s: no %s", name, flag)
		}
	}
	for _, l := range strings.Split(page, "\n") {
		if (strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'")) && !request.MatchString(l) {
			t.Errorf("%s: %q is taken for a request", name, l)
		}
		if strings.ContainsFunc(l, func(r rune) bool { return r > '~' }) {
			t.Errorf("%s: %q is not ASCII", name, l)
		}
	}
	if d := aDate.FindString(page); d != "" {
		t.Errorf("%s: a date: %s", name, d)
	}
}

func TestRoffText(t *testing.T) {
	for in, want := range map[string]string{
		"a-b":        `a\-b`,
		".SH\n'x\n.": `\&.SH` + "\n" + `\&'x` + "\n" + `\&.`,
		`C:\x`:       `C:\ex`,
		"9f…":        `9f\[u2026]`,
		"a.b 'c'":    "a.b 'c'",
	} {
		if got := roffText(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestExitTables: each path of the table is a command, each command's codes are
// in its help, and docs/cli.md has the same.
func TestExitTables(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := func(command string, e exit) {
		if row := "| " + command + " | " + num(int32(e.code)) + " | " + e.when + " |"; !strings.Contains(string(doc), row) {
			t.Errorf("docs/cli.md has no row %q", row)
		}
	}
	root, _ := rootCommand()
	for path, list := range exitsOf {
		c, rest, err := root.Find(strings.Fields(path)[1:])
		if err != nil || len(rest) > 0 {
			t.Errorf("%s is no command", path)
			continue
		}
		for _, e := range list {
			if !strings.Contains(c.Long, e.when) {
				t.Errorf("%s --help says nothing of %d", path, e.code)
			}
			documented("`"+path+"`", e)
		}
	}
	for _, e := range exitCodes {
		if !strings.Contains(root.Long, e.when) || !slices.Contains(exitsFor(root), e) {
			t.Errorf("lockstep --help says nothing of %d", e.code)
		}
		documented("all", e)
	}
	eachCommand(root, func(c *cobra.Command) {
		if !c.Hidden && c.HasParent() && c.Runnable() && !c.HasSubCommands() && !strings.Contains(string(doc), "`"+c.CommandPath()) {
			t.Errorf("docs/cli.md does not name %s", c.CommandPath())
		}
	})
}
