package segment

import (
	"fmt"
	"path/filepath"
	"testing"
)

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			d := openDir(b, DiskFS{}, filepath.Join(b.TempDir(), "data"))
			l := openLog(b, d, Config{SegmentBytes: 256 << 20, IndexIntervalBytes: 4096, RetentionMs: -1, RetentionBytes: 0, MaxMessageBytes: 1 << 20})
			s := plain(0, 1, size-100)
			batch := build(s)
			var w Write
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if l.Room(len(batch), 0) != RoomReady {
					if err := grow(l, len(batch), 0); err != nil {
						b.Fatal(err)
					}
					if g, ok := l.GrowPlan(0); ok {
						g.Do()
						if err := l.Grown(g); err != nil {
							b.Fatal(err)
						}
					}
					if err := drop(l, l.RetentionPlan(0, l.End())); err != nil {
						b.Fatal(err)
					}
				}
				batch.SetBaseOffset(l.NextOffset())
				l.Queue(batch, nothing{})
				if err := drain(l, &w); err != nil {
					b.Fatal(err)
				}
			}
			l.Close()
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, tail := range []bool{true, false} {
		b.Run(fmt.Sprintf("tail=%v", tail), func(b *testing.B) {
			d := openDir(b, DiskFS{}, filepath.Join(b.TempDir(), "data"))
			l := openLog(b, d, Config{SegmentBytes: 256 << 20, IndexIntervalBytes: 4096, RetentionMs: -1, RetentionBytes: -1, MaxMessageBytes: 1 << 20})
			for l.End() < 20000 {
				put(b, l, plain(l.NextOffset(), 1, 900))
			}
			at := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				from := at
				if tail {
					from = l.End() - 1 - at%8
				}
				s, err := l.Read(from, 64<<10, l.End(), true)
				if err != nil || len(s.Bytes) == 0 {
					b.Fatal(err)
				}
				s.Release()
				at = (at + 577) % l.End()
			}
			l.Close()
		})
	}
}
