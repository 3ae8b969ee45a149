package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lockstep/internal/cli"
	"lockstep/perf/load"
)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"ack", "--rtt", "2s"}, {"ack", "--flush-ack", "never"}, {"ack", "--record-size", "1MiB"}, {"ack", "--record-size", "0"},
		{"ack", "--rate", "much"}, {"ack", "--connections", "0"}, {"ack", "extra"}, {"nonsense"},
		{"ack", "--fetches", "0"}, {"ack", "--max", "--one-in-flight"}, {"ack", "--max", "--in-flight", "0"}, {"ack-table", "--runs", "0"}, {"ack-table", "--fetches", "64"}, {"ack-table", "--modes", "most"}, {"produce", "--acks", "0"},
		{"produce", "--client", "java"}, {"produce", "--batch", "2MiB"}, {"produce", "--mallocs"}, {"produce", "--rate", "0"}, {"mixed", "--readers", "0"}, {"consume", "--fill", "no"},
		{"consume", "--mallocs", "--again", "1s"}, {"peers", "--only", "P3"}, {"peers", "--pairs", "0"}, {"peers", "--catch-up", "1"}, {"bare"},
		{"soak", "--duration", "0"}, {"soak", "--every", "1h"}, {"soak", "--rtt", "0"}} {
		if code := run(args); code != cli.ExitUsage {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}

func TestMachineFacts(t *testing.T) {
	m := machineFacts(t.TempDir())
	if m.CPU == "unknown" || m.Cores != runtime.NumCPU() || m.Kernel == "" || m.MemMB < 100 || m.FS == "unknown" {
		t.Errorf("%+v", m)
	}
}

// TestVoid: a run whose round trip is off is shown and does not count.
func TestVoid(t *testing.T) {
	for _, c := range []struct {
		asked, got time.Duration
		void       int
	}{{40 * time.Millisecond, 40_900 * time.Microsecond, 0}, {40 * time.Millisecond, 41_100 * time.Microsecond, 1},
		{40 * time.Millisecond, 38_900 * time.Microsecond, 1}, {0, 50 * time.Microsecond, 0}} {
		res := &load.Result{Latency: histogram(t, 100), Records: 1, Elapsed: time.Second}
		r := &ackResult{RTTAskedMs: ms(c.asked)}
		r.fill(res, load.Options{RecordSize: 1000}, c.got)
		if len(r.Void) != c.void || math.Abs(r.AckP50-0.1) > 0.001 || r.MBPerS != 0.001 {
			t.Errorf("asked %v, got %v: %+v", c.asked, c.got, r)
		}
	}
}

// TestAck runs the whole thing, short.
func TestAck(t *testing.T) {
	binary := program(t)
	for _, single := range []bool{true, false} {
		for try := 1; ; try++ {
			r := runOnce(t, binary, single)
			if len(r.Void) > 0 && try < 5 { // what the program says of a busy machine
				t.Logf("void, tried again: %v", r.Void)
				continue
			}
			if r.Records == 0 || r.Errors != 0 || r.AckP50 < 20 || r.AckP999 < r.AckP50 || r.RTTMs < 20 || r.Engine == "unknown" || r.CPU.Source <= 0 {
				t.Errorf("%+v", r)
			}
			t.Logf("one in flight %v: rtt %.2f ms, ack p50 %.2f ms, p99 %.2f ms", single, r.RTTMs, r.AckP50, r.AckP99)
			break
		}
	}
}

func runOnce(t *testing.T, binary string, single bool) (r ackResult) {
	t.Helper()
	var out, errs bytes.Buffer
	o := ackOptions{rtt: 20 * time.Millisecond, single: single, rate: "500KB", recordSize: "1KiB", warmUp: 200 * time.Millisecond, duration: time.Second, batch: "64KiB", fetches: 63,
		linger: time.Millisecond, flushAck: "appended", json: true, engine: "auto", conns: 2, partitions: 2, binary: binary, dir: quickDir(t), seed: 1}
	err := runAck(context.Background(), o, &cli.Printer{Out: &out, Err: &errs, JSON: true})
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		t.Fatalf("%v, %v: %s%s", err, jsonErr, &out, &errs)
	}
	if err != nil && len(r.Void) == 0 { // a busy machine may void a run
		t.Error(err)
	}
	return r
}

func histogram(t *testing.T, micros int64) *hdrhistogram.Histogram {
	t.Helper()
	h := hdrhistogram.New(1, 1000, 3)
	if err := h.RecordValue(micros); err != nil {
		t.Fatal(err)
	}
	return h
}
