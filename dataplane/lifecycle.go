package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"lockstep/internal/meta"
	"lockstep/ioring"
	"lockstep/segment"
)

// Open recovers every log of every directory. progress is told after each.
func (e *Engine) Open(settings segment.Config, progress func(done, total int, stats segment.RecoveryStats)) error {
	e.marks = map[segment.TopicPartition]int64{}
	for _, d := range e.o.Dirs {
		ends := map[segment.TopicPartition]int64{}
		ids, err := d.Scan()
		if err != nil {
			return fmt.Errorf("log directory %s: %w", d.Path(), err)
		}
		var awake []*segment.Log
		for i, id := range ids {
			l, stats, err := d.OpenLog(id, settings, e.wall())
			var corrupt *segment.CorruptError
			if errors.As(err, &corrupt) {
				e.o.Log.Error("log is corrupt below what was durable; the partition stays offline and nothing is cut",
					"topic", id.Topic, "partition", id.Partition, "error", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("recover %s-%d: %w", id.Topic, id.Partition, err)
			}
			e.logs[id] = l
			ends[id.TopicPartition()] = l.End()
			if awake = append(awake, l); d.Crowded(false) {
				if err := e.restOpened(d, awake); err != nil {
					return fmt.Errorf("log directory %s: %w", d.Path(), err)
				}
				awake = awake[:0]
			}
			progress(i+1, len(ids), stats)
		}
		if _, err = lower(d, segment.LogStartCheckpoint, ends); err != nil {
			return err
		}
		marks, err := lower(d, segment.HighWatermarkCheckpoint, ends)
		if err != nil {
			return err
		}
		maps.Copy(e.marks, marks)
	}
	return nil
}

// lower brings the offsets of a checkpoint down to the log ends: what a crash took
// away will be written again, and the next crash must not take the old offset for
// that.
func lower(d *segment.Dir, name string, ends map[segment.TopicPartition]int64) (map[segment.TopicPartition]int64, error) {
	m, err := d.ReadCheckpoint(name)
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", d.Path(), err)
	}
	changed := false
	for tp, end := range ends {
		if v, ok := m[tp]; ok && v > end {
			m[tp], changed = end, true
		}
	}
	if changed {
		err = d.WriteCheckpoint(name, m)
	}
	return m, err
}

// checkpointed is the high watermark the last run left. [mu]
func (e *Engine) checkpointed(id segment.LogID) int64 { return e.marks[id.TopicPartition()] }

// pickDir chooses the directory of a new partition: the one with the fewest
// logs that has not failed.
func (e *Engine) pickDir() *segment.Dir {
	best := e.o.Dirs[0]
	for _, d := range e.o.Dirs[1:] {
		if d.Failed() == nil && (best.Failed() != nil || d.Logs() < best.Logs()) {
			best = d
		}
	}
	return best
}

// Sweep removes the logs of topics that are gone: a crash, or a directory that
// had failed, came between a topic and its files, and they would stand in the way
// of a new topic of that name for ever. The caller vouches that the View at index
// from knows of every topic this broker has ever had a log of, as that of its own
// registration in this life does; nothing is removed before it is applied.
func (e *Engine) Sweep(from uint64) {
	e.cores[0].inbox.put(note{kind: noteCall, fn: func(*Core) {
		e.sweepFrom = from
		e.sweep()
	}})
}

func (e *Engine) sweep() {
	if e.sweepFrom == 0 || e.view.Index() < e.sweepFrom {
		return
	}
	e.sweepFrom = 0
	gone := map[string][]*segment.Log{}
	e.mu.RLock()
	for id, l := range e.logs {
		if e.view.TopicByID(id.TopicID) == nil {
			gone[id.Topic] = append(gone[id.Topic], l)
		}
	}
	e.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(gone)) { // in their order: a simulated run is repeatable
		logs := gone[name]
		slices.SortFunc(logs, func(a, b *segment.Log) int { return int(a.ID().Partition - b.ID().Partition) })
		e.o.Log.Info("files of a topic that was deleted are removed", "topic", name, "partitions", len(logs))
		e.background(jobGrow, func() { e.deleteLogs(name, logs) })
	}
}

// removal is a deleted topic on shard 0: its files go when no write, step or
// flush of them is under way.
type removal struct {
	timer
	name  string
	parts []*Partition
}

func (t *removal) expired(c *Core) {
	var logs []*segment.Log
	for _, p := range t.parts {
		p.lock()
		quiet := p.log.Leave()
		p.unlock()
		if quiet {
			logs = append(logs, p.log)
		}
	}
	if len(logs) < len(t.parts) {
		c.timers.arm(&t.timer, c.now+1e6)
		return
	}
	c.eng.background(jobGrow, func() { c.eng.deleteLogs(t.name, logs) })
}

// deleteLogs unlinks the files of deleted partitions of a topic.
func (e *Engine) deleteLogs(name string, old []*segment.Log) {
	logs := map[*segment.Dir][]*segment.Log{}
	e.mu.Lock()
	for _, l := range old {
		id := l.ID()
		delete(e.logs, id)
		delete(e.marks, id.TopicPartition())
		logs[l.Dir()] = append(logs[l.Dir()], l)
	}
	var live []*Partition
	for _, p := range e.parts {
		if !p.role.Load().gone {
			live = append(live, p)
		}
	}
	e.parts = live
	e.mu.Unlock()
	e.unlinking.Lock()
	defer e.unlinking.Unlock()
	for _, d := range e.o.Dirs { // in their order: a simulated run is repeatable
		if len(logs[d]) == 0 {
			continue
		}
		if err := d.Delete(logs[d]...); err != nil {
			e.o.Log.Warn("files of a deleted topic could not be removed", "topic", name, "error", err)
		}
	}
	e.cores[0].inbox.put(note{kind: noteCall, fn: func(c *Core) { e.addMissing(c, name) }})
}

