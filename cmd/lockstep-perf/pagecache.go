package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// pageCache keeps the memory of the machine in use between the turns, by a file
// without blocks that is read. A broker that has run for a day finds its page
// cache full and takes the oldest pages of it; on an empty machine it takes free
// ones, and a virtual machine gives those back to its host when a topic of the
// turn before is deleted: the next to touch them pays for the host's page
// faults, up to three times what the write itself costs. Whose turn came after one
// that had written much paid most, so some memory left free is too much.
type pageCache struct {
	f    *os.File
	size int64 // of the file: all memory there is
	left int64 // free memory at which it is full
	at   int64 // where reading goes on
}

func newPageCache(dir string) (*pageCache, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "page-cache"))
	if err != nil {
		return nil, err
	}
	size := int64(info.Totalram) * int64(info.Unit)
	return &pageCache{f: f, size: size, left: size / cacheLeft}, f.Truncate(size)
}

// fill reads on in the file until little memory is free, once round at most.
func (p *pageCache) fill(ctx context.Context) error {
	b := make([]byte, 1<<20)
	for range p.size / int64(len(b)) {
		var info unix.Sysinfo_t
		if err := errors.Join(unix.Sysinfo(&info), ctx.Err()); err != nil {
			return err
		}
		if int64(info.Freeram)*int64(info.Unit) <= p.left {
			return nil
		}
		n, err := p.f.ReadAt(b, p.at)
		if p.at += int64(n); errors.Is(err, io.EOF) || p.at >= p.size {
			p.at = 0
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (p *pageCache) close() error { return p.f.Close() }
