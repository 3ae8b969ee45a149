package dataplane

import (
	"encoding/binary"

	"lockstep/internal/wire"
	"lockstep/ioring"
)

// conn is one connection: bytes in become frames, answers go out in the order
// of their requests. It lives on one shard.
type conn struct {
	slot    int32
	gen     uint32
	fd      int32
	closing bool
	armed   bool // a receive is in flight
	sending bool // a send is in flight
	closed  bool // Close has been answered
	muted   bool // a cold or a stalled request: nothing is parsed until it is answered
	listed  bool // in Core.toSend
	hungry  bool // in Core.hungry: waits for frame memory

	in    *frame // bytes being parsed, from at
	at    int
	size  [4]byte // a length prefix in pieces
	sizeN int
	big   *frame // a frame that did not fit its piece
	bigN  int    // bytes of it that are there
	need  int    // size of the frame that waits for memory

	answers  []*answer
	out      outbox
	listener int32
	session  *fetchSession // of a mirror that fetches from us
	lane     *lane         // a mirror's connection to its source; nil for a client
	moved    int64         // when bytes last came or left
}

// outbox is what is being sent: answers whose bytes are in flight.
type outbox struct {
	sent   []*answer // whole answers, freed when the send has ended
	pieces [][]byte  // all of them; those before from have left
	from   int
	bytes  int // from from on
}

func (o *outbox) rest() [][]byte { return o.pieces[o.from:min(len(o.pieces), o.from+sendPieces)] }

func (c *Core) token(cn *conn) uint64 { return uint64(cn.gen)<<32 | uint64(uint32(cn.slot)) }

func (c *Core) lookup(token uint64) *conn {
	slot := uint32(token)
	if int(slot) >= len(c.conns) {
		return nil
	}
	cn := c.conns[slot]
	if cn.gen != uint32(token>>32) {
		return nil
	}
	return cn
}

// adopt makes a connection of an accepted or connected descriptor. Who accepted
// or connected it has counted it in load.
func (c *Core) adopt(fd int32) *conn {
	var cn *conn
	if n := len(c.freeConns); n > 0 {
		cn = c.conns[c.freeConns[n-1]]
		c.freeConns = c.freeConns[:n-1]
	} else {
		cn = &conn{slot: int32(len(c.conns))}
		c.conns = append(c.conns, cn)
	}
	cn.fd, cn.closed, cn.moved = fd, false, c.now
	c.open++
	c.idle.watch(c)
	c.arm(cn)
	return cn
}

// arm asks for more bytes: the rest of a large frame, or the next piece.
func (c *Core) arm(cn *conn) {
	if cn.armed || cn.closing || cn.in != nil {
		return
	}
	cn.armed = true
	if cn.big != nil {
		c.op(ioring.Op{Kind: ioring.RecvInto, FD: cn.fd, Token: c.token(cn), Bytes: cn.big.buf.Data[cn.bigN:]})
		return
	}
	c.op(ioring.Op{Kind: ioring.Recv, FD: cn.fd, Token: c.token(cn)})
}

// received handles the end of a receive.
func (c *Core) received(cn *conn, ev *ioring.Event) {
	cn.armed = false
	if cn.closing || ev.Res <= 0 {
		if ev.Buf != nil {
			c.pool.Free(ev.Buf)
		}
		c.close(cn)
		return
	}
	cn.moved = c.now
	c.m.bytesIn.Add(int64(ev.Res))
	if ev.Kind == ioring.RecvInto {
		if cn.bigN += int(ev.Res); cn.bigN < len(cn.big.buf.Data) {
			c.close(cn) // the stream ended inside a frame
			return
		}
		f := cn.big
		cn.big, cn.bigN = nil, 0
		c.dispatch(cn, f.buf.Data, f)
		f.Release()
	} else {
		cn.in, cn.at = c.newFrame(ev.Buf), 0
	}
	c.parse(cn)
}

