package sdk

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// LifelineFD is the read end of a pipe that the broker holds open for as long
// as it lives. go-plugin gives the child its own stdin, so it is a file more.
const LifelineFD = 3

// lifelineEnv tells a plugin that the pipe is there.
const lifelineEnv = "LOCKSTEP_LIFELINE"

// LifelineEnv is what the broker adds to a plugin's environment.
func LifelineEnv() string { return lifelineEnv + "=1" }

// Serve runs a policy until its broker stops it or is gone; a plugin's main
// calls it and nothing else. What the policy writes to standard error is in the
// plugin's own log.
func Serve(p Plugin) {
	// A broker that dies closes our output too: that must not be what ends us.
	signal.Ignore(syscall.SIGPIPE)
	if os.Getenv(lifelineEnv) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(LifelineFD, "lifeline"))
			// The broker is gone: nobody is left to ask us, or to tidy up.
			if dir := os.Getenv(plugin.EnvUnixSocketDir); dir != "" {
				_ = os.RemoveAll(dir)
				_ = os.Remove(filepath.Dir(dir)) // when we are the last
			}
			os.Exit(0)
		}()
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake,
		VersionedPlugins: Plugins(p),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return plugin.DefaultGRPCServer(append(o, grpc.MaxRecvMsgSize(MaxMessage)))
		},
		Logger: hclog.New(&hclog.LoggerOptions{Name: string(p.Describe().Kind), Level: hclog.Warn, Output: os.Stderr}),
	})
}
