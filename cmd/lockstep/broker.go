package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/config"
	"lockstep/segment"
)

// brokerCommand runs a node until SIGTERM or SIGINT.
func brokerCommand() *cobra.Command {
	var overrides []string
	var level string
	cmd := &cobra.Command{
		Use:   "broker [server.properties]",
		Short: "Run a broker (and its controller) until SIGTERM",
		Long: `Run a node: broker, controller, or both (process.roles; both by default).

Without a file every setting has Kafka's default: one node, listening on port 9092,
data in /tmp/kafka-logs. Settings are Kafka's server.properties names; ours begin with
"lockstep.". An unknown name is an error that names the nearest known one.

SIGTERM or Ctrl-C drains connections, seals the logs and marks a clean shutdown; a
second one ends the process at once.`,
		Example: `  lockstep broker
  lockstep broker config/server.properties --override log.dirs=/data/lockstep --override listeners=PLAINTEXT://:9092`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var text []byte
			if len(args) == 1 {
				var err error
				if text, err = os.ReadFile(args[0]); err != nil {
					return cli.Fail("reading the configuration", err, "name a server.properties, or none for the defaults")
				}
			}
			return runBroker(cmd.Context(), text, overrides, level)
		},
	}
	cmd.Flags().StringArrayVar(&overrides, "override", nil, "a setting over the file's, `NAME=VALUE`; may be given again")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func runBroker(ctx context.Context, text []byte, overrides []string, level string) error {
	var lv slog.Level
	if err := lv.UnmarshalText([]byte(level)); err != nil {
		return cli.Usage("--log-level %q: want debug, info, warn or error", level)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: lv}))
	cfg, warnings, err := config.Load(text, overrides)
	if err != nil {
		text := strings.ReplaceAll(strings.ReplaceAll("\n"+err.Error(), "\nconfig: ", "; "), "\n", "; ")
		return cli.Fail("configuration", errors.New(strings.TrimPrefix(text, "; ")), "correct the file or --override, then start again")
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	began := time.Now()
	b, err := startBroker(ctx, cfg, log)
	var path *os.PathError
	switch {
	case errors.Is(err, segment.ErrInUse):
		return cli.Fail("start", err, "stop that process, or name another directory in log.dirs")
	case errors.As(err, &path):
		return cli.Fail("start", err, "see that this user may write there; log.dirs names the directories")
	case err != nil:
		return err
	}
	admin, err := b.serveAdmin(cfg.AdminListener)
	if err != nil {
		return errors.Join(err, b.close())
	}
	for _, l := range b.bound {
		host, port := l.Host, l.Port
		log.Info("listening", "listener", l.Name, "host", host, "port", port)
	}
	log.Info("ready", "node", cfg.NodeID, "cluster", b.node.View().ClusterID(), "admin", admin.addr, "ms", time.Since(began).Milliseconds())
	var failed error
	select {
	case s := <-signals:
		log.Info("draining", "signal", s.String(), "hint", "once more ends at once")
	case failed = <-b.fatal:
		log.Error("cannot go on", "error", failed)
	}
	go func() {
		<-signals
		os.Exit(130)
	}()
	err = errors.Join(failed, admin.close(), b.close())
	if err == nil {
		log.Info("clean shutdown")
	}
	return err
}
