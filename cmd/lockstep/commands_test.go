package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"lockstep/internal/cli"
	"lockstep/internal/testcluster"
)

// TestMirrorsCommands drives the mirror verbs against two real clusters.
func TestMirrorsCommands(t *testing.T) {
	binary, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx := ctxFor(t, time.Minute)
	c, err := testcluster.Start(ctx, testcluster.Options{Binary: binary, Dir: t.TempDir(), NoLink: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	do := func(b *testcluster.Broker, want int, line string) (out, errs string) {
		t.Helper()
		code, out, errs := lockstep(append(strings.Fields(line), "--bootstrap-server", b.Addr)...)
		if code != want {
			t.Fatalf("%s: exit %d, want %d\n%s%s", line, code, want, out, errs)
		}
		return out, errs
	}
	do(c.Source, 0, "topics create orders orders-eu --partitions 2")
	do(c.Destination, 2, "mirrors create dr --config retention.ms=1")
	do(c.Destination, 0, "mirrors create dr --config bootstrap.servers="+c.SourceAddr)
	do(c.Destination, 2, "mirrors add dr")
	_, errs := do(c.Destination, 0, "mirrors add dr --topics orders.* --sync")
	if !strings.Contains(errs, "WARNING: orders: weak destination: min.insync.replicas=1, replication factor 1") {
		t.Errorf("a weak destination is not said aloud: %q", errs)
	}
	for _, topic := range []string{"orders", "orders-eu"} {
		if err := c.Await(ctx, testcluster.Topic{Name: topic, Mirror: "dr", Sync: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		at         *testcluster.Broker
		line, want string
	}{
		{c.Destination, "describe ", "dr"},
		{c.Destination, "stop dr --topics ", "orders orders-eu"},
		{c.Destination, "stop dr --topics orders,o", "orders,orders-eu"},
		{c.Destination, "describe --topics orders-", "orders-eu"},
		{c.Destination, "add dr --topics orders-", "orders-eu"},
		{c.Source, "release-sync d", "dr"},
		{c.Source, "release-sync dr --topics ", "orders orders-eu"},
		{c.Source, "describe ", ""},
	} {
		if got, _ := completed(t, append([]string{"--bootstrap-server", x.at.Addr, "mirrors"}, strings.Split(x.line, " ")...)...); strings.Join(got, " ") != x.want {
			t.Errorf("completing %q at %s: %q, want %q", x.line, x.at.Addr, got, x.want)
		}
	}
	if out, _ := do(c.Source, 0, "mirrors describe"); !strings.Contains(out, "gating") {
		t.Errorf("registrations at the source: %q", out)
	}
	if out, _ := do(c.Source, 0, "metadata dump --admin-listener "+c.Source.Admin); strings.Count(out, `"MirrorSyncRegistrationChangeRecord"`) != 2 {
		t.Errorf("metadata of the source: %q", out)
	}
	do(c.Source, 0, "mirrors release-sync dr --topics orders-eu")
	do(c.Destination, 2, "mirrors alter dr --topics orders --sync --async")
	do(c.Destination, 0, "mirrors alter dr --topics orders --async")
	if out, _ := do(c.Destination, 0, "mirrors list"); !strings.Contains(out, "dr") || !strings.Contains(out, c.SourceAddr) {
		t.Errorf("list: %q", out)
	}
	if out, _ := do(c.Destination, 0, "mirrors stop dr --topics orders --no-wait"); out != "Stopping mirroring for topics [orders] in mirror dr\n" {
		t.Errorf("stop --no-wait: %q", out)
	}
	if out, errs := do(c.Destination, 0, "mirrors stop dr --topics orders-.*"); out != "Stopped mirroring for topics [orders-eu] in mirror dr\n" || !strings.Contains(errs, "orders-eu-1: STOPPED") {
		t.Errorf("stop: %q, %q", out, errs)
	}
	eventually(t, "the other topic is stopped and the mirror can be deleted", 10*time.Second, func() bool {
		code, _, _ := lockstep("mirrors", "delete", "dr", "--bootstrap-server", c.Destination.Addr)
		return code == 0
	})
}

// TestCommandsOnABroker drives the commands against a real broker.
func TestCommandsOnABroker(t *testing.T) {
	n := startNode(t)
	do := func(want int, line string) (out, errs string) {
		t.Helper()
		code, out, errs := lockstep(append(strings.Fields(line), "--bootstrap-server", n.addr)...)
		if code != want {
			t.Fatalf("%s: exit %d, want %d\n%s%s", line, code, want, out, errs)
		}
		return out, errs
	}
	if out, _ := do(0, "topics list"); out != "No topics found\n" {
		t.Errorf("an empty cluster: %q", out)
	}
	do(0, "topics create orders logs --partitions 2 --config retention.ms=86400000")
	if _, errs := do(1, "topics create bad --config retention.mss=1"); !strings.Contains(errs, "retention.ms") {
		t.Errorf("a mistyped setting: %q", errs)
	}
	do(1, "topics create orders")
	do(0, "topics alter orders --partitions 3 --config flush.ack=durable --delete-config retention.ms")
	do(1, "topics alter orders --partitions 1")
	do(2, "topics alter orders")
	do(1, "topics describe nothere")
	out, _ := do(0, "topics describe orders --json")
	var topics []topicDescription
	if err := json.Unmarshal([]byte(out), &topics); err != nil || len(topics) != 1 || len(topics[0].Partitions) != 3 || len(topics[0].ID) != 22 {
		t.Fatalf("err %v, %s", err, out)
	}
	if c := topics[0].Configs; len(c) != 1 || c["flush.ack"] != "durable" {
		t.Errorf("settings %v", c)
	}
	if p := topics[0].Partitions[2]; p.Leader < 0 || p.StartOffset != 0 || p.EndOffset != 0 || len(p.ISR) != 1 {
		t.Errorf("partition %+v", p)
	}
	eventually(t, "the plugins serve and the cluster is healthy", 10*time.Second, func() bool {
		code, out, _ := lockstep("cluster", "health", "--bootstrap-server", n.addr, "--admin-listener", n.admin)
		return code == 0 && out == "healthy: 1 brokers, 5 partitions, plugins serve at "+n.admin+"\n"
	})
	out, _ = do(0, "cluster status --json --admin-listener "+n.admin)
	var c clusterState
	if err := json.Unmarshal([]byte(out), &c); err != nil || !c.Healthy || c.Topics != 2 || c.Partitions != 5 || len(c.Brokers) != 1 || !c.Brokers[0].Answers ||
		c.Brokers[0].Produce != 14 || c.Brokers[0].Fetch != 20 || c.MirrorSync != 1 || c.Engine == "" || c.Controller < 0 || c.ClusterID == "" {
		t.Errorf("err %v, %s", err, out)
	}
	if out, _ := do(0, "cluster health"); out != "healthy: 1 brokers, 5 partitions, plugins not looked at: no --admin-listener is given\n" {
		t.Errorf("health: %q", out)
	}
	do(0, "metadata dump --admin-listener "+n.admin)
	do(0, "topics delete logs")
	if out, _ := do(0, "topics list"); strings.Contains(out, "logs") || !strings.Contains(out, "orders") {
		t.Errorf("after a deletion: %q", out)
	}
	do(0, "topics alter orders --config min.insync.replicas=2")
	if _, errs := do(cli.ExitUnhealthy, "cluster health"); !strings.Contains(errs, "3 partitions under min.insync.replicas: orders-0, orders-1, orders-2") {
		t.Errorf("an unhealthy cluster: %q", errs)
	}
}
