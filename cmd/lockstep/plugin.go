package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/config"
	"lockstep/plugins/coordinator"
	"lockstep/plugins/host"
	"lockstep/plugins/promotion"
	"lockstep/plugins/release"
	"lockstep/plugins/sdk"
)

// kinds of plugins, in the order they are shown.
var kinds = []sdk.Kind{sdk.Coordinator, sdk.Promotion, sdk.Release}

// defaults are the policies inside this binary.
var defaults = map[sdk.Kind]sdk.Plugin{sdk.Coordinator: coordinator.Policy{}, sdk.Promotion: promotion.Policy{}, sdk.Release: release.Policy{}}

func kindOf(name string) (sdk.Kind, error) {
	if !slices.Contains(kinds, sdk.Kind(name)) {
		return "", cli.Usage("%q is no kind of plugin: coordinator, promotion or release", name)
	}
	return sdk.Kind(name), nil
}

// pluginCommand is what a broker starts for each kind that has no program of
// its own in the configuration.
func pluginCommand() *cobra.Command {
	return &cobra.Command{
		Use: "plugin KIND", Short: "Serve a default policy to the broker that started this process", Hidden: true, Args: cobra.ExactArgs(1),
		Example: "  lockstep plugin promotion   # by a broker, never by hand",
		RunE: func(_ *cobra.Command, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			if os.Getenv(sdk.Handshake.MagicCookieKey) == "" {
				return cli.Usage("only a broker starts this; see `lockstep plugins --help`")
			}
			sdk.Serve(defaults[kind])
			return nil
		},
	}
}

// pluginSet is the supervisors of a broker's plugins.
type pluginSet struct {
	of      map[sdk.Kind]*host.Supervisor
	self    string // SHA-256 of the file this process runs
	sockets string
}

// standard is the default policy: the file this process runs, also after an
// upgrade has replaced it.
func (p *pluginSet) standard(kind sdk.Kind) host.Spec {
	return host.Spec{Path: thisFile, Args: []string{"plugin", string(kind)}, SHA256: p.self}
}

// openPlugins makes the supervisors; run starts the processes.
func (b *broker) openPlugins() error {
	self, err := host.Checksum(thisFile)
	if err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	sockets, err := host.SocketDir()
	if err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	b.plugins = &pluginSet{of: map[sdk.Kind]*host.Supervisor{}, self: self, sockets: sockets}
	for _, kind := range kinds {
		log, err := host.OpenLogFile(filepath.Join(b.cfg.LogDirs[0], pluginLogs, string(kind)+".log"))
		if err != nil {
			return fmt.Errorf("plugins: %w", err)
		}
		o := host.Options{Kind: kind, Spec: b.plugins.standard(kind), Log: b.log}
		own := map[sdk.Kind]config.Plugin{sdk.Coordinator: b.cfg.PluginCoordinator, sdk.Promotion: b.cfg.PluginPromotion, sdk.Release: b.cfg.PluginRelease}[kind]
		if own.Path != "" {
			standard := o.Spec
			o.Spec, o.Fallback = host.Spec{Path: own.Path, SHA256: strings.ToLower(own.SHA256)}, &standard
		}
		l := &host.Launcher{Kind: kind, Log: log, Sockets: sockets, Own: thisFile}
		o.Launch = l.Launch
		b.plugins.of[kind] = host.NewSupervisor(o)
	}
	return nil
}

// thisFile is always the file this process runs, also after an upgrade has
// replaced it.
const thisFile = "/proc/self/exe"

// pluginLogs is a directory in the first log directory.
const pluginLogs = "lockstep-plugins"

func (b *broker) runPlugins(ctx context.Context) {
	for _, s := range b.plugins.of {
		b.goDo(func() { s.Run(ctx) })
	}
}

func (p *pluginSet) close() {
	if p != nil {
		_ = os.RemoveAll(p.sockets)
	}
}
