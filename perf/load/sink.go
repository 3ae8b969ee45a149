package load

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"lockstep/internal/wire"
)

// ServeSink takes produce requests of one version and does the least that a
// broker with a page cache must: it receives the bytes, writes them to a file
// (one a connection, in dir, gone with it), and answers every frame. Nothing is
// looked at, nothing is shared, a thread waits for each connection. It ends with
// ctx.
func ServeSink(ctx context.Context, ln net.Listener, dir string, version int16) error {
	return serveEach(ctx, ln, func(c net.Conn) error { return sink(c.(*net.TCPConn), dir, version) })
}

func sink(c *net.TCPConn, dir string, version int16) error {
	runtime.LockOSThread()
	sock, err := c.File()
	if err != nil {
		return err
	}
	defer sock.Close()
	fd := int(sock.Fd()) // blocking from here on
	f, err := os.CreateTemp(dir, "sink-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	s := sinkConn{file: int(f.Fd()), answer: sinkAnswer(version)}
	in := make([]byte, sinkPiece)
	for {
		n, err := unix.Read(fd, in)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		if err := s.take(in[:n]); err != nil {
			return err
		}
		if len(s.out) > 0 {
			if _, err := unix.Write(fd, s.out); err != nil {
				return err
			}
		}
	}
}

// sinkConn is a connection's place in its stream and in its file.
type sinkConn struct {
	file       int
	off, ready int64 // of the file: the end of what is written, and of its blocks
	head       [12]byte
	have       int // bytes of head: the size of the frame and its first words
	left       int // bytes of the frame that are to come
	answer     []byte
	out        []byte
}

// take writes a piece to the file and makes the answers to the frames that end
// in it.
func (s *sinkConn) take(b []byte) error {
	if s.off+int64(len(b)) > s.ready {
		if err := unix.Fallocate(s.file, unix.FALLOC_FL_KEEP_SIZE, s.ready, sinkStep); err != nil {
			return err
		}
		s.ready += sinkStep
	}
	if _, err := unix.Pwrite(s.file, b, s.off); err != nil {
		return err
	}
	s.off += int64(len(b))
	s.out = s.out[:0]
	for len(b) > 0 {
		if s.have < len(s.head) {
			n := copy(s.head[s.have:], b)
			s.have += n
			b = b[n:]
			if s.have < len(s.head) {
				return nil
			}
			s.left = int(binary.BigEndian.Uint32(s.head[:])) - (len(s.head) - 4)
			if s.left < 0 || s.left > maxFrame {
				return errors.New("a frame of an impossible size")
			}
		}
		n := min(s.left, len(b))
		s.left -= n
		if b = b[n:]; s.left == 0 {
			s.have = 0
			at := len(s.out)
			s.out = append(s.out, s.answer...)
			copy(s.out[at+4:], s.head[correlationAt:correlationAt+4])
		}
	}
	return nil
}

// sinkAnswer is a frame that says that one partition has taken a batch.
func sinkAnswer(version int16) []byte {
	b := wire.BeginResponse(nil, wire.KeyProduce, version, 0)
	b = wire.AppendProduceHead(b, version, 1)
	b = wire.AppendProduceTopic(b, version, nil, [16]byte{}, 1)
	b = wire.AppendProducePartition(b, version, &wire.ProducePartition{LeaderID: -1, LeaderEpoch: -1, LogAppendTime: -1})
	b = wire.AppendProduceTopicEnd(b, version)
	b = wire.AppendProduceTail(b, version, 0, nil)
	wire.EndResponse(b, 0, 0)
	return b
}
