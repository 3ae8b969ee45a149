package kafkareq

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a port: ApiVersions by the book, anything else by f; nil
// closes the connection.
func serve(t *testing.T, f func(h wire.Header, body []byte) []byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { defer func() { _ = c.Close() }(); answer(c, f) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); conns.Wait() })
	return ln.Addr().String()
}

func answer(c net.Conn, f func(h wire.Header, body []byte) []byte) {
	for {
		size := make([]byte, 4)
		if _, err := io.ReadFull(c, size); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		h, body, err := wire.ParseHeader(frame)
		if err != nil {
			return
		}
		out := wire.BeginResponse(nil, h.Key, h.Version, h.Correlation)
		if h.Key == wire.KeyApiVersions {
			at := len(out)
			v := min(h.Version, 3)
			out = wire.AppendApiVersions(out, v, &wire.ApiVersionsAnswer{Unstable: true})
			if h.Version > 3 {
				out = wire.AppendApiVersions(out[:at], 0, &wire.ApiVersionsAnswer{Unstable: true})
				binary.BigEndian.PutUint16(out[at:], uint16(wire.ErrUnsupportedVersion))
			}
		} else if rest := f(h, body); rest != nil {
			out = append(out, rest...)
		} else {
			return
		}
		wire.EndResponse(out, 0, 0)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func client(t *testing.T, addr string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(Options(), kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.RetryTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// Requests that no client library knows go there and back whole.
func TestDo(t *testing.T) {
	sent := &msg.RegisterMirrorSyncTopicRequest{MirrorName: "dr", DestinationClusterId: "c",
		Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{{TopicName: "t", TopicId: [16]byte{4}, RecoveryPromotion: true, ReleaseNumber: 44}}}
	addr := serve(t, func(h wire.Header, body []byte) []byte {
		req := new(msg.RegisterMirrorSyncTopicRequest)
		req.Version = h.Version
		if err := req.ReadFrom(body); err != nil || h.Key != 107 || len(req.Topics) != 1 || req.Topics[0].ReleaseNumber != 44 || req.DestinationClusterId != "c" {
			t.Errorf("key %d: %+v %v", h.Key, req, err)
		}
		resp := &msg.RegisterMirrorSyncTopicResponse{Version: h.Version, Topics: []msg.RegisterMirrorSyncTopicResponseTopicResult{
			{TopicName: "t", RegistrationEpoch: 9, ReleaseNumber: -1}}}
		return resp.AppendTo([]byte{})
	})
	cl := client(t, addr)
	for range 3 {
		var resp msg.RegisterMirrorSyncTopicResponse
		if err := Do(t.Context(), cl, sent, &resp); err != nil || len(resp.Topics) != 1 || resp.Topics[0].RegistrationEpoch != 9 || resp.Topics[0].TopicName != "t" {
			t.Fatalf("%+v %v", resp, err)
		}
	}
}

func TestDoErrors(t *testing.T) {
	garbage := serve(t, func(wire.Header, []byte) []byte { return []byte{1, 2} })
	closes := serve(t, func(wire.Header, []byte) []byte { return nil })
	for name, addr := range map[string]string{"garbage": garbage, "closes": closes} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		err := Do(ctx, client(t, addr), &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "dr"}, new(msg.UnregisterMirrorSyncTopicResponse))
		cancel()
		if err == nil || !strings.Contains(err.Error(), "request 108") {
			t.Errorf("%s: %v", name, err)
		}
	}
	gate := make(chan struct{})
	silent := serve(t, func(wire.Header, []byte) []byte { <-gate; return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := Do(ctx, client(t, silent), &msg.UnregisterMirrorSyncTopicRequest{}, new(msg.UnregisterMirrorSyncTopicResponse))
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
		t.Errorf("silence: %v after %v", err, time.Since(start))
	}
	close(gate)
}
