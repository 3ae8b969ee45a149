package dataplane

import (
	"hash/fnv"
	"sync"

	"lockstep/internal/status"
)

// sources are the addresses of source leaders, by mirror and topic. Control
// looks them up; they are soft facts, not part of the View.
type sources struct {
	mu      sync.Mutex
	leaders map[string]map[string][]status.SourceLeader
}

// SetSources replaces what is known of a mirror's source: leaders by topic and
// partition. nil forgets the mirror.
func (e *Engine) SetSources(mirror string, topics map[string][]status.SourceLeader) {
	e.targets.mu.Lock()
	if e.targets.leaders == nil {
		e.targets.leaders = map[string]map[string][]status.SourceLeader{}
	}
	if topics == nil {
		delete(e.targets.leaders, mirror)
	} else {
		e.targets.leaders[mirror] = topics
	}
	e.targets.mu.Unlock()
	e.cores[0].inbox.put(note{kind: noteCall, fn: func(c *Core) { c.eng.assignMirror(mirror) }})
}

func (s *sources) find(mirror, topic string, index int32) (status.SourceLeader, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.leaders[mirror][topic]
	if int(index) >= len(list) || !list[index].Addr.IsValid() {
		return status.SourceLeader{}, false
	}
	return list[index], true
}

// home is the shard of a mirror's connections.
func (e *Engine) home(mirror string) *Core {
	h := fnv.New32a()
	_, _ = h.Write([]byte(mirror))
	return e.cores[h.Sum32()%uint32(len(e.cores))]
}

// assignMirror does assignSources for all partitions of a mirror.
func (e *Engine) assignMirror(mirror string) {
	e.mu.RLock()
	parts := e.parts
	e.mu.RUnlock()
	var of []*Partition
	for _, p := range parts {
		if p.role.Load().mirror == mirror || p.lastMirror == mirror {
			of = append(of, p)
		}
	}
	e.assignSources(of)
}

// assignChanged does it for what a View has changed.
func (e *Engine) assignChanged(d *viewDelta) {
	var of []*Partition
	for _, topics := range [][]*topic{d.remove, d.add} {
		for _, t := range topics {
			of = append(of, t.parts...)
		}
	}
	e.assignSources(of)
}

// assignSources compares which partitions should be fetched with what the
// lanes do and tells the lanes' shards. It runs on shard 0.
func (e *Engine) assignSources(parts []*Partition) {
	cluster := e.view.ClusterID()
	for _, p := range parts {
		if p == nil {
			continue
		}
		r := p.role.Load()
		if r.mirror == "" && !p.hadMirror {
			continue
		}
		p.lock()
		run := p.down != nil && p.down.run && r.leader
		p.unlock()
		mirror := r.mirror
		if mirror == "" {
			mirror = p.lastMirror
		}
		p.hadMirror, p.lastMirror = true, mirror
		leader, known := e.targets.find(mirror, p.topic, p.index)
		home := e.home(mirror)
		switch {
		case !run || r.gone:
			home.inbox.put(note{kind: noteCall, fn: func(c *Core) { c.detach(p); c.drained(p) }})
		case known:
			key := laneKey{mirror: mirror, addr: leader.Addr}
			home.inbox.put(note{kind: noteCall, fn: func(c *Core) { c.attach(p, key, cluster, leader.Epoch) }})
		}
	}
}

// drained marks a partition whose lanes are off and whose queue is written. [not L]
func (c *Core) drained(p *Partition) {
	p.lock()
	defer p.unlock()
	if p.down == nil || p.down.run || p.down.owner != nil {
		return
	}
	if p.log.NextOffset() != p.log.End() { // queued by this very turn: look again in the next
		c.inbox.put(note{kind: noteCall, fn: func(c *Core) { c.drained(p) }})
		return
	}
	p.down.drained = true
}
