// The plugins that the swap suite puts in the place of the defaults: other
// programs, slow ones, and those that break every rule.
//
//	plugin MODE KIND
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"lockstep/plugins/coordinator"
	"lockstep/plugins/pluginpb"
	"lockstep/plugins/promotion"
	"lockstep/plugins/release"
	"lockstep/plugins/sdk"
)

// The suite counts on these.
const (
	slowFor = 90 * time.Millisecond // well within the deadline of 200 ms
	diesIn  = 3 * time.Second       // after a shadow of 2 s, long before the end of a probation
	giant   = 1 << 30
)

var policies = map[sdk.Kind]sdk.Plugin{sdk.Coordinator: coordinator.Policy{}, sdk.Promotion: promotion.Policy{}, sdk.Release: release.Policy{}}

// policy is the default one under another name, and what its mode adds.
type policy struct {
	mode string
	kind sdk.Kind
}

func (p policy) Describe() sdk.Description {
	return sdk.Description{Kind: p.kind, Name: p.mode, Version: "7"}
}

// Handle decides as the default does. A holder, fast or slow, keeps the markers
// of scripted mirrors.
func (p policy) Handle(e sdk.Event) (sdk.Decision, error) {
	if p.mode == "slow" && e.Facts.Released {
		time.Sleep(slowFor)
	}
	if (p.mode == "slow" || p.mode == "hold") && e.Facts.Released && strings.HasPrefix(e.Mirror, "script-") {
		return sdk.Decision{Wishes: []sdk.Wish{{Do: sdk.Hold, Subject: e.Subject, Reason: "held by " + p.mode}}}, nil
	}
	return policies[p.kind].Handle(e)
}

// codec spoils decisions on their way out.
type codec struct {
	encoding.CodecV2
	mode string
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if _, ok := v.(*pluginpb.Decision); !ok {
		return c.CodecV2.Marshal(v)
	}
	if c.mode == "garbage" {
		return mem.BufferSlice{mem.SliceBuffer(strings.Repeat("\xff\x07garbage", 100))}, nil
	}
	const part = 1 << 20 // 1 GiB in words, 1 MiB in memory
	b := make(mem.SliceBuffer, part)
	all := make(mem.BufferSlice, giant/part)
	for i := range all {
		all[i] = b
	}
	return all, nil
}

func run(mode string, kind sdk.Kind) error {
	p := policy{mode, kind}
	if policies[kind] == nil {
		return errors.New("no such kind")
	}
	spoilt := func(version int) {
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: sdk.Handshake,
			VersionedPlugins: map[int]plugin.PluginSet{version: sdk.Plugins(p)[sdk.NewestProtocol]},
			GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
				if mode == "garbage" || mode == "giant" {
					o = append(o, grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto"), mode}))
				}
				return grpc.NewServer(o...)
			}})
	}
	switch mode {
	case "other", "hold", "slow":
		sdk.Serve(p)
	case "dies":
		time.AfterFunc(diesIn, func() { os.Exit(9) })
		sdk.Serve(p)
	case "garbage", "giant":
		spoilt(sdk.NewestProtocol)
	case "future": // a protocol of tomorrow
		spoilt(99)
	default:
		return errors.New("no such mode")
	}
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "plugin MODE KIND")
		os.Exit(2)
	}
	if err := run(os.Args[1], sdk.Kind(os.Args[2])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
