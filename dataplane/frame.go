package dataplane

import (
	"sync/atomic"

	"lockstep/ioring"
)

// frame is a buffer of received bytes with a count of who still reads it: the
// connection that parses it, runs of batches that wait to be written, requests
// that wait for room. The last one to let go sends it home, from any thread.
type frame struct {
	buf  *ioring.Buffer
	refs atomic.Int32
	core *Core
	next *frame
}

// Release lets go of the frame.
func (f *frame) Release() {
	if f.refs.Add(-1) == 0 {
		f.core.home.push(f)
	}
}

func (f *frame) hold() { f.refs.Add(1) }

// homecoming is a stack of frames that nobody reads any more, pushed by any
// thread and emptied by the shard they belong to. A shard that is short of
// buffers says so before it sleeps and is woken by the next push.
type homecoming struct {
	top      atomic.Pointer[frame]
	starving atomic.Bool
	wake     func()
}

func (h *homecoming) push(f *frame) {
	for {
		old := h.top.Load()
		f.next = old
		if h.top.CompareAndSwap(old, f) {
			break
		}
	}
	if h.starving.Load() {
		h.wake()
	}
}

func (c *Core) newFrame(b *ioring.Buffer) *frame {
	f := c.frames
	if f == nil {
		f = &frame{core: c}
	} else {
		c.frames, f.next = f.next, nil
	}
	f.buf = b
	f.refs.Store(1)
	return f
}

// bringHome frees the buffers of frames that came home.
func (c *Core) bringHome() {
	f := c.home.top.Swap(nil)
	for f != nil {
		next := f.next
		c.pool.Free(f.buf)
		f.buf, f.next = nil, c.frames
		c.frames = f
		f = next
	}
}
