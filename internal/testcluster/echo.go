package testcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// Echo sends bytes through the link and back: the yardstick of everything
// that crosses it.
type Echo struct {
	ln    net.Listener
	conn  net.Conn
	times []time.Duration
}

// NewEcho opens a connection through the cluster's link to an echo server
// behind it; without a link, straight to the server.
func (c *Cluster) NewEcho() (*Echo, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // ends with the connection
			}()
		}
	}()
	addr := ln.Addr().String()
	if c.Link != nil {
		if addr, err = c.Link.Forward("127.0.0.1:0", addr); err != nil {
			ln.Close()
			return nil, err
		}
	}
	conn, err := net.DialTimeout("tcp", addr, echoTimeout)
	if err != nil {
		ln.Close()
		return nil, err
	}
	return &Echo{ln: ln, conn: conn}, nil
}

// Once measures one round trip of one byte.
func (e *Echo) Once() (time.Duration, error) {
	var b [1]byte
	begin := time.Now()
	if err := e.conn.SetDeadline(begin.Add(echoTimeout)); err != nil {
		return 0, err
	}
	if _, err := e.conn.Write(b[:]); err != nil {
		return 0, fmt.Errorf("echo: %w", err)
	}
	if _, err := io.ReadFull(e.conn, b[:]); err != nil {
		return 0, fmt.Errorf("echo: %w", err)
	}
	d := time.Since(begin)
	e.times = append(e.times, d)
	return d, nil
}

// Run measures until ctx ends or a failure, with a pause between two.
func (e *Echo) Run(ctx context.Context, pause time.Duration) error {
	for ctx.Err() == nil {
		if _, err := e.Once(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// P50 is the median of what was measured, 0 if nothing was.
func (e *Echo) P50() time.Duration {
	if len(e.times) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(e.times))
	return s[len(s)/2]
}

// Close ends the connection and its server.
func (e *Echo) Close() {
	e.conn.Close()
	e.ln.Close()
}
