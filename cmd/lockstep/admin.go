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

	"lockstep/internal/meta"
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
