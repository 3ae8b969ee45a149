package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"lockstep/admin"
	"lockstep/internal/cli"
)

// watch shows the same again and again: redrawn on a terminal, one block after
// the other elsewhere, one object a line with JSON. A cluster that does not
// answer is said, and asked again.
type watch struct {
	o     cli.Options
	p     *cli.Printer
	title string
	every time.Duration
	show  func(ctx context.Context, m *cli.Mirrors) error

	session *cli.Session
	last    string // block that was shown last
	away    time.Time
}

// run watches until ctx ends or a signal comes, which is the way to end it.
func (w *watch) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	w.o.Timeout = min(w.o.Timeout, watchPatience)
	if w.o.Timeout == 0 {
		w.o.Timeout = watchPatience
	}
	defer w.close()
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for first := true; ; first = false {
		block, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case first && err != nil && final(err):
			return err
		}
		if err := w.write(time.Now(), block, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// final tells an error that asking again does not mend: a wrong call, or a
// refusal in the cluster's own words.
func final(err error) bool {
	var usage *cli.Error
	var refusal *admin.Error
	return errors.As(err, &usage) && usage.Code == cli.ExitUsage || errors.As(err, &refusal) && !refusal.Retriable()
}

// look asks once. A session that failed is made anew the next time.
func (w *watch) look(ctx context.Context) (string, error) {
	if w.session == nil {
		s, err := w.o.Connect(ctx)
		if err != nil {
			return "", err
		}
		w.session = s
	}
	var block bytes.Buffer
	p := &cli.Printer{Out: &block, Err: &block, JSON: w.p.JSON}
	if p.JSON {
		p.Err = w.p.Err
	}
	err := w.show(ctx, &cli.Mirrors{S: w.session, P: p, Now: time.Now})
	if err != nil {
		w.close()
	}
	return block.String(), err
}

func (w *watch) close() {
	if w.session != nil {
		w.session.Close()
		w.session = nil
	}
}

// write shows a block, or that there is none.
func (w *watch) write(now time.Time, block string, failed error) error {
	if w.p.JSON {
		return w.line(now, block, failed)
	}
	back := !w.away.IsZero() && failed == nil
	gone := w.away.IsZero() && failed != nil
	if failed == nil {
		w.last, w.away = block, time.Time{}
	} else if gone {
		w.away = now
	}
	if screen := terminal(w.p.Out); screen != nil {
		rows, cols := size(screen)
		_, err := io.WriteString(screen, frame(w.heading(now, failed)+"\n\n"+w.last, rows, cols))
		return err
	}
	switch {
	case gone:
		w.p.Note("%s: %v; asking again every %v, until Ctrl-C", clock(now), failed, w.every)
	case back:
		w.p.Note("%s: it answers again", clock(now))
	}
	if failed != nil {
		return nil
	}
	_, err := fmt.Fprintf(w.p.Out, "-- %s\n%s\n", clock(now), block)
	return err
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// heading is what stands above the block on a terminal.
func (w *watch) heading(now time.Time, failed error) string {
	s := fmt.Sprintf("%s  %s, every %v, Ctrl-C ends it", w.title, clock(now), w.every)
	if failed != nil {
		s += fmt.Sprintf("\nNO ANSWER since %s, what follows is older: %v", clock(w.away), failed)
	}
	return s
}

// line is one object of NDJSON: the document and when it was asked for, or the
// error.
func (w *watch) line(now time.Time, block string, failed error) error {
	doc := map[string]json.RawMessage{}
	if failed != nil {
		doc["error"], _ = json.Marshal(failed.Error()) // a string has no way to fail
	} else if err := json.Unmarshal([]byte(block), &doc); err != nil { // a list, not an object
		doc = map[string]json.RawMessage{"partitions": json.RawMessage(block)}
	}
	doc["atMs"] = strconv.AppendInt(nil, now.UnixMilli(), 10)
	return json.NewEncoder(w.p.Out).Encode(doc)
}

// size is that of a terminal, or a common one.
func size(screen *os.File) (rows, cols int) {
	if ws, err := unix.IoctlGetWinsize(int(screen.Fd()), unix.TIOCGWINSZ); err == nil && ws.Row > 0 && ws.Col > 0 {
		return int(ws.Row), int(ws.Col)
	}
	return 24, 80
}

// frame redraws a terminal: from its top, each line over the one before, no
// line wrapped, and the rest cleared. What does not fit is counted.
func frame(text string, rows, cols int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if rows > 3 && len(lines) >= rows {
		hidden := len(lines) - rows + 2
		lines = append(lines[:rows-2:rows-2], fmt.Sprintf("... %d more lines: choose by name or --topics, or write to a file", hidden))
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, l := range lines {
		n := 0
		for _, r := range l {
			if n == cols {
				break
			}
			if unicode.IsPrint(r) { // no control sequence comes from a broker
				b.WriteRune(r)
				n++
			}
		}
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}
