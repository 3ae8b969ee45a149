package baseline

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Figures of a baseline, in milliseconds.
type Figures struct {
	FdatasyncP50 float64 `json:"fdatasync_p50_ms"`
	FdatasyncP99 float64 `json:"fdatasync_p99_ms"`
	FdatasyncOf  int     `json:"fdatasync_bytes"` // appended before each
	LoopbackP50  float64 `json:"loopback_p50_ms"` // one byte there and back
}

// Measure takes all of them, in about a second; dir is on the file system that
// is asked about, size what is appended before each fdatasync.
func Measure(dir string, size int) (Figures, error) {
	sync, err := Fdatasync(dir, size)
	if err != nil {
		return Figures{}, err
	}
	loop, err := Loopback()
	if err != nil {
		return Figures{}, err
	}
	return Figures{FdatasyncP50: at(sync, 50), FdatasyncP99: at(sync, 99), FdatasyncOf: size, LoopbackP50: at(loop, 50)}, nil
}

func at(sorted []time.Duration, percentile int) float64 {
	return float64(sorted[(len(sorted)-1)*percentile/100]) / float64(time.Millisecond)
}

// Fdatasync appends size bytes to a file whose blocks are there already, as a
// log does, and flushes them, again and again. Sorted durations, of writing and
// flushing together.
func Fdatasync(dir string, size int) ([]time.Duration, error) {
	f, err := os.CreateTemp(dir, "fdatasync-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(filepath.Clean(f.Name()))
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, max(fileBytes, int64(size*rounds))); err != nil {
		return nil, err
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7)
	}
	var all []time.Duration
	end := time.Now().Add(syncFor)
	for i := 0; i < rounds && (i < leastRounds || time.Now().Before(end)); i++ {
		begin := time.Now()
		if _, err := f.WriteAt(b, int64(i*size)); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	return all, nil
}

// Loopback sends one byte to an echo of this process and back, again and again.
func Loopback() ([]time.Duration, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, c) // ends with the connection
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var b [1]byte
	all := make([]time.Duration, 0, echoes)
	for range echoes {
		begin := time.Now()
		_, werr := c.Write(b[:])
		_, rerr := io.ReadFull(c, b[:])
		if err := errors.Join(werr, rerr); err != nil {
			return nil, err
		}
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	return all, nil
}
