package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/perf/report"
)

// Files of --results.
const (
	peersFile   = "peers.json"
	acksFile    = "ack.json"
	oneFile     = "ack-one-fetch.json"
	enginesFile = "engines.json"
	soakFile    = "soak.json"
)

func reportCommand() *cobra.Command {
	var results, out string
	cmd := &cobra.Command{
		Use: "report", Short: "Make the page and the plots of what peers, ack-table and soak measured", Args: cobra.NoArgs,
		Example: "  lockstep-perf report --results perf/results --out perf/RESULTS.md",
		RunE: func(*cobra.Command, []string) error {
			if err := makeReport(results, out); err != nil {
				return cli.Fail("making "+out, err, "")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&results, "results", "perf/results", "directory with any of "+peersFile+", "+enginesFile+", "+acksFile+", "+oneFile+" and "+soakFile)
	cmd.Flags().StringVar(&out, "out", "perf/RESULTS.md", "the page; its plots go into plots beside it")
	return cmd
}

func makeReport(results, out string) error {
	var r report.Results
	err := errors.Join(readInto(&r.Peers, results, peersFile), readInto(&r.Engines, results, enginesFile), readInto(&r.Acks, results, acksFile), readInto(&r.OneFetch, results, oneFile), readInto(&r.Soak, results, soakFile))
	if err != nil {
		return err
	}
	if r == (report.Results{}) {
		return errors.New(results + " has no results: make perf-peers, make perf-engines, make perf-ack, make soak")
	}
	old, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	page, plots := r.Page(string(old))
	dir := filepath.Join(filepath.Dir(out), "plots")
	if err := os.RemoveAll(dir); err != nil { // of cases that are no more
		return err
	}
	for name, svg := range plots {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644)); err != nil {
			return err
		}
	}
	return os.WriteFile(out, []byte(page), 0o644)
}

func readInto[T any](to **T, dir, file string) (err error) {
	*to, err = readJSON[T](filepath.Join(dir, file))
	return err
}

// readJSON reads a document; nil if it is not there.
func readJSON[T any](file string) (*T, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	v := new(T)
	return v, json.Unmarshal(data, v)
}
