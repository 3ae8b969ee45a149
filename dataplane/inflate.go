package dataplane

import "sync"

// inflation is the memory one request inflates records into. A few KiB may
// become inflateMax, so what is large gets mapped memory that is given back at
// once, and there is one such at a time behind a gate: not one for every shard
// and worker, and nothing that waits for a collection.
type inflation struct {
	e     *Engine
	gate  *sync.Mutex
	small []byte // nil = new memory
	large []byte // the gate is ours
}

// inflate expands src to at most limit bytes, which are good until done.
func (x *inflation) inflate(codec int8, src []byte, limit int) ([]byte, error) {
	if x.large == nil {
		plain, err := x.e.o.Inflate(x.small, codec, src, min(limit, inflateSmall))
		if err == nil || limit <= inflateSmall {
			return plain, err
		}
		x.gate.Lock()
		if x.large, err = x.e.o.Memory.Map(limit + inflateSlack); err != nil {
			x.large = nil
			x.gate.Unlock()
			return nil, err
		}
	}
	return x.e.o.Inflate(x.large, codec, src, limit)
}

// done gives the memory back.
func (x *inflation) done() {
	if x.large == nil {
		return
	}
	if err := x.e.o.Memory.Unmap(x.large); err != nil {
		x.e.o.Log.Warn("memory of inflated records could not be given back", "error", err)
	}
	x.large = nil
	x.gate.Unlock()
}

// inflateRoom is the shard's own room, made when the first batch needs it.
func (c *Core) inflateRoom() []byte {
	if c.inflated == nil {
		c.inflated = make([]byte, inflateSmall+inflateSlack)
	}
	return c.inflated
}
