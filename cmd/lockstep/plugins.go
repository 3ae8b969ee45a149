package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/plugins/host"
)

func pluginsCommand(o *cli.Options) *cobra.Command {
	return group("plugins", "Look at a broker's plugins and swap them while traffic flows",
		"  lockstep plugins list\n  lockstep plugins swap promotion ./my-promotion\n  lockstep plugins rollback promotion",
		pluginsList(o), pluginsSwap(o), pluginsRollback(o), pluginsJournal(o))
}

// pluginCall wraps the body of a command that talks to the admin listener.
func pluginCall(o *cli.Options, admin *string, f func(ctx context.Context, p *cli.Printer, args []string) error, cmd *cobra.Command) *cobra.Command {
	adminFlag(cmd, admin)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
		defer cancel()
		return f(ctx, printer(cmd, o), args)
	}
	return cmd
}

func fetchJSON(ctx context.Context, admin, path string, into any) error {
	body, err := askAdmin(ctx, admin, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return cli.Fail("reading the answer of the admin listener", err, "run the broker and this command from one release")
	}
	return nil
}

func pluginsList(o *cli.Options) *cobra.Command {
	var admin string
	return pluginCall(o, &admin, func(ctx context.Context, p *cli.Printer, _ []string) error {
		var list []pluginView
		if err := fetchJSON(ctx, admin, "/plugins", &list); err != nil {
			return err
		}
		if p.JSON {
			return p.Document(list)
		}
		var rows [][]string
		for _, v := range list {
			state := v.Phase
			if v.Swap != "" {
				state += ", " + v.Swap
			}
			rows = append(rows, []string{string(v.Kind), state, orDash(strings.TrimSpace(v.Name + " " + v.Version)), strconv.Itoa(v.Pid), (time.Duration(v.UpS) * time.Second).String(),
				num(int32(v.Fence)), strconv.FormatInt(v.Seq, 10), strconv.FormatInt(v.Silent, 10), v.SHA256[:min(12, len(v.SHA256))], orDash(v.Previous), orDash(v.Last)})
		}
		p.Table(cli.Columns("KIND", "STATE", "PLUGIN", "PID", "UP", "FENCE", "SEQ", "SILENT", "SHA-256", "ROLLBACK TO", "LAST END"), rows)
		return nil
	}, &cobra.Command{Use: "list", Short: "Show the plugin of each kind", Args: cobra.NoArgs, Example: "  lockstep plugins list --json"})
}

// postPlugins asks for a swap or a rollback and shows what came of it.
func postPlugins(ctx context.Context, p *cli.Printer, admin, path string, req swapRequest) error {
	data, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if !p.JSON && terminal(p.Err) != nil {
		p.Note("starting the program beside the one that serves; then both see the same events for 2 s")
	}
	body, err := sendAdmin(ctx, admin, path, bytes.NewReader(data))
	if err != nil {
		return swapRefused(req, err)
	}
	defer body.Close()
	var v swapView
	if err := json.NewDecoder(body).Decode(&v); err != nil {
		return cli.Fail("reading the answer of the admin listener", err, "look with `lockstep plugins list`")
	}
	if p.JSON {
		return p.Document(v)
	}
	p.Line("%s: %s serves from event %d on in place of %s (%.1f s)", req.Kind, v.New, v.FromSeq, orDash(strings.TrimSpace(v.Old)), v.TookS)
	p.Line("shadow: both saw %d events and disagreed about %d", v.Seen, v.Apart)
	for _, d := range v.Differences {
		p.Line("  event %d, topic %s: old %s; new %s", d.Seq, d.Topic, d.Old, d.New)
	}
	return nil
}

// swapRefused says of a refusal that nothing has changed, and what to do.
func swapRefused(req swapRequest, err error) error {
	var no *refusal
	if !errors.As(err, &no) || no.code != http.StatusConflict {
		return err
	}
	what, do := "swapping "+string(req.Kind), "mend the program and swap again; the old one serves on"
	if req.Path == "" {
		what = "rolling back " + string(req.Kind)
	}
	switch no.text {
	case host.ErrSwapping.Error():
		do = "wait until lockstep plugins list shows SERVING alone"
	case host.ErrNoPrevious.Error():
		do = "name a program: lockstep plugins swap " + string(req.Kind) + " PATH"
	}
	return cli.Fail(what, no, do)
}

