package sim

import (
	"encoding/binary"

	"lockstep/internal/wire"
)

// asked is a request that waits for its answer.
type asked struct {
	corr         int32
	key, version int16
}

// link is a client's connection: requests out in pieces, answers in, in order.
type link struct {
	w    *World
	n    *node // nil: the source
	e    *end
	out  []byte
	in   []byte
	corr int32
	wait []asked
	lazy int // acts for which nothing is read
}

// node is the broker it speaks to.
func (l *link) node() *node {
	if l.n == nil {
		return l.w.src
	}
	return l.n
}

func (l *link) up() bool { return l.e != nil }

func (l *link) open() {
	l.e = l.w.dial(l.node())
	l.corr = 0
}

// drop forgets the connection; reset or closed, as it happens.
func (l *link) drop() {
	if l.e == nil {
		return
	}
	if l.w.rnd.IntN(2) == 0 {
		l.e.reset()
	} else {
		l.e.close()
	}
	l.e, l.out, l.in, l.wait, l.lazy = nil, nil, nil, nil, 0
}

// dead tells whether the other side is gone and all it said is read.
func (l *link) dead() bool {
	rx := l.e.rx
	return l.e.tx.dead || !rx.silent(l.w) && (rx.dead || rx.eof && len(rx.buf) == 0)
}

// send puts a request on its way.
func (l *link) send(key, version int16, answered bool, body func([]byte) []byte) int32 {
	l.corr++
	start := len(l.out)
	b := wire.BeginRequest(l.out, key, version, l.corr, "sim")
	b = body(b)
	wire.EndRequest(b, start)
	l.out = b
	if answered {
		l.wait = append(l.wait, asked{l.corr, key, version})
	}
	return l.corr
}

// pump moves bytes, any number of them at a time.
func (l *link) pump() bool {
	moved := false
	if tx := l.e.tx; len(l.out) > 0 && !tx.dead && len(tx.buf) < socketBytes {
		n := l.w.some(len(l.out))
		tx.buf = append(tx.buf, l.out[:n]...)
		l.out = l.out[n:]
		moved = true
	}
	if l.lazy > 0 && !l.w.calm {
		l.lazy--
		return moved
	}
	if l.w.rnd.IntN(200) == 0 {
		l.lazy = 50
	}
	if rx := l.e.rx; len(rx.buf) > 0 && !rx.silent(l.w) {
		n := l.w.some(len(rx.buf))
		l.in = append(l.in, rx.buf[:n]...)
		rx.buf = rx.buf[n:]
		moved = true
	}
	return moved
}

// next returns the body of the next answer. AnswersInOrder.
func (l *link) next() (asked, []byte, bool) {
	if len(l.in) < 4 {
		return asked{}, nil, false
	}
	size := int(binary.BigEndian.Uint32(l.in))
	if len(l.in) < 4+size {
		return asked{}, nil, false
	}
	frame := l.in[4 : 4+size]
	l.in = l.in[4+size:]
	l.w.check(len(l.wait) > 0, "AnswersInOrder", "an answer to nothing")
	a := l.wait[0]
	l.wait = l.wait[1:]
	corr, body, err := wire.ParseResponseHeader(frame, a.key, a.version)
	l.w.check(err == nil && corr == a.corr, "AnswersInOrder", "answer to ", corr, " where that to ", a.corr, " is due: ", err)
	return a, body, true
}

// coldAnswer is what the fake cold handler says: the version, nothing else.
func coldAnswer(key, version int16, corr int32) []byte {
	b := wire.BeginResponse(nil, key, version, corr)
	b = wire.AppendInt16(b, version)
	wire.EndResponse(b, 0, 0)
	return b
}
