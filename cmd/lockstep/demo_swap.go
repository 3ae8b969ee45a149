package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/internal/testcluster"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// What --plugin says beside a path.
const (
	demoPluginAuto    = "auto" // the example module's program if it is there, else default
	demoPluginNone    = "none"
	demoPluginDefault = "default"
)

// demoExample is where `make build` puts the example's program, beside ours.
const demoExample = "examples/patient"

// demoPlugin is the program to swap to, without a path the default policy.
func demoPlugin(asked string) (swapRequest, error) {
	req := swapRequest{Kind: sdk.Promotion, Path: asked}
	switch asked {
	case demoPluginDefault, demoPluginNone:
		req.Path = ""
	case demoPluginAuto:
		self, err := os.Executable()
		if err != nil {
			return req, err
		}
		req.Path = filepath.Join(filepath.Dir(self), demoExample)
		if _, err := os.Stat(req.Path); err != nil {
			req.Path = ""
		}
	}
	if req.Path == "" {
		return req, nil
	}
	path, err := filepath.Abs(req.Path)
	if err != nil {
		return req, err
	}
	req.Path = path
	req.SHA256, err = host.Checksum(path)
	return req, err
}

// swap puts another promotion plugin in the place of the destination's while
// records flow. It slows the flow, so that the kill is after it and in the flow.
// A topic of its own gives both plugins something to decide.
func (d *demo) swap(ctx context.Context) error {
	if d.o.plugin == demoPluginNone {
		return nil
	}
	d.led.pace.Store(int64(demoSwapTime) / int64(d.o.records/2))
	defer d.led.pace.Store(0)
	topic := testcluster.Topic{Name: demoSwapTopic, Mirror: demoSwapTopic, Partitions: 1, Sync: true}
	admin, began, before := d.c.Destination.Admin, time.Now(), d.led.ackedCount()
	type outcome struct {
		view swapView
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		o.err = askSwap(ctx, admin, d.o.swapTo, &o.view)
		done <- o
	}()
	if _, err := d.c.Add(ctx, topic); err != nil {
		return err
	}
	if err := d.c.Await(ctx, topic); err != nil {
		return err
	}
	o := <-done
	if o.err != nil {
		return o.err
	}
	d.step("promotion plugin swapped in %.1f s while %d records were acknowledged: %s serves in place of %s",
		time.Since(began).Seconds(), d.led.ackedCount()-before, o.view.New, o.view.Old)
	d.step("both were shown %d events before and disagreed about %d", o.view.Seen, o.view.Apart)
	for _, sync := range []bool{false, true} {
		topic.Sync = sync
		if err := d.c.Alter(ctx, topic); err != nil {
			return err
		}
		if err := d.c.Await(ctx, topic); err != nil {
			return err
		}
	}
	return d.verdicts(ctx, admin)
}

func askSwap(ctx context.Context, admin string, req swapRequest, into *swapView) error {
	data, err := json.Marshal(req)
	if err != nil {
		return err
	}
	body, err := sendAdmin(ctx, admin, "/plugins/swap", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(into)
}

// verdicts shows what the plugins have wished and what came of it, and that
// each event has one line.
func (d *demo) verdicts(ctx context.Context, admin string) error {
	var list []journalView
	if err := fetchJSON(ctx, admin, "/plugins/journal?kind=promotion&since=0", &list); err != nil {
		return err
	}
	seen := map[int64]bool{}
	for _, e := range list {
		if seen[e.Seq] {
			return fmt.Errorf("event %d is in the journal twice", e.Seq)
		}
		seen[e.Seq] = true
		for _, v := range e.Verdicts {
			verdict := "accepted"
			if !v.Accepted {
				verdict = "refused, " + v.Why
			}
			d.step("  event %d, %s: %s wishes %s (%s): %s", e.Seq, e.Topic, strings.TrimSpace(e.Plugin), v.Do, v.Reason, verdict)
		}
	}
	d.step("  %d events, each once in the journal", len(seen))
	return nil
}
