package sdk

import "github.com/hashicorp/go-plugin"

// Protocols of the border. A broker and a plugin use the highest both know; a
// broker keeps the one before the newest.
//
//	1  Describe, Handle
//	2  Decision.Note
const (
	OldestProtocol = 1
	NewestProtocol = 2
)

// MaxMessage is the most one event or decision may take, in bytes.
const MaxMessage = 4 << 20

// Handshake tells a broker's child from a program somebody started by hand.
var Handshake = plugin.HandshakeConfig{ProtocolVersion: NewestProtocol, MagicCookieKey: "LOCKSTEP_PLUGIN", MagicCookieValue: "policy"}

// Service is the name a policy is dispensed by.
const Service = "policy"

// Plugins is what both sides hand to go-plugin. The broker has no policy of its
// own to serve: p is nil.
func Plugins(p Plugin) map[int]plugin.PluginSet {
	sets := map[int]plugin.PluginSet{}
	for v := OldestProtocol; v <= NewestProtocol; v++ {
		sets[v] = plugin.PluginSet{Service: &border{policy: p, version: v}}
	}
	return sets
}
