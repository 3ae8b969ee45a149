package testcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lockstep/internal/wanlink"
)

// Options say what to start.
type Options struct {
	Binary      string          // the lockstep program; empty = this program itself
	Dir         string          // parent of the data directory; empty = the system's
	Keep        bool            // Close leaves the directory
	RTT         time.Duration   // of the link; 0 with NoLink
	Jitter      time.Duration   // of every link
	Bandwidth   int64           // of every link, bytes per second and direction; 0 = no limit
	NoLink      bool            // the destination reaches the source directly
	More        []time.Duration // a further destination for each, behind a link of this round trip
	Overrides   []string        // settings of all brokers, NAME=VALUE
	Source      []string        // settings of the source alone
	Destination []string        // settings of the destinations alone
	LogLevel    string          // of all brokers; empty = info
}

// Site is a destination and the link to it.
type Site struct {
	*Broker
	Link       *wanlink.Link
	SourceAddr string // where it finds the source
}

// Cluster is a source, a destination and the link between them.
type Cluster struct {
	Source, Destination *Broker
	Link                *wanlink.Link // nil with NoLink
	SourceAddr          string        // where the destination finds the source
	More                []Site        // further destinations
	Dir                 string
	keep                bool
}

// Start starts all brokers. What it has begun ends on an error. A port that
// was free and is taken when the broker wants it is no error: it begins anew.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	for try := 1; ; try++ {
		c := &Cluster{keep: o.Keep}
		err := c.start(ctx, o)
		if err == nil {
			return c, nil
		}
		if err = errors.Join(err, c.Close()); try == startTries || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			return nil, err
		}
	}
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	var err error
	if c.Dir, err = os.MkdirTemp(o.Dir, "lockstep-"); err != nil {
		return err
	}
	if o.Binary == "" {
		if o.Binary, err = os.Executable(); err != nil {
			return err
		}
	}
	ports, err := FreePorts(5 + 3*len(o.More))
	if err != nil {
		return err
	}
	wan := ports[1]
	c.SourceAddr = wan
	if !o.NoLink {
		if c.Link, err = wanlink.Listen("127.0.0.1:0", wan, wanlink.Options{RTT: o.RTT, Jitter: o.Jitter, Bandwidth: o.Bandwidth}); err != nil {
			return err
		}
		c.SourceAddr = c.Link.Addr()
	}
	listens, says, protocols := "CLIENT://"+ports[0]+",WAN://"+wan, "CLIENT://"+ports[0]+",WAN://"+c.SourceAddr, "CLIENT:PLAINTEXT,WAN:PLAINTEXT"
	for i, rtt := range o.More {
		p, name := ports[5+3*i:], fmt.Sprintf("WAN%d", i+2)
		link, err := wanlink.Listen("127.0.0.1:0", p[0], wanlink.Options{RTT: rtt, Jitter: o.Jitter, Bandwidth: o.Bandwidth})
		if err != nil {
			return err
		}
		listens, says, protocols = listens+","+name+"://"+p[0], says+","+name+"://"+link.Addr(), protocols+","+name+":PLAINTEXT"
		c.More = append(c.More, Site{c.destination(o, fmt.Sprintf("destination-%d", i+2), p[1], p[2]), link, link.Addr()})
	}
	c.Source = c.broker(o, "source", ports[0], ports[2], append([]string{"listeners=" + listens, "advertised.listeners=" + says,
		"listener.security.protocol.map=" + protocols, "inter.broker.listener.name=CLIENT"}, o.Source...))
	c.Destination = c.destination(o, "destination", ports[3], ports[4])
	for _, b := range c.brokers() {
		if err := b.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Sites are all destinations, the first one first.
func (c *Cluster) Sites() []Site {
	return append([]Site{{c.Destination, c.Link, c.SourceAddr}}, c.More...)
}

// brokers are those that there are already.
func (c *Cluster) brokers() (all []*Broker) {
	for _, b := range append([]Site{{Broker: c.Source}}, c.Sites()...) {
		if b.Broker != nil {
			all = append(all, b.Broker)
		}
	}
	return all
}

func (c *Cluster) destination(o Options, name, addr, admin string) *Broker {
	return c.broker(o, name, addr, admin, append([]string{"listeners=CLIENT://" + addr,
		"listener.security.protocol.map=CLIENT:PLAINTEXT", "inter.broker.listener.name=CLIENT"}, o.Destination...))
}

func (c *Cluster) broker(o Options, name, addr, admin string, settings []string) *Broker {
	b := &Broker{Name: name, Addr: addr, Admin: admin, binary: o.Binary,
		Data: filepath.Join(c.Dir, name), Log: filepath.Join(c.Dir, name+".log")}
	b.args = []string{"broker"}
	if o.LogLevel != "" {
		b.args = append(b.args, "--log-level", o.LogLevel)
	}
	all := append([]string{"log.dirs=" + b.Data, "lockstep.admin.listener=" + admin}, o.Overrides...)
	for _, s := range append(all, settings...) {
		b.args = append(b.args, "--override", s)
	}
	return b
}

// FreePorts finds n addresses nobody listens on, below the ports that the
// kernel gives to outgoing connections. Another program may still take one
// before its broker does.
func FreePorts(n int) ([]string, error) {
	var addrs []string
	for range portTries {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portMin+rand.IntN(portMax-portMin)))
		if err != nil {
			continue
		}
		defer ln.Close()
		if addrs = append(addrs, ln.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports from %d to %d in %d tries", n, portMin, portMax, portTries)
}

// Close kills all brokers, closes the links and removes the directory.
func (c *Cluster) Close() error {
	for _, b := range c.brokers() {
		b.Kill()
	}
	var errs []error
	for _, s := range c.Sites() {
		if s.Link != nil {
			errs = append(errs, s.Link.Close())
		}
	}
	if c.Dir != "" && !c.keep {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}

// Build makes the lockstep program in dir, static as `make build` makes it unless
// the extra flags of go build have -race, and returns its path.
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	out := filepath.Join(dir, "lockstep")
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "lockstep/cmd/lockstep")...)
	if !slices.Contains(flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build lockstep/cmd/lockstep: %w\n%s", err, text)
	}
	return out, nil
}
