package baseline

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Group appends size bytes to each of so many files and flushes it, again and
// again, each file by a thread of its own: the MB/s (10^6 bytes) that reach the
// disk when a broker's partitions are flushed side by side and nothing else is
// done.
func Group(dir string, files, size int) (float64, error) {
	bytes, errs := make([]int64, files), make([]error, files)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() { bytes[i], errs[i] = appendAndFlush(dir, size, begin.Add(groupFor)) })
	}
	wg.Wait()
	total := int64(0)
	for _, n := range bytes {
		total += n
	}
	return float64(total) / 1e6 / time.Since(begin).Seconds(), errors.Join(errs...)
}

func appendAndFlush(dir string, size int, end time.Time) (total int64, err error) {
	f, err := os.CreateTemp(dir, "group-")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return 0, err
	}
	fd := int(f.Fd())
	if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, groupBytes); err != nil {
		return 0, err
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for off := int64(0); time.Now().Before(end); off += int64(size) {
		if off+int64(size) > groupBytes {
			off = 0
		}
		if _, err := unix.Pwrite(fd, b, off); err != nil {
			return total, err
		}
		if err := unix.Fdatasync(fd); err != nil {
			return total, err
		}
		total += int64(size)
	}
	return total, nil
}
