package dataplane

import (
	"math/bits"
	"sync/atomic"
)

// metrics are one shard's counters: written by its thread, read by anyone.
type metrics struct {
	requests, produces, fetchRequests, cold    atomic.Int64
	bytesIn, bytesOut, recordsIn               atomic.Int64
	badFrames, badRequests, acceptErrors       atomic.Int64
	refused, idled                             atomic.Int64
	remoteUnderMin, remoteTimeouts             atomic.Int64
	reportsCounted, reportsRefused, reportsBad atomic.Int64
	mirrorBytes, mirrorFetches, mirrorErrors   atomic.Int64
	mirrorNamed, mirrorStalls                  atomic.Int64
	produceLatency, syncLatency                histogram
}

// shared are counters of work that any thread does.
type shared struct {
	slowWrites, growErrors, flushes, flushNs atomic.Int64
	cleaned, cleanedRecords, cleanErrors     atomic.Int64
	unlinkErrors                             atomic.Int64 // passes of retention that left a file
	rested                                   atomic.Int64 // logs whose files were closed for want of descriptors
	ungated                                  atomic.Int64 // acks after OK that were not gated: must stay 0 (R10)
}

// histogram counts durations by the power of two of their microseconds.
type histogram struct {
	buckets [40]atomic.Int64
	sum     atomic.Int64 // ns
}

func (h *histogram) observe(ns int64) {
	us := uint64(max(ns, 0)) / 1000
	h.buckets[min(bits.Len64(us), len(h.buckets)-1)].Add(1)
	h.sum.Add(ns)
}

// Histogram is a snapshot: Counts[i] durations below 2^i microseconds.
type Histogram struct {
	Counts [40]int64
	SumNs  int64
}

func (h *histogram) addTo(out *Histogram) {
	for i := range h.buckets {
		out.Counts[i] += h.buckets[i].Load()
	}
	out.SumNs += h.sum.Load()
}

// Metrics is a snapshot of all shards.
type Metrics struct {
	Connections                              int64
	Requests, Produces, Fetches, Cold        int64
	BytesIn, BytesOut, RecordsIn             int64
	BadFrames, BadRequests, AcceptErrors     int64
	Refused, Idled                           int64
	RemoteUnderMin, RemoteTimeouts           int64
	ReportsCounted, ReportsRefused           int64
	MirrorBytes, MirrorFetches, MirrorErrors int64
	MirrorNamed, MirrorStalls                int64
	SlowWrites, GrowErrors, Flushes, FlushNs int64
	OpenFiles, Rested, UnlinkErrors          int64
	Cleaned, CleanedRecords, CleanErrors     int64
	UngatedAcks                              int64
	ProduceLatency, SyncLatency              Histogram
}

// Metrics sums the shards' counters.
func (e *Engine) Metrics() Metrics {
	out := Metrics{Rested: e.m.rested.Load(), UnlinkErrors: e.m.unlinkErrors.Load(), Cleaned: e.m.cleaned.Load(), CleanedRecords: e.m.cleanedRecords.Load(), CleanErrors: e.m.cleanErrors.Load(),
		SlowWrites: e.m.slowWrites.Load(), GrowErrors: e.m.growErrors.Load(), Flushes: e.m.flushes.Load(),
		FlushNs: e.m.flushNs.Load(), UngatedAcks: e.m.ungated.Load()}
	for _, d := range e.o.Dirs {
		out.OpenFiles += d.OpenFiles()
	}
	for _, c := range e.cores {
		m := &c.m
		out.Connections += int64(c.load.Load())
		out.Requests += m.requests.Load()
		out.Produces += m.produces.Load()
		out.Fetches += m.fetchRequests.Load()
		out.Cold += m.cold.Load()
		out.BytesIn += m.bytesIn.Load()
		out.BytesOut += m.bytesOut.Load()
		out.RecordsIn += m.recordsIn.Load()
		out.BadFrames += m.badFrames.Load()
		out.BadRequests += m.badRequests.Load()
		out.AcceptErrors += m.acceptErrors.Load()
		out.Refused += m.refused.Load()
		out.Idled += m.idled.Load()
		out.RemoteUnderMin += m.remoteUnderMin.Load()
		out.RemoteTimeouts += m.remoteTimeouts.Load()
		out.ReportsCounted += m.reportsCounted.Load()
		out.ReportsRefused += m.reportsRefused.Load()
		out.MirrorBytes += m.mirrorBytes.Load()
		out.MirrorFetches += m.mirrorFetches.Load()
		out.MirrorErrors += m.mirrorErrors.Load()
		out.MirrorNamed += m.mirrorNamed.Load()
		out.MirrorStalls += m.mirrorStalls.Load()
		m.produceLatency.addTo(&out.ProduceLatency)
		m.syncLatency.addTo(&out.SyncLatency)
	}
	return out
}
