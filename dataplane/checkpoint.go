package dataplane

import (
	"encoding/binary"
	"errors"

	"lockstep/segment"
)

// checkpoints is what the files of one directory are to say.
type checkpoints struct {
	high, starts, durable, cleaned map[segment.TopicPartition]int64
}

// Checkpoint writes the high watermarks, log starts, recovery points and the
// cleaner's offsets of all directories, each file as a whole, unless nothing has
// changed since it last did: a node with 100,000 partitions is mostly idle. One
// caller at a time.
func (e *Engine) Checkpoint() error {
	e.unlinking.Lock() // what is collected here must not be written after its topic's files went
	defer e.unlinking.Unlock()
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	sum := e.checkpointSum(parts)
	if e.checkpointedAt == sum {
		return nil
	}
	all := map[*segment.Dir]*checkpoints{}
	for _, d := range e.o.Dirs {
		all[d] = &checkpoints{map[segment.TopicPartition]int64{}, map[segment.TopicPartition]int64{},
			map[segment.TopicPartition]int64{}, map[segment.TopicPartition]int64{}}
	}
	for _, p := range parts {
		if p.role.Load().gone || p.log.Failed() {
			continue
		}
		c, tp := all[p.log.Dir()], p.log.ID().TopicPartition()
		for _, x := range []struct {
			in     map[segment.TopicPartition]int64
			offset int64
		}{{c.high, p.high.Load()}, {c.durable, p.log.Durable()}, {c.starts, p.log.Start()}, {c.cleaned, p.log.CleanedTo()}} {
			if x.offset > 0 { // 0 says nothing
				x.in[tp] = x.offset
			}
		}
	}
	var errs []error
	for _, d := range e.o.Dirs {
		if d.Failed() != nil {
			continue
		}
		c := all[d]
		errs = append(errs, d.WriteCheckpoint(segment.HighWatermarkCheckpoint, c.high), d.WriteCheckpoint(segment.LogStartCheckpoint, c.starts),
			d.WriteCheckpoint(segment.RecoveryPointCheckpoint, c.durable), d.WriteCheckpoint(segment.CleanerCheckpoint, c.cleaned))
	}
	err := errors.Join(errs...)
	if err == nil {
		e.checkpointedAt = sum
	}
	return err
}

// checkpointSum stands for everything a checkpoint says (FNV-1a over words).
func (e *Engine) checkpointSum(parts []*Partition) uint64 {
	sum := uint64(14695981039346656037)
	add := func(v int64) { sum = (sum ^ uint64(v)) * 1099511628211 }
	for _, d := range e.o.Dirs {
		add(d.Lowered())
	}
	for _, p := range parts {
		if p.role.Load().gone || p.log.Failed() {
			add(-1)
			continue
		}
		add(int64(binary.LittleEndian.Uint64(p.id[:])))
		add(int64(binary.LittleEndian.Uint64(p.id[8:])) ^ int64(p.index))
		add(p.high.Load())
		add(p.log.Start())
		add(p.log.Durable())
		add(p.log.CleanedTo())
	}
	return sum
}
