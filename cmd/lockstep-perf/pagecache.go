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
// faults, up to three times what the write itself costs.
type pageCache struct{ f *os.File }

func newPageCache(dir string) (*pageCache, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "page-cache"))
	if err != nil {
		return nil, err
	}
	size := int64(float64(info.Totalram) * float64(info.Unit) * cacheShare)
	return &pageCache{f}, f.Truncate(size)
}

// fill reads the file; what of it is in memory still costs little.
func (p *pageCache) fill(ctx context.Context) error {
	if _, err := p.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for {
		if _, err := p.f.Read(b); errors.Is(err, io.EOF) {
			return nil
		} else if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

func (p *pageCache) close() error { return p.f.Close() }
