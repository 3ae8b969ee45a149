package main

import (
	"sort"
)

// flexExpr declares what the body of a codec calls flex and returns its name.
func (e *emitter) flexExpr() string {
	if e.m.flex.empty() {
		return "false"
	}
	c := e.m.flex.cond(e.m.valid)
	if c == "" {
		return "true"
	}
	e.p("flex := %s", c)
	return "flex"
}

func (e *emitter) open(s span) {
	if c := s.cond(e.m.valid); c != "" {
		e.p("if %s {", c)
	} else {
		e.p("{")
	}
}

func taggedFields(fields []*field) []*field {
	var out []*field
	for _, f := range fields {
		if !f.tagged.empty() {
			out = append(out, f)
		}
	}
	sort.Slice(out, func(i, j int) bool { return *out[i].Tag < *out[j].Tag })
	return out
}

func (e *emitter) emitAppend(name string) {
	fields := e.m.structs[name]
	e.p("func (s *%s) append(b []byte, v int16) []byte {", name)
	flex := e.flexExpr()
	for _, f := range fields {
		if f.plain.empty() {
			continue
		}
		e.open(f.plain)
		e.appendField(f, "s."+e.m.goName(name, f), f.plain, flexOf(f, flex))
		e.p("}")
	}
	if flex == "false" {
		e.p("return b\n}\n")
		return
	}
	e.p("if %s {\nn := len(s.UnknownTags)", flex)
	tagged := taggedFields(fields)
	for _, f := range tagged {
		c := e.nonDefault(name, f)
		if vc := f.tagged.cond(e.m.valid); vc != "" {
			c = vc + " && (" + c + ")"
		}
		e.p("t%d := %s\nif t%d { n++ }", *f.Tag, c, *f.Tag)
	}
	e.p("b = wire.AppendUvarint(b, uint32(n))")
	for _, f := range tagged {
		e.p("if t%d {\nb = wire.BeginTag(b, %d)\nstart := len(b)", *f.Tag, *f.Tag)
		e.appendField(f, "s."+e.m.goName(name, f), f.tagged, "true")
		e.p("b = wire.EndTag(b, start)\n}")
	}
	e.p("b = s.UnknownTags.AppendEach(b)\n}\nreturn b\n}\n")
}

func flexOf(f *field, flex string) string {
	if f.FlexibleVersions == "none" {
		return "false"
	}
	return flex
}

// nullCond is the Go test for "may be null in this version", given versions ctx.
func nullCond(f *field, ctx span) string {
	n := f.nullable.and(ctx)
	if n.empty() {
		return "false"
	}
	if c := n.cond(ctx); c != "" {
		return c
	}
	return "true"
}

func (e *emitter) appendField(f *field, n string, ctx span, flex string) {
	null := nullCond(f, ctx)
	if _, array := f.elem(); !array {
		e.appendValue(f, n, null, flex)
		return
	}
	switch null {
	case "false":
		e.p("b = wire.AppendArrayLen(b, len(%s), %s)", n, flex)
	case "true":
		e.p("if %s == nil { b = wire.AppendArrayLen(b, -1, %s) } else { b = wire.AppendArrayLen(b, len(%s), %s) }", n, flex, n, flex)
	default:
		e.p("if %s == nil && (%s) { b = wire.AppendArrayLen(b, -1, %s) } else { b = wire.AppendArrayLen(b, len(%s), %s) }", n, null, flex, n, flex)
	}
	e.p("for i := range %s {", n)
	e.appendValue(f, n+"[i]", "false", flex)
	e.p("}")
}

// appendValue writes one value; null says when nil may travel as null.
func (e *emitter) appendValue(f *field, n, null, flex string) {
	t, array := f.elem()
	pointer := !array && !f.nullable.empty()
	switch {
	case t == "string" && pointer:
		if null != "true" {
			e.p("if %s == nil && !(%s) { b = wire.AppendString(b, \"\", %s) } else {", n, null, flex)
			defer e.p("}")
		}
		e.p("b = wire.AppendNullableString(b, %s, %s)", n, flex)
	case t == "string":
		e.p("b = wire.AppendString(b, %s, %s)", n, flex)
	case (t == "bytes" || t == "records") && null == "true":
		e.p("b = wire.AppendBytes(b, %s, %s)", n, flex)
	case t == "bytes" || t == "records":
		if null != "false" {
			e.p("if %s == nil && (%s) { b = wire.AppendBytes(b, nil, %s) } else {", n, null, flex)
			defer e.p("}")
		}
		e.p("b = wire.AppendArrayLen(b, len(%s), %s)\nb = append(b, %s...)", n, flex, n)
	case e.m.isStruct(t) && pointer:
		e.p("if %s == nil { b = wire.AppendInt8(b, -1) } else {\nb = wire.AppendInt8(b, 1)\nb = %s.append(b, v)\n}", n, n)
	case e.m.isStruct(t):
		e.p("b = %s.append(b, v)", n)
	default:
		e.p("b = wire.Append%s(b, %s)", primitives[t].wire, n)
	}
}

