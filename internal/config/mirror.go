package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Mirror is the configuration of a cluster mirror.
type Mirror struct {
	BootstrapServers  []string
	SourceClusterID   string
	RequestTimeoutMs  int32
	ConnectTimeoutMs  int64
	ConnectMaxMs      int64
	ConnectionsIdleMs int64
	FetchWaitMaxMs    int32
	FetchBackoffMs    int32
	FetchMinBytes     int32
	ResponseMaxBytes  int32
	FetchMaxBytes     int32
	SocketTimeoutMs   int32
	SocketReceive     int32    // bytes
	PropertiesExclude []string // topic settings that are not copied
	TopicsInclude     []string // patterns
	TopicsExclude     []string
	GroupsInclude     []string
	GroupsExclude     []string
	ACLsInclude       []string
	SecurityProtocol  string
	SASLMechanism     string
	// Security are the remaining ssl.* and sasl.* settings, as given: secrets.
	Security map[string]string
}

// defaultPropertiesExclude keeps a destination's own durability and throttles.
const defaultPropertiesExclude = "follower.replication.throttled.replicas,leader.replication.throttled.replicas,message.timestamp.difference.max.ms," +
	"log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,message.timestamp.type,unclean.leader.election.enable,min.insync.replicas"

func bindMirror(m *Mirror) *binder {
	b := new(binder)
	list(b, "bootstrap.servers", &m.BootstrapServers, "")
	text(b, "mirror.source.cluster.id", &m.SourceClusterID, "")
	num(b, "request.timeout.ms", &m.RequestTimeoutMs, 30_000, 0, maxInt32)
	num(b, "socket.connection.setup.timeout.ms", &m.ConnectTimeoutMs, 10_000, 1, maxInt64)
	num(b, "socket.connection.setup.timeout.max.ms", &m.ConnectMaxMs, 30_000, 1, maxInt64)
	num(b, "connections.max.idle.ms", &m.ConnectionsIdleMs, 600_000, -1, maxInt64)
	num(b, "mirror.fetch.wait.max.ms", &m.FetchWaitMaxMs, 1000, 0, maxInt32)
	num(b, "mirror.fetch.backoff.ms", &m.FetchBackoffMs, 1000, 0, maxInt32)
	num(b, "mirror.fetch.min.bytes", &m.FetchMinBytes, 1, 0, maxInt32)
	num(b, "mirror.fetch.response.max.bytes", &m.ResponseMaxBytes, 10<<20, 0, maxInt32)
	num(b, "mirror.fetch.max.bytes", &m.FetchMaxBytes, 1<<20, 0, maxInt32)
	num(b, "mirror.socket.timeout.ms", &m.SocketTimeoutMs, 30_000, 1, maxInt32)
	num(b, "mirror.socket.receive.buffer.bytes", &m.SocketReceive, 65_536, -1, maxInt32)
	list(b, "mirror.topic.properties.exclude", &m.PropertiesExclude, defaultPropertiesExclude)
	list(b, "mirror.topics.include", &m.TopicsInclude, "")
	list(b, "mirror.topics.exclude", &m.TopicsExclude, "__.*")
	list(b, "mirror.groups.include", &m.GroupsInclude, ".*")
	list(b, "mirror.groups.exclude", &m.GroupsExclude, "")
	list(b, "mirror.acls.include", &m.ACLsInclude, "*")
	oneOf(b, "security.protocol", &m.SecurityProtocol, "PLAINTEXT", protocols...)
	text(b, "sasl.mechanism", &m.SASLMechanism, "PLAIN")
	return b
}

// MirrorOf returns the configuration of a mirror with these settings. Whether
// the required ones are there is Complete's business: they may come later.
func MirrorOf(settings map[string]string) (Mirror, error) {
	m := Mirror{}
	b := bindMirror(&m)
	m.Security = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := settings[name]
		if slices.Contains(securityNames, name) {
			m.Security[name] = value
			continue
		}
		if err := setNamed(b, name, value); err != nil {
			return Mirror{}, err
		}
	}
	for _, s := range m.BootstrapServers {
		if hp, err := parseHostPort(s); err != nil || hp.Host == "" || hp.Port == 0 {
			return Mirror{}, fmt.Errorf("config: bootstrap.servers: %q is not host:port", s)
		}
	}
	for _, patterns := range [][]string{m.TopicsInclude, m.TopicsExclude, m.GroupsInclude, m.GroupsExclude} {
		for _, p := range patterns {
			if _, err := regexp.Compile(p); err != nil {
				return Mirror{}, fmt.Errorf("config: %q is not a pattern: %w", p, err)
			}
		}
	}
	return m, nil
}

// Complete tells whether the settings a mirror cannot do without are there.
func (m *Mirror) Complete() error {
	switch {
	case len(m.BootstrapServers) == 0:
		return fmt.Errorf("config: bootstrap.servers is missing")
	case m.SourceClusterID == "":
		return fmt.Errorf("config: mirror.source.cluster.id is missing")
	}
	return nil
}

// ValidateMirror tells whether a mirror may have this setting.
func ValidateMirror(name, value string) error {
	_, err := MirrorOf(map[string]string{name: value})
	return err
}

// MirrorNames lists the settings a mirror can have besides ssl.* and sasl.*.
func MirrorNames() []string {
	var m Mirror
	return namesOf(bindMirror(&m))
}

// ValidMirrorName tells whether a mirror may have this name: 1 to 249 letters,
// digits, dots, dashes and underscores, but neither . nor .. .
func ValidMirrorName(name string) bool {
	if name == "" || len(name) > 249 || name == "." || name == ".." {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
