package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// pluginView is a kind of plugin on the admin listener.
type pluginView struct {
	Kind     sdk.Kind `json:"kind"`
	Phase    string   `json:"phase"`
	Swap     string   `json:"swap,omitempty"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Path     string   `json:"path"`
	SHA256   string   `json:"sha256"`
	Previous string   `json:"previous,omitempty"` // where a rollback leads
	Pid      int      `json:"pid"`
	UpS      float64  `json:"upSeconds"`
	Fence    int64    `json:"fence"`
	Seq      int64    `json:"seq"` // of the last event
	Calls    int64    `json:"calls"`
	Silent   int64    `json:"silent"`
	Late     int64    `json:"late"`  // answers that came after their deadline and were dropped
	Fails    int      `json:"fails"` // ends in a row
	Last     string   `json:"last,omitempty"`
}

// swapRequest asks for another program, the default policy without a path;
// swapView says what came of it.
type swapRequest struct {
	Kind   sdk.Kind `json:"kind"`
	Path   string   `json:"path"`
	SHA256 string   `json:"sha256"`
}

type swapView struct {
	Old         string           `json:"old"`
	New         string           `json:"new"`
	FromSeq     int64            `json:"fromSeq"`
	Seen        int64            `json:"shadowed"`
	Apart       int64            `json:"differences"`
	Differences []differenceView `json:"shown,omitempty"`
	TookS       float64          `json:"tookSeconds"`
}

type differenceView struct {
	Seq   int64  `json:"seq"`
	Topic string `json:"topic"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// journalView is one event's line of the journal.
type journalView struct {
	Seq       int64         `json:"seq"`
	AtMS      int64         `json:"atMs"`
	Event     sdk.EventType `json:"event"`
	Mirror    string        `json:"mirror"`
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Plugin    string        `json:"plugin"`
	SHA256    string        `json:"sha256"`
	Fence     int64         `json:"fence"`
	Error     string        `json:"error,omitempty"`
	Note      string        `json:"note,omitempty"`
	Verdicts  []verdictView `json:"verdicts"`
}

type verdictView struct {
	Do       sdk.Action `json:"do"`
	Step     uint8      `json:"step,omitempty"`
	Reason   string     `json:"reason"`
	Accepted bool       `json:"accepted"`
	Why      string     `json:"why,omitempty"`
}

func (b *broker) bindPlugins(mux *http.ServeMux) {
	mux.HandleFunc("GET /plugins", b.listPlugins)
	mux.HandleFunc("GET /plugins/journal", b.pluginJournal)
	mux.HandleFunc("POST /plugins/swap", localJSON(b.swapPlugin))
	mux.HandleFunc("POST /plugins/rollback", localJSON(b.swapPlugin))
}

// localJSON admits only programs of this machine: what it guards starts a
// program. A page in a browser can send neither the content type nor, by a name
// it has rebound, the host.
func localJSON(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		name, _, splitErr := net.SplitHostPort(r.Host)
		_, hostErr := netip.ParseAddr(name)
		switch {
		case err != nil || !from.Addr().Unmap().IsLoopback():
			http.Error(w, "only from this machine", http.StatusForbidden)
		case r.Header.Get("Content-Type") != "application/json" || splitErr != nil || hostErr != nil && name != "localhost":
			http.Error(w, "want application/json, and an address for a host", http.StatusForbidden)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
			f(w, r)
		}
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (b *broker) listPlugins(w http.ResponseWriter, _ *http.Request) {
	out := make([]pluginView, 0, len(kinds))
	for _, kind := range kinds {
		s := b.plugins.of[kind].Status()
		v := pluginView{Kind: kind, Phase: s.Phase.String(), Swap: s.Swap.String(), Name: s.Plugin.Name, Version: s.Plugin.Version,
			Path: s.Spec.Path, SHA256: s.Spec.SHA256, Pid: s.Pid, UpS: s.UpFor.Seconds(), Fence: s.Fence, Seq: s.Seq,
			Calls: s.Calls, Silent: s.Silent, Late: s.Late, Fails: s.Fails, Last: s.Last}
		if s.Previous != nil {
			v.Previous = s.Previous.Path
		}
		out = append(out, v)
	}
	writeJSON(w, out)
}

// swapPlugin answers when the swap, or the rollback, is over.
func (b *broker) swapPlugin(w http.ResponseWriter, r *http.Request) {
	var req swapRequest
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := b.plugins.of[req.Kind]
	if s == nil {
		http.Error(w, "no such kind of plugin", http.StatusBadRequest)
		return
	}
	began := time.Now()
	var rep host.Report
	switch {
	case r.URL.Path == "/plugins/rollback":
		rep = s.Rollback(r.Context())
	case req.Path == "":
		rep = s.Swap(r.Context(), b.plugins.standard(req.Kind))
	default:
		rep = s.Swap(r.Context(), host.Spec{Path: req.Path, SHA256: req.SHA256})
	}
	if rep.Err != nil {
		http.Error(w, rep.Err.Error(), http.StatusConflict)
		return
	}
	v := swapView{Old: rep.Old.Name + " " + rep.Old.Version, New: rep.New.Name + " " + rep.New.Version, FromSeq: rep.FromSeq,
		Seen: rep.Seen, Apart: rep.Apart, TookS: time.Since(began).Seconds()}
	for _, x := range rep.Differences {
		v.Differences = append(v.Differences, differenceView{x.Event.Seq, x.Event.Topic, x.Old, x.New})
	}
	writeJSON(w, v)
}

// pluginJournal lists the events of a kind after ?since=, in the order of their
// numbers' settling.
func (b *broker) pluginJournal(w http.ResponseWriter, r *http.Request) {
	s := b.plugins.of[sdk.Kind(r.URL.Query().Get("kind"))]
	since, err := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	if s == nil || err != nil {
		http.Error(w, "want kind= and since=", http.StatusBadRequest)
		return
	}
	out := []journalView{}
	for _, e := range s.Slot().Journal() {
		if e.Seq <= since {
			continue
		}
		v := journalView{Seq: e.Seq, AtMS: e.Event.NowMS, Event: e.Event.Type, Mirror: e.Event.Mirror, Topic: e.Event.Topic, Partition: e.Event.Partition,
			Plugin: e.Plugin.Name + " " + e.Plugin.Version, SHA256: e.SHA256, Fence: e.Fence, Error: e.Error, Note: e.Note, Verdicts: []verdictView{}}
		for _, x := range e.Verdicts {
			v.Verdicts = append(v.Verdicts, verdictView{x.Wish.Do, x.Wish.Step, x.Wish.Reason, x.Accepted, x.Why})
		}
		out = append(out, v)
	}
	writeJSON(w, out)
}
