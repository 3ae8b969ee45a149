package cli

import (
	"regexp"
	"slices"
	"strings"
)

// Patterns choose topics: a list of regular expressions, each of which must
// fit the whole name.
type Patterns struct {
	text []string
	re   []*regexp.Regexp
}

// ParsePatterns reads a comma list. Blanks around an element do not count.
func ParsePatterns(list string) (Patterns, error) {
	var p Patterns
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		re, err := regexp.Compile("^(?:" + s + ")$")
		if err != nil {
			return p, Usage("topic pattern %q: %v", s, err)
		}
		if p.text = append(p.text, s); len(p.text) > maxPatterns {
			return p, Usage("more than %d topic patterns", maxPatterns)
		}
		p.re = append(p.re, re)
	}
	if len(p.text) == 0 {
		return p, Usage("no topic pattern in %q", list)
	}
	return p, nil
}

// Match tells whether any pattern fits name.
func (p Patterns) Match(name string) bool {
	return slices.ContainsFunc(p.re, func(re *regexp.Regexp) bool { return re.MatchString(name) })
}

// Filter returns the names that match, sorted, each once.
func (p Patterns) Filter(names []string) []string {
	var out []string
	for _, n := range names {
		if p.Match(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Literals returns the patterns as topic names if none of them needs a list of
// topics to be resolved.
func (p Patterns) Literals() ([]string, bool) {
	for _, s := range p.text {
		// A dot is in many names and fits itself.
		if strings.ContainsAny(s, `\*+?[](){}|^$`) {
			return nil, false
		}
	}
	return p.text, len(p.text) > 0
}

func (p Patterns) String() string { return strings.Join(p.text, ",") }
