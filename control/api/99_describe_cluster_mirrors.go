package api

// DescribeClusterMirrors, version 0.
//
//   - A broker answers for the partitions it leads and for those nobody leads;
//     the topics themselves are in every answer. A client asks all brokers.
//   - DestinationOffset is the log end offset, in every state: it is what one
//     compares to choose a destination.
//   - Registrations with this cluster as the source are listed whether or not it
//     has mirrors of its own.
//   - Last mirror epochs are answered from lineage, for any ancestor.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

func describeClusterMirrors(_ context.Context, s *Server, r *Request) body {
	req := new(msg.DescribeClusterMirrorsRequest)
	if !read(req, r) {
		return nil
	}
	v := s.d.Control.View()
	resp := &msg.DescribeClusterMirrorsResponse{Version: r.Version}
	wanted := func(name string) bool { return len(req.MirrorNames) == 0 || slices.Contains(req.MirrorNames, name) }
	at := map[string]int{}
	for m := range v.Mirrors() {
		if !wanted(m.Name) {
			continue
		}
		at[m.Name] = len(resp.Mirrors)
		d := msg.DescribeClusterMirrorsResponseDescribedMirror{MirrorName: m.Name, AuthorizedOperations: -2147483648}
		if req.IncludeAuthorizedOperations {
			d.AuthorizedOperations = mirrorOperations
		}
		resp.Mirrors = append(resp.Mirrors, d)
	}
	known := map[string]bool{}
	for t := range v.Topics() {
		if t.Mirror != nil {
			if i, ok := at[t.Mirror.Mirror]; ok {
				resp.Mirrors[i].Topics = append(resp.Mirrors[i].Topics, s.describeTopic(t))
			}
		}
		for _, g := range t.Registrations {
			if wanted(g.Mirror) {
				known[g.Mirror] = true
				resp.Registrations = append(resp.Registrations, s.describeRegistration(t, g))
			}
		}
	}
	for i, name := range req.MirrorNames {
		if _, ok := at[name]; !ok && !known[name] && !slices.Contains(req.MirrorNames[:i], name) {
			resp.Mirrors = append(resp.Mirrors, msg.DescribeClusterMirrorsResponseDescribedMirror{MirrorName: name,
				ErrorCode: int16(wire.ErrUnknownClusterMirror), AuthorizedOperations: -2147483648})
		}
	}
	for i := range req.LastMirrorEpochLookups {
		resp.LookupResults = append(resp.LookupResults, lookUp(v, req.ClusterId, &req.LastMirrorEpochLookups[i]))
	}
	return resp
}

func (s *Server) describeTopic(t *meta.Topic) msg.DescribeClusterMirrorsResponseDescribedTopic {
	d := msg.DescribeClusterMirrorsResponseDescribedTopic{TopicName: t.Name, DesiredMirrorType: int8(t.Mirror.DesiredType()),
		EffectiveMirrorType: int8(t.Mirror.EffectiveType()), RecoveryPending: t.Mirror.Phase == mirror.Recovery, RegistrationEpoch: -1}
	if t.Mirror.Phase == mirror.InSync {
		d.RegistrationEpoch = t.Mirror.RegistrationEpoch
	}
	c, err := s.topicConfig(t.Configs)
	if err == nil {
		d.FlushAck = flushAck(&c)
	}
	lag := int64(0) // of all partitions this broker leads, -1 unknown
	for i, p := range t.Partitions {
		if p.Leader != s.d.NodeID && p.Leader >= 0 {
			continue
		}
		o := s.describePartition(t, int32(i), p)
		if o.Lag < 0 || lag < 0 {
			lag = -1
		} else {
			lag += o.Lag
		}
		d.Partitions = append(d.Partitions, o)
	}
	if len(d.Partitions) == 0 {
		lag = -1
	}
	remarks := s.remarks(t, &c, lag)
	if t.Mirror.Phase == mirror.InSync && t.Mirror.Desired != mirror.Stopped {
		holds, remark := s.syncHolds(t)
		if !holds { // the promotion machine takes its time; what is said here is what holds now
			d.EffectiveMirrorType = int8(mirror.Async)
		}
		if remark != "" {
			remarks = slices.Insert(remarks, 0, remark)
		}
	}
	d.Annotation = words(strings.Join(remarks, "; "))
	return d
}

