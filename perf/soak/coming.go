package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"lockstep/internal/testcluster"
)

// shortLived is a topic that is made, written, read and deleted.
func (x *run) shortLived(ctx context.Context, b *testcluster.Broker, n int) error {
	name := fmt.Sprintf("short-%d", n)
	s, _, err := b.Session(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Admin.CreateTopic(ctx, 2, 1, nil, name); err != nil {
		return err
	}
	for end := time.Now().Add(readWait); ; { // a leader may be named before it knows that it leads
		ends, err := s.Admin.ListEndOffsets(ctx, name)
		if err == nil && ends.Error() == nil {
			break
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("%s is not served: %w, %w", name, err, ends.Error())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := x.fresh(ctx, b.Addr, name); err != nil {
		return err
	}
	if err := x.reread(ctx, b.Addr, name); err != nil {
		return err
	}
	gone, err := s.Admin.DeleteTopic(ctx, name)
	if err != nil {
		return err
	}
	return gone.Err
}

// hello is ApiVersions 0 of no client.
var hello = func() []byte {
	b := binary.BigEndian.AppendUint32(nil, 10)
	b = binary.BigEndian.AppendUint16(b, 18)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, 7)
	return binary.BigEndian.AppendUint16(b, 0xffff)
}()

// connections are one that asks and goes, one that is broken off with an answer
// under way, and one that leaves a frame half sent.
func (x *run) connections(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: readWait}
	sound, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer sound.Close()
	_ = sound.SetDeadline(time.Now().Add(readWait))
	if _, err := sound.Write(hello); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(sound, head[:]); err != nil {
		return err
	}
	broken, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_, _ = broken.Write(hello) // whether it arrives is all the same
	_ = broken.(*net.TCPConn).SetLinger(0)
	broken.Close()
	half, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_, err = half.Write(hello[:len(hello)-3])
	x.pending.Go(func() {
		defer half.Close()
		select {
		case <-ctx.Done():
		case <-time.After(halfOpenFor):
		}
	})
	return err
}

// swap puts the default policy of a kind in its own place: another process.
func (x *run) swap(ctx context.Context, b *testcluster.Broker, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.Admin+"/plugins/swap", bytes.NewReader([]byte(`{"kind":"`+kind+`"}`)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s at %s: %s", kind, b.Name, bytes.TrimSpace(text))
	}
	return err
}

// ask is what an operator and a client ask, on connections of their own.
func (x *run) ask(ctx context.Context, b *testcluster.Broker) error {
	s, m, err := b.Session(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Admin.ListTopics(ctx); err != nil {
		return err
	}
	if _, err := s.Admin.DescribeTopicConfigs(ctx, orders); err != nil {
		return err
	}
	if _, err := s.Admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{}); err != nil {
		return err
	}
	if _, err := s.Admin.ListStartOffsets(ctx, orders, clicks); err != nil {
		return err
	}
	if err := m.List(ctx); err != nil {
		return err
	}
	if b == x.c.Destination {
		_, err = s.Mirrors.DescribeMirrors(ctx)
	}
	return err
}
