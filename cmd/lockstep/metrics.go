package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/VictoriaMetrics/metrics"

	"lockstep/dataplane"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/status"
	"lockstep/plugins/host"
)

// exposition gathers samples by family: the text format wants all of a family
// together, under its type and help.
type exposition struct {
	order    []string
	families map[string]*family
}

type family struct {
	kind, help string
	lines      bytes.Buffer
}

func (x *exposition) of(kind, name, help string) *family {
	f := x.families[name]
	if f == nil {
		if x.families == nil {
			x.families = map[string]*family{}
		}
		f = &family{kind: kind, help: help}
		x.families[name], x.order = f, append(x.order, name)
	}
	return f
}

// labels are pairs of a name and a value.
func labels(pairs ...string) string {
	if len(pairs) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		fmt.Fprintf(&b, "%s%s=%q", sep, pairs[i], pairs[i+1])
	}
	return b.String() + "}"
}

func (x *exposition) counter(name, help string, v int64, l ...string) {
	fmt.Fprintf(&x.of("counter", name, help).lines, "%s%s %d\n", name, labels(l...), v)
}

func (x *exposition) gauge(name, help string, v int64, l ...string) {
	fmt.Fprintf(&x.of("gauge", name, help).lines, "%s%s %d\n", name, labels(l...), v)
}

