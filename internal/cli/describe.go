package cli

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// View is what Describe shows.
type View int

// The views of Describe.
const (
	ViewKIP    View = iota // the columns of the KIP
	ViewFailed             // failed partitions, in the KIP's columns
	ViewFull               // with types, states and contact
)

// Describe writes the partitions of the named mirrors, all if none is named,
// of topics that fit the patterns.
func (m *Mirrors) Describe(ctx context.Context, names []string, patterns *Patterns, view View) error {
	d, err := m.describe(ctx, names...)
	if err != nil {
		return err
	}
	d.keep(func(topic, state string) bool {
		return (patterns == nil || patterns.Match(topic)) && (view != ViewFailed || state == "FAILED")
	})
	switch {
	case m.P.JSON && view == ViewFull:
		return m.P.Document(map[string]any{"partitions": d.Partitions, "registrations": d.Registrations})
	case m.P.JSON:
		return m.P.Document(d.Partitions)
	case view == ViewKIP:
		m.describeKIP(d)
	case view == ViewFailed:
		m.describeFailed(d)
	default:
		m.describeFull(d)
	}
	return nil
}

// keep filters partitions; registrations have no state and pass as such.
func (d *Description) keep(want func(topic, state string) bool) {
	parts, regs := []MirrorPartition{}, []Registration{}
	for _, p := range d.Partitions {
		if want(p.Topic, p.State) {
			parts = append(parts, p)
		}
	}
	for _, r := range d.Registrations {
		if want(r.Topic, "") {
			regs = append(regs, r)
		}
	}
	d.Partitions, d.Registrations = parts, regs
}

func dash(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func (m *Mirrors) describeKIP(d *Description) {
	if len(d.Partitions) == 0 {
		m.P.Line("No mirror partitions found")
	} else {
		var rows [][]string
		for _, p := range d.Partitions {
			rows = append(rows, []string{p.Mirror, p.Topic, strconv.Itoa(int(p.Partition)), dash(p.SourceOffset), dash(p.DestinationOffset), dash(p.Lag), p.State})
		}
		m.P.Table([]Column{{"MIRROR", 30}, {"TOPIC", 40}, {"PARTITION", 10}, {"SOURCE-OFFSET", 15}, {"DESTINATION-OFFSET", 18}, {"LAG", 10}, {"STATE", 12}}, rows)
	}
	m.notes(d, m.P.Note) // beside the answer: scripts read its columns
}

func (m *Mirrors) describeFailed(d *Description) {
	if len(d.Partitions) == 0 {
		m.P.Line("No failed partitions found")
		return
	}
	var rows [][]string
	for _, p := range d.Partitions {
		retry := strconv.Itoa(int(p.RetryAttempt))
		if p.RetryAttempt < 0 {
			retry = "NonRetryable"
		}
		why := ""
		if p.ErrorMessage != nil {
			why = cut(*p.ErrorMessage)
		}
		rows = append(rows, []string{p.Mirror, p.Topic, strconv.Itoa(int(p.Partition)), retry, why})
	}
	m.P.Table([]Column{{"MIRROR", 30}, {"TOPIC", 40}, {"PARTITION", 10}, {"RETRY", 7}, {"ERROR", errorColumn}}, rows)
}

func cut(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= errorColumn {
		return s
	}
	return string([]rune(s)[:errorColumn-3]) + "..."
}

func (m *Mirrors) describeFull(d *Description) {
	if len(d.Partitions)+len(d.Registrations) == 0 {
		m.P.Line("No mirror partitions found")
		return
	}
	if len(d.Partitions) > 0 {
		var rows [][]string
		for _, p := range d.Partitions {
			rows = append(rows, []string{p.Mirror, p.Topic, strconv.Itoa(int(p.Partition)), p.State, p.Desired, p.Effective,
				dash(p.SourceOffset), dash(p.DestinationOffset), dash(p.Lag), m.ago(p.LastContactMs)})
		}
		m.P.Table(Columns("MIRROR", "TOPIC", "PARTITION", "STATE", "DESIRED", "EFFECTIVE", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "LAST-CONTACT"), rows)
	}
	m.notes(d, m.P.Line)
	if len(d.Registrations) > 0 {
		m.P.Line("Registered here, acks=all waits for them:")
		var rows [][]string
		for _, r := range d.Registrations {
			state := "gating"
			if r.Released {
				state = "released"
			}
			if r.Unfenced {
				state += ", unfenced"
			}
			rows = append(rows, []string{r.Mirror, r.Topic, r.DestinationClusterID, strconv.FormatInt(r.Epoch, 10), state})
		}
		m.P.Table(Columns("MIRROR", "TOPIC", "DESTINATION-CLUSTER-ID", "EPOCH", "STATE"), rows)
	}
}

// notes says the remarks on each topic, once, and losses.
func (m *Mirrors) notes(d *Description, say func(format string, args ...any)) {
	last := ""
	for _, p := range d.Partitions {
		if p.Topic != last {
			for _, a := range p.Annotations {
				say("%s: %s", p.Topic, a)
			}
		}
		last = p.Topic
		if p.LostAckedRecords {
			say("%s-%d: this destination has lost acknowledged records", p.Topic, p.Partition)
		}
	}
}

func (m *Mirrors) ago(ms int64) string {
	if ms < 0 {
		return "never"
	}
	d := m.Now().Sub(time.UnixMilli(ms))
	if d < time.Second {
		return "now"
	}
	return d.Round(time.Second).String() + " ago"
}
