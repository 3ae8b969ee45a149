package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/testcluster"
)

// demoFindings are what a comparison found.
type demoFindings struct {
	records    int // in the log, without control records
	duplicates int
	lost       int // acknowledged, and not there
	corrupted  int
	outOfOrder int
}

// demoChecker judges the records of a log as they are read.
type demoChecker struct {
	led  *demoLedger
	seen []bool
	last [demoPartitions]int // greatest number among first occurrences
	f    demoFindings
}

func newDemoChecker(led *demoLedger) *demoChecker {
	c := &demoChecker{led: led, seen: make([]bool, len(led.acked))}
	for i := range c.last {
		c.last[i] = -1
	}
	return c
}

// take judges one record.
func (c *demoChecker) take(partition int32, key, value []byte) {
	c.f.records++
	if key == nil {
		return // the write that had to fail; it may be there
	}
	if len(key) != 8 {
		c.f.corrupted++
		return
	}
	n := binary.BigEndian.Uint64(key)
	if n >= uint64(len(c.seen)) || int32(n%demoPartitions) != partition || !bytes.Equal(value, demoValue(c.led.seed, int(n))) {
		c.f.corrupted++
		return
	}
	i := int(n)
	if c.seen[i] {
		c.f.duplicates++
		return
	}
	c.seen[i] = true
	if i < c.last[partition] {
		c.f.outOfOrder++
	}
	c.last[partition] = max(c.last[partition], i)
}

// findings adds what is missing.
func (c *demoChecker) findings() demoFindings {
	c.led.mu.Lock()
	defer c.led.mu.Unlock()
	f := c.f
	for i, acked := range c.led.acked {
		if acked && !c.seen[i] {
			f.lost++
		}
	}
	return f
}

// readBack reads the topic from start to end and checks it.
func (d *demo) readBack(ctx context.Context, b *testcluster.Broker) (demoFindings, error) {
	s, _, err := b.Session(ctx)
	if err != nil {
		return demoFindings{}, err
	}
	defer s.Close()
	end, err := ends(ctx, s)
	if err != nil {
		return demoFindings{}, err
	}
	start := map[int32]kgo.Offset{}
	for i, e := range end {
		if e > 0 {
			start[int32(i)] = kgo.NewOffset().AtStart()
		}
	}
	check := newDemoChecker(d.led)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{demoTopic: start}), kgo.KeepControlRecords())
	if err != nil {
		return demoFindings{}, err
	}
	defer cl.Close()
	var at [demoPartitions]int64
	for at != end {
		got := cl.PollFetches(ctx)
		if err := errors.Join(got.Err0(), ctx.Err()); err != nil {
			return demoFindings{}, fmt.Errorf("at offsets %v of %v: %w", at, end, err)
		}
		got.EachRecord(func(r *kgo.Record) {
			if r.Offset >= end[r.Partition] {
				return
			}
			at[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				check.take(r.Partition, r.Key, r.Value)
			}
		})
	}
	return check.findings(), nil
}
