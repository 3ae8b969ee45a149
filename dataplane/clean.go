package dataplane

import (
	"context"

	"lockstep/segment"
)

// Cleaner is what a topic's configuration says of its compaction. Times are ms.
type Cleaner struct {
	MinLagMS          int64   // min.compaction.lag.ms
	MaxLagMS          int64   // max.compaction.lag.ms
	DeleteRetentionMS int64   // delete.retention.ms
	MinDirtyRatio     float64 // min.cleanable.dirty.ratio
}

// Clean compacts every log of a compacted topic that is dirty enough, below its
// gated high watermark only: a record that a registered destination has not got
// is neither removed nor what another one is removed for. One caller at a time.
func (e *Engine) Clean() {
	e.cleaning.Lock()
	defer e.cleaning.Unlock()
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	for _, p := range parts {
		r := p.role.Load()
		if !r.settings.Compact || r.gone {
			continue
		}
		select {
		case <-e.stop:
			return
		default:
			e.clean(p, r)
		}
	}
}

// stopCleaning ends the pass under way, for good: it gives way between two batches.
func (e *Engine) stopCleaning() {
	for !e.cleaning.TryLock() {
		e.mu.RLock()
		for _, p := range e.parts {
			p.log.StopCleaning()
		}
		e.mu.RUnlock()
		_ = pause(context.Background()) // which never ends
	}
}

func (e *Engine) clean(p *Partition, r *role) {
	s := &r.settings.Cleaner
	o := segment.CleanOptions{Now: e.wall(), MinLagMs: s.MinLagMS, MaxLagMs: s.MaxLagMS, DeleteRetentionMs: s.DeleteRetentionMS,
		MinDirtyRatio: s.MinDirtyRatio, Compress: e.o.Compress,
		Inflate: func(codec int8, src []byte, limit int) ([]byte, error) { return e.o.Inflate(nil, codec, src, limit) }}
	p.lock()
	if p.high.Load() == p.log.End() && p.log.SealForCleaning(o.Now, s.MaxLagMS) {
		e.follow(p)
	}
	o.Limit = p.high.Load()
	c, ok := p.log.CleanPlan(o)
	p.unlock()
	if !ok {
		return
	}
	start := e.clock()
	c.Do()
	p.lock()
	err := p.log.Cleaned(c)
	p.unlock()
	e.m.cleaned.Add(1)
	switch {
	case err == nil:
		e.m.cleanedRecords.Add(c.Removed)
		e.o.Log.Info("log cleaned", "topic", p.topic, "partition", p.index, "to", p.log.CleanedTo(), "removed", c.Removed,
			"bytes_before", c.Before, "bytes_after", c.After, "ms", (e.clock()-start)/1e6)
	case segment.Stopped(err): // deleted, truncated or at the end: not an error
	default:
		e.m.cleanErrors.Add(1)
		e.o.Log.Error("log not cleaned", "topic", p.topic, "partition", p.index, "error", err)
	}
	if p.log.Failed() {
		e.logFailed(p)
	}
}
