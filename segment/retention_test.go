package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"lockstep/internal/wire"
)

// expiredTwin removes one segment after the other while one may go.
func expiredTwin(segs []SegmentInfo, start, limit, now, ms, max int64) int {
	n := 0
	for len(segs) > 1 && segs[0].End <= limit {
		size := int64(0)
		for _, s := range segs[1:] {
			size += s.Bytes
		}
		s := segs[0]
		if !(s.End <= start) && !(ms >= 0 && s.MaxTimestamp >= 0 && s.MaxTimestamp < now-ms) && !(max >= 0 && size >= max) {
			break
		}
		segs, n = segs[1:], n+1
	}
	return n
}

func TestExpiredAgainstTwin(t *testing.T) {
	r := seed(t)
	hits := 0
	for range 20000 {
		var segs []SegmentInfo
		at := int64(0)
		for range r.IntN(6) {
			n := 1 + r.Int64N(10)
			segs = append(segs, SegmentInfo{at, at + n, r.Int64N(100), r.Int64N(100) - 1})
			at += n
		}
		start, limit, now := r.Int64N(at+1), r.Int64N(at+1), r.Int64N(150)
		ms, size := r.Int64N(100)-20, r.Int64N(300)-50
		got, want := Expired(segs, start, limit, now, ms, size), expiredTwin(segs, start, limit, now, ms, size)
		if got != want {
			t.Fatalf("Expired(%v, %d, %d, %d, %d, %d) = %d, want %d", segs, start, limit, now, ms, size, got, want)
		}
		hits += want
	}
	if hits == 0 {
		t.Fatal("nothing ever expired")
	}
}

func TestRetentionDropsWholeSegments(t *testing.T) {
	onBoth(t, func(t *testing.T, disk FS, path string) {
		r := seed(t)
		cfg := smallConfig
		cfg.RetentionBytes = 0
		d := openDir(t, disk, path)
		l := openLog(t, d, cfg)
		bs := fill(t, l, r, 80)
		segs := l.Segments()
		if n := l.RetentionPlan(0, segs[1].End-1); n != 1 {
			t.Fatalf("%d segments may go below the mark", n)
		}
		s, err := l.Read(0, 1<<20, l.End(), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := drop(l, l.RetentionPlan(0, segs[1].End)); err != nil {
			t.Fatal(err)
		}
		if l.Start() != segs[2].Base || l.Size() != int64(len(all(t, l))) {
			t.Fatalf("start %d, want %d", l.Start(), segs[2].Base)
		}
		if !bytes.HasPrefix(join(bs), s.Bytes) { // pinned while dropped
			t.Fatal("a pinned slice changed")
		}
		s.Release()
		if _, err := l.Read(0, 100, l.End(), true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatal(err)
		}
		if _, err := disk.Open(segmentName(l.path, 0, logSuffix), 0, false); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("file of a dropped segment: %v", err)
		}
		if err := l.AdvanceStart(segs[3].Base + 1); err != nil {
			t.Fatal(err)
		}
		if err := d.WriteCheckpoint(LogStartCheckpoint, map[TopicPartition]int64{testID.TopicPartition(): l.Start()}); err != nil {
			t.Fatal(err)
		}
		if err := l.AdvanceStart(l.End() + 1); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatal(err)
		}
		l.Close()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = openDir(t, disk, path)
		if l = openLog(t, d, cfg); l.Start() != segs[3].Base+1 {
			t.Fatalf("start %d after a restart, want %d", l.Start(), segs[3].Base+1)
		}
		l.Close()
	})
}

// One appender, a flusher, retention and four readers at once; what a reader
// sees is always the batch it asked for.
func TestConcurrentReaders(t *testing.T) {
	onBoth(t, func(t *testing.T, disk FS, path string) {
		cfg := smallConfig
		cfg.RetentionBytes = 40000
		d := openDir(t, disk, path)
		l := &locked{Log: openLog(t, d, cfg)}
		const last = 6000
		var wg sync.WaitGroup
		var stop atomic.Bool
		for reader := range 4 {
			wg.Go(func() { readAlong(t, l.Log, &stop, reader) })
		}
		wg.Go(func() { keepHouse(t, l, &stop) })
		var w Write
		for (l.End() < last || l.Start() == 0) && l.End() < 100*last && !t.Failed() {
			b := build(plain(l.NextOffset(), 1+int(l.NextOffset()%3), int(l.NextOffset()%100)))
			l.Lock()
			room := l.Room(len(b), 0)
			if room == RoomGrow {
				g, ok := l.GrowPlan(0)
				l.Unlock()
				if ok {
					g.Do()
					l.Lock()
					if err := l.Grown(g); err != nil {
						t.Error(err)
					}
					l.Unlock()
				}
				continue
			}
			l.Queue(b, nothing{})
			taken := l.Take(&w)
			l.Unlock()
			for done := !taken; !done; {
				n, err := w.File.Pwritev(w.Bufs, w.Off)
				l.Lock()
				done = l.Wrote(&w, n, err)
				l.Unlock()
			}
		}
		stop.Store(true)
		wg.Wait()
		if l.Start() == 0 {
			t.Error("retention never dropped anything")
		}
		l.Log.Close()
	})
}

func readAlong(t *testing.T, l *Log, stop *atomic.Bool, reader int) {
	at := int64(0)
	for !stop.Load() && !t.Failed() {
		s, err := l.Read(at, 3000, l.End(), true)
		if errors.Is(err, ErrOffsetOutOfRange) {
			at = l.Start()
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		next := s.First
		for rest := s.Bytes; len(rest) > 0; {
			b, after, ok := wire.NextBatch(rest)
			if !ok || b.BaseOffset() != next || !b.CheckCRC() {
				t.Errorf("reader %d at %d: no good batch", reader, next)
				return
			}
			next, rest = b.NextOffset(), after
		}
		if next != s.Next {
			t.Errorf("reader %d: slice ends at %d, says %d", reader, next, s.Next)
		}
		s.Release()
		if at = s.Next; reader == 0 && at > 500 {
			at -= 400 // goes back now and then
		}
	}
}

// keepHouse flushes and drops segments until told to stop.
func keepHouse(t *testing.T, l *locked, stop *atomic.Bool) {
	for !stop.Load() {
		l.Lock()
		f, ok := l.FlushPlan()
		d, dropped := l.Drop(l.RetentionPlan(0, l.End()))
		rest, _ := l.restPlan()
		l.Unlock()
		rest.Do()
		if dropped {
			if err := d.Do(); err != nil {
				t.Error(err)
			}
			l.Lock()
			l.Unlinked(d)
			l.Unlock()
		}
		if !ok {
			continue
		}
		f.Do()
		l.Lock()
		if err := l.Flushed(f); err != nil {
			t.Error(err)
		}
		l.Unlock()
	}
}