// syncHolds tells whether, by the source's own word, its acknowledgements wait
// for the partitions this broker leads, and what a person should know of it.
func (s *Server) syncHolds(t *meta.Topic) (holds bool, remark string) {
	now, contact := s.d.Now(), int64(math.MaxInt64)
	for i, p := range t.Partitions {
		st, ok := s.d.Data.Status(t.ID, int32(i))
		if p.Leader != s.d.NodeID || !ok || st.Mirror == nil {
			continue
		}
		m := st.Mirror
		if !m.Sync { // the data plane is ahead of the View at hand: it has fallen back, or not begun
			return false, ""
		}
		if m.FailingSinceMS > 0 && m.FailReason != wire.ErrMirrorRegistrationPropagating.Name() {
			return false, fmt.Sprintf("NOT IN SYNC for %d s: the source does not count our reports (%s); what it acknowledges may be missing here",
				(now-m.FailingSinceMS)/1000, m.FailReason)
		}
		contact = min(contact, m.ContactMS)
	}
	switch {
	case contact == 0:
		return true, "no answer of the source since this broker started: a release it made is not known here"
	case contact != math.MaxInt64 && now-contact > silentAfterMS+mirror.ReportCycle(s.mirrored(t.Mirror.Mirror)).Milliseconds():
		return true, fmt.Sprintf("source silent for %d s: a release it made since is not known here", (now-contact)/1000)
	}
	return true, ""
}

// mirrored counts the partitions of a mirror: idle ones take turns to report.
func (s *Server) mirrored(name string) (n int) {
	for t := range s.d.Control.View().Topics() {
		if t.Mirror != nil && t.Mirror.Mirror == name {
			n += len(t.Partitions)
		}
	}
	return n
}

// flushAck is the mode in force: flush.messages=1 means durable too.
func flushAck(c *config.Topic) string {
	if c.Durable() {
		return config.FlushDurable
	}
	return c.FlushAck
}

func (s *Server) describePartition(t *meta.Topic, index int32, p *meta.Partition) msg.DescribeClusterMirrorsResponseDescribedPartition {
	var o msg.DescribeClusterMirrorsResponseDescribedPartition
	o.Default()
	o.PartitionIndex, o.StateValue, o.RetryAttempt, o.ErrorMessage = index, p.State.String(), p.RetryAttempt, words(p.Error)
	if p.NonRetryable {
		o.RetryAttempt = -1
	}
	o.LastSourceEpoch = p.LMEEpoch
	st, ok := s.d.Data.Status(t.ID, index)
	if !ok || st.Offline {
		return o
	}
	o.DestinationOffset, o.LogEndOffset = st.End, st.End
	if p.State != mirror.Stopped { // no batch of our own yet: the last one is the source's
		o.LastSourceEpoch = st.LatestEpoch
	}
	m := st.Mirror
	if m == nil {
		return o
	}
	o.LostAckedRecords = m.LostAcked > 0
	if m.ContactMS > 0 {
		o.LastContactMs = m.ContactMS
	}
	if m.SourceHigh >= 0 {
		o.SourceOffset, o.Lag = m.SourceHigh, max(0, m.SourceHigh-st.End)
	}
	if o.ErrorMessage == nil {
		o.ErrorMessage = words(m.LastError)
	}
	return o
}

