package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/internal/wanlink"
	"lockstep/internal/wire"
)

// pair is a source and a destination with a link between them and a mirror.
type pair struct {
	t        *testing.T
	src, dst *node
	link     *wanlink.Link
	srcCl    *kgo.Client
	dstCl    *kgo.Client
}

const mirrorName = "dr"

// startPair runs both brokers. The source tells the destination the link's
// address, so that all between them goes through it.
func startPair(t *testing.T, rtt time.Duration, overrides ...string) *pair {
	t.Helper()
	p := &pair{t: t}
	wan := freeAddr(t)
	var err error
	if p.link, err = wanlink.Listen("127.0.0.1:0", wan, wanlink.Options{RTT: rtt}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.link.Close() })
	client := freeAddr(t)
	p.src = startNode(t, append(overrides,
		"listeners=CLIENT://"+client+",WAN://"+wan, "advertised.listeners=CLIENT://"+client+",WAN://"+p.link.Addr(),
		"listener.security.protocol.map=CLIENT:PLAINTEXT,WAN:PLAINTEXT", "inter.broker.listener.name=CLIENT")...)
	p.src.addr = client
	p.dst = startNode(t, append(overrides, "node.id=2")...)
	p.srcCl, p.dstCl = newClient(t, p.src.addr), newClient(t, p.dst.addr)
	return p
}

