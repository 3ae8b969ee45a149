package dataplane

import (
	"lockstep/internal/wire"
)

// dispatch hands one request on: the hot keys to functions of this package, all
// else to the cold pool, which stops the connection's parsing until it answers.
func (c *Core) dispatch(cn *conn, frame []byte, f *frame) {
	if cn.lane != nil {
		c.lanes.frame(c, cn.lane, frame, f)
		return
	}
	h, body, err := wire.ParseHeader(frame)
	if err != nil {
		c.refuseRequest(cn, h, "malformed header")
		return
	}
	c.m.requests.Add(1)
	api := wire.Lookup(h.Key)
	if api == nil {
		c.refuseRequest(cn, h, "unknown api key")
		return
	}
	r := request{cn: cn, h: h, body: body, f: f}
	if h.Key == wire.KeyApiVersions {
		c.apiVersions(&r)
		return
	}
	if !api.Serves(h.Version) || h.Version > api.MaxVersion(c.eng.o.Unstable) {
		c.refuseRequest(cn, h, "unsupported version")
		return
	}
	switch h.Key {
	case wire.KeyProduce:
		c.produce(&r)
	case wire.KeyFetch:
		c.fetch(&r)
	case wire.KeyListOffsets:
		c.listOffsets(&r)
	default:
		c.cold(&r)
	}
}

// refuseRequest closes the connection, as Kafka does with what it cannot
// parse: there is no answer the client could read.
func (c *Core) refuseRequest(cn *conn, h wire.Header, why string) {
	if c.m.badRequests.Add(1)%100 == 1 {
		c.eng.o.Log.Warn("connection closed: "+why, "api_key", h.Key, "api_version", h.Version,
			"client_id", string(h.ClientID), "count", c.m.badRequests.Load())
	}
	c.hangUp(c.reserve(cn))
}

// apiVersions answers from the table; above our newest version a v0 body with
// UNSUPPORTED_VERSION tells the client what to ask again with (KIP-511).
func (c *Core) apiVersions(r *request) {
	a := c.reserve(r.cn)
	b := c.room(a, apiVersionsRoom)
	if !wire.Lookup(wire.KeyApiVersions).Serves(r.h.Version) {
		b = wire.BeginResponse(b, wire.KeyApiVersions, 0, r.h.Correlation)
		b = wire.AppendApiVersionsUnsupported(b)
	} else {
		b = wire.BeginResponse(b, wire.KeyApiVersions, r.h.Version, r.h.Correlation)
		answer := c.eng.apiVersions()
		b = wire.AppendApiVersions(b, r.h.Version, &answer)
	}
	wire.EndResponse(b, 0, 0)
	a.fill(b)
	c.done(a)
}

const apiVersionsRoom = 4 << 10

// coldRequest copies a request out of its frame and mutes the connection.
func (c *Core) cold(r *request) {
	a := c.reserve(r.cn)
	r.cn.muted = true
	c.m.cold.Add(1)
	req := &ColdRequest{Key: r.h.Key, Version: r.h.Version, Correlation: r.h.Correlation,
		ClientID: string(r.h.ClientID), Listener: r.cn.listener, Body: append([]byte(nil), r.body...)}
	c.eng.serveCold(c, req, a)
}

// coldAnswered puts an answer in its reserved place.
func (c *Core) coldAnswered(n *note) {
	a := n.ans
	if a.orphan {
		c.free(a)
		return
	}
	cn := a.conn
	if n.bytes == nil {
		c.hangUp(a)
	} else {
		b := c.room(a, len(n.bytes))
		a.fill(append(b, n.bytes...))
		c.done(a)
	}
	c.unmute(cn)
}
