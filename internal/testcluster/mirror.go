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

// Add makes the topic at the source, the mirror at each destination, and adds
// the one to the other. It returns the topic's id. The mirror has the same name
// at each destination but with a number after the first.
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
	only, err := cli.ParsePatterns(t.Name)
	if err != nil {
		return id, err
	}
	return made.ID, c.each(ctx, t, func(m *cli.Mirrors, s Site, name string) error {
		if err := m.CreateWith(ctx, name, map[string]string{"bootstrap.servers": s.SourceAddr}); err != nil {
			return err
		}
		return m.Add(ctx, name, only, t.Sync)
	})
}

// MirrorName is what a topic's mirror is called at the n-th destination, from 0.
func MirrorName(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, n+1)
}

// Alter changes the wanted type of a mirrored topic at every destination.
func (c *Cluster) Alter(ctx context.Context, t Topic) error {
	only, err := cli.ParsePatterns(t.Name)
	if err != nil {
		return err
	}
	return c.each(ctx, t, func(m *cli.Mirrors, _ Site, name string) error { return m.Alter(ctx, name, only, t.Sync) })
}

// Await waits until the topic is mirrored on all partitions and its type is in
// effect, at every destination.
func (c *Cluster) Await(ctx context.Context, t Topic) error {
	return c.each(ctx, t, func(m *cli.Mirrors, _ Site, name string) error { return m.Await(ctx, name, t.Name, t.Type()) })
}

// each runs f for every destination in turn.
func (c *Cluster) each(ctx context.Context, t Topic, f func(m *cli.Mirrors, s Site, name string) error) error {
	for i, s := range c.Sites() {
		dst, m, err := s.Session(ctx)
		if err != nil {
			return err
		}
		err = f(m, s, MirrorName(t.Mirror, i))
		dst.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}
