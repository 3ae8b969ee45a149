package wanlink

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// slab is a buffer shared by the chunks read into it.
type slab struct {
	buf  [slabBytes]byte
	used int
	refs atomic.Int32 // one for the reader, one per chunk
}

var slabs = sync.Pool{New: func() any { return new(slab) }}

func (s *slab) release() {
	if s.refs.Add(-1) == 0 {
		s.used = 0
		slabs.Put(s)
	}
}

// chunk is what one read returned, or the end of the stream when err is set.
type chunk struct {
	due  time.Time
	data []byte
	slab *slab
	err  error
}

// pipe is one direction of a tunnel.
type pipe struct {
	tun      *tunnel
	dir      Direction
	from, to *net.TCPConn
	alarm    *Alarm
	last     time.Time // due of the last chunk; the reader's

	mu          sync.Mutex
	fill, drain sync.Cond // there is a chunk; there is room
	queue       []chunk
	bytes       int // of the queue, with chunkCost each
	peak        int
	dead        bool
}

// read stamps what comes in and queues it.
func (p *pipe) read() {
	s := slabs.Get().(*slab)
	s.refs.Store(1)
	for p.room() {
		if slabBytes-s.used < minRead {
			s.release()
			s = slabs.Get().(*slab)
			s.refs.Store(1)
		}
		room := readMost(p.tun.link.bandwidth.Load(), slabBytes-s.used)
		n, err := p.from.Read(s.buf[s.used : s.used+room])
		due := p.tun.link.due(p.dir, n)
		if due.Before(p.last) { // jitter, or a shorter round trip: nothing overtakes
			due = p.last
		}
		p.last = due
		if n > 0 {
			s.refs.Add(1)
			p.put(chunk{due: due, data: s.buf[s.used : s.used+n], slab: s})
			s.used += n
		}
		if err != nil {
			p.put(chunk{due: due, err: err})
			break
		}
	}
	s.release()
}

// room waits until the queue is below its bound; false = the pipe is dead.
func (p *pipe) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.bytes >= p.tun.link.queue && !p.dead {
		p.drain.Wait()
	}
	return !p.dead
}

func (p *pipe) put(c chunk) {
	p.mu.Lock()
	p.queue = append(p.queue, c)
	p.bytes += len(c.data) + chunkCost
	p.peak = max(p.peak, p.bytes)
	p.mu.Unlock()
	p.fill.Signal()
}

// head waits for the first chunk; false = the pipe is dead.
func (p *pipe) head() (chunk, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.dead {
		p.fill.Wait()
	}
	if p.dead {
		return chunk{}, false
	}
	return p.queue[0], true
}

// pop removes the chunk that was written.
func (p *pipe) pop(c chunk) {
	p.mu.Lock()
	p.queue[0] = chunk{}
	p.queue = p.queue[1:]
	p.bytes -= len(c.data) + chunkCost
	p.mu.Unlock()
	p.drain.Signal()
	if c.slab != nil {
		c.slab.release()
	}
}

// write delivers chunks when they are due, until the stream ends.
func (p *pipe) write() {
	for {
		c, ok := p.head()
		if !ok || !p.alarm.Until(c.due) || !p.pass() {
			return
		}
		if c.err != nil {
			p.end(c.err)
			return
		}
		if _, err := p.to.Write(c.data); err != nil {
			p.tun.abort()
			return
		}
		p.pop(c)
	}
}

// end passes the end of the stream on: an orderly one closes half of the other
// connection, anything else resets both.
func (p *pipe) end(err error) {
	if !errors.Is(err, io.EOF) || p.to.CloseWrite() != nil {
		p.tun.abort()
	}
}

// pass waits while the direction is stalled; false = the pipe is dead.
func (p *pipe) pass() bool {
	for {
		g := p.tun.link.gate(p.dir)
		if g == nil {
			return true
		}
		select {
		case <-g:
		case <-p.tun.quit:
			return false
		}
	}
}

// abort drops the queue and lets both goroutines end.
func (p *pipe) abort() {
	p.mu.Lock()
	p.dead, p.queue = true, nil
	p.mu.Unlock()
	p.alarm.Close()
	p.fill.Broadcast()
	p.drain.Broadcast()
}
