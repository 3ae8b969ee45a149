package soak

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/testcluster"
)

// filling is there until the load begins.
const filling = "filling"

// fill makes what is bounded resident at a broker, on several connections, so
// that each reactor has some of them.
func (x *run) fill(ctx context.Context, b *testcluster.Broker) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	s, _, err := b.Session(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Admin.CreateTopic(ctx, 1, 1, nil, filling); err != nil {
		return err
	}
	v := value(rand.New(rand.NewPCG(0, 0)), fillingSize)
	ended := make(chan error, fillers)
	for range fillers {
		go func() { ended <- fillOne(ctx, b.Addr, v) }()
	}
	for range fillers {
		err = errors.Join(err, <-ended)
	}
	if err = errors.Join(err, fillFrames(ctx, b.Addr)); err != nil {
		return err
	}
	_, err = s.Admin.DeleteTopic(ctx, filling)
	return err
}

// fillOne is a producer of large records: they go round the buffers that a
// reactor lends the kernel.
func fillOne(ctx context.Context, addr string, v []byte) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(filling), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(8), kgo.ProducerBatchMaxBytes(2*fillingSize))
	if err != nil {
		return err
	}
	defer cl.Close()
	failed := make(chan error, 1)
	for range fillings {
		cl.Produce(ctx, &kgo.Record{Value: v}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// fillFrames sends frames of every size up to largestFrame in two halves, on
// several connections at once. A half has to wait in a buffer of the frame's own
// size: what the load meets by chance, once in an hour for some size, is there
// before. That no buffer stays away is the simulator's to say (NothingLeaks).
func fillFrames(ctx context.Context, addr string) error {
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range halves {
		c, err := (&net.Dialer{Timeout: readWait}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		_ = c.SetDeadline(time.Now().Add(fillTimeout))
	}
	for size := smallestFrame; size <= largestFrame; size *= 2 {
		frame := fetchOf(size * 3 / 4)
		for range rounds {
			for _, part := range [][]byte{frame[:len(frame)/2], frame[len(frame)/2:]} {
				for _, c := range conns {
					if _, err := c.Write(part); err != nil {
						return fmt.Errorf("frames of %d bytes: %w", len(frame), err)
					}
				}
				time.Sleep(halfPause)
			}
			for _, c := range conns {
				if err := skipAnswer(c); err != nil {
					return fmt.Errorf("the answer to a frame of %d bytes: %w", len(frame), err)
				}
			}
		}
	}
	return ctx.Err()
}

// fetchOf is a fetch of about size bytes, of partitions that there are not. Up to
// largestAnswer they are asked for, so that the answer is about as long; past it
// they are forgotten, which none is about.
func fetchOf(size int) []byte {
	const asked, forgotten = 28, 4 // bytes of a partition in Fetch 11
	r := kmsg.NewPtrFetchRequest()
	r.SetVersion(11)
	t, f := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestForgottenTopic()
	t.Topic, f.Topic = filling+"-none", filling+"-none"
	if size > largestAnswer {
		f.Partitions = make([]int32, size/forgotten)
	} else {
		t.Partitions = make([]kmsg.FetchRequestTopicPartition, size/asked)
	}
	r.Topics, r.ForgottenTopics = append(r.Topics, t), append(r.ForgottenTopics, f)
	return kmsg.NewRequestFormatter().AppendRequest(nil, r, 0)
}

func skipAnswer(c net.Conn) error {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:])))
	return err
}
