package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Printer writes what a command has to say.
type Printer struct {
	Out, Err io.Writer
	JSON     bool
}

// Document writes v as JSON, indented.
func (p *Printer) Document(v any) error {
	e := json.NewEncoder(p.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Line writes one line of the answer; nothing with JSON.
func (p *Printer) Line(format string, args ...any) {
	if !p.JSON {
		fmt.Fprintf(p.Out, format+"\n", args...)
	}
}

// Note writes a remark beside the answer.
func (p *Printer) Note(format string, args ...any) { fmt.Fprintf(p.Err, format+"\n", args...) }

// Column is a column of a table. Width 0 = as wide as its widest cell.
type Column struct {
	Name  string
	Width int
}

// Columns makes columns that fit their cells.
func Columns(names ...string) []Column {
	cols := make([]Column, len(names))
	for i, n := range names {
		cols[i].Name = n
	}
	return cols
}

// Table writes rows under a heading, left aligned, one space (fixed widths) or
// two (fitting widths) apart, without blanks at the end of a line.
func (p *Printer) Table(cols []Column, rows [][]string) {
	gap := " "
	width := make([]int, len(cols))
	heading := make([]string, len(cols))
	for i, c := range cols {
		heading[i], width[i] = c.Name, c.Width
		if c.Width > 0 {
			continue
		}
		gap = "  "
		width[i] = len(c.Name)
		for _, r := range rows {
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	for _, r := range append([][]string{heading}, rows...) {
		var line strings.Builder
		for i, cell := range r {
			line.WriteString(cell)
			if n := width[i] - utf8.RuneCountInString(cell); n > 0 {
				line.WriteString(strings.Repeat(" ", n))
			}
			line.WriteString(gap)
		}
		fmt.Fprintln(p.Out, strings.TrimRight(line.String(), " "))
	}
}
