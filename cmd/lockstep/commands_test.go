package main

import (
	"encoding/json"
	"strings"
	"testing"

	"lockstep/internal/cli"
)

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
	out, _ = do(0, "cluster status --json --admin-listener "+n.admin)
	var c clusterState
	if err := json.Unmarshal([]byte(out), &c); err != nil || !c.Healthy || c.Topics != 2 || c.Partitions != 5 || len(c.Brokers) != 1 || !c.Brokers[0].Answers ||
		c.Brokers[0].Produce != 14 || c.Brokers[0].Fetch != 20 || c.MirrorSync != 1 || c.Engine == "" || c.Controller < 0 || c.ClusterID == "" {
		t.Errorf("err %v, %s", err, out)
	}
	if out, _ := do(0, "cluster health"); out != "healthy: 1 brokers, 5 partitions\n" {
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
