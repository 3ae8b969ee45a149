package ioring

import (
	"errors"

	"golang.org/x/sys/unix"
)

func (p *Portable) endRecv(f *pollFD, res int32, buf *Buffer) {
	p.ready = append(p.ready, Event{Kind: f.recv.Kind, Token: f.recv.Token, Res: res, Buf: buf})
	f.recv = Op{}
}

func (p *Portable) endSend(f *pollFD, res int32) {
	p.ready = append(p.ready, Event{Kind: f.send.Kind, Token: f.send.Token, Res: res})
	f.send, f.connect = Op{}, false
}

// again tells what to do after a call: true means that the descriptor is not
// ready and the op stays.
func (p *Portable) again(n int32, f *pollFD, err error) (stay bool, res int32) {
	if errors.Is(err, unix.EAGAIN) {
		if err = p.track(n, f); err == nil {
			return true, 0
		}
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return false, -int32(errno)
}

func (p *Portable) tryRecv(n int32, f *pollFD) {
	switch f.recv.Kind {
	case Accept:
		p.tryAccept(n, f)
	case Recv:
		p.tryRecvPiece(n, f)
	default:
		p.tryRecvInto(n, f)
	}
}

func (p *Portable) tryAccept(n int32, f *pollFD) {
	for {
		fd, _, err := unix.Accept4(int(n), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == nil:
			p.endRecv(f, int32(fd), nil)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			stay, res := p.again(n, f, err)
			if stay {
				f.canRead = false
				return
			}
			p.endRecv(f, res, nil)
		}
		return
	}
}

func (p *Portable) tryRecvPiece(n int32, f *pollFD) {
	back := p.pool.back
	if len(back) == 0 {
		p.starve = append(p.starve, n)
		return
	}
	i := back[len(back)-1]
	got, err := p.read(n, p.pool.provided[i].mem)
	if err != nil {
		stay, res := p.again(n, f, err)
		if stay {
			f.canRead = false
			return
		}
		p.endRecv(f, res, nil)
		return
	}
	if got == 0 {
		p.endRecv(f, 0, nil)
		return
	}
	if got < ProvidedSize && f.tracked && !f.readEOF {
		f.canRead = false // drained: the next edge tells, unless the end was already announced
	}
	p.pool.back = back[:len(back)-1]
	p.endRecv(f, int32(got), p.pool.take(i, got))
}

func (p *Portable) tryRecvInto(n int32, f *pollFD) {
	for f.got < len(f.recv.Bytes) {
		got, err := p.read(n, f.recv.Bytes[f.got:])
		if err != nil {
			stay, res := p.again(n, f, err)
			if stay {
				f.canRead = false
				return
			}
			p.endRecv(f, res, nil)
			return
		}
		if got == 0 {
			break
		}
		f.got += got
	}
	p.endRecv(f, int32(f.got), nil)
}

func (p *Portable) read(n int32, b []byte) (int, error) {
	for {
		got, err := unix.Read(int(n), b)
		if !errors.Is(err, unix.EINTR) {
			return got, err
		}
	}
}

func (p *Portable) trySend(n int32, f *pollFD) {
	if f.connect {
		p.finishConnect(n, f)
		return
	}
	for {
		iov := p.rest(f)
		if len(iov) == 0 {
			p.endSend(f, int32(f.sent))
			return
		}
		sent, err := unix.SendmsgBuffers(int(n), iov, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			stay, res := p.again(n, f, err)
			if stay {
				f.canWrite = false
				return
			}
			p.endSend(f, res)
			return
		}
		f.sent += sent
	}
}

// rest is what of the pieces has not been sent yet.
func (p *Portable) rest(f *pollFD) [][]byte {
	p.iov = p.iov[:0]
	skip := f.sent
	for _, b := range f.send.Pieces {
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		p.iov = append(p.iov, b[skip:])
		skip = 0
	}
	return p.iov
}

func (p *Portable) finishConnect(n int32, f *pollFD) {
	errno, err := unix.GetsockoptInt(int(n), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno == 0 {
		p.endSend(f, n)
		return
	}
	f.open = false
	_ = unix.Close(int(n))
	p.endSend(f, -int32(max(errno, int(unix.ECONNREFUSED))))
}