// addMissing opens the partitions of a topic whose logs could not be opened when
// its View came: a deleted topic of the same name still had its files there.
func (e *Engine) addMissing(c *Core, name string) {
	t := e.view.TopicByName(name)
	if t == nil {
		return
	}
	d := &viewDelta{index: e.view.Index()}
	e.applyTopic(c, meta.TopicChange{Old: t, New: t}, e.view.BrokerConfig(), d)
	e.spread(c, d)
	e.assignChanged(d)
}

// FlushAll starts writeback and flushes of what has been appended, so that a
// reactor is not throttled on dirty pages and a crash of the machine loses
// little even in appended mode. It returns when all have ended.
func (e *Engine) FlushAll() {
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	flushes := map[*segment.Dir][]*segment.Flush{}
	flushing := map[*segment.Dir][]*Partition{}
	for _, p := range parts {
		p.lock()
		f, ok := segment.Flush{}, false
		if !p.flushes {
			f, ok = p.log.FlushPlan()
			p.flushes = ok
		}
		p.unlock()
		if !ok {
			continue
		}
		if p.role.Load().settings.Durable { // somebody waits for this one
			e.flush(p, f)
			continue
		}
		d, kept := p.log.Dir(), f
		flushes[d], flushing[d] = append(flushes[d], &kept), append(flushing[d], p)
	}
	for _, d := range e.o.Dirs { // in their order: a simulated run is repeatable
		start := e.clock()
		d.FlushLogs(flushes[d])
		e.m.flushNs.Add(e.clock() - start)
		for i, f := range flushes[d] {
			e.flushed(flushing[d][i], *f)
		}
	}
}

// Retain drops segments that retention gives up, only below the gated mark.
func (e *Engine) Retain() {
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	now := e.wall()
	for _, p := range parts {
		r := p.role.Load()
		e.unlinking.Lock()
		p.lock()
		p.log.Producers().Expire(now, r.settings.ProducerExpiryMS)
		var d segment.Dropped
		var dropped bool
		if r.settings.Retention {
			d, dropped = p.log.Drop(p.log.RetentionPlan(now, p.high.Load()))
		}
		if r.settings.Retention && p.high.Load() == p.log.End() && p.log.SealExpired(now) {
			e.follow(p)
		}
		p.unlock()
		var err error
		if dropped {
			err = d.Do()
			p.lock()
			p.log.Unlinked(d)
			p.unlock()
		}
		e.unlinking.Unlock()
		if err != nil {
			e.m.unlinkErrors.Add(1)
			e.o.Log.Warn("segment could not be removed; it is tried again, and none after it goes before", "topic", p.topic, "partition", p.index, "error", err)
		}
	}
}

// Close ends the engine: no more connections, requests that wait get a moment
// to be answered, then every log is sealed. A nil error means that the
// directories carry the mark of a clean shutdown.
func (e *Engine) Close(drain time.Duration) error {
	e.Drain(drain)
	for _, c := range e.cores {
		<-c.gone
	}
	return e.seal()
}

// Drain asks the shards to end. A driver that steps them itself calls Close once
// Drained says that they have, and nothing they began is under way.
func (e *Engine) Drain(drain time.Duration) {
	if !e.draining.CompareAndSwap(false, true) {
		return
	}
	for _, c := range e.cores {
		c.inbox.put(note{kind: noteCall, fn: func(c *Core) { c.shutdown(drain) }})
	}
}

// Drained tells whether all shards have ended.
func (e *Engine) Drained() bool {
	for _, c := range e.cores {
		select {
		case <-c.gone:
		default:
			return false
		}
	}
	return true
}

func (e *Engine) seal() error {
	close(e.stop)
	e.running.Wait()
	e.sealing.Store(true)
	e.stopCleaning()
	e.FlushAll()
	errs := []error{e.Checkpoint()}
	e.mu.Lock()
	defer e.mu.Unlock()
	logs := map[*segment.Dir][]*segment.Log{}
	for _, l := range e.logs {
		if !l.Failed() {
			logs[l.Dir()] = append(logs[l.Dir()], l)
		}
	}
	for _, d := range e.o.Dirs {
		errs = append(errs, d.SealClean(logs[d]...))
		for _, l := range logs[d] {
			l.Close()
		}
		if d.Failed() == nil && errors.Join(errs...) == nil {
			errs = append(errs, d.CloseClean())
		} else {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// shutdown begins the end of a shard: listeners close, connections that owe no
// answer close, the others at the deadline.
func (c *Core) shutdown(drain time.Duration) {
	c.stopping = true
	if c.id == 0 {
		for _, fd := range c.eng.listeners {
			c.op(ioring.Op{Kind: ioring.Close, FD: fd, Token: tokenSpecial})
		}
	}
	end := &ending{until: c.now + int64(drain)}
	end.owner = end
	end.expired(c)
}

// ending looks from time to time whether a shard may quit.
type ending struct {
	timer
	until int64
}

func (t *ending) expired(c *Core) {
	late := c.now >= t.until
	for _, cn := range c.conns {
		if !cn.closed && !cn.closing && (late || cn.lane != nil || len(cn.answers) == 0 && !cn.sending || cn.onlyFetches()) {
			c.close(cn)
		}
	}
	if c.open == 0 || late {
		c.quit = true
		close(c.gone)
		return
	}
	c.timers.arm(&t.timer, c.now+int64(5*time.Millisecond))
}

// onlyFetches: a parked fetch is owed nothing at a shutdown.
func (cn *conn) onlyFetches() bool {
	for _, a := range cn.answers {
		if a.parked == nil {
			return false
		}
	}
	return !cn.sending && !cn.muted
}
