package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/admin"
)

// Mirrors carries out the verbs on mirrors and writes what came of them.
type Mirrors struct {
	S   *Session
	P   *Printer
	Now func() time.Time
}

// source connects to the source of a mirror; an error means that it does not
// answer.
func (m *Mirrors) source(ctx context.Context, l *Listing) (*Session, error) {
	return Dial(ctx, strings.Split(l.SourceBootstrap, ","), "lockstep-cli", probeTimeout)
}

// find returns a mirror of this cluster.
func (m *Mirrors) find(ctx context.Context, name string) (*Listing, error) {
	list, err := m.S.listMirrors(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Mirror == name {
			return &list[i], nil
		}
	}
	return nil, Fail("mirror "+name, errors.New("this cluster has none of that name"), "create it first; mirrors live on the destination")
}

// Create makes a mirror from the settings of a properties file.
func (m *Mirrors) Create(ctx context.Context, name, configFile string) error {
	configs, err := ReadProperties(configFile)
	if err != nil {
		return err
	}
	return m.CreateWith(ctx, name, configs)
}

// CreateWith makes a mirror from settings.
func (m *Mirrors) CreateWith(ctx context.Context, name string, configs map[string]string) error {
	if configs["bootstrap.servers"] == "" {
		return Fail("creating mirror "+name, errors.New("bootstrap.servers is not set"), "name the source cluster's brokers in the mirror's settings")
	}
	if err := m.S.Mirrors.CreateMirror(ctx, name, configs); err != nil {
		return Fail("creating mirror "+name, err, "")
	}
	return m.done(map[string]any{"mirror": name}, "Created mirror %s", name)
}

// Delete removes a mirror whose topics have all stopped.
func (m *Mirrors) Delete(ctx context.Context, name string) error {
	if err := m.S.Mirrors.DeleteMirror(ctx, name); err != nil {
		return Fail("deleting mirror "+name, err, "")
	}
	return m.done(map[string]any{"mirror": name}, "Deleted mirror %s", name)
}

// done writes the answer to a verb.
func (m *Mirrors) done(doc map[string]any, format string, args ...any) error {
	if m.P.JSON {
		return m.P.Document(doc)
	}
	m.P.Line(format, args...)
	return nil
}

// Add begins to mirror the topics of the source that fit the patterns.
func (m *Mirrors) Add(ctx context.Context, name string, patterns Patterns, sync bool) error {
	l, err := m.find(ctx, name)
	if err != nil {
		return err
	}
	src, unreachable := m.source(ctx, l)
	if unreachable == nil {
		defer src.Close()
	}
	if sync {
		if err := m.checkSource(ctx, l, src, unreachable); err != nil {
			return err
		}
	}
	topics, err := m.sourceTopics(ctx, l, src, unreachable, patterns)
	if err != nil {
		return err
	}
	results, err := m.S.Mirrors.AddTopics(ctx, name, topics, kind(sync))
	if err != nil && len(results) == 0 {
		return Fail("adding topics to mirror "+name, err, "")
	}
	err = m.results("Added", "mirror topic(s) to mirror "+name, name, results)
	if sync {
		m.remarks(ctx, name, succeeded(results))
	}
	return err
}

func kind(sync bool) admin.MirrorType {
	if sync {
		return admin.Sync
	}
	return admin.Async
}

// checkSource refuses SYNC when the source is known not to be able to.
func (m *Mirrors) checkSource(ctx context.Context, l *Listing, src *Session, err error) error {
	var c admin.Capabilities
	if err == nil {
		c, err = src.Mirrors.Probe(ctx)
	}
	if err != nil {
		m.P.Note("WARNING: the source of mirror %s at %s does not answer (%s): going on; if it turns out not to support SYNC, describe will say so",
			l.Mirror, l.SourceBootstrap, reason(err))
		return nil
	}
	var why []string
	if c.FetchMax < 20 {
		why = append(why, fmt.Sprintf("it speaks Fetch up to version %d, and SYNC needs 20", c.FetchMax))
	}
	if c.MirrorSync < 1 {
		why = append(why, fmt.Sprintf("its feature mirror.sync.version is %d, and SYNC needs 1", c.MirrorSync))
	}
	if len(why) > 0 {
		return Fail("the source of mirror "+l.Mirror+" at "+l.SourceBootstrap+" does not support SYNC", errors.New(strings.Join(why, "; ")),
			"upgrade all its brokers and finalise the feature, or mirror ASYNC; nothing was changed")
	}
	return nil
}

// sourceTopics resolves patterns at the source. Plain names need no list.
func (m *Mirrors) sourceTopics(ctx context.Context, l *Listing, src *Session, err error, patterns Patterns) ([]string, error) {
	var all []string
	if err == nil {
		all, err = src.Topics(ctx)
	}
	if err != nil {
		if names, ok := patterns.Literals(); ok {
			m.P.Note("WARNING: the source of mirror %s at %s does not answer: taking %s as names of topics", l.Mirror, l.SourceBootstrap, patterns)
			return names, nil
		}
		return nil, Fail("resolving "+patterns.String()+" at the source", err, "name the topics without patterns, or bring the source back")
	}
	return some(patterns, all, "the source cluster "+l.SourceClusterID)
}

// some filters names and refuses an empty choice.
func some(patterns Patterns, all []string, where string) ([]string, error) {
	topics := patterns.Filter(all)
	if len(topics) == 0 {
		return nil, Fail("topics "+patterns.String(), fmt.Errorf("none of %d topics of %s fits", len(all), where), "a pattern must fit the whole name, such as 'orders-.*'")
	}
	return topics, nil
}