func pluginsSwap(o *cli.Options) *cobra.Command {
	var admin, sum string
	cmd := pluginCall(o, &admin, func(ctx context.Context, p *cli.Printer, args []string) error {
		kind, err := kindOf(args[0])
		if err != nil {
			return err
		}
		if args[1] == "default" {
			return postPlugins(ctx, p, admin, "/plugins/swap", swapRequest{Kind: kind})
		}
		path, err := filepath.Abs(args[1])
		if err != nil {
			return err
		}
		if sum == "" {
			if sum, err = host.Checksum(path); err != nil {
				return cli.Fail("reading the plugin", err, "name a program this machine has")
			}
		}
		return postPlugins(ctx, p, admin, "/plugins/swap", swapRequest{kind, path, sum})
	}, &cobra.Command{Use: "swap KIND PATH", Short: "Put another program in the place of a plugin", Args: cobra.ExactArgs(2),
		Long: `Start the program beside the plugin that serves, show both the same events for 2 seconds, then
let the new one serve: the fence is raised, so nothing the old one still wishes counts. Ends
within 30 seconds of it bring the old program back. KIND is coordinator, promotion or release. PATH is a program
of the broker's machine, or the word default for the policy inside the broker.

The swap lasts until the broker stops; lockstep.plugin.KIND.path and .sha256 keep it.`,
		Example: "  lockstep plugins swap promotion ./my-promotion\n  lockstep plugins swap release /opt/plugins/autorelease --sha256 9f86d0…\n  lockstep plugins swap promotion default"})
	cmd.Flags().StringVar(&sum, "sha256", "", "SHA-256 of the program in hex; empty = of the file as it is now")
	return cmd
}

func pluginsRollback(o *cli.Options) *cobra.Command {
	var admin string
	return pluginCall(o, &admin, func(ctx context.Context, p *cli.Printer, args []string) error {
		kind, err := kindOf(args[0])
		if err != nil {
			return err
		}
		return postPlugins(ctx, p, admin, "/plugins/rollback", swapRequest{Kind: kind})
	}, &cobra.Command{Use: "rollback KIND", Short: "Swap back to the program that served before", Args: cobra.ExactArgs(1),
		Example: "  lockstep plugins rollback promotion"})
}

func pluginsJournal(o *cli.Options) *cobra.Command {
	var admin string
	var since int64
	cmd := pluginCall(o, &admin, func(ctx context.Context, p *cli.Printer, args []string) error {
		kind, err := kindOf(args[0])
		if err != nil {
			return err
		}
		var list []journalView
		if err := fetchJSON(ctx, admin, fmt.Sprintf("/plugins/journal?kind=%s&since=%d", kind, since), &list); err != nil {
			return err
		}
		if p.JSON {
			return p.Document(list)
		}
		var rows [][]string
		for _, e := range list {
			about := e.Topic
			if e.Partition >= 0 {
				about += "-" + num(e.Partition)
			}
			row := func(wish, verdict string) {
				rows = append(rows, []string{strconv.FormatInt(e.Seq, 10), time.UnixMilli(e.AtMS).UTC().Format("15:04:05.000"), string(e.Event), about,
					orDash(strings.TrimSpace(e.Plugin)), strconv.FormatInt(e.Fence, 10), wish, verdict})
			}
			if len(e.Verdicts) == 0 {
				row(orDash(e.Note), orDash(e.Error)) // nothing is wished: what the policy waits for
			}
			for _, v := range e.Verdicts {
				verdict := "accepted"
				if !v.Accepted {
					verdict = "refused: " + v.Why
				}
				row(fmt.Sprintf("%s (%s)", v.Do, v.Reason), verdict)
			}
		}
		p.Table(cli.Columns("SEQ", "AT (UTC)", "EVENT", "ABOUT", "PLUGIN", "FENCE", "WISH", "VERDICT"), rows)
		return nil
	}, &cobra.Command{Use: "journal KIND", Short: "Show what a plugin was asked, what it wished, and what came of it", Args: cobra.ExactArgs(1),
		Long:    "Show the events of a kind, each with its verdict: the last 4,096 are kept.",
		Example: "  lockstep plugins journal promotion --since 120"})
	cmd.Flags().Int64Var(&since, "since", 0, "show events after this number")
	return cmd
}
