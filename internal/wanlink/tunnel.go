package wanlink

import (
	"context"
	"net"
	"sync"
	"time"
)

// tunnel is one connection through a link.
type tunnel struct {
	link   *Link
	addr   string // of the target
	client *net.TCPConn
	cancel context.CancelFunc // ends the dialling
	quit   chan struct{}      // closed by abort
	done   chan struct{}      // closed when all goroutines have ended

	mu      sync.Mutex
	target  *net.TCPConn // nil until connected
	pipes   [2]*pipe
	aborted bool
}

// run connects to the target and carries both directions until they end.
func (t *tunnel) run(ctx context.Context) {
	defer t.link.wg.Done()
	defer close(t.done)
	defer t.link.forget(t)
	defer t.cancel()
	defer t.abort()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.addr)
	if err != nil {
		t.rest(2 * t.link.half()) // the refusal has to travel too
		return
	}
	if !t.connected(c.(*net.TCPConn)) {
		return
	}
	var wg sync.WaitGroup
	for _, p := range t.pipes {
		wg.Add(2)
		go func() { defer wg.Done(); p.read() }()
		go func() { defer wg.Done(); p.write() }()
	}
	wg.Wait()
	t.finish()
}

// finish closes both ends in order, unless the tunnel was aborted: what was
// written may still be in the buffers of the sockets and must arrive.
func (t *tunnel) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted {
		return
	}
	t.aborted = true
	close(t.quit)
	t.client.Close()
	t.target.Close()
	for _, p := range t.pipes {
		p.alarm.Close()
	}
}

// rest waits for d or the end of the tunnel.
func (t *tunnel) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.quit:
	}
}

// connected takes the connection to the target; false when the tunnel has been
// aborted meanwhile or timers cannot be had.
func (t *tunnel) connected(c *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted {
		reset(c)
		return false
	}
	t.target = c
	for d, ends := range [2][2]*net.TCPConn{{t.client, c}, {c, t.client}} {
		a, err := NewAlarm()
		if err != nil {
			return false
		}
		p := &pipe{tun: t, dir: Direction(d), from: ends[0], to: ends[1], alarm: a}
		p.fill.L, p.drain.L = &p.mu, &p.mu
		t.pipes[d] = p
	}
	return true
}

// abort resets both ends and drops what is under way.
func (t *tunnel) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted {
		return
	}
	t.aborted = true
	close(t.quit)
	t.cancel()
	reset(t.client)
	if t.target != nil {
		reset(t.target)
	}
	for _, p := range t.pipes {
		if p != nil {
			p.abort()
		}
	}
}

// reset closes a connection so that what it has not sent is dropped.
func reset(c *net.TCPConn) {
	c.SetLinger(0) // an error means that it is closed already
	c.Close()
}