func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(append(kafkareq.Options(), kgo.SeedBrokers(addr), kgo.MetadataMinAge(20*time.Millisecond)), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// topic creates a topic at the source and returns its id.
func (p *pair) topic(ctx context.Context, name string, partitions int32, configs map[string]string) [16]byte {
	p.t.Helper()
	c := map[string]*string{}
	for k, v := range configs {
		c[k] = &v
	}
	r, err := kadm.NewClient(p.srcCl).CreateTopic(ctx, partitions, 1, c, name)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.ID
}

// mirror makes the mirror and adds topics to it.
func (p *pair) mirror(ctx context.Context, sync bool, topics ...string) {
	p.t.Helper()
	boot := p.link.Addr()
	create := &msg.CreateClusterMirrorRequest{MirrorName: mirrorName,
		Config: []msg.CreateClusterMirrorRequestMirrorConfig{{Name: "bootstrap.servers", Value: &boot}}}
	var created msg.CreateClusterMirrorResponse
	if err := kafkareq.Do(ctx, p.dstCl, create, &created); err != nil || created.ErrorCode != 0 {
		p.t.Fatalf("create mirror: %v, code %d %s", err, created.ErrorCode, deref(created.ErrorMessage))
	}
	add := &msg.AddTopicsToMirrorRequest{}
	name := mirrorName
	for _, n := range topics {
		x := msg.AddTopicsToMirrorRequestTopicState{TopicName: n, MirrorName: &name}
		if sync {
			x.MirrorType = 1
		}
		add.Topics = append(add.Topics, x)
	}
	var added msg.AddTopicsToMirrorResponse
	if err := kafkareq.Do(ctx, p.dstCl, add, &added); err != nil || added.ErrorCode != 0 {
		p.t.Fatalf("add topics: %v, code %d %s", err, added.ErrorCode, deref(added.ErrorMessage))
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// describe returns what the destination says of its mirror.
func (p *pair) describe(ctx context.Context) (topics []msg.DescribeClusterMirrorsResponseDescribedTopic) {
	var r msg.DescribeClusterMirrorsResponse
	if err := kafkareq.Do(ctx, p.dstCl, &msg.DescribeClusterMirrorsRequest{}, &r); err != nil {
		return nil
	}
	for _, m := range r.Mirrors {
		topics = append(topics, m.Topics...)
	}
	return topics
}

// until waits until cond holds for all mirrored topics.
func (p *pair) until(ctx context.Context, what string, limit time.Duration, cond func(msg.DescribeClusterMirrorsResponseDescribedTopic) bool) {
	p.t.Helper()
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		list := p.describe(ctx)
		all := len(list) > 0
		for _, x := range list {
			all = all && cond(x)
		}
		if all {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.t.Fatalf("not %s within %v: %+v\ndestination log:\n%s", what, limit, p.describe(ctx), p.dst.tail())
}

func inSync(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
	return x.EffectiveMirrorType == 1
}

func stopped(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
	for _, q := range x.Partitions {
		if q.StateValue != "STOPPED" {
			return false
		}
	}
	return len(x.Partitions) > 0
}

// failOver stops the mirror of the topics and waits until they are writable.
func (p *pair) failOver(ctx context.Context, topics ...string) {
	p.t.Helper()
	req := &msg.RemoveTopicsFromMirrorRequest{MirrorName: mirrorName}
	for _, n := range topics {
		req.Topics = append(req.Topics, msg.RemoveTopicsFromMirrorRequestTopicState{TopicName: n})
	}
	var resp msg.RemoveTopicsFromMirrorResponse
	if err := kafkareq.Do(ctx, p.dstCl, req, &resp); err != nil || resp.ErrorCode != 0 {
		p.t.Fatalf("stop: %v, code %d", err, resp.ErrorCode)
	}
	p.until(ctx, "STOPPED", 30*time.Second, stopped)
}

// release is --release-sync at the source.
func (p *pair) release(ctx context.Context) {
	p.t.Helper()
	var resp msg.UnregisterMirrorSyncTopicResponse
	if err := kafkareq.Do(ctx, p.srcCl, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: mirrorName, Release: true}, &resp); err != nil || resp.ErrorCode != 0 {
		p.t.Fatalf("release: %v, code %d %s", err, resp.ErrorCode, deref(resp.ErrorMessage))
	}
}

// rawConn is a connection that speaks the project's own codecs: versions that
// no client library has.
type rawConn struct {
	net.Conn
	corr int32
}

func dialRaw(addr string) (*rawConn, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	return &rawConn{Conn: c}, err
}

type produced struct {
	code    wire.ErrorCode
	base    int64
	message string
}

// produce sends one batch with acks=all and reads its answer.
func (c *rawConn) produce(v int16, topic string, id [16]byte, partition int32, timeout time.Duration, values ...[]byte) (produced, error) {
	if err := c.send(v, topic, id, partition, timeout, values...); err != nil {
		return produced{}, err
	}
	return c.answer(v, timeout+10*time.Second)
}

func (c *rawConn) send(v int16, topic string, id [16]byte, partition int32, timeout time.Duration, values ...[]byte) error {
	records := make([]wire.Record, len(values))
	for i, x := range values {
		records[i].Value = x
	}
	batch := wire.BuildBatch(nil, wire.PlainParams(time.Now().UnixMilli()), records...)
	b := wire.BeginRequest(nil, wire.KeyProduce, v, c.corr, "test")
	b = wire.AppendProduceRequest(b, v, &wire.ProduceParams{Acks: -1, TimeoutMs: int32(timeout.Milliseconds()), Topic: topic, TopicID: id, Partition: partition}, batch)
	wire.EndRequest(b, 0)
	c.corr++
	_, err := c.Write(b)
	return err
}

func (c *rawConn) answer(v int16, limit time.Duration) (produced, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return produced{}, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return produced{}, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, frame); err != nil {
		return produced{}, err
	}
	_, body, err := wire.ParseResponseHeader(frame, wire.KeyProduce, v)
	if err != nil {
		return produced{}, err
	}
	var r wire.ProduceResponse
	if err := r.Parse(v, body); err != nil {
		return produced{}, err
	}
	it := r.Iter()
	if !it.Next() {
		return produced{}, errors.New("no partition in the answer")
	}
	return produced{it.Err, it.BaseOffset, string(it.Message)}, nil
}

// metric reads one value from a broker's metrics.
func (n *node) metric(name string) float64 {
	for line := range strings.Lines(get("http://" + n.admin + "/metrics")) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			f, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return f
		}
	}
	return -1
}

func ctxFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
