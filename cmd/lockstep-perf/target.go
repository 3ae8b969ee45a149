package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/cli"
	"lockstep/internal/wire"
	"lockstep/perf/load"
)

// target is a topic on any broker that speaks Kafka's protocol.
type target struct {
	addr    string // of the broker that leads all its partitions
	topic   string
	targets []load.Target
	produce int16 // version of Produce
	fetch   int16 // version of Fetch
	made    bool  // by us
	flush   string
	cl      *kgo.Client
	adm     *kadm.Client
}

// openTarget takes a topic as it is, or makes it. configs are only for a topic
// that is made; version bounds the version of Produce.
func openTarget(ctx context.Context, addr, topic string, partitions int32, version int16, configs map[string]*string) (t *target, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	t = &target{addr: addr, topic: topic}
	if t.cl, err = kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("lockstep-perf"), kgo.RetryTimeout(setupTimeout), kgo.MetadataMinAge(ledPoll)); err != nil {
		return nil, err
	}
	t.adm = kadm.NewClient(t.cl)
	if err := t.open(ctx, partitions, version, configs); err != nil {
		t.cl.Close()
		return nil, cli.Fail("preparing topic "+topic+" at "+addr, err, "")
	}
	return t, nil
}

func (t *target) open(ctx context.Context, partitions int32, version int16, configs map[string]*string) error {
	versions, err := t.adm.ApiVersions(ctx)
	if err != nil {
		return err
	}
	t.produce, t.fetch = version, load.FetchVersion
	for _, v := range versions {
		if newest, ok := v.KeyMaxVersion(wire.KeyProduce); ok {
			t.produce = min(t.produce, newest)
		}
		if newest, ok := v.KeyMaxVersion(wire.KeyFetch); ok {
			t.fetch = min(t.fetch, newest)
		}
	}
	listed, err := t.adm.ListTopics(ctx, t.topic)
	if err != nil {
		return err
	}
	if !listed.Has(t.topic) || listed[t.topic].Err != nil {
		made, err := t.adm.CreateTopic(ctx, partitions, 1, configs, t.topic)
		if err := errors.Join(err, made.Err); err != nil {
			return err
		}
		t.made = true
	}
	if err := t.led(ctx); err != nil {
		return err
	}
	if err := t.serves(ctx); err != nil {
		return err
	}
	t.flush = t.flushAck(ctx)
	return nil
}

// led waits until all partitions have a leader and finds its address.
func (t *target) led(ctx context.Context) error {
	for {
		m, err := t.adm.Metadata(ctx, t.topic)
		if err != nil {
			return err
		}
		leaders := map[int32]bool{}
		d := m.Topics[t.topic]
		t.targets = t.targets[:0]
		for _, p := range d.Partitions.Sorted() {
			leaders[p.Leader] = true
			t.targets = append(t.targets, load.Target{ID: [16]byte(d.ID), Topic: t.topic, Partition: p.Partition})
		}
		if len(leaders) > 1 && !leaders[-1] {
			return fmt.Errorf("%d brokers lead its partitions; one broker is measured at a time", len(leaders))
		}
		for _, b := range m.Brokers {
			if leaders[b.NodeID] && !leaders[-1] {
				t.addr = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("it has no leader")
		case <-time.After(ledPoll):
		}
	}
}

// serves waits until each partition answers: a leader may be named before it
// knows that it leads.
func (t *target) serves(ctx context.Context) error {
	for {
		ends, err := t.adm.ListEndOffsets(ctx, t.topic)
		if err = errors.Join(err, ends.Error()); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(ledPoll):
		}
	}
}

// flushAck is what an acknowledgement promises, as far as the broker says.
func (t *target) flushAck(ctx context.Context) string {
	if r, err := t.adm.DescribeTopicConfigs(ctx, t.topic); err == nil {
		for _, c := range r {
			for _, c := range c.Configs {
				switch {
				case c.Key == "flush.messages" && c.MaybeValue() == "1":
					return "durable (flush.messages=1)"
				case c.Key == "flush.ack" && c.MaybeValue() != "":
					return c.MaybeValue()
				}
			}
		}
	}
	m, err := t.adm.BrokerMetadata(ctx)
	if err != nil || len(m.Brokers) == 0 {
		return "unknown"
	}
	r, err := t.adm.DescribeBrokerConfigs(ctx, m.Brokers[0].NodeID)
	if err != nil {
		return "unknown"
	}
	for _, c := range r {
		for _, c := range c.Configs {
			if c.Key == "lockstep.flush.ack" {
				return c.MaybeValue()
			}
		}
	}
	return "appended (the page cache)"
}

// spans are all that is in the topic now.
func (t *target) spans(ctx context.Context) (spans []load.Span, err error) {
	starts, err := t.adm.ListStartOffsets(ctx, t.topic)
	if err != nil {
		return nil, err
	}
	ends, err := t.adm.ListEndOffsets(ctx, t.topic)
	if err = errors.Join(err, starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	for _, p := range t.targets {
		begin, _ := starts.Lookup(t.topic, p.Partition)
		end, _ := ends.Lookup(t.topic, p.Partition)
		spans = append(spans, load.Span{Target: p, Begin: begin.Offset, End: end.Offset})
	}
	return spans, nil
}

// close deletes the topic if it was made here.
func (t *target) close(ctx context.Context) error {
	defer t.cl.Close()
	if !t.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	_, err := t.adm.DeleteTopic(ctx, t.topic)
	return err
}
