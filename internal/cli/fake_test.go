package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// fake is a cluster of one broker that answers what it is told to.
type fake struct {
	t    *testing.T
	addr string

	mu       sync.Mutex
	unstable bool // offer Fetch 20
	feature  int16
	topics   []string
	mirrors  []msg.ListClusterMirrorsResponseClusterMirror
	describe func() msg.DescribeClusterMirrorsResponse
	refuse   map[string]int16 // error code by topic
	asked    []msg.Message    // mirror requests that change something
}

func newFake(t *testing.T) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, addr: ln.Addr().String(), unstable: true, feature: 1, refuse: map[string]int16{}}
	f.describe = func() msg.DescribeClusterMirrorsResponse { return msg.DescribeClusterMirrorsResponse{} }
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *fake) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		h, body, err := wire.ParseHeader(frame)
		if err != nil {
			return
		}
		out := wire.BeginResponse(nil, h.Key, h.Version, h.Correlation)
		out = f.answer(out, h, body)
		wire.EndResponse(out, 0, 0)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func (f *fake) answer(b []byte, h wire.Header, body []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch h.Key {
	case wire.KeyApiVersions:
		a := wire.ApiVersionsAnswer{Unstable: f.unstable}
		if f.feature > 0 {
			a.Supported = []wire.Feature{{Name: "mirror.sync.version", Min: 0, Max: 1}}
			a.Finalized = []wire.FinalizedFeature{{Name: "mirror.sync.version", Min: f.feature, Max: f.feature}}
		}
		return wire.AppendApiVersions(b, h.Version, &a)
	case wire.KeyMetadata:
		return f.metadata(b, h.Version)
	case wire.KeyListClusterMirrors:
		return (&msg.ListClusterMirrorsResponse{Mirrors: f.mirrors}).AppendTo(b)
	case wire.KeyDescribeClusterMirrors:
		d := f.describe()
		return d.AppendTo(b)
	}
	return f.change(b, h.Key, body)
}

func (f *fake) metadata(b []byte, version int16) []byte {
	m := kmsg.NewMetadataResponse()
	m.Version = version
	m.ClusterID, m.ControllerID = kmsg.StringPtr("fake"), 1
	host, port, _ := net.SplitHostPort(f.addr)
	n, _ := strconv.Atoi(port)
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, host, int32(n)
	m.Brokers = append(m.Brokers, broker)
	for i, name := range f.topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = kmsg.StringPtr(name), [16]byte{byte(i + 1)}
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader, p.Replicas, p.ISR = 1, []int32{1}, []int32{1}
		t.Partitions = append(t.Partitions, p)
		m.Topics = append(m.Topics, t)
	}
	return m.AppendTo(b)
}

// change keeps a request and answers its topics.
func (f *fake) change(b []byte, key int16, body []byte) []byte {
	read := func(m msg.Message) {
		if err := m.ReadFrom(body); err != nil {
			f.t.Errorf("request %d: %v", key, err)
		}
		f.asked = append(f.asked, m)
	}
	switch key {
	case wire.KeyAddTopicsToMirror:
		var req msg.AddTopicsToMirrorRequest
		var resp msg.AddTopicsToMirrorResponse
		read(&req)
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, msg.AddTopicsToMirrorResponseTopicResult{Name: t.TopicName, ErrorCode: f.refuse[t.TopicName]})
		}
		return resp.AppendTo(b)
	case wire.KeyRemoveTopicsFromMirror:
		var req msg.RemoveTopicsFromMirrorRequest
		var resp msg.RemoveTopicsFromMirrorResponse
		read(&req)
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, msg.RemoveTopicsFromMirrorResponseTopicResult{Name: t.TopicName, ErrorCode: f.refuse[t.TopicName]})
		}
		return resp.AppendTo(b)
	case wire.KeyAlterMirrorTopicType:
		var req msg.AlterMirrorTopicTypeRequest
		var resp msg.AlterMirrorTopicTypeResponse
		read(&req)
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, msg.AlterMirrorTopicTypeResponseTopicResult{TopicName: t.TopicName, ErrorCode: f.refuse[t.TopicName]})
		}
		return resp.AppendTo(b)
	case wire.KeyUnregisterMirrorSyncTopic:
		var req msg.UnregisterMirrorSyncTopicRequest
		var resp msg.UnregisterMirrorSyncTopicResponse
		read(&req)
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, msg.UnregisterMirrorSyncTopicResponseTopicResult{TopicName: t.TopicName, ErrorCode: f.refuse[t.TopicName], CurrentEpoch: -1})
		}
		return resp.AppendTo(b)
	case wire.KeyCreateClusterMirror:
		read(new(msg.CreateClusterMirrorRequest))
		return new(msg.CreateClusterMirrorResponse).AppendTo(b)
	}
	f.t.Errorf("unexpected request %d", key)
	return b
}

// requests are the changes asked for so far.
func (f *fake) requests() []msg.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// desk is verbs on a fake, and what they wrote.
type desk struct {
	*Mirrors
	out, err *bytes.Buffer
}

func at(t *testing.T, f *fake, json bool) desk {
	t.Helper()
	s, err := Dial(context.Background(), []string{f.addr}, "test", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d := desk{out: new(bytes.Buffer), err: new(bytes.Buffer)}
	d.Mirrors = &Mirrors{S: s, P: &Printer{Out: d.out, Err: d.err, JSON: json}, Now: func() time.Time { return time.UnixMilli(1_000_000) }}
	return d
}

func patterns(t *testing.T, list string) Patterns {
	t.Helper()
	p, err := ParsePatterns(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