// histogram writes cumulative buckets in milliseconds.
func (x *exposition) histogram(name, help string, h dataplane.Histogram) {
	f := x.of("histogram", name, help)
	total := int64(0)
	for i, n := range h.Counts {
		total += n
		if n > 0 {
			fmt.Fprintf(&f.lines, "%s_bucket{le=\"%g\"} %d\n", name, float64(int64(1)<<i)/1000, total)
		}
	}
	fmt.Fprintf(&f.lines, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", name, total, name, float64(h.SumNs)/1e6, name, total)
}

// WriteTo writes it all, families in the order of their first sample.
func (x *exposition) WriteTo(w io.Writer) (n int64, err error) {
	for _, name := range x.order {
		f := x.families[name]
		k, err := fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s", name, f.help, name, f.kind, f.lines.Bytes())
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// writeMetrics writes everything in Prometheus text form. Values are read at
// the scrape; nothing is kept twice.
func (b *broker) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	x := &exposition{}
	b.engineMetrics(x)
	b.pluginMetrics(x)
	for _, s := range b.engine.Statuses() {
		partitionMetrics(x, &s)
	}
	b.mirrorMetrics(x)
	_, _ = x.WriteTo(w) // the scraper has gone
	metrics.ExposeMetadata(true)
	metrics.WriteProcessMetrics(w)
}

func (b *broker) engineMetrics(x *exposition) {
	m := b.engine.Metrics()
	x.gauge("lockstep_info", "1, with the engine in use", 1, "engine", b.engine.EngineName())
	x.gauge("lockstep_io_reactors", "Ring threads", int64(b.reactors()))
	x.gauge("kafka_server_broker_connections", "Open connections", m.Connections)
	const requests = "Requests received"
	x.counter("kafka_network_requests_total", requests, m.Requests)
	x.counter("kafka_network_requests_total", requests, m.Produces, "request", "Produce")
	x.counter("kafka_network_requests_total", requests, m.Fetches, "request", "Fetch")
	x.counter("kafka_network_requests_total", requests, m.Cold, "request", "cold")
	x.counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes received", m.BytesIn)
	x.counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes sent", m.BytesOut)
	x.counter("kafka_server_brokertopicmetrics_messagesin_total", "Records appended by producers", m.RecordsIn)
	x.counter("lockstep_bad_frames_total", "Connections closed for an impossible frame", m.BadFrames)
	x.counter("lockstep_bad_requests_total", "Requests that could not be read", m.BadRequests)
	x.counter("lockstep_accept_errors_total", "Failed accepts", m.AcceptErrors)
	x.counter("lockstep_connections_refused_total", "Connections closed because there were max.connections, or as many as descriptors allow", m.Refused)
	x.counter("lockstep_connections_idled_total", "Connections closed because they were silent for connections.max.idle.ms", m.Idled)
	x.counter("lockstep_slow_writes_total", "Appends that took more than 5 ms", m.SlowWrites)
	x.counter("lockstep_flushes_total", "fdatasyncs of segments", m.Flushes)
	x.counter("lockstep_flush_ns_total", "Nanoseconds in them", m.FlushNs)
	x.counter("lockstep_no_room_total", "Steps of segments that failed, the disk being full or broken", m.GrowErrors)
	x.gauge("lockstep_log_files_open", "Log files open and mapped", m.OpenFiles)
	x.counter("lockstep_logs_rested_total", "Times the files of an unused log were closed to make room for others", m.Rested)
	x.counter("lockstep_log_cleanings_total", "Passes of the log cleaner over a log", m.Cleaned)
	x.counter("lockstep_log_cleaned_records_total", "Records it has removed", m.CleanedRecords)
	x.counter("lockstep_log_removal_errors_total", "Passes of retention that could not remove a segment's files; it is tried again before any other of its log goes", m.UnlinkErrors)
	x.counter("lockstep_log_cleaning_errors_total", "Passes that failed", m.CleanErrors)
	x.counter("lockstep_mirror_fetches_total", "Fetch answers of sources", m.MirrorFetches)
	x.counter("lockstep_mirror_bytes_total", "Record bytes mirrored", m.MirrorBytes)
	x.counter("lockstep_mirror_errors_total", "Connections to sources that ended", m.MirrorErrors)
	x.counter("lockstep_mirror_positions_total", "Times a source was told from where to send a partition", m.MirrorNamed)
	x.counter("lockstep_mirror_stalls_total", "Answers of sources that waited for room in a log", m.MirrorStalls)
	x.counter("lockstep_mirror_reports_counted_total", "Reports of mirrors that count", m.ReportsCounted)
	x.counter("lockstep_mirror_reports_refused_total", "Reports of mirrors that do not", m.ReportsRefused)
	x.counter("lockstep_ungated_acks_total", "acks=all answered by an older set of mirrors than a Register that was answered OK; must be 0", m.UngatedAcks)
	const failed = "Produces that failed for want of a mirror"
	x.counter("kafka_server_produce_errors_total", failed, m.RemoteUnderMin, "error", "NOT_ENOUGH_REMOTE_REPLICAS_AFTER_APPEND")
	x.counter("kafka_server_produce_errors_total", failed, m.RemoteTimeouts, "error", "MIRROR_SYNC_REPLICATION_TIMEOUT")
	x.histogram("kafka_network_produce_latency_ms", "From a produce request to its answer, milliseconds", m.ProduceLatency)
	x.histogram("kafka_server_mirror_sync_replication_latency_ms", "From an append to the report that covers it, milliseconds", m.SyncLatency)
}

func (b *broker) pluginMetrics(x *exposition) {
	for _, kind := range kinds {
		s := b.plugins.of[kind].Status()
		k := string(kind)
		serving := int64(0)
		if s.Phase == host.Up {
			serving = 1
		}
		x.gauge("lockstep_plugin_serving", "1 while a plugin of the kind serves", serving, "kind", k)
		x.gauge("lockstep_plugin_fence", "Fencing number of who serves, 0 none", s.Fence, "kind", k)
		x.gauge("lockstep_plugin_failures", "Ends of the plugin in a row", int64(s.Fails), "kind", k)
		x.counter("lockstep_plugin_events_total", "Events the kind was asked about", s.Seq, "kind", k)
		x.counter("lockstep_plugin_late_total", "Answers after their deadline", s.Late, "kind", k)
	}
}

func partitionMetrics(x *exposition, s *status.Partition) {
	l := []string{"topic", s.Topic, "partition", fmt.Sprint(s.Partition)}
	x.gauge("kafka_log_log_end_offset", "Offset after the last record", s.End, l...)
	x.gauge("kafka_log_log_start_offset", "Offset of the first record kept", s.Start, l...)
	x.gauge("kafka_log_size", "Bytes", s.Size, l...)
	x.gauge("kafka_cluster_partition_high_watermark", "Offset below which consumers read", s.High, l...)
	m := s.Mirror
	if m == nil {
		return
	}
	l = append([]string{"mirror", m.Name}, l...)
	const refused = "Reports that the source did not count"
	x.counter("kafka_server_sync_partition_fetch_failures_total", refused, m.Invalid, append(l, "reason", "INVALID")...)
	x.counter("kafka_server_sync_partition_fetch_failures_total", refused, m.Propagating, append(l, "reason", "PROPAGATING")...)
	x.gauge("kafka_server_mirror_lag", "Records behind the source's high watermark", max(0, m.SourceHigh-s.End), l...)
	x.gauge("lockstep_mirror_lost_acked_records", "Records below our high watermark that the source dropped", m.LostAcked, l...)
}

func (b *broker) mirrorMetrics(x *exposition) {
	for reason, n := range b.mirrors.Rejected() {
		x.counter("kafka_server_sync_registration_rejected_total", "Registrations rejected and topics demoted", n, "reason", reason)
	}
	failing, states := map[[16]byte]int64{}, map[mirror.PartitionState]int64{}
	for _, s := range b.engine.Statuses() {
		if s.Mirror != nil && s.Mirror.FailingSinceMS > 0 {
			failing[s.TopicID]++
		}
	}
	for t := range b.node.View().Topics() {
		registrationMetrics(x, t)
		if t.Mirror == nil {
			continue
		}
		x.gauge("kafka_server_sync_partitions_failing", "Partitions whose reports the source does not count now", failing[t.ID], "mirror", t.Mirror.Mirror, "topic", t.Name)
		x.gauge("lockstep_mirror_topic_sync", "1 while the topic is SYNC", int64(t.Mirror.EffectiveType()), "mirror", t.Mirror.Mirror, "topic", t.Name)
		for _, p := range t.Partitions {
			states[p.State]++
		}
	}
	for _, s := range mirror.PartitionStates {
		x.gauge("kafka_server_mirror_partition_state", "Mirrored partitions in each state", states[s], "state", s.String())
	}
}

func registrationMetrics(x *exposition, t *meta.Topic) {
	for _, r := range t.Registrations {
		gates := int64(0)
		if r.Gates() {
			gates = 1
		}
		x.gauge("lockstep_sync_registration", "1 while acks=all waits for the mirror, 0 after a release", gates, "mirror", r.Mirror, "topic", t.Name)
	}
}
