package sdk

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// LifelineFD is the read end of a pipe that the broker holds open for as long
// as it lives. go-plugin gives the child its own stdin, so it is a file more.
const LifelineFD = 3

// SocketDirPrefix begins the name of the directory in which a broker's plugins
// have one each for their sockets. Nothing in it outlives the broker.
const SocketDirPrefix = "lockstep-plugins-"

// tidyTries bounds a race with ourselves.
const tidyTries = 100

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
		dir := os.Getenv(plugin.EnvUnixSocketDir)
		if dir != "" { // before the lifeline is watched: what we make we remove
			if err := os.MkdirAll(dir, 0o700); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		go outlive(dir)
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

// outlive ends the process when the broker is gone: nobody is left to ask us, or
// to tidy up.
func outlive(dir string) {
	_, _ = io.Copy(io.Discard, os.NewFile(LifelineFD, "lifeline"))
	if dir != "" {
		for range tidyTries { // go-plugin may be making the socket at this moment
			if os.RemoveAll(dir) == nil {
				break
			}
		}
		all := filepath.Dir(dir)
		if strings.HasPrefix(filepath.Base(all), SocketDirPrefix) { // with what those of us left that were killed before it
			_ = os.RemoveAll(all)
		}
	}
	os.Exit(0)
}
