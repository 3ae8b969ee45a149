package main

import (
	"regexp"
	"strings"
	"testing"

	"lockstep/dataplane"
)

// TestExposition: samples of a family stand together, under one HELP and one
// TYPE, however they were given.
func TestExposition(t *testing.T) {
	x := &exposition{}
	x.gauge("a", "the first", 1, "topic", `with "quotes"`)
	x.counter("b_total", "the second", 2)
	x.gauge("a", "the first", 3)
	h := dataplane.Histogram{SumNs: 3e6}
	h.Counts[0], h.Counts[10] = 1, 2
	x.histogram("c_ms", "the third", h)
	var b strings.Builder
	if n, err := x.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatal(n, err)
	}
	want := `# HELP a the first
# TYPE a gauge
a{topic="with \"quotes\""} 1
a 3
# HELP b_total the second
# TYPE b_total counter
b_total 2
# HELP c_ms the third
# TYPE c_ms histogram
c_ms_bucket{le="0.001"} 1
c_ms_bucket{le="1.024"} 3
c_ms_bucket{le="+Inf"} 3
c_ms_sum 3
c_ms_count 3
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestMetricsPage: every sample of a broker's page belongs to the family above
// it, and no family comes twice.
func TestMetricsPage(t *testing.T) {
	n := startNode(t)
	n.plugins()
	page := get("http://" + n.admin + "/metrics")
	family, seen := "", map[string]bool{}
	sample := regexp.MustCompile(`^([a-z_]+)(\{[^}]*\})? -?[0-9.e+-]+$`)
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, _, _ = strings.Cut(name, " ")
			if seen[family] {
				t.Errorf("%s comes twice", family)
			}
			seen[family] = true
			continue
		}
		if strings.HasPrefix(line, "# HELP ") || line == "" {
			continue
		}
		if m := sample.FindStringSubmatch(line); m == nil || !strings.HasPrefix(m[1], family) {
			t.Errorf("%q below the type of %s", line, family)
		}
	}
	for _, name := range []string{"lockstep_info", "lockstep_plugin_serving", "kafka_network_produce_latency_ms", "kafka_server_mirror_partition_state"} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
}
