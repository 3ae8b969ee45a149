package wanlink

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Direction is one of the two ways through a link.
type Direction int

// The directions.
const (
	ToTarget Direction = iota // from those who connect to the link
	ToClient                  // back to them
)

// Options of a link.
type Options struct {
	RTT        time.Duration // round trip; half of it in each direction
	QueueBytes int           // bound of one direction of one connection; 0 = DefaultQueueBytes
}

// Link is a listening end of a line to one target.
type Link struct {
	target string
	queue  int
	ln     *net.TCPListener
	rtt    atomic.Int64
	wg     sync.WaitGroup

	mu     sync.Mutex
	cut    bool
	closed bool
	gates  [2]chan struct{} // nil = open, else closed by Resume
	tuns   map[*tunnel]struct{}
}

// Listen opens a link on addr, host:port with port 0 for any, to target.
func Listen(addr, target string, o Options) (*Link, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("wanlink: %w", err)
	}
	l := &Link{target: target, queue: o.QueueBytes, ln: ln.(*net.TCPListener), tuns: map[*tunnel]struct{}{}}
	if l.queue <= 0 {
		l.queue = DefaultQueueBytes
	}
	l.SetRTT(o.RTT)
	l.wg.Add(1)
	go l.accept()
	return l, nil
}

// Addr is host:port of the listening end.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// SetRTT changes the round trip for what is read from now on. What is under way
// keeps its time, and nothing overtakes.
func (l *Link) SetRTT(d time.Duration) { l.rtt.Store(int64(max(0, d))) }

// half is the delay of one direction.
func (l *Link) half() time.Duration { return time.Duration(l.rtt.Load() / 2) }

// Cut breaks the line: everything under way in both directions is dropped, all
// connections are reset, new ones are reset as they come. When Cut returns,
// nothing will be delivered any more.
func (l *Link) Cut() { l.stop(func() { l.cut = true }) }

// Restore ends a Cut for new connections.
func (l *Link) Restore() {
	l.mu.Lock()
	l.cut = false
	l.mu.Unlock()
}

// Stall holds everything back in one direction; connections stay open and bytes
// wait in the queue until it is full.
func (l *Link) Stall(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[d] == nil {
		l.gates[d] = make(chan struct{})
	}
}

// Resume ends a Stall.
func (l *Link) Resume(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gates[d]; g != nil {
		close(g)
		l.gates[d] = nil
	}
}

// gate is what to wait for before a write in direction d, nil = nothing.
func (l *Link) gate(d Direction) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gates[d]
}

// Close cuts the line, closes the listening end and waits for all goroutines.
func (l *Link) Close() error {
	l.stop(func() { l.cut, l.closed = true, true })
	err := l.ln.Close()
	l.wg.Wait()
	return err
}

// stop sets a state that admits no connection and ends those there are.
func (l *Link) stop(set func()) {
	l.mu.Lock()
	set()
	tuns := make([]*tunnel, 0, len(l.tuns))
	for t := range l.tuns {
		tuns = append(tuns, t)
	}
	l.mu.Unlock()
	for _, t := range tuns {
		t.abort()
	}
	for _, t := range tuns {
		<-t.done
	}
}

// accept takes connections until the listening end is closed.
func (l *Link) accept() {
	defer l.wg.Done()
	for {
		c, err := l.ln.AcceptTCP()
		if err != nil {
			l.mu.Lock()
			closed := l.closed
			l.mu.Unlock()
			if closed {
				return
			}
			time.Sleep(time.Millisecond) // out of descriptors: others may close some
			continue
		}
		l.admit(c)
	}
}

// admit starts a tunnel for c, or resets it while the line is cut.
func (l *Link) admit(c *net.TCPConn) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	t := &tunnel{link: l, client: c, cancel: cancel, quit: make(chan struct{}), done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		cancel()
		reset(c)
		return
	}
	l.tuns[t] = struct{}{}
	l.wg.Add(1)
	go t.run(ctx)
}

// forget removes a tunnel that has ended.
func (l *Link) forget(t *tunnel) {
	l.mu.Lock()
	delete(l.tuns, t)
	l.mu.Unlock()
}