// remarks are what a person should know of a topic.
func (s *Server) remarks(t *meta.Topic, c *config.Topic, lag int64) (out []string) {
	m := t.Mirror
	if m.Desired == mirror.Stopped {
		if slices.ContainsFunc(t.Partitions, func(p *meta.Partition) bool { return p.State != mirror.Stopped }) {
			return []string{"stopping: not writable yet on all partitions"}
		}
		return []string{"failed over: writable here; the old source must not take writes"}
	}
	note := s.d.Note(t.ID)
	switch m.Phase {
	case mirror.Pending, mirror.Registering:
		if lag >= 0 {
			out = append(out, fmt.Sprintf("promotion pending: lag %d", lag))
		} else {
			out = append(out, "promotion pending: lag unknown")
		}
	case mirror.Recovery:
		if note == "" {
			out = append(out, "released by source - recovery in flight")
		}
	}
	if note != "" {
		out = append(out, note)
	}
	if m.DesiredType() == mirror.Sync {
		if weak := weakness(t, c); weak != "" {
			out = append(out, weak)
		}
	}
	return out
}

// weakness says what makes a SYNC destination survive less than one expects.
func weakness(t *meta.Topic, c *config.Topic) string {
	var why []string
	if c.MinInsyncReplicas <= 1 {
		why = append(why, "min.insync.replicas=1")
	}
	if slices.ContainsFunc(t.Partitions, func(p *meta.Partition) bool { return len(p.Replicas) == 1 }) {
		why = append(why, "replication factor 1")
	}
	if len(why) == 0 {
		return ""
	}
	if !c.Durable() {
		why = append(why, "flush.ack="+config.FlushAppended)
	}
	return "weak destination: " + strings.Join(why, ", ")
}

func (s *Server) describeRegistration(t *meta.Topic, g meta.Registration) msg.DescribeClusterMirrorsResponseRegistration {
	o := msg.DescribeClusterMirrorsResponseRegistration{TopicName: t.Name, TopicId: t.ID, MirrorName: g.Mirror, DestinationClusterId: g.ClusterID,
		RegistrationEpoch: g.Epoch, Released: g.Released, ReleaseNumber: -1}
	if g.ReleaseNumber > 0 {
		o.ReleaseNumber = g.ReleaseNumber
	}
	for i, p := range t.Partitions {
		if p.Leader != s.d.NodeID {
			continue
		}
		st, _ := s.d.Data.Status(t.ID, int32(i))
		for _, rep := range st.Mirrors {
			o.Unfenced = o.Unfenced || rep.Name == g.Mirror && rep.Unfenced
		}
	}
	return o
}

// lookUp answers where the logs of a topic left those of the asking cluster.
func lookUp(v *meta.View, cluster *string, q *msg.DescribeClusterMirrorsRequestEpochLookup) msg.DescribeClusterMirrorsResponseEpochLookupResult {
	out := msg.DescribeClusterMirrorsResponseEpochLookupResult{TopicId: q.TopicId}
	t := v.TopicByID(q.TopicId)
	for _, index := range q.Partitions {
		o := msg.DescribeClusterMirrorsResponseEpochLookupPartition{PartitionIndex: index, LastMirrorEpoch: -1, LastMirrorOffset: -1}
		if t != nil && index >= 0 && int(index) < len(t.Partitions) {
			p := t.Partitions[index]
			if cluster != nil {
				o.LastMirrorEpoch, o.LastMirrorOffset = lastOf(t, p, *cluster)
			}
			for _, e := range p.Lineage {
				o.Lineage = append(o.Lineage, msg.DescribeClusterMirrorsResponseLineageEntry{ClusterId: e.ClusterID, TopicId: e.TopicID,
					FirstEpoch: e.FirstEpoch, FirstOffset: e.FirstOffset})
			}
		}
		out.Partitions = append(out.Partitions, o)
	}
	return out
}

// lastOf is the last epoch that a cluster wrote into a partition and the offset
// after it; -1 and -1 if it wrote none or writes still.
func lastOf(t *meta.Topic, p *meta.Partition, cluster string) (int32, int64) {
	if t.Mirror != nil && t.Mirror.SourceClusterID == cluster {
		return p.LMEEpoch, p.LMEOffset
	}
	for i := len(p.Lineage) - 2; i >= 0; i-- {
		if p.Lineage[i].ClusterID == cluster {
			return p.Lineage[i+1].FirstEpoch - 1, p.Lineage[i+1].FirstOffset
		}
	}
	return -1, -1
}
