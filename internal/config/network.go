package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Listener is an address a node listens on or is reached at.
type Listener struct {
	Name     string
	Host     string // empty = all addresses
	Port     int32
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
}

// HostPort is an address.
type HostPort struct {
	Host string
	Port int32
}

// Voter is a member of the controller quorum.
type Voter struct {
	ID int32
	HostPort
}

var protocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

func (l *loader) resolveNetwork() {
	c, r := &l.c, &l.r
	protocolOf := map[string]string{}
	for _, m := range r.protocolMap {
		name, protocol, ok := strings.Cut(m, ":")
		if !ok || !slices.Contains(protocols, strings.ToUpper(protocol)) {
			l.fail(fmt.Errorf("config: listener.security.protocol.map: %q is not NAME:PROTOCOL", m))
		}
		protocolOf[strings.ToUpper(name)] = strings.ToUpper(protocol)
	}
	if len(c.ControllerListeners) == 0 && c.Controller && slices.ContainsFunc(r.listeners, func(s string) bool { return strings.HasPrefix(s, "CONTROLLER:") }) {
		c.ControllerListeners = []string{"CONTROLLER"}
	}
	c.Listeners = l.listeners("listeners", r.listeners, protocolOf)
	c.Advertised = c.Listeners
	if len(r.advertised) > 0 {
		c.Advertised = l.listeners("advertised.listeners", r.advertised, protocolOf)
	}
	for _, v := range r.voters {
		l.voter(v)
	}
	for _, s := range r.bootstrap {
		hp, err := parseHostPort(s)
		if err != nil {
			l.fail(fmt.Errorf("config: controller.quorum.bootstrap.servers: %w", err))
		}
		c.QuorumBootstrap = append(c.QuorumBootstrap, hp)
	}
	if c.AdminListener != "" {
		if _, err := parseHostPort(c.AdminListener); err != nil {
			l.fail(fmt.Errorf("config: lockstep.admin.listener: %w", err))
		}
	}
	l.checkListeners()
}

func (l *loader) voter(v string) {
	id, address, ok := strings.Cut(v, "@")
	n, err := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || n < 0 {
		l.fail(fmt.Errorf("config: controller.quorum.voters: %q is not id@host:port", v))
		return
	}
	hp, err := parseHostPort(address)
	if err != nil {
		l.fail(fmt.Errorf("config: controller.quorum.voters: %w", err))
	}
	if slices.ContainsFunc(l.c.QuorumVoters, func(o Voter) bool { return o.ID == int32(n) }) {
		l.fail(fmt.Errorf("config: controller.quorum.voters: node %d stands twice", n))
	}
	l.c.QuorumVoters = append(l.c.QuorumVoters, Voter{int32(n), hp})
}

func (l *loader) listeners(key string, items []string, protocolOf map[string]string) (out []Listener) {
	for _, item := range items {
		name, address, ok := strings.Cut(item, "://")
		name = strings.ToUpper(strings.TrimSpace(name))
		hp, err := parseHostPort(address)
		if !ok || name == "" || err != nil {
			l.fail(fmt.Errorf("config: %s: %q is not NAME://host:port", key, item))
			continue
		}
		protocol := protocolOf[name]
		switch {
		case protocol != "":
		case slices.Contains(protocols, name):
			protocol = name
		case slices.Contains(l.c.ControllerListeners, name):
			protocol = "PLAINTEXT"
		default:
			l.fail(fmt.Errorf("config: %s: no security protocol for listener %s in listener.security.protocol.map", key, name))
		}
		if slices.ContainsFunc(out, func(o Listener) bool { return o.Name == name }) {
			l.fail(fmt.Errorf("config: %s: listener %s stands twice", key, name))
		}
		out = append(out, Listener{name, hp.Host, hp.Port, protocol})
	}
	return out
}

func (l *loader) checkListeners() {
	c := &l.c
	find := func(in []Listener, name string) bool {
		return slices.ContainsFunc(in, func(o Listener) bool { return o.Name == name })
	}
	if len(c.Listeners) == 0 {
		l.fail(fmt.Errorf("config: listeners is empty"))
		return
	}
	for _, a := range c.Advertised {
		if !find(c.Listeners, a.Name) && !slices.Contains(c.ControllerListeners, a.Name) {
			l.fail(fmt.Errorf("config: advertised.listeners: %s is not in listeners", a.Name))
		}
		if len(l.r.advertised) > 0 && unspecified(a.Host) {
			l.fail(fmt.Errorf("config: advertised.listeners: %s: %q cannot be reached by others", a.Name, a.Host))
		}
	}
	for _, name := range c.ControllerListeners {
		if c.Controller && !find(c.Listeners, name) {
			l.fail(fmt.Errorf("config: controller.listener.names: %s is not in listeners", name))
		}
	}
	if !c.Broker {
		return
	}
	client := slices.IndexFunc(c.Listeners, func(o Listener) bool { return !slices.Contains(c.ControllerListeners, o.Name) })
	switch {
	case client < 0:
		l.fail(fmt.Errorf("config: listeners: a broker needs one that is not a controller listener"))
	case c.InterBrokerListener == "":
		c.InterBrokerListener = c.Listeners[client].Name
	case !find(c.Listeners, strings.ToUpper(c.InterBrokerListener)):
		l.fail(fmt.Errorf("config: inter.broker.listener.name: %s is not in listeners", c.InterBrokerListener))
	}
	c.InterBrokerListener = strings.ToUpper(c.InterBrokerListener)
}

// unspecified tells whether a host means all addresses of a machine.
func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsUnspecified()
}

// parseHostPort reads host:port, with brackets around an IPv6 address. The host
// may be empty.
func parseHostPort(s string) (HostPort, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return HostPort{}, fmt.Errorf("%q is not host:port", s)
	}
	port, err := strconv.ParseInt(s[i+1:], 10, 32)
	if err != nil || port < 0 || port > maxPort {
		return HostPort{}, fmt.Errorf("%q: the port is not a number from 0 to %d", s, maxPort)
	}
	host := s[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return HostPort{}, fmt.Errorf("%q: bracket without end", s)
		}
	} else if strings.Contains(host, ":") {
		return HostPort{}, fmt.Errorf("%q: an IPv6 address needs brackets", s)
	}
	return HostPort{host, int32(port)}, nil
}