func (e *emitter) emitRead(name string) {
	fields := e.m.structs[name]
	e.p("func (s *%s) read(r *wire.Reader, v int16) {", name)
	flex := e.flexExpr()
	for _, f := range fields {
		if f.plain.empty() {
			continue
		}
		e.open(f.plain)
		e.readField(f, "s."+e.m.goName(name, f), f.plain, flexOf(f, flex))
		e.p("}")
	}
	if flex == "false" {
		e.p("}\n")
		return
	}
	e.p("if %s {\nfor n := r.TagCount(); n > 0 && r.Ok(); n-- {\ntag, val := r.Tag()", flex)
	tagged := taggedFields(fields)
	if len(tagged) == 0 {
		e.p("s.UnknownTags = append(s.UnknownTags, wire.Tag{Key: tag, Value: val})\n}\n}\n}\n")
		return
	}
	e.p("whole := r\nin := wire.NewReader(val)\nswitch {")
	for _, f := range tagged {
		c := f.tagged.cond(e.m.valid)
		if c != "" {
			c = " && " + c
		}
		e.p("case tag == %d%s:\nr := &in", *f.Tag, c)
		e.readField(f, "s."+e.m.goName(name, f), f.tagged, "true")
		e.p("if r.Complete() != nil { whole.Fail() }")
	}
	e.p("default:\ns.UnknownTags = append(s.UnknownTags, wire.Tag{Key: tag, Value: val})\n}\n}\n}\n}\n")
}

func (e *emitter) readField(f *field, n string, ctx span, flex string) {
	null := nullCond(f, ctx)
	if _, array := f.elem(); !array {
		e.readValue(f, n, null, flex)
		return
	}
	e.p("n := r.ArrayLen(%s, %d)", flex, e.minElem(f))
	switch null {
	case "true":
	case "false":
		e.p("if n < 0 { r.Fail() }")
	default:
		e.p("if n < 0 && !(%s) { r.Fail() }", null)
	}
	e.p("%s = wire.MakeSlice[%s](n)", n, e.elemType(f))
	e.p("for i := 0; i < n && r.Ok(); i++ {\nvar e %s", e.elemType(f))
	e.readValue(f, "e", "false", flex)
	e.p("%s = append(%s, e)\n}", n, n)
}

func (e *emitter) readValue(f *field, n, null, flex string) {
	t, array := f.elem()
	pointer := !array && !f.nullable.empty()
	switch {
	case t == "string" && pointer:
		e.p("%s = r.NullableString(%s)", n, flex)
		e.failNull(n, null)
	case t == "string":
		e.p("%s = r.String(%s)", n, flex)
	case t == "bytes" || t == "records":
		e.p("%s = r.Bytes(%s)", n, flex)
		e.failNull(n, null)
	case e.m.isStruct(t) && pointer:
		e.p("if r.Int8() < 0 { %s = nil } else {\n%s = new(%s)\n%s.Default()\n%s.read(r, v)\n}", n, n, e.m.structName(t), n, n)
		e.failNull(n, null)
	case e.m.isStruct(t):
		e.p("%s.Default()\n%s.read(r, v)", n, n)
	default:
		e.p("%s = r.%s()", n, primitives[t].wire)
	}
}

// failNull refuses null where the version does not allow it.
func (e *emitter) failNull(n, null string) {
	switch null {
	case "true":
	case "false":
		e.p("if %s == nil { r.Fail() }", n)
	default:
		e.p("if %s == nil && !(%s) { r.Fail() }", n, null)
	}
}

// minElem is the smallest number of bytes one element of an array can take, in
// any version: it bounds the count by the bytes that are there.
func (e *emitter) minElem(f *field) int {
	t, _ := f.elem()
	return max(1, e.minSize(t, false, 0))
}

func (e *emitter) minSize(t string, array bool, depth int) int {
	alwaysFlex := e.m.flex == e.m.valid
	switch {
	case depth > 16:
		return 0
	case array || t == "bytes" || t == "records":
		if e.m.flex.empty() {
			return 4
		}
		return 1
	case t == "string":
		if e.m.flex.empty() {
			return 2
		}
		return 1
	case !e.m.isStruct(t):
		return primitives[t].size
	}
	n := 0
	for _, f := range e.m.structs[e.m.structName(t)] {
		if f.plain != e.m.valid {
			continue
		}
		ft, isArray := f.elem()
		if e.m.isStruct(ft) && !isArray && !f.nullable.empty() {
			n++
			continue
		}
		n += e.minSize(ft, isArray, depth+1)
	}
	if alwaysFlex {
		n++
	}
	return n
}
