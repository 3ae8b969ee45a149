package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"

	"lockstep/internal/cli"
)

// terminal returns the file of a writer that is a terminal, nil for another.
func terminal(w io.Writer) *os.File {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return f
}

// progress shows how far the reading of files has come: a bar on stderr if that
// is a terminal, and nothing with JSON. A nil one shows nothing.
type progress struct {
	bar   *progressbar.ProgressBar
	done  int64 // bytes of the files before
	shown int64
}

func newProgress(p *cli.Printer, what string, files []string) *progress {
	if p.JSON || terminal(p.Err) == nil {
		return nil
	}
	total := int64(0)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			total += info.Size()
		}
	}
	return &progress{bar: progressbar.NewOptions64(max(1, total), progressbar.OptionSetWriter(p.Err), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionClearOnFinish())}
}

// at says that the file under way is read up to a byte.
func (p *progress) at(pos int64) {
	if p != nil && p.done+pos-p.shown >= progressStep {
		p.shown = p.done + pos
		_ = p.bar.Set64(p.shown) // a terminal that cannot be written to is no reason to stop
	}
}

// fileDone says that a whole file is read, however much of it was empty.
func (p *progress) fileDone(size int) {
	if p != nil {
		p.done += int64(size)
		p.at(0)
	}
}

// end takes the bar away.
func (p *progress) end() {
	if p != nil {
		_ = p.bar.Clear()
	}
}
