package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// action is one thing to do and what it needs.
type action struct {
	name   string
	usage  string
	mirror bool // --mirror is required
	topics need // --topics
	config bool // --mirror-config is required
}

type need int

const (
	never need = iota
	may
	must
)

var actions = []action{
	{name: "create", usage: "create a mirror from --mirror-config", mirror: true, config: true},
	{name: "add", usage: "begin to mirror topics; with --sync they become SYNC when they have caught up", mirror: true, topics: must},
	{name: "alter", usage: "change the mirror type of topics to --sync or --async", mirror: true, topics: must},
	{name: "release-sync", usage: "on the source: release sync registrations, all of the mirror without --topics; breaks zero RPO for what has not been mirrored", mirror: true, topics: may},
	{name: "stop", usage: "fail over: end the mirroring of topics and make them writable; waits for STOPPED", mirror: true, topics: must},
	{name: "remove", usage: "the same as --stop", mirror: true, topics: must},
	{name: "pause", usage: "pause the mirroring of topics", mirror: true, topics: must},
	{name: "resume", usage: "resume the mirroring of paused topics", mirror: true, topics: must},
	{name: "delete", usage: "delete a mirror whose topics have all stopped", mirror: true},
	{name: "list", usage: "list the mirrors"},
	{name: "describe", usage: "describe mirrored partitions, of --mirror alone if it is given", topics: may},
}

// flags are the values of all flags.
type flags struct {
	bootstrap, commandConfig string
	mirror, mirrorConfig     string
	topics, topic            string
	sync, async              bool
	failed, json             bool
	chosen                   []bool // by action
}

func (f *flags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.bootstrap, "bootstrap-server", "", "required: brokers to begin with, `HOST:PORT` separated by commas")
	fs.StringVar(&f.commandConfig, "command-config", "", "properties `FILE` for the connection")
	f.chosen = make([]bool, len(actions))
	for i, a := range actions {
		fs.BoolVar(&f.chosen[i], a.name, false, "action: "+a.usage)
	}
	fs.StringVar(&f.mirror, "mirror", "", "`NAME` of the mirror")
	fs.StringVar(&f.mirrorConfig, "mirror-config", "", "properties `FILE` with the settings of the mirror, with --create")
	fs.StringVar(&f.topics, "topics", "", "`TOPICS` to act on")
	fs.StringVar(&f.topic, "topic", "", "the same as --topics `TOPICS`")
	fs.BoolVar(&f.sync, "sync", false, "with --add and --alter: SYNC")
	fs.BoolVar(&f.async, "async", false, "with --alter: ASYNC, at once")
	fs.BoolVar(&f.failed, "failed", false, "with --describe: failed partitions only, and why")
	fs.BoolVar(&f.json, "json", false, "write JSON")
}

// request is what the flags ask for, checked.
type request struct {
	options              cli.Options
	action               string
	mirror, mirrorConfig string
	topics               *cli.Patterns
	sync, failed         bool
}

// request checks the flags against each other.
func (f *flags) request(given func(string) bool) (*request, error) {
	a, err := f.action()
	if err != nil {
		return nil, err
	}
	if f.bootstrap == "" && f.commandConfig == "" {
		return nil, cli.Usage("--bootstrap-server is required")
	}
	r := &request{action: a.name, mirror: f.mirror, mirrorConfig: f.mirrorConfig, sync: f.sync, failed: f.failed}
	r.options = cli.Options{Bootstrap: f.bootstrap, CommandConfig: f.commandConfig, JSON: f.json}
	if err := f.types(a); err != nil {
		return nil, err
	}
	switch {
	case a.mirror && f.mirror == "":
		return nil, cli.Usage("--%s needs --mirror", a.name)
	case a.name == "list" && f.mirror != "":
		return nil, cli.Usage("--list takes no --mirror: --describe shows one")
	case a.config && f.mirrorConfig == "":
		return nil, cli.Usage("--%s needs --mirror-config", a.name)
	case !a.config && given("mirror-config"):
		return nil, cli.Usage("--mirror-config goes with --create, not with --%s", a.name)
	case given("failed") && a.name != "describe":
		return nil, cli.Usage("--failed goes with --describe, not with --%s", a.name)
	}
	r.topics, err = f.patterns(a, given)
	return r, err
}

// action returns the one action that is given.
func (f *flags) action() (*action, error) {
	var names []string
	var found *action
	for i := range actions {
		if f.chosen[i] {
			found = &actions[i]
			names = append(names, "--"+actions[i].name)
		}
	}
	switch len(names) {
	case 0:
		var all []string
		for _, a := range actions {
			all = append(all, "--"+a.name)
		}
		return nil, cli.Usage("no action: give one of %s", strings.Join(all, " "))
	case 1:
		return found, nil
	}
	return nil, cli.Usage("exactly one action is allowed, not %s", strings.Join(names, " and "))
}

// types checks --sync and --async.
func (f *flags) types(a *action) error {
	switch {
	case f.sync && f.async:
		return cli.Usage("--sync and --async exclude each other")
	case f.sync && !slices.Contains([]string{"add", "alter"}, a.name):
		return cli.Usage("--sync goes with --add and --alter, not with --%s", a.name)
	case f.async && a.name != "alter":
		return cli.Usage("--async goes with --alter, not with --%s", a.name)
	case a.name == "alter" && !f.sync && !f.async:
		return cli.Usage("--alter needs --sync or --async")
	}
	return nil
}

// patterns reads --topics or --topic.
func (f *flags) patterns(a *action, given func(string) bool) (*cli.Patterns, error) {
	list, has := f.topics, given("topics") || given("topic")
	switch {
	case given("topics") && given("topic"):
		return nil, cli.Usage("--topics and --topic are the same: give one of them")
	case given("topic"):
		list = f.topic
	}
	switch {
	case has && a.topics == never:
		return nil, cli.Usage("--%s takes no --topics", a.name)
	case !has && a.topics == must:
		return nil, cli.Usage("--%s needs --topics", a.name)
	case !has:
		return nil, nil
	}
	p, err := cli.ParsePatterns(list)
	if err != nil {
		return nil, err
	}
	return &p, nil
}