// Alter changes the mirror type of topics that are being mirrored.
func (m *Mirrors) Alter(ctx context.Context, name string, patterns Patterns, sync bool) error {
	l, err := m.find(ctx, name)
	if err != nil {
		return err
	}
	topics, err := some(patterns, l.Names, "mirror "+name)
	if err != nil {
		return err
	}
	if sync {
		src, unreachable := m.source(ctx, l)
		if unreachable == nil {
			defer src.Close()
		}
		if err := m.checkSource(ctx, l, src, unreachable); err != nil {
			return err
		}
	}
	results, err := m.S.Mirrors.AlterMirrorTopicType(ctx, name, topics, kind(sync))
	if err != nil {
		return Fail("altering topics of mirror "+name, err, "")
	}
	err = m.results("Altered", "mirror topic(s) to "+kind(sync).String()+" in mirror "+name, name, results)
	if sync {
		m.remarks(ctx, name, succeeded(results))
	}
	return err
}

func succeeded(results []admin.TopicResult) (topics []string) {
	for _, r := range results {
		if r.Err == nil {
			topics = append(topics, r.Topic)
		}
	}
	return topics
}

// results writes what was done in one line and each refusal on Err.
func (m *Mirrors) results(verb, what, mirror string, results []admin.TopicResult) error {
	type topic struct {
		Topic string `json:"topic"`
		Error string `json:"error,omitempty"`
	}
	list := []topic{}
	done := succeeded(results)
	for _, r := range results {
		t := topic{Topic: r.Topic}
		if r.Err != nil {
			t.Error = r.Err.Error()
			m.P.Note("%s: %s", r.Topic, t.Error)
		}
		list = append(list, t)
	}
	if m.P.JSON {
		if err := m.P.Document(map[string]any{"mirror": mirror, "topics": list}); err != nil {
			return err
		}
	} else if len(done) > 0 {
		m.P.Line("%s %d %s: [%s]", verb, len(done), what, strings.Join(done, ", "))
	}
	if n := len(results) - len(done); n > 0 {
		return Fail(fmt.Sprintf("%d of %d topics", n, len(results)), errors.New("refused, see above"), "")
	}
	return nil
}

// remarks warns of what describe has to say about topics just made SYNC.
func (m *Mirrors) remarks(ctx context.Context, mirror string, topics []string) {
	d, err := m.describe(ctx, mirror)
	if err != nil {
		return // the verb itself was answered
	}
	for _, t := range topics {
		for _, a := range d.annotations(t) {
			m.P.Note("WARNING: %s: %s", t, a)
		}
	}
}

func (d *Description) annotations(topic string) []string {
	for _, p := range d.Partitions {
		if p.Topic == topic {
			return p.Annotations
		}
	}
	return nil
}

// ReleaseSync releases registrations at this, the source, cluster. Without
// patterns all topics of the mirror are released.
func (m *Mirrors) ReleaseSync(ctx context.Context, name string, patterns *Patterns) error {
	d, err := m.describe(ctx)
	if err != nil {
		return err
	}
	var registered []string
	for _, r := range d.Registrations {
		if r.Mirror == name && !r.Released {
			registered = append(registered, r.Topic)
		}
	}
	slices.Sort(registered)
	topics := registered
	if patterns != nil {
		topics = patterns.Filter(registered)
	}
	if len(topics) == 0 {
		why := fmt.Errorf("mirror %s has no registration in force here", name)
		if len(registered) > 0 {
			why = fmt.Errorf("%s fits none of [%s]", patterns, strings.Join(registered, ", "))
		}
		return Fail("release", why, "run this on the source cluster; describe there shows the registrations")
	}
	m.P.Note("WARNING: from now on acks=all no longer waits for mirror %s on [%s]: what it has not received yet is lost if this cluster is lost", name, strings.Join(topics, ", "))
	results, err := m.S.Mirrors.ReleaseMirrorSyncTopics(ctx, name, topics)
	if err != nil && len(results) == 0 {
		return Fail("releasing topics of mirror "+name, err, "")
	}
	return m.results("Released", "sync registration(s) of mirror "+name, name, released(results))
}

// List writes the mirrors of this cluster.
func (m *Mirrors) List(ctx context.Context) error {
	list, err := m.S.listMirrors(ctx)
	switch {
	case err != nil:
		return err
	case m.P.JSON:
		return m.P.Document(list)
	case len(list) == 0:
		m.P.Line("No mirrors found")
		return nil
	}
	var rows [][]string
	for _, l := range list {
		rows = append(rows, []string{l.Mirror, strconv.Itoa(l.Topics), l.SourceClusterID, l.SourceBootstrap})
	}
	m.P.Table([]Column{{"MIRROR", 30}, {"TOPICS", 10}, {"SOURCE-CLUSTER-ID", 26}, {"SOURCE-BOOTSTRAP-SERVER", 50}}, rows)
	return nil
}

// sort puts partitions of one topic together, the best candidate for a
// fail-over first: the latest source epoch, then the longest log.
func (d *Description) sort() {
	slices.SortFunc(d.Partitions, func(a, b MirrorPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(b.LastSourceEpoch, a.LastSourceEpoch),
			cmp.Compare(b.DestinationOffset, a.DestinationOffset), cmp.Compare(a.Mirror, b.Mirror))
	})
	slices.SortFunc(d.Registrations, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Mirror, b.Mirror))
	})
}
