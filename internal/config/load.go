package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/magiconair/properties"
)

// Warnings are remarks on settings that are accepted, one line each.
type Warnings []string

// Load reads a properties text and, over it, overrides of the form name=value.
// The error names every faulty setting, with its line.
func Load(source []byte, overrides []string) (Config, Warnings, error) {
	l := &loader{given: map[string]bool{}}
	l.keys = bind(&l.c, &l.r)
	l.c.Security = map[string]string{}
	if len(source) > maxText {
		return Config{}, nil, fmt.Errorf("config: text of %d bytes is above %d", len(source), maxText)
	}
	reader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	props, err := reader.LoadBytes(source)
	if err != nil {
		return Config{}, nil, fmt.Errorf("config: %w", err)
	}
	lines := keyLines(string(source))
	for _, name := range props.Keys() {
		value, _ := props.Get(name)
		l.set(name, value, fmt.Sprintf("line %d", lines[name]))
	}
	for _, o := range overrides {
		name, value, ok := strings.Cut(o, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			l.fail(fmt.Errorf("config: override: want name=value"))
			continue
		}
		l.set(name, value, "override")
	}
	if len(l.errs) == 0 {
		l.resolve()
	}
	if len(l.errs) > 0 {
		return Config{}, l.warnings, errors.Join(l.errs...)
	}
	return l.c, l.warnings, nil
}

type loader struct {
	c        Config
	r        raw
	keys     *binder
	given    map[string]bool
	warnings Warnings
	errs     []error
}

func (l *loader) fail(err error) { l.errs = append(l.errs, err) }

func (l *loader) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// set takes one setting from the given place.
func (l *loader) set(name, value, place string) {
	if e := l.keys.find(name); e != nil {
		l.given[name] = true
		if err := e.set(value); err != nil {
			l.fail(fmt.Errorf("config: %s: %s: %w", place, name, err))
		}
		return
	}
	switch {
	case isSecurity(name):
		l.c.Security[name] = value
	case isUnused(name):
		l.warn("%s: %s is known to Kafka and has no effect here", place, name)
	default:
		known := make([]string, 0, len(l.keys.entries)+len(unusedNames))
		for i := range l.keys.entries {
			known = append(known, l.keys.entries[i].name)
		}
		known = append(append(known, unusedNames...), securityNames...)
		l.fail(fmt.Errorf("config: %s: unknown setting %s; did you mean %s?", place, name, nearest(name, known)))
	}
}

