package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"lockstep/internal/wire"
)

// seed returns the seed of a random test and prints it; LOCKSTEP_SEED sets it.
func seed(t testing.TB) *rand.Rand {
	s := rand.Uint64()
	if v := os.Getenv("LOCKSTEP_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s = n
	}
	t.Logf("LOCKSTEP_SEED=%d", s)
	return rand.New(rand.NewPCG(s, 1))
}

// spec describes a batch of a test.
type spec struct {
	base, ts int64
	count    int
	pad      int // bytes in each value
	epoch    int32
	pid      int64
	pepoch   int16
	seq      int32
	attrs    int16
	tsDelta  []int64 // per record; nil = 0
	key      []byte  // of the first record
}

// build makes a whole batch as Kafka lays it out.
func build(s spec) wire.Batch {
	be := binary.BigEndian
	b := make([]byte, batchHeader)
	maxTs := s.ts
	for i := range s.count {
		d := int64(0)
		if s.tsDelta != nil {
			d = s.tsDelta[i]
		}
		maxTs = max(maxTs, s.ts+d)
		r := []byte{0}
		r = binary.AppendVarint(r, d)
		r = binary.AppendVarint(r, int64(i))
		if i == 0 && s.key != nil {
			r = binary.AppendVarint(r, int64(len(s.key)))
			r = append(r, s.key...)
		} else {
			r = binary.AppendVarint(r, -1)
		}
		r = binary.AppendVarint(r, int64(s.pad))
		for k := range s.pad {
			r = append(r, byte(s.base+int64(k)))
		}
		r = binary.AppendVarint(r, 0)
		b = binary.AppendVarint(b, int64(len(r)))
		b = append(b, r...)
	}
	be.PutUint64(b, uint64(s.base))
	be.PutUint32(b[8:], uint32(len(b)-batchOverhead))
	be.PutUint32(b[12:], uint32(s.epoch))
	b[16] = 2
	be.PutUint16(b[21:], uint16(s.attrs))
	be.PutUint32(b[23:], uint32(s.count-1))
	be.PutUint64(b[27:], uint64(s.ts))
	be.PutUint64(b[35:], uint64(maxTs))
	be.PutUint64(b[43:], uint64(s.pid))
	be.PutUint16(b[51:], uint16(s.pepoch))
	be.PutUint32(b[53:], uint32(s.seq))
	be.PutUint32(b[57:], uint32(s.count))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return wire.Batch(b)
}

// plain is a batch without a producer.
func plain(base int64, count, pad int) spec {
	return spec{base: base, count: count, pad: pad, ts: 1000 + base, pid: -1, pepoch: -1, seq: -1}
}

type counter struct{ n int }

func (c *counter) Release() { c.n++ }

type nothing struct{}

func (nothing) Release() {}

var smallConfig = Config{SegmentBytes: 4096, IndexIntervalBytes: 256, RetentionMs: -1, RetentionBytes: -1, MaxMessageBytes: 2048}

var testID = LogID{Topic: "orders-eu", Partition: 3, TopicID: [16]byte{1, 2, 3}}

func openDir(t testing.TB, fs FS, path string) *Dir {
	t.Helper()
	d, err := OpenDir(fs, path, DirOptions{ClusterID: "c1", NodeID: 7})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func openLog(t testing.TB, d *Dir, cfg Config) *Log {
	t.Helper()
	l, _, err := d.OpenLog(testID, cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// memLog returns a log on a memory disk.
func memLog(t testing.TB, cfg Config) (*MemFS, *Dir, *Log) {
	m := NewMemFS()
	d := openDir(t, m, "/data")
	return m, d, openLog(t, d, cfg)
}

// grow grows a log until n bytes have room.
func grow(l *Log, n int, now int64) error {
	for l.Room(n, now) == RoomGrow {
		g, ok := l.GrowPlan(now)
		if !ok {
			return ErrBusy
		}
		g.Do()
		if err := l.Grown(g); err != nil {
			return err
		}
	}
	return l.err()
}

// drain writes everything queued.
func drain(l *Log, w *Write) error {
	for l.Take(w) {
		for {
			n, err := w.File.Pwritev(w.Bufs, w.Off)
			if l.Wrote(w, n, err) {
				break
			}
		}
	}
	return l.err()
}

// put appends batches one by one and writes them.
func put(t testing.TB, l *Log, specs ...spec) []wire.Batch {
	t.Helper()
	var w Write
	var out []wire.Batch
	for _, s := range specs {
		b := build(s)
		if err := grow(l, len(b), s.ts); err != nil {
			t.Fatal(err)
		}
		l.Queue(b, nothing{})
		if err := drain(l, &w); err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// fill appends n random batches and returns them all.
func fill(t testing.TB, l *Log, r *rand.Rand, n int) []wire.Batch {
	t.Helper()
	var out []wire.Batch
	for range n {
		if r.IntN(8) == 0 {
			rest(t, l)
		}
		s := plain(l.NextOffset(), 1+r.IntN(5), r.IntN(200))
		s.ts = 1000 + r.Int64N(500)
		s.epoch = max(l.LatestEpoch(), 0) + int32(r.IntN(10)/9)
		if pid := r.Int64N(6); pid < 4 {
			s = produced(s, l, pid, r)
		}
		out = append(out, put(t, l, s)...)
	}
	return out
}

// rest closes all files of a log.
func rest(t testing.TB, l *Log) {
	t.Helper()
	if f, ok := l.FlushPlan(); ok {
		f.Do()
		if err := l.Flushed(f); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if r, ok := l.restPlan(); ok {
			r.Do()
		}
	}
}

// produced makes s a batch, or an end marker, of a producer.
func produced(s spec, l *Log, pid int64, r *rand.Rand) spec {
	s.pid, s.pepoch, s.seq = pid, 0, 0
	e := l.producers.byID[pid]
	if e != nil {
		s.pepoch = e.epoch
		if e.n > 0 {
			s.seq = addSequence(e.batches[e.n-1].last, 1)
		}
	}
	switch {
	case pid != 3:
	case e != nil && e.txnFirst >= 0 && r.IntN(2) == 0:
		s.attrs, s.count, s.seq, s.key = 16|32, 1, -1, []byte{0, 0, 0, byte(r.IntN(2))}
	default:
		s.attrs = 16
	}
	return s
}

func flush(t testing.TB, l *Log) {
	t.Helper()
	if f, ok := l.FlushPlan(); ok {
		f.Do()
		if err := l.Flushed(f); err != nil {
			t.Fatal(err)
		}
	}
}

// drop takes n leading segments away, in all steps of it.
func drop(l *Log, n int) error {
	d, ok := l.Drop(n)
	if !ok {
		return nil
	}
	err := d.Do()
	l.Unlinked(d)
	return err
}

// all reads a log from start to end in one go.
func all(t testing.TB, l *Log) []byte {
	t.Helper()
	var out []byte
	for at := l.Start(); at < l.End(); {
		s, err := l.Read(at, 1<<20, l.End(), true)
		if err != nil || s.Next <= at {
			t.Fatalf("read at %d of %d..%d: next %d, %v", at, l.Start(), l.End(), s.Next, err)
		}
		out = append(out, s.Bytes...)
		at = s.Next
		s.Release()
	}
	return out
}

func join(bs []wire.Batch) []byte {
	var out []byte
	for _, b := range bs {
		out = append(out, b...)
	}
	return out
}

// locked is the partition's lock of concurrent tests.
type locked struct {
	sync.Mutex
	*Log
}
