package sdk

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
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

// niceness of a plugin's threads.
const niceness = 10

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
	giveWay()
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

// giveWay lowers the priority of every thread of this process, and with it that
// of those they will start: records that are due at the broker must not wait for
// a policy. Where that is refused the policy serves all the same.
func giveWay() {
	done := map[string]bool{}
	for more := true; more; {
		more = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || done[t.Name()] {
				continue
			}
			done[t.Name()], more = true, true // one that came meanwhile may be another's child: look again
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, niceness)
		}
	}
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