// keyLines finds the line (from 1) on which each key stands last.
func keyLines(source string) map[string]int {
	lines := map[string]int{}
	continued := false
	for i, line := range strings.Split(source, "\n") {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t\f")
		isKey := !continued && line != "" && line[0] != '#' && line[0] != '!'
		comment := !continued && !isKey
		trailing := len(line) - len(strings.TrimRight(line, `\`))
		continued = !comment && trailing%2 == 1
		if isKey {
			lines[keyOf(line)] = i + 1
		}
	}
	return lines
}

// keyOf cuts the key off a line: up to an unescaped =, : or blank.
func keyOf(line string) string {
	var key strings.Builder
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			i++
			key.WriteByte(line[i])
		case strings.IndexByte("=: \t\f", c) >= 0:
			return key.String()
		default:
			key.WriteByte(c)
		}
	}
	return key.String()
}

// resolve turns what was given into fields that depend on several settings, and
// checks relations between settings.
func (l *loader) resolve() {
	c, r := &l.c, &l.r
	c.NodeID = r.nodeID
	if l.given["broker.id"] && r.brokerID >= 0 {
		if l.given["node.id"] && r.nodeID != r.brokerID {
			l.fail(fmt.Errorf("config: node.id=%d and broker.id=%d differ; set node.id alone", r.nodeID, r.brokerID))
		}
		c.NodeID = r.brokerID
	}
	c.Broker, c.Controller = slices.Contains(r.roles, "broker"), slices.Contains(r.roles, "controller")
	if !c.Broker && !c.Controller {
		l.fail(errors.New("config: process.roles: want broker, controller or both"))
	}
	if !l.given["log.dirs"] {
		c.LogDirs = r.logDir
	}
	if len(c.LogDirs) == 0 {
		l.fail(errors.New("config: log.dirs is empty"))
	}
	for i, dir := range c.LogDirs {
		if slices.Contains(c.LogDirs[:i], dir) {
			l.fail(fmt.Errorf("config: log.dirs names %s twice", dir))
		}
	}
	const hour, minute = 3_600_000, 60_000
	if !l.given["log.roll.ms"] {
		c.RollMs = r.rollHours * hour
	}
	if !l.given["log.roll.jitter.ms"] {
		c.RollJitterMs = r.rollJitterHours * hour
	}
	switch {
	case l.given["log.retention.ms"]:
	case l.given["log.retention.minutes"]:
		c.RetentionMs = max(-1, r.retentionMinutes*minute)
	default:
		c.RetentionMs = max(-1, r.retentionHours*hour)
	}
	if c.RetentionMs == 0 {
		l.fail(errors.New("config: log.retention: 0 would delete everything; want -1 or above 0"))
	}
	l.resolveNetwork()
	l.checkRelations()
}

func (l *loader) checkRelations() {
	c := &l.c
	if c.MinInsyncReplicas > c.DefaultReplication {
		l.warn("min.insync.replicas=%d is above default.replication.factor=%d: acks=all cannot succeed on topics with defaults", c.MinInsyncReplicas, c.DefaultReplication)
	}
	if c.SessionTimeoutMs <= c.HeartbeatIntervalMs {
		l.fail(fmt.Errorf("config: broker.session.timeout.ms=%d must be above broker.heartbeat.interval.ms=%d", c.SessionTimeoutMs, c.HeartbeatIntervalMs))
	}
	if c.MirrorRetryMaxMs < c.MirrorRetryInitialMs {
		l.fail(fmt.Errorf("config: mirror.failed.retry.max.backoff.ms=%d is below mirror.failed.retry.initial.backoff.ms=%d", c.MirrorRetryMaxMs, c.MirrorRetryInitialMs))
	}
	if c.GroupMaxSessionMs < c.GroupMinSessionMs {
		l.fail(fmt.Errorf("config: group.max.session.timeout.ms=%d is below group.min.session.timeout.ms=%d", c.GroupMaxSessionMs, c.GroupMinSessionMs))
	}
	for kind, p := range c.plugins() {
		if sum, err := hex.DecodeString(p.SHA256); p.Path == "" && p.SHA256 != "" || p.Path != "" && (err != nil || len(sum) != sha256.Size) {
			l.fail(fmt.Errorf("config: lockstep.plugin.%s: path and sha256 go together, sha256 in hex (sha256sum %s)", kind, p.Path))
		}
	}
	if c.MessageMaxBytes > c.RequestMaxBytes {
		l.warn("message.max.bytes=%d is above socket.request.max.bytes=%d: such batches cannot arrive", c.MessageMaxBytes, c.RequestMaxBytes)
	}
}

// Values lists the used settings in the order of the table, as they are in
// force. Settings that others decide (log.roll.hours and the like) are left out.
func (c Config) Values() [][2]string {
	shown := c
	var r raw
	b := bind(&c, &r)
	c = shown
	var out [][2]string
	for i := range b.entries {
		e := &b.entries[i]
		if !slices.Contains(derivedNames, e.name) {
			out = append(out, [2]string{e.name, e.get()})
		}
	}
	return out
}

// derivedNames are settings read into raw; their outcome is in other fields.
var derivedNames = []string{"node.id", "broker.id", "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
	"listeners", "advertised.listeners", "listener.security.protocol.map", "log.dir", "log.roll.hours", "log.roll.jitter.hours",
	"log.retention.minutes", "log.retention.hours"}
