package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
)

// defaultAdmin is where a broker serves its HTTP side by default.
const defaultAdmin = "127.0.0.1:9644"

func adminFlag(cmd *cobra.Command, addr *string) {
	cmd.Flags().StringVar(addr, "admin-listener", defaultAdmin, "`HOST:PORT` of a broker's lockstep.admin.listener")
}

func metadataCommand(o *cli.Options) *cobra.Command {
	var addr string
	dump := &cobra.Command{Use: "dump", Short: "Print the mirror facts of the metadata quorum, one JSON object a line", Args: cobra.NoArgs,
		Long: `Print what the metadata quorum has agreed on about mirrors, as the asked broker has applied
it: states of mirrored partitions, types, registrations and releases, in the record layouts
of the KIPs. A cluster that neither mirrors nor is mirrored has nothing to print.`,
		Example: "  lockstep metadata dump --admin-listener 127.0.0.1:9644 | grep MirrorSync",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
			defer cancel()
			body, err := askAdmin(ctx, addr, "/metadata")
			if err != nil {
				return err
			}
			defer body.Close()
			if _, err := io.Copy(cmd.OutOrStdout(), body); err != nil {
				return cli.Fail("reading the metadata", err, "ask again")
			}
			return nil
		}}
	adminFlag(dump, &addr)
	return group("metadata", "Look at the metadata quorum", "  lockstep metadata dump", dump)
}

// askAdmin gets a page of a broker's admin listener.
func askAdmin(ctx context.Context, addr, path string) (io.ReadCloser, error) {
	return sendAdmin(ctx, addr, path, nil)
}

// sendAdmin posts JSON to a broker's admin listener, or gets a page if there is
// nothing to post.
func sendAdmin(ctx context.Context, addr, path string, data io.Reader) (io.ReadCloser, error) {
	if err := checkAdmin(addr); err != nil {
		return nil, err
	}
	method := http.MethodGet
	if data != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, data)
	if err != nil {
		return nil, cli.Usage("--admin-listener: %q is not HOST:PORT", addr)
	}
	if data != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		var bare *url.Error
		if errors.As(err, &bare) {
			err = bare.Err // the rest repeats the address
		}
		return nil, cli.Fail("asking the admin listener at "+addr, err, "see lockstep.admin.listener in the broker's configuration, and name it by --admin-listener")
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		resp.Body.Close()
		return nil, cli.Fail("asking the admin listener at "+addr, &refusal{resp.StatusCode, resp.Status, strings.TrimSpace(string(text))}, refusalSteps[resp.StatusCode])
	}
	return resp.Body, nil
}

// checkAdmin refuses what is no address.
func checkAdmin(addr string) error {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		return cli.Usage("--admin-listener: %q is not HOST:PORT", addr)
	}
	return nil
}

// refusal is an answer of an admin listener that is not OK.
type refusal struct {
	code         int
	status, text string
}

func (r *refusal) Error() string {
	if r.code == http.StatusConflict { // in words for a person
		return r.text
	}
	return r.status + ": " + r.text
}

// refusalSteps are what to do about a status.
var refusalSteps = map[int]string{
	http.StatusForbidden:        "run this on the broker's machine, with --admin-listener 127.0.0.1:PORT",
	http.StatusNotFound:         "is that a broker's admin listener, of this release? See lockstep.admin.listener in its configuration",
	http.StatusMethodNotAllowed: "is that a broker's admin listener, of this release? See lockstep.admin.listener in its configuration",
	http.StatusBadRequest:       "run the broker and this command from one release",
	http.StatusConflict:         "lockstep plugins list shows what serves",
}
