package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
)

// TestLifeOfAMirror: every action against two real clusters.
func TestLifeOfAMirror(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary, err := testcluster.Build(ctx, dir)
	if err != nil {
		t.Fatalf("the lockstep program cannot be built: %v", err)
	}
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: binary, Dir: dir, RTT: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	src, _, err := c.Source.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := src.Admin.CreateTopics(ctx, 2, 1, nil, "orders", "orders-eu", "other"); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(dir, "dr.properties")
	if err := os.WriteFile(settings, []byte("bootstrap.servers="+c.SourceAddr+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(b *testcluster.Broker, want int, line string) (out, errs string) {
		t.Helper()
		var o, e bytes.Buffer
		cmd, ran := command(execute)
		cmd.SetOut(&o)
		cmd.SetErr(&e)
		cmd.SetArgs(strings.Fields("--bootstrap-server " + b.Addr + " " + line))
		if code := cli.Report(&e, "kafka-cluster-mirrors", cmd.ExecuteContext(ctx), *ran); code != want {
			t.Fatalf("%s: exit %d, want %d\n%s%s", line, code, want, o.String(), e.String())
		}
		return o.String(), e.String()
	}
	dst := c.Destination
	says := func(b *testcluster.Broker, line, want string) {
		t.Helper()
		if out, _ := at(b, 0, line); out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
	says(dst, "--list", "No mirrors found\n")
	says(dst, "--create --mirror dr --mirror-config "+settings, "Created mirror dr\n")
	at(dst, 1, "--create --mirror dr --mirror-config "+settings)
	says(dst, "--describe --mirror dr", "No mirror partitions found\n")
	at(dst, 1, "--add --topics nothing.* --mirror dr")
	says(dst, "--add --topic orders.* --mirror dr --sync", "Added 2 mirror topic(s) to mirror dr: [orders, orders-eu]\n")
	for _, topic := range []string{"orders", "orders-eu"} {
		if err := c.Await(ctx, testcluster.Topic{Name: topic, Mirror: "dr", Sync: true}); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := at(dst, 0, "--describe --mirror dr --json")
	var parts []cli.MirrorPartition
	if err := json.Unmarshal([]byte(out), &parts); err != nil || len(parts) != 4 || parts[0].State != "MIRRORING" || parts[0].Effective != "SYNC" {
		t.Errorf("err %v, %s", err, out)
	}
	says(dst, "--describe --failed", "No failed partitions found\n")
	says(dst, "--alter --topics orders-eu --mirror dr --async", "Altered 1 mirror topic(s) to ASYNC in mirror dr: [orders-eu]\n")
	if _, errs := at(c.Source, 1, "--release-sync --mirror dr --topics other"); !strings.Contains(errs, "fits none of") {
		t.Errorf("a release of nothing: %q", errs)
	}
	says(c.Source, "--release-sync --mirror dr --topics orders", "Released 1 sync registration(s) of mirror dr: [orders]\n")
	at(dst, 1, "--delete --mirror dr")
	at(dst, 1, "--pause --topics orders --mirror dr")
	out, errs := at(dst, 0, "--stop --topics .* --mirror dr")
	if out != "Stopped mirroring for topics [orders, orders-eu] in mirror dr\n" || !strings.Contains(errs, "orders-eu-1: STOPPED\n") {
		t.Errorf("stop: %q, %q", out, errs)
	}
	says(dst, "--delete --mirror dr", "Deleted mirror dr\n")
}
