package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Stop ends the mirroring of topics and makes them writable: the fail-over.
// With wait > 0 it waits that long for all of them to be STOPPED.
func (m *Mirrors) Stop(ctx context.Context, name string, patterns Patterns, wait time.Duration) error {
	l, err := m.find(ctx, name)
	if err != nil {
		return err
	}
	topics, err := some(patterns, l.Names, "mirror "+name)
	if err != nil {
		return err
	}
	if d, err := m.describe(ctx, name); err == nil {
		for _, p := range d.Partitions {
			if p.LostAckedRecords {
				m.P.Note("WARNING: %s-%d: this destination has lost acknowledged records; another destination may have them", p.Topic, p.Partition)
			}
		}
	}
	results, err := m.S.Mirrors.RemoveTopics(ctx, name, topics)
	if err != nil && len(results) == 0 {
		return Fail("stopping topics of mirror "+name, err, "")
	}
	stopping := succeeded(results)
	if wait > 0 && len(stopping) > 0 {
		if err := m.AwaitStopped(ctx, name, stopping, wait); err != nil {
			return err
		}
	}
	if m.P.JSON || len(stopping) < len(results) {
		return m.results("Stopped", "mirror topic(s) of mirror "+name, name, results)
	}
	word := "Stopped"
	if wait <= 0 {
		word = "Stopping"
	}
	m.P.Line("%s mirroring for topics [%s] in mirror %s", word, strings.Join(stopping, ", "), name)
	return nil
}

// AwaitStopped waits until all partitions of topics are STOPPED and tells each
// change on the way.
func (m *Mirrors) AwaitStopped(ctx context.Context, name string, topics []string, wait time.Duration) error {
	seen := map[string]string{}
	deadline := m.Now().Add(wait)
	for {
		d, err := m.describe(ctx, name)
		if err != nil {
			return err
		}
		left, total := 0, 0
		for _, p := range d.Partitions {
			if !slices.Contains(topics, p.Topic) {
				continue
			}
			total++
			key := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
			if p.State != "STOPPED" {
				left++
			}
			if seen[key] != p.State {
				seen[key] = p.State
				m.P.Note("%s: %s", key, p.State)
			}
		}
		if total > 0 && left == 0 {
			return nil
		}
		if m.Now().After(deadline) {
			return Fail("stopping "+strings.Join(topics, ", "), fmt.Errorf("%d of %d partitions are not STOPPED after %v", left, total, wait),
				"stopping goes on; describe shows how far it is")
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Await waits until a topic is mirrored on all partitions, and of a type: ASYNC
// or SYNC in effect.
func (m *Mirrors) Await(ctx context.Context, mirror, topic, effective string) error {
	for {
		d, err := m.describe(ctx, mirror)
		if err != nil {
			return err
		}
		total, ready := 0, 0
		for _, p := range d.Partitions {
			if p.Topic != topic {
				continue
			}
			total++
			if p.Effective == effective && p.State == "MIRRORING" {
				ready++
			}
		}
		if total > 0 && ready == total {
			return nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return Fail("waiting for "+effective+" of "+topic, fmt.Errorf("%d of %d partitions are there: %w", ready, total, err), strings.Join(d.annotations(topic), "; "))
		}
	}
}
