package load

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// ServeBare answers each connection with as many bytes as it asks for, in
// frames as large as it asks for, out of memory: what TCP does here with no
// broker in the way. It ends with ctx.
func ServeBare(ctx context.Context, ln net.Listener) error {
	return serveEach(ctx, ln, sendBare)
}

// serveEach gives each connection a goroutine. How it ended is not said: the
// other side counts what comes.
func serveEach(ctx context.Context, ln net.Listener, serve func(net.Conn) error) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		wg.Go(func() {
			defer c.Close()
			_ = serve(c)
		})
	}
}

func sendBare(c net.Conn) error {
	var ask [12]byte
	if _, err := io.ReadFull(c, ask[:]); err != nil {
		return err
	}
	left, size := binary.BigEndian.Uint64(ask[:]), binary.BigEndian.Uint32(ask[8:])
	if size == 0 || size > maxFrame {
		return errors.New("a frame of an impossible size")
	}
	frame := make([]byte, 4+size)
	for left > 0 {
		n := min(left, uint64(size))
		binary.BigEndian.PutUint32(frame, uint32(n))
		if _, err := c.Write(frame[:4+n]); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// Bare reads bytes from ServeBare over so many connections, in frames of a size,
// by the same code that reads the answers of a broker.
func Bare(addr string, bytes int64, frame, connections int) (time.Duration, error) {
	conns := make([]*Conn, connections)
	for i := range conns {
		c, err := Dial(addr)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		conns[i] = c
	}
	start := time.Now()
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() { errs[i] = c.bare(bytes/int64(connections), frame) })
	}
	wg.Wait()
	return time.Since(start), errors.Join(errs...)
}

func (c *Conn) bare(left int64, frame int) error {
	var ask [12]byte
	binary.BigEndian.PutUint64(ask[:], uint64(left))
	binary.BigEndian.PutUint32(ask[8:], uint32(frame))
	if _, err := c.c.Write(ask[:]); err != nil {
		return err
	}
	for left > 0 {
		if err := c.frame(); err != nil {
			return err
		}
		left -= int64(len(c.in))
	}
	return nil
}
