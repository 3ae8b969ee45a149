package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/magiconair/properties"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/admin"
)

// Options are the flags of a command that talks to a cluster.
type Options struct {
	Bootstrap     string // comma list of host:port
	CommandConfig string // properties file, empty = none
	JSON          bool
	Timeout       time.Duration // of one request

	bootstrapGiven func() bool
}

// DefaultBootstrap is where a broker listens by default.
const DefaultBootstrap = "localhost:9092"

// configHelp lists what a --command-config file may hold.
const configHelp = "bootstrap.servers, client.id, request.timeout.ms, security.protocol=PLAINTEXT"

// Bind adds the flags to a command and those below it.
func (o *Options) Bind(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&o.Bootstrap, "bootstrap-server", DefaultBootstrap, "brokers to begin with, `HOST:PORT` separated by commas")
	f.StringVar(&o.CommandConfig, "command-config", "", "properties `FILE` for the connection; keys: "+configHelp)
	f.BoolVar(&o.JSON, "json", false, "write JSON instead of tables")
	f.DurationVar(&o.Timeout, "timeout", DefaultTimeout, "bound of one request, such as 500ms or 30s; 0 = the default")
	o.bootstrapGiven = func() bool { return f.Changed("bootstrap-server") }
}

// client is a connection as flags and file describe it.
type client struct {
	bootstrap []string
	id        string
	timeout   time.Duration
}

// resolve puts the flags over the file.
func (o *Options) resolve() (client, error) {
	c := client{bootstrap: strings.Split(o.Bootstrap, ","), id: "lockstep-cli", timeout: o.Timeout}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	if c.timeout < 0 {
		return c, Usage("--timeout %v: want more than 0, such as 500ms or 30s", o.Timeout)
	}
	if o.CommandConfig != "" {
		keys, err := ReadProperties(o.CommandConfig)
		if err != nil {
			return c, err
		}
		for name, value := range keys {
			if err := o.set(&c, name, value); err != nil {
				return c, Fail("--command-config "+o.CommandConfig, fmt.Errorf("%s: %w", name, err), "accepted are "+configHelp)
			}
		}
	}
	for i, s := range c.bootstrap {
		if s = strings.TrimSpace(s); s == "" {
			return c, Usage("no broker is named: give --bootstrap-server, or bootstrap.servers in --command-config")
		}
		if _, port, ok := cutPort(s); !ok || port < 1 || port > 65535 {
			return c, Usage("--bootstrap-server: %q is not HOST:PORT", s)
		}
		c.bootstrap[i] = s
	}
	return c, nil
}

func cutPort(s string) (host string, port int, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", 0, false
	}
	port, err := strconv.Atoi(s[i+1:])
	return s[:i], port, err == nil
}

func (o *Options) set(c *client, name, value string) error {
	switch name {
	case "bootstrap.servers":
		if o.Bootstrap == "" || o.bootstrapGiven != nil && !o.bootstrapGiven() {
			c.bootstrap = strings.Split(value, ",")
		}
	case "client.id":
		c.id = value
	case "request.timeout.ms":
		ms, err := strconv.Atoi(value)
		if err != nil || ms <= 0 {
			return fmt.Errorf("%q is not a number of milliseconds", value)
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	case "security.protocol":
		if !strings.EqualFold(value, "PLAINTEXT") {
			return fmt.Errorf("%s: only PLAINTEXT is spoken yet", value)
		}
	default:
		return errors.New("not known here")
	}
	return nil
}

// ReadProperties reads a file in Java's properties form.
func ReadProperties(file string) (map[string]string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, Fail("reading "+file, err, "check the name and its permissions")
	}
	if info.Size() > maxConfigFile {
		return nil, Fail("reading "+file, fmt.Errorf("%d bytes are above %d", info.Size(), maxConfigFile), "this is no properties file")
	}
	l := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := l.LoadFile(file)
	if err != nil {
		return nil, Fail("reading "+file, err, "write one NAME=VALUE a line")
	}
	return p.Map(), nil
}

// Session is a connection to a cluster.
type Session struct {
	Mirrors   *admin.Client
	Admin     *kadm.Client
	Bootstrap []string
	Timeout   time.Duration
}

// Connect makes a session with a cluster that answers.
func (o *Options) Connect(ctx context.Context) (*Session, error) {
	c, err := o.resolve()
	if err != nil {
		return nil, err
	}
	s, err := Dial(ctx, c.bootstrap, c.id, c.timeout)
	if err != nil {
		return nil, (&Session{Bootstrap: c.bootstrap}).Lost("no broker answers", err)
	}
	return s, nil
}

// Dial makes a session from addresses, host:port each.
func Dial(ctx context.Context, bootstrap []string, id string, timeout time.Duration) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := admin.New(ctx, admin.Config{Bootstrap: bootstrap, ClientID: id, Timeout: timeout,
		Options: []kgo.Opt{kgo.RetryTimeout(timeout), kgo.DialTimeout(min(timeout, dialTimeout))}})
	if err != nil {
		return nil, err
	}
	c.Kadm().SetTimeoutMillis(int32(timeout.Milliseconds()))
	return &Session{Mirrors: c, Admin: c.Kadm(), Bootstrap: bootstrap, Timeout: timeout}, nil
}

// Within bounds a request by the session's timeout.
func (s *Session) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Timeout)
}

// Lost words the failure of a whole request: the cluster did not answer.
func (s *Session) Lost(what string, err error) error {
	do := "see whether a broker listens there (lockstep cluster status), or name another by --bootstrap-server"
	return Fail(what+" at "+strings.Join(s.Bootstrap, ","), err, do)
}

// Close ends the session.
func (s *Session) Close() { s.Mirrors.Close() }

// Topics lists the names of the cluster's topics that are not internal.
func (s *Session) Topics(ctx context.Context) ([]string, error) {
	ctx, cancel := s.Within(ctx)
	defer cancel()
	details, err := s.Admin.ListTopics(ctx)
	if err != nil {
		return nil, s.Lost("listing topics", err)
	}
	names := details.Names()
	slices.Sort(names)
	return names, nil
}
