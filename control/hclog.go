package control

import (
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// hcLogger sends raft's log into ours, so that there is one log. Raft speaks of
// every step of an election at INFO; that is DEBUG here.
type hcLogger struct {
	hclog.Logger
	out  *slog.Logger
	name string
}

func newHCLogger(out *slog.Logger) hclog.Logger {
	return &hcLogger{Logger: hclog.NewNullLogger(), out: out}
}

func (l *hcLogger) Trace(string, ...any)             {}
func (l *hcLogger) Debug(msg string, args ...any)    { l.out.Debug("raft: "+msg, args...) }
func (l *hcLogger) Info(msg string, args ...any)     { l.out.Debug("raft: "+msg, args...) }
func (l *hcLogger) Warn(msg string, args ...any)     { l.out.Debug("raft: "+msg, args...) }
func (l *hcLogger) Error(msg string, args ...any)    { l.out.Error("raft: "+msg, args...) }
func (l *hcLogger) IsDebug() bool                    { return true }
func (l *hcLogger) IsInfo() bool                     { return true }
func (l *hcLogger) IsWarn() bool                     { return true }
func (l *hcLogger) IsError() bool                    { return true }
func (l *hcLogger) With(...any) hclog.Logger         { return l }
func (l *hcLogger) Named(name string) hclog.Logger   { return &hcLogger{l.Logger, l.out, name} }
func (l *hcLogger) ResetNamed(n string) hclog.Logger { return &hcLogger{l.Logger, l.out, n} }
func (l *hcLogger) Name() string                     { return l.name }
func (l *hcLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return log.New(io.Discard, "", 0)
}
func (l *hcLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
