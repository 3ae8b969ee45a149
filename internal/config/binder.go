package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// entry is one setting: how to set the field behind it and how to show it.
type entry struct {
	name string
	set  func(string) error
	get  func() string
}

// binder ties names to the fields of one struct. Binding sets the default.
type binder struct {
	entries []entry
	index   map[string]int
}

func (b *binder) add(name string, set func(string) error, get func() string) {
	if b.index == nil {
		b.index = map[string]int{}
	}
	b.index[name] = len(b.entries)
	b.entries = append(b.entries, entry{name, set, get})
}

// find returns the setting of that name, nil when there is none.
func (b *binder) find(name string) *entry {
	if i, ok := b.index[name]; ok {
		return &b.entries[i]
	}
	return nil
}

// num binds a whole number in lo..hi.
func num[T int32 | int64](b *binder, name string, p *T, def T, lo, hi int64) {
	*p = def
	b.add(name, func(s string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			return fmt.Errorf("%q is not a whole number", s)
		case err != nil || n > hi:
			return fmt.Errorf("%s is above %d", s, hi)
		case n < lo:
			return fmt.Errorf("%s is below %d", s, lo)
		}
		*p = T(n)
		return nil
	}, func() string { return strconv.FormatInt(int64(*p), 10) })
}

// number binds a number in lo..hi.
func number(b *binder, name string, p *float64, def, lo, hi float64) {
	*p = def
	b.add(name, func(s string) error {
		n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(n >= lo && n <= hi) {
			return fmt.Errorf("%q is not a number from %v to %v", s, lo, hi)
		}
		*p = n
		return nil
	}, func() string { return strconv.FormatFloat(*p, 'g', -1, 64) })
}

func flag(b *binder, name string, p *bool, def bool) {
	*p = def
	b.add(name, func(s string) error {
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "true":
			*p = true
		case "false":
			*p = false
		default:
			return fmt.Errorf("%q is neither true nor false", s)
		}
		return nil
	}, func() string { return strconv.FormatBool(*p) })
}

func text(b *binder, name string, p *string, def string) {
	*p = def
	b.add(name, func(s string) error { *p = strings.TrimSpace(s); return nil }, func() string { return *p })
}

// oneOf binds one of a few words, by their exact spelling.
func oneOf(b *binder, name string, p *string, def string, words ...string) {
	*p = def
	b.add(name, func(s string) error {
		s = strings.TrimSpace(s)
		if !slices.Contains(words, s) {
			return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
		}
		*p = s
		return nil
	}, func() string { return *p })
}

// list binds a comma-separated list; with words given, of those only.
func list(b *binder, name string, p *[]string, def string, words ...string) {
	*p = splitList(def)
	b.add(name, func(s string) error {
		items := splitList(s)
		for _, item := range items {
			if len(words) > 0 && !slices.Contains(words, item) {
				return fmt.Errorf("%q is none of %s", item, strings.Join(words, ", "))
			}
		}
		*p = items
		return nil
	}, func() string { return strings.Join(*p, ",") })
}

func splitList(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// nearest returns the name with the smallest edit distance to s.
func nearest(s string, names []string) string {
	if own := "lockstep." + s; slices.Contains(names, own) {
		return own
	}
	best, bestDistance := "", maxInt32
	if len(s) > maxNameLen {
		s = s[:maxNameLen]
	}
	for _, n := range names {
		if d := editDistance(s, n); d < bestDistance || (d == bestDistance && n < best) {
			best, bestDistance = n, d
		}
	}
	return best
}

// editDistance counts the single-byte insertions, deletions and replacements
// that make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
