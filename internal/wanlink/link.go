package wanlink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	Jitter     time.Duration // each chunk takes up to so much longer, evenly spread; none overtakes another of its connection
	Bandwidth  int64         // bytes per second of each direction, shared by all connections; 0 = no limit
	Seed       uint64        // of the jitter
	QueueBytes int           // bound of one direction of one connection; 0 = DefaultQueueBytes
}

// Link is a line to one target or several, each behind a listening end of its
// own.
type Link struct {
	queue int
	addr  string
	rtt   atomic.Int64
	lines [2]line

	jitter, bandwidth atomic.Int64
	wg                sync.WaitGroup

	mu     sync.Mutex
	lns    []*net.TCPListener
	cut    bool
	closed bool
	gates  [2]chan struct{} // nil = open, else closed by Resume
	tuns   map[*tunnel]struct{}
}

// Listen opens a link on addr, host:port with port 0 for any, to target.
func Listen(addr, target string, o Options) (*Link, error) {
	l := &Link{queue: o.QueueBytes, tuns: map[*tunnel]struct{}{}}
	if l.queue <= 0 {
		l.queue = DefaultQueueBytes
	}
	l.SetRTT(o.RTT)
	l.SetJitter(o.Jitter)
	l.SetBandwidth(o.Bandwidth)
	for d := range l.lines {
		l.lines[d].rnd = rand.New(rand.NewPCG(o.Seed, uint64(d)))
	}
	var err error
	l.addr, err = l.Forward(addr, target)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Forward opens one more listening end on addr to another target behind the
// same line, and returns its host:port.
func (l *Link) Forward(addr, target string) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("wanlink: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		ln.Close()
		return "", fmt.Errorf("wanlink: %w", net.ErrClosed)
	}
	l.lns = append(l.lns, ln.(*net.TCPListener))
	l.wg.Add(1)
	go l.accept(ln.(*net.TCPListener), target)
	return ln.Addr().String(), nil
}

// Addr is host:port of the listening end that Listen opened.
func (l *Link) Addr() string { return l.addr }

// SetRTT changes the round trip for what is read from now on. What is under way
// keeps its time, and nothing overtakes.
func (l *Link) SetRTT(d time.Duration) { l.rtt.Store(int64(max(0, d))) }

// SetJitter changes the jitter, as SetRTT does the round trip.
func (l *Link) SetJitter(d time.Duration) { l.jitter.Store(int64(max(0, d))) }

// SetBandwidth changes the bandwidth of each direction, bytes per second.
func (l *Link) SetBandwidth(n int64) { l.bandwidth.Store(max(0, n)) }

// due is when n bytes that have come in now are to be delivered.
func (l *Link) due(d Direction, n int) time.Time {
	return l.lines[d].due(time.Now(), n, l.half(), time.Duration(l.jitter.Load()), l.bandwidth.Load())
}

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

// Reset resets all connections there are, and drops what was under way on them;
// new ones are taken.
func (l *Link) Reset() {
	l.Cut()
	l.Restore()
}

// Outage holds everything back in both directions for d; then it is delivered.
// Connections stay open. It returns at once.
func (l *Link) Outage(d time.Duration) {
	l.Stall(ToTarget)
	l.Stall(ToClient)
	time.AfterFunc(d, func() {
		l.Resume(ToTarget)
		l.Resume(ToClient)
	})
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

// Close cuts the line, closes the listening ends and waits for all goroutines.
func (l *Link) Close() error {
	l.stop(func() { l.cut, l.closed = true, true })
	var errs []error
	for _, ln := range l.lns { // closed: there will be no more
		errs = append(errs, ln.Close())
	}
	l.wg.Wait()
	return errors.Join(errs...)
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
func (l *Link) accept(ln *net.TCPListener, target string) {
	defer l.wg.Done()
	for {
		c, err := ln.AcceptTCP()
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
		l.admit(c, target)
	}
}

// admit starts a tunnel for c, or resets it while the line is cut.
func (l *Link) admit(c *net.TCPConn, target string) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	t := &tunnel{link: l, addr: target, client: c, cancel: cancel, quit: make(chan struct{}), done: make(chan struct{})}
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
