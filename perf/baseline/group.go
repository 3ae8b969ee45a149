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
	open := make([]*os.File, files)
	for i := range open {
		f, err := reserved(dir)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		open[i] = f
	}
	bytes, errs := make([]int64, files), make([]error, files)
	begin := time.Now() // only now: reserving may take as long
	var wg sync.WaitGroup
	for i, f := range open {
		wg.Go(func() { bytes[i], errs[i] = appendAndFlush(int(f.Fd()), size, begin.Add(groupFor)) })
	}
	wg.Wait()
	total := int64(0)
	for _, n := range bytes {
		total += n
	}
	return float64(total) / 1e6 / time.Since(begin).Seconds(), errors.Join(errs...)
}

// reserved is a file without a name whose blocks are there.
func reserved(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "group-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(f.Name()), unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, groupBytes)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// appendAndFlush does it once however late it is.
func appendAndFlush(fd, size int, end time.Time) (total int64, err error) {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for off := int64(0); total == 0 || time.Now().Before(end); off += int64(size) {
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
