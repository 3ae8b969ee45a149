package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// Config says which cluster a Client talks to.
type Config struct {
	Bootstrap []string // host:port of some brokers; required
	ClientID  string   // "" = lockstep-admin
	// Timeout bounds one call whose context has no deadline; 0 = 30 s.
	Timeout time.Duration
	// Options are further options of the franz-go client: TLS, SASL, a dialer.
	Options []kgo.Opt
}

// Client talks to one cluster.
type Client struct {
	cl      *kgo.Client
	adm     *kadm.Client
	timeout time.Duration
}

// New makes a Client and sees that a broker answers.
func New(ctx context.Context, c Config) (*Client, error) {
	if len(c.Bootstrap) == 0 {
		return nil, errors.New("admin: no bootstrap servers: give host:port of a broker")
	}
	if c.ClientID == "" {
		c.ClientID = "lockstep-admin"
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	opts := append(kafkareq.Options(), kgo.SeedBrokers(c.Bootstrap...), kgo.ClientID(c.ClientID), kgo.RequestRetries(maxRetries))
	cl, err := kgo.NewClient(append(opts, c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	a := &Client{cl: cl, adm: kadm.NewClient(cl), timeout: c.Timeout}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("admin: %w", err) // it names the address
	}
	return a, nil
}

// Close ends the connections.
func (a *Client) Close() { a.cl.Close() }

// Kadm is the client for what stock Kafka has too. It is closed with a.
func (a *Client) Kadm() *kadm.Client { return a.adm }

// bound gives a call a deadline if it has none.
func (a *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, a.timeout)
}

// do sends a request to any broker.
func (a *Client) do(ctx context.Context, req, resp msg.Message) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if err := kafkareq.Do(ctx, a.cl, req, resp); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Error is an error that a broker has answered. Errors with the same code are
// the same to errors.Is.
type Error struct {
	Code    int16
	Name    string // Kafka's, e.g. UNKNOWN_CLUSTER_MIRROR
	Message string // the broker's words, or what the code means and what to do
}

// Error gives both.
func (e *Error) Error() string { return e.Name + ": " + e.Message }

// Is compares codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Retriable tells whether the same request may succeed later.
func (e *Error) Retriable() bool { return wire.ErrorCode(e.Code).Retriable() }

// failure makes an error of what a broker answered; nil = none.
func failure(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := bare(code)
	if message != nil && *message != "" {
		e.Message = *message
	} else if next := NextStep(code); next != "" {
		e.Message += "; " + next
	}
	return e
}

// bare is the error of a code and what it means.
func bare(code int16) *Error {
	return &Error{Code: code, Name: wire.ErrorCode(code).Name(), Message: strings.TrimSuffix(wire.ErrorCode(code).Message(), ".")}
}

// Errors to compare with.
var (
	ErrMirrorExists    = failure(int16(wire.ErrClusterMirrorAlreadyExists), nil)
	ErrUnknownMirror   = failure(int16(wire.ErrUnknownClusterMirror), nil)
	ErrMirrorNotEmpty  = failure(int16(wire.ErrClusterMirrorNotEmpty), nil)
	ErrInOtherMirror   = failure(int16(wire.ErrTopicAlreadyInClusterMirror), nil)
	ErrNotInMirror     = failure(int16(wire.ErrTopicNotInClusterMirror), nil)
	ErrReleased        = failure(int16(wire.ErrMirrorSyncReleasedRequiresFreshPromotion), nil)
	ErrVersionMismatch = failure(int16(wire.ErrMirrorSyncVersionMismatch), nil)
	ErrPropagating     = failure(int16(wire.ErrMirrorRegistrationPropagating), nil)
)

// Capabilities is what every broker of a cluster can do.
type Capabilities struct {
	ClusterID  string
	FetchMax   int16 // 20 and up carry mirror reports
	Produce    int16 // largest version; 14 and up tell mirror errors apart
	MirrorSync int16 // finalised level of mirror.sync.version; 0 = does not gate on mirrors
}

// Probe asks every broker what it speaks. A broker that does not answer is an
// error: the least of all cannot be known without it.
func (a *Client) Probe(ctx context.Context) (Capabilities, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	m, err := a.adm.BrokerMetadata(ctx)
	if err != nil {
		return Capabilities{}, fmt.Errorf("admin: %w", err)
	}
	all, err := a.adm.ApiVersions(ctx)
	if err != nil {
		return Capabilities{}, fmt.Errorf("admin: %w", err)
	}
	c := Capabilities{ClusterID: m.Cluster, FetchMax: -1, Produce: -1}
	first := true
	for id, v := range all {
		if v.Err != nil {
			return Capabilities{}, fmt.Errorf("admin: broker %d: %w", id, v.Err)
		}
		_, fetch, _ := v.KeyVersions(wire.KeyFetch)
		_, produce, _ := v.KeyVersions(wire.KeyProduce)
		sync := finalised(v.Raw().FinalizedFeatures, "mirror.sync.version")
		if _, _, ok := v.KeyVersions(wire.KeyRegisterMirrorSyncTopic); !ok {
			sync = 0
		}
		if first {
			c.FetchMax, c.Produce, c.MirrorSync, first = fetch, produce, sync, false
		}
		c.FetchMax, c.Produce, c.MirrorSync = min(c.FetchMax, fetch), min(c.Produce, produce), min(c.MirrorSync, sync)
	}
	if first {
		return Capabilities{}, errors.New("admin: the cluster names no live broker")
	}
	return c, nil
}

func finalised(all []kmsg.ApiVersionsResponseFinalizedFeature, name string) int16 {
	for _, f := range all {
		if f.Name == name {
			return f.MaxVersionLevel
		}
	}
	return 0
}