// parse cuts frames out of what has been received and hands them on, until the
// bytes or the connection's room for answers are used up.
func (c *Core) parse(cn *conn) {
	for cn.in != nil && !cn.muted && !cn.closing && len(cn.answers) < maxAnswers {
		if c.owed >= maxOwed {
			c.starve(cn) // until some are answered
			break
		}
		b := cn.in.buf.Data[cn.at:]
		if cn.sizeN < 4 {
			n := copy(cn.size[cn.sizeN:], b)
			cn.sizeN += n
			cn.at += n
			if b = b[n:]; cn.sizeN < 4 {
				c.letGo(cn)
				break
			}
		}
		size := int(int32(binary.BigEndian.Uint32(cn.size[:])))
		if size < minFrame || size > c.frameLimit(cn) {
			c.refuseFrame(cn, size)
			return
		}
		if len(b) < size {
			c.startLarge(cn, b, size)
			break
		}
		cn.at += size
		cn.sizeN = 0
		c.dispatch(cn, b[:size], cn.in)
		if cn.in != nil && cn.at == len(cn.in.buf.Data) {
			c.letGo(cn)
		}
	}
	if !cn.muted && !cn.closing && !cn.hungry && len(cn.answers) < maxAnswers {
		c.arm(cn)
	}
}

// frameLimit is the largest frame a connection may bring. An answer of a
// mirror's source is no request: it may hold a batch as large as the source has.
func (c *Core) frameLimit(cn *conn) int {
	if cn.lane != nil {
		return max(c.eng.o.MaxRequestBytes, maxLaneFrame)
	}
	return c.eng.o.MaxRequestBytes
}

// minFrame is the size of the shortest header: key, version, correlation id.
const minFrame = 8

// startLarge moves the beginning of a frame into a buffer of its whole size;
// the rest is received straight into it. Without memory the connection waits.
func (c *Core) startLarge(cn *conn, b []byte, size int) {
	var piece *ioring.Buffer
	if cn.in.refs.Load() == 1 { // nobody else reads it: it goes home below
		piece = cn.in.buf
	}
	buf := c.pool.AllocInPlaceOf(piece, size)
	if buf == nil {
		cn.need = size
		c.starve(cn)
		return
	}
	cn.sizeN = 0
	cn.bigN = copy(buf.Data, b)
	cn.big = c.newFrame(buf)
	c.letGo(cn)
	if piece != nil {
		c.bringHome()
	}
}

// starve puts a connection in the queue for frame memory.
func (c *Core) starve(cn *conn) {
	if !cn.hungry {
		cn.hungry = true
		c.hungry = append(c.hungry, cn)
	}
	c.home.starving.Store(true)
}

// feed lets connections that waited for memory try again.
func (c *Core) feed() {
	if len(c.hungry) == 0 {
		return
	}
	c.home.starving.Store(false)
	waiting := c.hungry
	c.hungry = c.hungry[len(waiting):]
	for _, cn := range waiting {
		if cn.hungry {
			cn.hungry = false
			c.parse(cn)
		}
	}
	if len(c.hungry) == 0 {
		c.hungry = waiting[:0]
	}
}

func (c *Core) letGo(cn *conn) {
	if cn.in != nil {
		cn.in.Release()
		cn.in, cn.at = nil, 0
	}
}

// unmute goes on with a connection after a cold or stalled request.
func (c *Core) unmute(cn *conn) {
	cn.muted = false
	c.parse(cn)
}

func (c *Core) refuseFrame(cn *conn, size int) {
	c.m.badFrames.Add(1)
	if c.m.badFrames.Load()%100 == 1 { // the first and then every hundredth: a scanner must not fill the log
		c.eng.o.Log.Warn("connection closed: impossible request size", "bytes", size, "max", c.eng.o.MaxRequestBytes,
			"hint", frameHint(size), "count", c.m.badFrames.Load())
	}
	c.close(cn)
}

// frameHint names what most likely speaks to us when it is not Kafka.
func frameHint(size int) string {
	switch {
	case size>>8 == 0x474554 || size>>24 == 'P' || size>>24 == 'G':
		return "looks like HTTP"
	case size>>16 == 0x1603:
		return "looks like TLS; this listener is PLAINTEXT"
	}
	return "not a Kafka request, or socket.request.max.bytes is too small"
}

// wantSend puts the connection on this turn's list of those to send to.
func (c *Core) wantSend(cn *conn) {
	if !cn.listed && !cn.closed {
		cn.listed = true
		c.toSend = append(c.toSend, cn)
	}
}

