package sdk

import (
	"context"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"

	"lockstep/plugins/pluginpb"
)

// Loopback is a policy of this process behind the border: its events and
// decisions are made into the bytes of a protocol's messages and back, and a
// panic into an error, as those of a process are. There is no connection, no
// goroutine and no clock, so a test that is to be played again may use it.
func Loopback(p Plugin, version int) Plugin {
	return &loopback{server: server{policy: p, version: version}}
}

type loopback struct{ server server }

func (l *loopback) Describe() Description { return l.server.policy.Describe() }

func (l *loopback) Handle(e Event) (Decision, error) {
	in, back := new(pluginpb.Event), new(pluginpb.Decision)
	if err := carry(eventTo(e), in); err != nil {
		return Decision{}, err
	}
	out, err := l.server.Handle(context.Background(), in)
	if err != nil {
		return Decision{}, err
	}
	if err := carry(out, back); err != nil {
		return Decision{}, err
	}
	return decisionFrom(back, l.server.version)
}

// carry takes a message over the border, by gRPC's own codec.
func carry(from, to any) error {
	codec := encoding.GetCodecV2(proto.Name)
	b, err := codec.Marshal(from)
	if err != nil {
		return err
	}
	defer b.Free()
	if b.Len() > MaxMessage {
		return fmt.Errorf("a message of %d bytes, at most %d", b.Len(), MaxMessage)
	}
	return codec.Unmarshal(b, to)
}
