package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"lockstep/internal/wire"
)

// Version of Produce that is spoken: the first that tells the mirror errors
// apart.
const Version = 14

// Target is a partition.
type Target struct {
	ID        [16]byte // of the topic
	Partition int32
}

// Answer is what a broker says of one batch.
type Answer struct {
	Err        wire.ErrorCode
	Message    string // the broker's words; may be empty
	BaseOffset int64
}

// Conn is a connection that produces.
type Conn struct {
	c           net.Conn
	r           *bufio.Reader
	out, in     []byte
	correlation int32
	answered    int32
}

// Dial connects to a broker.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &Conn{c: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Deadline bounds all reads and writes from now on.
func (c *Conn) Deadline(t time.Time) error { return c.c.SetDeadline(t) }

// Send sends a batch; its answer is for Receive, in the order of Sends. Send
// and Receive may run at the same time.
func (c *Conn) Send(t Target, acks int16, timeout time.Duration, batch []byte) error {
	p := wire.ProduceParams{Acks: acks, TimeoutMs: int32(timeout.Milliseconds()), TopicID: t.ID, Partition: t.Partition}
	c.out = wire.BeginRequest(c.out[:0], wire.KeyProduce, Version, c.correlation, "lockstep-perf")
	c.correlation++
	c.out = wire.AppendProduceRequest(c.out, Version, &p, batch)
	wire.EndRequest(c.out, 0)
	_, err := c.c.Write(c.out)
	return err
}

// Receive waits for the next answer.
func (c *Conn) Receive() (Answer, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return Answer{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return Answer{}, fmt.Errorf("an answer of %d bytes", n)
	}
	if cap(c.in) < int(n) {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	if _, err := io.ReadFull(c.r, c.in); err != nil {
		return Answer{}, err
	}
	correlation, body, err := wire.ParseResponseHeader(c.in, wire.KeyProduce, Version)
	if err != nil {
		return Answer{}, err
	}
	if correlation != c.answered {
		return Answer{}, fmt.Errorf("answer %d where %d was due", correlation, c.answered)
	}
	c.answered++
	var resp wire.ProduceResponse
	if err := resp.Parse(Version, body); err != nil {
		return Answer{}, err
	}
	it := resp.Iter()
	if !it.Next() {
		return Answer{}, errors.New("an answer without a partition")
	}
	return Answer{it.Err, string(it.Message), it.BaseOffset}, nil
}

// Produce sends a batch and waits for its answer.
func (c *Conn) Produce(t Target, acks int16, timeout time.Duration, batch []byte) (Answer, error) {
	if err := c.Send(t, acks, timeout, batch); err != nil {
		return Answer{}, err
	}
	return c.Receive()
}
