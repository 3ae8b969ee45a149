package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"lockstep/dataplane"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
)

// adminServer is the HTTP side of a broker: metrics, health, profiles, and the
// state of the metadata quorum.
type adminServer struct {
	addr string
	srv  *http.Server
}

func (b *broker) serveAdmin(addr string) (*adminServer, error) {
	if addr == "" {
		return &adminServer{addr: "off"}, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("lockstep.admin.listener: %w; choose another port, or leave it empty for none", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", b.writeMetrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", b.readyz)
	mux.HandleFunc("GET /metadata", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = w.Write(meta.AppendDump(nil, b.node.View()))
	})
	b.bindPlugins(mux)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a := &adminServer{addr: ln.Addr().String(), srv: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	b.goDo(func() {
		if err := a.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			b.log.Warn("admin listener ended", "error", err)
		}
	})
	return a, nil
}

func (a *adminServer) close() error {
	if a.srv == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.srv.Shutdown(ctx); err != nil {
		return a.srv.Close()
	}
	return nil
}

// readyz is 200 when this broker takes part and can write.
func (b *broker) readyz(w http.ResponseWriter, _ *http.Request) {
	me := b.node.View().Broker(b.cfg.NodeID)
	switch {
	case me == nil || me.Fenced:
		http.Error(w, "not registered with the quorum", http.StatusServiceUnavailable)
	case me.InShutdown:
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
	default:
		for _, d := range b.dirs {
			if err := d.Failed(); err != nil {
				http.Error(w, "log directory failed: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = io.WriteString(w, "ready\n")
	}
}

// writeMetrics writes everything in Prometheus text form. Values are read at
// the scrape; nothing is kept twice.
func (b *broker) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	m := b.engine.Metrics()
	engine := fmt.Sprintf("{engine=%q}", b.engine.EngineName())
	put := func(name string, v int64) { fmt.Fprintf(w, "%s %d\n", name, v) }
	put("lockstep_info"+engine, 1)
	put("lockstep_io_reactors", int64(b.reactors()))
	put("kafka_server_broker_connections", m.Connections)
	put("kafka_network_requests_total", m.Requests)
	put(`kafka_network_requests_total{request="Produce"}`, m.Produces)
	put(`kafka_network_requests_total{request="Fetch"}`, m.Fetches)
	put(`kafka_network_requests_total{request="cold"}`, m.Cold)
	put("kafka_server_brokertopicmetrics_bytesin_total", m.BytesIn)
	put("kafka_server_brokertopicmetrics_bytesout_total", m.BytesOut)
	put("kafka_server_brokertopicmetrics_messagesin_total", m.RecordsIn)
	put("lockstep_bad_frames_total", m.BadFrames)
	put("lockstep_bad_requests_total", m.BadRequests)
	put("lockstep_accept_errors_total", m.AcceptErrors)
	put("lockstep_slow_writes_total", m.SlowWrites)
	put("lockstep_flushes_total", m.Flushes)
	put("lockstep_flush_ns_total", m.FlushNs)
	put("lockstep_no_room_total", m.GrowErrors)
	put("lockstep_mirror_fetches_total", m.MirrorFetches)
	put("lockstep_mirror_bytes_total", m.MirrorBytes)
	put("lockstep_mirror_errors_total", m.MirrorErrors)
	put("lockstep_mirror_reports_counted_total", m.ReportsCounted)
	put("lockstep_mirror_reports_refused_total", m.ReportsRefused)
	put("lockstep_ungated_acks_total", m.UngatedAcks)
	put(`kafka_server_produce_errors_total{error="NOT_ENOUGH_REMOTE_REPLICAS_AFTER_APPEND"}`, m.RemoteUnderMin)
	put(`kafka_server_produce_errors_total{error="MIRROR_SYNC_REPLICATION_TIMEOUT"}`, m.RemoteTimeouts)
	writeHistogram(w, "kafka_network_produce_latency_ms", m.ProduceLatency)
	writeHistogram(w, "kafka_server_mirror_sync_replication_latency_ms", m.SyncLatency)
	b.writeMirrorMetrics(w)
	metrics.WriteProcessMetrics(w)
}

func (b *broker) writeMirrorMetrics(w io.Writer) {
	v := b.node.View()
	for reason, n := range b.mirrors.Rejected() {
		fmt.Fprintf(w, "kafka_server_sync_registration_rejected_total{reason=%q} %d\n", reason, n)
	}
	failing, states := map[[2]string]int{}, map[mirror.PartitionState]int{}
	for _, s := range b.engine.Statuses() {
		labels := fmt.Sprintf("{topic=%q,partition=\"%d\"}", s.Topic, s.Partition)
		fmt.Fprintf(w, "kafka_log_log_end_offset%s %d\nkafka_log_log_start_offset%s %d\nkafka_log_size%s %d\nkafka_cluster_partition_high_watermark%s %d\n",
			labels, s.End, labels, s.Start, labels, s.Size, labels, s.High)
		if x := s.Mirror; x != nil {
			l := fmt.Sprintf("{mirror=%q,topic=%q,partition=\"%d\"", x.Name, s.Topic, s.Partition)
			fmt.Fprintf(w, "kafka_server_sync_partition_fetch_failures_total%s,reason=\"INVALID\"} %d\nkafka_server_sync_partition_fetch_failures_total%s,reason=\"PROPAGATING\"} %d\n",
				l, x.Invalid, l, x.Propagating)
			fmt.Fprintf(w, "kafka_server_mirror_lag%s} %d\nlockstep_mirror_lost_acked_records%s} %d\n", l, max(0, x.SourceHigh-s.End), l, x.LostAcked)
			if x.FailingSinceMS > 0 {
				failing[[2]string{x.Name, s.Topic}]++
			}
		}
	}
	for t := range v.Topics() {
		for _, r := range t.Registrations {
			gates := 0
			if r.Gates() {
				gates = 1
			}
			fmt.Fprintf(w, "lockstep_sync_registration{mirror=%q,topic=%q} %d\n", r.Mirror, t.Name, gates)
		}
		if t.Mirror == nil {
			continue
		}
		fmt.Fprintf(w, "kafka_server_sync_partitions_failing{mirror=%q,topic=%q} %d\n", t.Mirror.Mirror, t.Name, failing[[2]string{t.Mirror.Mirror, t.Name}])
		fmt.Fprintf(w, "lockstep_mirror_topic_sync{mirror=%q,topic=%q} %d\n", t.Mirror.Mirror, t.Name, t.Mirror.EffectiveType())
		for _, p := range t.Partitions {
			states[p.State]++
		}
	}
	for _, s := range mirror.PartitionStates {
		fmt.Fprintf(w, "kafka_server_mirror_partition_state{state=%q} %d\n", s.String(), states[s])
	}
}

// writeHistogram writes cumulative buckets in milliseconds.
func writeHistogram(w io.Writer, name string, h dataplane.Histogram) {
	total := int64(0)
	for i, n := range h.Counts {
		total += n
		if n > 0 {
			fmt.Fprintf(w, "%s_bucket{le=\"%g\"} %d\n", name, float64(int64(1)<<i)/1000, total)
		}
	}
	fmt.Fprintf(w, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", name, total, name, float64(h.SumNs)/1e6, name, total)
}
