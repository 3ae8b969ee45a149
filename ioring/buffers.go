package ioring

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"lockstep/internal/invariant"
)

// Buffer is a piece of off-heap memory with a place to go home to. Data may be
// resliced by its owner; the memory behind it is what was allocated.
type Buffer struct {
	Data []byte
	mem  []byte
	// provided is the index in the ring's buffer group plus one, 0 for a pooled
	// buffer.
	provided int32
	class    int8
	pool     *Pool
	next     *Buffer
}

// Home is the pool the buffer belongs to: only its thread may free it.
func (b *Buffer) Home() *Pool { return b.pool }

// Memory gives and takes back whole pages for a Pool.
type Memory interface {
	Map(n int) ([]byte, error)
	Unmap(b []byte) error
}

// OffHeap is anonymous memory from mmap.
type OffHeap struct{}

// Map returns n zeroed bytes.
func (OffHeap) Map(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// Unmap gives back what Map returned.
func (OffHeap) Unmap(b []byte) error { return unix.Munmap(b) }

// Pool hands out buffers of power-of-two sizes up to a budget of bytes. It
// belongs to one thread. Small sizes are cut from slabs and never given back to
// the system; large ones are, past a few.
type Pool struct {
	mem      Memory
	free     [maxClass + 1]*Buffer
	count    [maxClass + 1]int
	inUse    int
	budget   int
	provided []Buffer
	back     []int32 // provided buffers that came home since the engine last looked
}

// NewPool makes a pool that has at most budget bytes in use at any time.
func NewPool(mem Memory, budget int) *Pool { return &Pool{mem: mem, budget: budget} }

// InUse is how many pooled bytes are handed out.
func (p *Pool) InUse() int { return p.inUse }

func classOf(n int) int {
	return max(minClass, bits.Len(uint(max(n, 1)-1)))
}

// Alloc returns a buffer with len(Data) == n, or nil when the budget does not
// allow it now: the caller waits until something has come home. A single
// request is always allowed when nothing else is in use.
func (p *Pool) Alloc(n int) *Buffer { return p.AllocInPlaceOf(nil, n) }

// AllocInPlaceOf is Alloc for whoever frees old at once then: alone, it must not
// wait for what it has itself.
func (p *Pool) AllocInPlaceOf(old *Buffer, n int) *Buffer {
	c, alone := classOf(n), p.inUse == 0
	if old != nil && old.provided == 0 {
		alone = p.inUse == 1<<old.class
	}
	if c > maxClass || (!alone && p.inUse+1<<c > p.budget) {
		return nil
	}
	b := p.free[c]
	if b == nil {
		if b = p.grow(c); b == nil {
			return nil
		}
	} else {
		p.free[c], b.next = b.next, nil
		p.count[c]--
	}
	p.inUse += 1 << c
	b.Data = b.mem[:n]
	return b
}

func (p *Pool) grow(c int) *Buffer {
	size := 1 << c
	if size > slabSize {
		m, err := p.mem.Map(size)
		if err != nil {
			return nil
		}
		return &Buffer{mem: m, class: int8(c), pool: p}
	}
	m, err := p.mem.Map(slabSize)
	if err != nil {
		return nil
	}
	touch(m)
	bufs := make([]Buffer, slabSize/size)
	for i := range bufs {
		bufs[i] = Buffer{mem: m[i*size : (i+1)*size : (i+1)*size], class: int8(c), pool: p}
		if i > 0 {
			bufs[i].next, p.free[c] = p.free[c], &bufs[i]
			p.count[c]++
		}
	}
	return &bufs[0]
}

// touch makes memory resident. Left to chance, a page of it would be for hours: it
// would fault on the way of a request then, and growth could not be told from a leak.
func touch(b []byte) {
	for i := 0; i < len(b); i += pageSize {
		b[i] = 0
	}
}

// Free takes a buffer home. Only the pool's own thread may call it.
func (p *Pool) Free(b *Buffer) {
	invariant.Check(b.pool == p, "BufferGoesHome")
	if b.provided > 0 {
		p.back = append(p.back, b.provided-1)
		return
	}
	invariant.Check(b.Data != nil, "BufferFreedOnce")
	b.Data = nil
	c := int(b.class)
	p.inUse -= 1 << c
	if 1<<c > keepLarge && p.count[c] >= keptLarge {
		// The error of an unmap of our own mapping could only mean a wrong
		// address; the memory is not used again either way.
		_ = p.mem.Unmap(b.mem)
		b.mem = nil
		return
	}
	b.next, p.free[c] = p.free[c], b
	p.count[c]++
}

// provide cuts the group of provided buffers out of one mapping.
func (p *Pool) provide() ([]byte, error) {
	m, err := p.mem.Map(providedCount * ProvidedSize)
	if err != nil {
		return nil, err
	}
	p.provided = make([]Buffer, providedCount)
	p.back = make([]int32, 0, providedCount)
	for i := range p.provided {
		mem := m[i*ProvidedSize : (i+1)*ProvidedSize : (i+1)*ProvidedSize]
		p.provided[i] = Buffer{mem: mem, provided: int32(i) + 1, pool: p}
	}
	return m, nil
}

// take hands out provided buffer i with n bytes of data.
func (p *Pool) take(i int32, n int) *Buffer {
	b := &p.provided[i]
	b.Data = b.mem[:n]
	return b
}
