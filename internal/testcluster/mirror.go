package testcluster

import (
	"context"
	"fmt"
	"io"
	"time"

	"lockstep/internal/cli"
)

// Session connects to one of the clusters; verbs on mirrors say nothing.
func (b *Broker) Session(ctx context.Context) (*cli.Session, *cli.Mirrors, error) {
	s, err := cli.Dial(ctx, []string{b.Addr}, "lockstep-testcluster", requestTimeout)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", b.Name, err)
	}
	return s, &cli.Mirrors{S: s, P: &cli.Printer{Out: io.Discard, Err: io.Discard}, Now: time.Now}, nil
}

// Topic is a topic to be mirrored.
type Topic struct {
	Name       string
	Mirror     string
	Partitions int32
	Sync       bool
}

// Type is the type in effect that is wanted.
func (t Topic) Type() string {
	if t.Sync {
		return "SYNC"
	}
	return "ASYNC"
}

// Add makes the topic at the source, the mirror at the destination, and adds
// the one to the other. It returns the topic's id.
func (c *Cluster) Add(ctx context.Context, t Topic) (id [16]byte, err error) {
	src, _, err := c.Source.Session(ctx)
	if err != nil {
		return id, err
	}
	defer src.Close()
	made, err := src.Admin.CreateTopic(ctx, t.Partitions, 1, nil, t.Name)
	if err != nil {
		return id, cli.Fail("creating topic "+t.Name, err, "")
	}
	dst, m, err := c.Destination.Session(ctx)
	if err != nil {
		return id, err
	}
	defer dst.Close()
	if err := m.CreateWith(ctx, t.Mirror, map[string]string{"bootstrap.servers": c.SourceAddr}); err != nil {
		return id, err
	}
	only, err := cli.ParsePatterns(t.Name)
	if err != nil {
		return id, err
	}
	return made.ID, m.Add(ctx, t.Mirror, only, t.Sync)
}

// Await waits until the topic is mirrored on all partitions and its type is in
// effect.
func (c *Cluster) Await(ctx context.Context, t Topic) error {
	dst, m, err := c.Destination.Session(ctx)
	if err != nil {
		return err
	}
	defer dst.Close()
	return m.Await(ctx, t.Mirror, t.Name, t.Type())
}