// flush queues one send for a connection: the answers at the head of its order
// that are ready.
func (c *Core) flush(cn *conn) {
	if cn.sending || cn.closing || cn.closed { // closed: buried while it was listed
		return
	}
	o := &cn.out
	for len(cn.answers) > 0 && cn.answers[0].ready && len(o.pieces) < sendPieces && o.bytes < maxSendBytes {
		a := cn.answers[0]
		if a.hangup {
			if len(o.pieces) == 0 {
				c.close(cn)
				return
			}
			break
		}
		if len(o.pieces)+2*len(a.cuts)+1 > sendPieces && len(o.pieces) > 0 {
			break
		}
		cn.popAnswer()
		o.add(a)
	}
	if len(o.pieces) == 0 {
		c.release(o) // unanswered requests only
	} else {
		c.send(cn)
	}
	if !cn.muted && cn.in != nil {
		c.parse(cn) // there is room for answers again
	} else if !cn.muted && !cn.hungry {
		c.arm(cn)
	}
}

func (cn *conn) popAnswer() {
	n := copy(cn.answers, cn.answers[1:])
	cn.answers[n] = nil
	cn.answers = cn.answers[:n]
}

// add lays an answer out as pieces.
func (o *outbox) add(a *answer) {
	o.sent = append(o.sent, a)
	if a.head == nil {
		return
	}
	from := 0
	put := func(b []byte) {
		if len(b) > 0 {
			o.pieces = append(o.pieces, b)
			o.bytes += len(b)
		}
	}
	for _, x := range a.cuts {
		put(a.head.Data[from:x.at])
		put(x.bytes)
		from = x.at
	}
	put(a.head.Data[from:])
}

// sent handles the end of a send: what is left of it goes out next.
func (c *Core) sent(cn *conn, res int32) {
	cn.sending = false
	if res <= 0 || cn.closing {
		c.close(cn)
		return
	}
	cn.moved = c.now
	c.m.bytesOut.Add(int64(res))
	o := &cn.out
	o.bytes -= int(res)
	n := int(res)
	for o.from < len(o.pieces) && n >= len(o.pieces[o.from]) {
		n -= len(o.pieces[o.from])
		o.from++
	}
	if o.from < len(o.pieces) {
		o.pieces[o.from] = o.pieces[o.from][n:]
		c.send(cn)
		return
	}
	c.release(o)
	c.wantSend(cn)
}

func (c *Core) send(cn *conn) {
	cn.sending = true
	c.op(ioring.Op{Kind: ioring.Send, FD: cn.fd, Token: c.token(cn), Pieces: cn.out.rest()})
}

func (c *Core) release(o *outbox) {
	for i, a := range o.sent {
		c.free(a)
		o.sent[i] = nil
	}
	clear(o.pieces)
	o.sent, o.pieces, o.from, o.bytes = o.sent[:0], o.pieces[:0], 0, 0
}

// close begins the end of a connection. What the kernel still holds of it is
// freed when its last operation has ended.
func (c *Core) close(cn *conn) {
	if !cn.closing {
		cn.closing = true
		c.op(ioring.Op{Kind: ioring.Close, FD: cn.fd, Token: c.token(cn)})
		c.open--
		c.load.Add(-1)
		c.endSession(cn.session)
		if cn.lane != nil {
			c.laneClosed(cn.lane)
			cn.lane = nil
		}
	}
	c.bury(cn)
}

// bury frees a closed connection that has nothing in flight.
func (c *Core) bury(cn *conn) {
	if !cn.closed || cn.armed || cn.sending {
		return
	}
	cn.gen++
	c.release(&cn.out)
	for i, a := range cn.answers {
		c.abandon(a)
		cn.answers[i] = nil
	}
	cn.answers = cn.answers[:0]
	c.letGo(cn)
	if cn.big != nil {
		cn.big.Release()
	}
	*cn = conn{slot: cn.slot, gen: cn.gen, closed: true, listed: cn.listed,
		answers: cn.answers, out: outbox{sent: cn.out.sent[:0], pieces: cn.out.pieces[:0]}}
	c.freeConns = append(c.freeConns, cn.slot)
}

// header of a request in hand.
type request struct {
	cn   *conn
	h    wire.Header
	body []byte
	f    *frame
}
