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

// Version of Produce that is spoken unless told otherwise: the first that tells
// the mirror errors apart.
const Version = 14

// Target is a partition.
type Target struct {
	ID        [16]byte // of the topic
	Topic     string   // its name: only versions that know no ids need it
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
	version     int16 // of Produce
	correlation int32
	answered    int32
}

// Dial connects to a broker, for Produce of Version.
func Dial(addr string) (*Conn, error) { return DialVersion(addr, Version) }

// DialVersion connects to a broker, for Produce of a version from 3 to 14.
func DialVersion(addr string, version int16) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &Conn{c: c, r: bufio.NewReaderSize(c, 64<<10), version: version}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Deadline bounds all reads and writes from now on.
func (c *Conn) Deadline(t time.Time) error { return c.c.SetDeadline(t) }

// Send sends a batch; its answer is for Receive, in the order of Sends. Send
// and Receive may run at the same time.
func (c *Conn) Send(t Target, acks int16, timeout time.Duration, batch []byte) error {
	c.out = produceRequest(c.out[:0], c.version, t, acks, timeout, batch)
	return c.write(c.out)
}

// correlationAt is where a request has its correlation id.
const correlationAt = 8

// produceRequest appends a request whose correlation id is 0.
func produceRequest(b []byte, version int16, t Target, acks int16, timeout time.Duration, batch []byte) []byte {
	start := len(b)
	p := wire.ProduceParams{Acks: acks, TimeoutMs: int32(timeout.Milliseconds()), Topic: t.Topic, TopicID: t.ID, Partition: t.Partition}
	b = wire.BeginRequest(b, wire.KeyProduce, version, 0, clientID)
	b = wire.AppendProduceRequest(b, version, &p, batch)
	wire.EndRequest(b, start)
	return b
}

// number gives a request that is about to be sent its correlation id.
func (c *Conn) number(request []byte) {
	binary.BigEndian.PutUint32(request[correlationAt:], uint32(c.correlation))
	c.correlation++
}

// write numbers one request and sends it.
func (c *Conn) write(request []byte) error {
	c.number(request)
	_, err := c.c.Write(request)
	return err
}

// Receive waits for the next answer.
func (c *Conn) Receive() (Answer, error) {
	body, err := c.body(wire.KeyProduce, c.version)
	if err != nil {
		return Answer{}, err
	}
	var resp wire.ProduceResponse
	if err := resp.Parse(c.version, body); err != nil {
		return Answer{}, err
	}
	it := resp.Iter()
	if !it.Next() {
		return Answer{}, errors.New("an answer without a partition")
	}
	return Answer{it.Err, string(it.Message), it.BaseOffset}, nil
}

// body waits for the next answer and returns what follows its header, valid
// until the next call.
func (c *Conn) body(key, version int16) ([]byte, error) {
	if err := c.frame(); err != nil {
		return nil, err
	}
	correlation, body, err := wire.ParseResponseHeader(c.in, key, version)
	if err != nil {
		return nil, err
	}
	if correlation != c.answered {
		return nil, fmt.Errorf("answer %d where %d was due", correlation, c.answered)
	}
	c.answered++
	return body, nil
}

// frame reads a frame into c.in.
func (c *Conn) frame() error {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return fmt.Errorf("an answer of %d bytes", n)
	}
	if cap(c.in) < int(n) {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	_, err := io.ReadFull(c.r, c.in)
	return err
}

// arrived tells whether Receive would return without waiting.
func (c *Conn) arrived() bool {
	if c.r.Buffered() < 4 {
		return false
	}
	size, err := c.r.Peek(4)
	return err == nil && c.r.Buffered()-4 >= int(binary.BigEndian.Uint32(size))
}

// Produce sends a batch and waits for its answer.
func (c *Conn) Produce(t Target, acks int16, timeout time.Duration, batch []byte) (Answer, error) {
	if err := c.Send(t, acks, timeout, batch); err != nil {
		return Answer{}, err
	}
	return c.Receive()
}
