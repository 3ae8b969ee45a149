package dataplane

import (
	"lockstep/internal/watermark"
	"lockstep/internal/wire"
)

// takeReports counts the reports of a fetch and appends the answer to each.
// This is what moves the mark of a synchronously mirrored partition.
func (c *Core) takeReports(req *wire.FetchRequest, answers []wire.ReportAnswer) []wire.ReportAnswer {
	name := string(req.Mirror.MirrorName)
	allowed := c.eng.o.MayReport == nil || c.eng.o.MayReport(name)
	for it := req.Mirror.Reports(); it.Next(); {
		a := wire.ReportAnswer{TopicID: it.TopicID, Partition: it.Partition, Sequence: it.Sequence, HighWatermark: -1, PartitionCount: -1}
		if !allowed {
			c.m.reportsRefused.Add(1)
			a.Err = wire.ErrClusterAuthorizationFailed
		} else if p, code := c.topics.find(it.Topic, it.TopicID, true, it.Partition); code != wire.ErrNone {
			a.Err = code
		} else {
			c.takeReport(p, name, req, &it, &a)
		}
		answers = append(answers, a)
	}
	return answers
}

// takeReport counts one report.
func (c *Core) takeReport(p *Partition, name string, req *wire.FetchRequest, it *wire.ReportIter, a *wire.ReportAnswer) {
	in := watermark.Incoming{Fenced: it.Fenced, RegistrationEpoch: it.RegistrationEpoch, LeaderEpoch: it.LeaderEpoch,
		Sequence: it.Sequence, SourceLeaderEpoch: it.SourceLeaderEpoch, MinISR: it.MinISR}
	var replicas [watermark.MaxReplicas]watermark.Replica
	var isr [watermark.MaxReplicas]int32
	malformed := it.Malformed
	if !malformed {
		for i := range it.NumReplicas() {
			replicas[i].ID, replicas[i].LEO = it.Replica(i)
		}
		for i := range it.NumISR() {
			isr[i] = it.ISR(i)
		}
		in.Replicas, in.ISR = replicas[:it.NumReplicas()], isr[:it.NumISR()]
	}
	p.lock()
	defer p.unlock()
	r := p.role.Load()
	if !r.leader {
		a.Err = wire.ErrNotLeaderOrFollower
		return
	}
	i := p.mirrorIndex(name)
	if i < 0 {
		a.Err = c.unknownMirror()
		c.m.reportsRefused.Add(1)
		return
	}
	if malformed || !it.Fenced && !c.unfencedCounts(p, r, req, it) {
		c.m.reportsBad.Add(1)
		a.Err = wire.ErrInvalidRequest
		return
	}
	f := &p.fences[i]
	report, verdict := watermark.Admit(p.mirrors[i].Report, in, watermark.Fence{
		RegistrationEpoch: f.epoch, SourceLeaderEpoch: r.epoch, End: p.log.End(),
		ClusterMatches: !it.Fenced || string(req.Mirror.ClusterID) == f.clusterID,
	})
	switch verdict {
	case watermark.Counted:
		p.mirrors[i].Report = report
		f.reported = c.wall
		c.m.reportsCounted.Add(1)
		c.wake(p, p.regate(r))
	case watermark.WrongRegistration:
		a.Err = wire.ErrInvalidSyncRegistration
		c.m.reportsRefused.Add(1)
	case watermark.Invalid:
		a.Err = wire.ErrInvalidRequest
		c.m.reportsBad.Add(1)
	case watermark.HeldByEpoch:
		a.Err = wire.ErrFencedLeaderEpoch
	case watermark.Stale: // overtaken by a newer one: nothing is wrong
	}
	a.HighWatermark = p.high.Load()
}

// unfencedCounts: a peer without our fields is counted only from the data
// lane, when the same request passes the epoch and divergence checks of the
// partition (R2).
func (c *Core) unfencedCounts(p *Partition, r *role, req *wire.FetchRequest, it *wire.ReportIter) bool {
	for x := req.Partitions(); x.Next(); {
		if x.TopicID() != it.TopicID || x.Partition != it.Partition {
			continue
		}
		if x.CurrentLeaderEpoch != r.epoch {
			return false
		}
		if x.LastFetchedEpoch < 0 {
			return x.FetchOffset == 0
		}
		epoch, end := p.log.EndOffsetForEpoch(x.LastFetchedEpoch)
		return epoch == x.LastFetchedEpoch && end >= x.FetchOffset
	}
	return false
}

func (p *Partition) mirrorIndex(name string) int {
	for i := range p.mirrors {
		if p.mirrors[i].Name == name {
			return i
		}
	}
	return -1
}

// unknownMirror tells a registration on its way from one that is not there.
func (c *Core) unknownMirror() wire.ErrorCode {
	if c.finished.Load() < c.eng.o.Views.Committed() {
		return wire.ErrMirrorRegistrationPropagating
	}
	return wire.ErrInvalidSyncRegistration
}

// markAhead lets a fetch read to the log end where it names a registered mirror
// and reports for the partition; everywhere else it reads to the mark, like any
// consumer.
func (c *Core) markAhead(f *fetch, req *wire.FetchRequest) {
	name, cluster := string(req.Mirror.MirrorName), string(req.Mirror.ClusterID)
	parts, at := f.parts, map[sessionKey]int(nil)
	if f.session != nil {
		parts, at = f.session.parts, f.session.at
	}
	if f.session == nil || !f.session.pipelined { // there it holds until the partition is named anew
		for i := range parts {
			parts[i].ahead = false
		}
	}
	if c.eng.o.MayReport != nil && !c.eng.o.MayReport(name) {
		return
	}
	k := 0 // reports come in the order of the partitions, most of the time
	for it := req.Mirror.Reports(); it.Next(); {
		if i, ok := at[sessionKey{it.TopicID, it.Partition}]; ok {
			was := parts[i].ahead
			parts[i].ahead = parts[i].p != nil && parts[i].p.registered(name, cluster)
			if parts[i].ahead != was {
				f.session.heat(i)
			}
			continue
		}
		for n := range parts {
			x := &parts[(k+n)%len(parts)]
			if x.p != nil && x.p.id == it.TopicID && x.index == it.Partition {
				x.ahead = x.p.registered(name, cluster)
				k += n + 1
				break
			}
		}
	}
}

// registered tells whether a mirror of that cluster gates this partition.
func (p *Partition) registered(name, cluster string) bool {
	p.lock()
	defer p.unlock()
	i := p.mirrorIndex(name)
	return i >= 0 && (cluster == "" || cluster == p.fences[i].clusterID)
}
