package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// span is a range of versions, empty when lo > hi.
type span struct{ lo, hi int }

func (s span) empty() bool     { return s.lo > s.hi }
func (s span) and(o span) span { return span{max(s.lo, o.lo), min(s.hi, o.hi)} }

// cond is the Go test for "v in s" where v is known to be in ctx; "" = always.
func (s span) cond(ctx span) string {
	var c []string
	if s.lo > ctx.lo {
		c = append(c, fmt.Sprintf("v >= %d", s.lo))
	}
	if s.hi < ctx.hi {
		c = append(c, fmt.Sprintf("v <= %d", s.hi))
	}
	return strings.Join(c, " && ")
}

func parseSpan(s string) (span, error) {
	if s == "" || s == "none" {
		return span{1, 0}, nil
	}
	lo, hi, isRange := strings.Cut(strings.TrimSuffix(s, "+"), "-")
	a, err := strconv.Atoi(lo)
	if err != nil {
		return span{}, fmt.Errorf("versions %q: %w", s, err)
	}
	switch {
	case strings.HasSuffix(s, "+"):
		return span{a, math.MaxInt16}, nil
	case !isRange:
		return span{a, a}, nil
	}
	b, err := strconv.Atoi(hi)
	if err != nil || b < a {
		return span{}, fmt.Errorf("versions %q: not a range", s)
	}
	return span{a, b}, nil
}

// field is one field of a schema, or a common struct (name and fields only).
// The last group is accepted and not used.
type field struct {
	Name             string          `json:"name"`
	Type             string          `json:"type"`
	Versions         string          `json:"versions"`
	NullableVersions string          `json:"nullableVersions"`
	TaggedVersions   string          `json:"taggedVersions"`
	FlexibleVersions string          `json:"flexibleVersions"`
	Tag              *int            `json:"tag"`
	Default          json.RawMessage `json:"default"`
	About            string          `json:"about"`
	Fields           []*field        `json:"fields"`

	MapKey     bool   `json:"mapKey"`
	Ignorable  bool   `json:"ignorable"`
	EntityType string `json:"entityType"`
	ZeroCopy   bool   `json:"zeroCopy"`

	plain, nullable, tagged span // where it is there untagged, may be null, is tagged
}

type message struct {
	APIKey           *int     `json:"apiKey"`
	Type             string   `json:"type"`
	Name             string   `json:"name"`
	ValidVersions    string   `json:"validVersions"`
	FlexibleVersions string   `json:"flexibleVersions"`
	Fields           []*field `json:"fields"`
	CommonStructs    []*field `json:"commonStructs"`

	Listeners             []string `json:"listeners"`
	LatestVersionUnstable bool     `json:"latestVersionUnstable"`
	DeprecatedVersions    string   `json:"deprecatedVersions"`

	valid, flex span
	structs     map[string][]*field
	order       []string // names of structs, the message first
}

var (
	comment = regexp.MustCompile(`(?m)^\s*//.*$|\s//[^"\n]*$`)
	kinds   = []string{"request", "response", "metadata", "coordinator-key", "coordinator-value", "data"}
)

func parseMessage(raw []byte) (*message, error) {
	d := json.NewDecoder(bytes.NewReader(comment.ReplaceAll(raw, nil)))
	d.DisallowUnknownFields()
	m := &message{structs: map[string][]*field{}}
	if err := d.Decode(m); err != nil {
		return nil, err
	}
	var err error
	if m.valid, err = parseSpan(m.ValidVersions); err != nil {
		return nil, err
	}
	if m.flex, err = parseSpan(m.FlexibleVersions); err != nil {
		return nil, err
	}
	m.flex = m.flex.and(m.valid)
	switch {
	case m.Name == "" || m.valid.empty() || m.valid.hi == math.MaxInt16:
		return nil, errors.New("a message needs a name and closed valid versions")
	case !slices.Contains(kinds, m.Type):
		return nil, fmt.Errorf("type %q is none of %v", m.Type, kinds)
	}
	if err := m.collect(m.Name, m.Fields); err != nil {
		return nil, err
	}
	for _, c := range m.CommonStructs {
		if err := m.collect(m.structName(c.Name), c.Fields); err != nil {
			return nil, err
		}
	}
	return m, m.checkTypes()
}

// collect registers a struct and those nested in it.
func (m *message) collect(name string, fields []*field) error {
	if _, ok := m.structs[name]; ok {
		return fmt.Errorf("struct %s is defined twice", name)
	}
	m.structs[name] = fields
	m.order = append(m.order, name)
	for _, f := range fields {
		if err := m.prepare(f); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
		if len(f.Fields) > 0 {
			t, _ := f.elem()
			if err := m.collect(m.structName(t), f.Fields); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare reads the version ranges of a field.
func (m *message) prepare(f *field) error {
	if f.Versions == "" {
		f.Versions = f.TaggedVersions
	}
	there, err := parseSpan(f.Versions)
	if err != nil {
		return err
	}
	if f.nullable, err = parseSpan(f.NullableVersions); err != nil {
		return err
	}
	if f.tagged, err = parseSpan(f.TaggedVersions); err != nil {
		return err
	}
	f.plain, f.tagged = there.and(m.valid), f.tagged.and(m.valid)
	switch {
	case f.Name == "" || f.Type == "":
		return errors.New("a field needs a name and a type")
	case (f.Tag == nil) != (f.TaggedVersions == ""):
		return errors.New("tag and taggedVersions go together")
	case f.tagged.empty():
		return nil
	case f.tagged.and(m.flex) != f.tagged:
		return errors.New("tagged in a version that is not flexible")
	case f.tagged.hi != f.plain.hi:
		return errors.New("a field cannot stop being tagged")
	case !f.nullable.empty() && f.defText() != "null":
		return errors.New(`a nullable tagged field needs "default": "null"`)
	}
	f.plain.hi = f.tagged.lo - 1
	return nil
}

// checkTypes makes sure every type is known and no Go name is used twice.
func (m *message) checkTypes() error {
	for name, fields := range m.structs {
		seen, tags := map[string]bool{}, map[int]bool{}
		for _, f := range fields {
			t, _ := f.elem()
			if m.isStruct(t) {
				if _, ok := m.structs[m.structName(t)]; !ok {
					return fmt.Errorf("%s.%s: unknown type %q", name, f.Name, f.Type)
				}
			}
			g := m.goName(name, f)
			if seen[g] || slices.Contains([]string{"UnknownTags", "Default", "AppendTo", "ReadFrom", "APIKey"}, g) {
				return fmt.Errorf("%s.%s: name is taken", name, f.Name)
			}
			if seen[g] = true; f.Tag != nil {
				if tags[*f.Tag] {
					return fmt.Errorf("%s.%s: tag %d is taken", name, f.Name, *f.Tag)
				}
				tags[*f.Tag] = true
			}
		}
	}
	return nil
}

func (f *field) elem() (string, bool) { return strings.CutPrefix(f.Type, "[]") }

func (f *field) defText() string { return strings.Trim(string(f.Default), `"`) }

func (m *message) isStruct(t string) bool {
	_, ok := primitives[t]
	return !ok && t != "string" && t != "bytes" && t != "records"
}

func (m *message) structName(t string) string { return m.Name + export(t) }

func (m *message) goName(owner string, f *field) string {
	if n := export(f.Name); owner != m.Name || n != "Version" {
		return n
	}
	return "FieldVersion"
}

func export(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
