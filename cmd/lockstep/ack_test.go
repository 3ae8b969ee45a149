package main

import (
	"encoding/json"
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

var ackRuns = flag.Int("ack.runs", 1, "runs of lockstep-perf per case; their medians are judged")

type ackRun struct {
	RTT  float64  `json:"rtt_ms"`
	P50  float64  `json:"ack_p50_ms"`
	P99  float64  `json:"ack_p99_ms"`
	Void []string `json:"void"`
}

// One idle record is acknowledged in about one round trip, and without a line
// in next to nothing: medians of lockstep-perf runs, each with the echo of its
// own minute beside it.
func TestAckLatency(t *testing.T) {
	if raceEnabled {
		t.Skip("latency under the race detector says nothing")
	}
	broker, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	perf := filepath.Join(filepath.Dir(broker), "lockstep-perf")
	if out, err := exec.Command("go", "build", "-o", perf, "../lockstep-perf").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	median := func(rtt, duration string) ackRun {
		var p50, p99, echo []float64
		for range *ackRuns {
			out, err := exec.Command(perf, "ack", "--rtt", rtt, "--one-in-flight", "--duration", duration, "--json").Output()
			if err != nil {
				t.Fatalf("lockstep-perf: %v: %s", err, out)
			}
			var r ackRun
			if err := json.Unmarshal(out, &r); err != nil || len(r.Void) > 0 {
				t.Fatalf("%v, void: %v", err, r.Void)
			}
			p50, p99, echo = append(p50, r.P50), append(p99, r.P99), append(echo, r.RTT)
		}
		for _, x := range [][]float64{p50, p99, echo} {
			slices.Sort(x)
		}
		m := *ackRuns / 2
		return ackRun{RTT: echo[m], P50: p50[m], P99: p99[m]}
	}
	far := median("40ms", "4s")
	t.Logf("40 ms line, %d runs: rtt_ms %.3f, ack_p50_ms %.3f, ack_p99_ms %.3f", *ackRuns, far.RTT, far.P50, far.P99)
	if far.P50 > far.RTT+2 {
		t.Errorf("p50 %.3f ms is more than the round trip of %.3f ms and 2 ms", far.P50, far.RTT)
	}
	near := median("0", "2s")
	t.Logf("no line, %d runs: loopback echo %.3f ms, ack_p50_ms %.3f, ack_p99_ms %.3f", *ackRuns, near.RTT, near.P50, near.P99)
	if near.P50 > max(0.5, 8*near.RTT) {
		t.Errorf("p50 %.3f ms without a line, loopback echo %.3f ms", near.P50, near.RTT)
	}
}
