package wire

// MirrorInfo is the view of MirrorReplicaInfo, which every Fetch request of
// version 20 carries: what a destination cluster says about its replicas.
//
//	MirrorName │ topics │ tags: 0 = id of the destination cluster (ours)
//	  topic: name │ id │ partitions │ tags
//	    partition: number │ replicas (id, offset) │ ISR │ MinISR │ tags: 0 = fence (ours)
//	      fence: registration epoch │ leader epoch │ sequence │ source leader epoch │ partition count
type MirrorInfo struct {
	MirrorName []byte
	ClusterID  []byte // nil = the destination did not say
	NumReports int

	topics Reader
}

// Present tells whether the request carries anything for the mirror.
func (m *MirrorInfo) Present() bool { return len(m.MirrorName) > 0 || m.NumReports > 0 }

// read checks the whole struct and sets the view.
func (m *MirrorInfo) read(r *Reader) {
	m.MirrorName = r.StringBytes(true)
	m.topics = *r
	it := m.Reports()
	for it.Next() {
		if m.NumReports++; m.NumReports > MaxPartitions {
			it.r.Fail()
		}
	}
	*r = it.r
	for n := r.TagCount(); n > 0 && r.Ok(); n-- {
		if key, val := r.Tag(); key == 0 {
			in := NewReader(val)
			m.ClusterID = in.StringBytes(true)
			if in.Complete() != nil {
				r.Fail()
			}
		}
	}
}

// Reports returns an iterator over the reported partitions.
func (m *MirrorInfo) Reports() ReportIter {
	it := ReportIter{r: m.topics}
	if m.topics.Remaining() > 0 {
		if it.topicsLeft = it.r.ArrayLen(true, 19); it.topicsLeft < 0 {
			it.r.Fail()
		}
	}
	return it
}

// ReportIter walks reports, topic by topic. Its structure is sound; whether a
// report may be counted is the business of whoever reads it.
type ReportIter struct {
	r                     Reader
	topicsLeft, partsLeft int
	inTopic               bool

	Topic     []byte
	TopicID   [16]byte
	Partition int32
	MinISR    int32
	// Malformed is set when a report has more replicas or ISR members than
	// MaxReportReplicas; only the first of them are kept then.
	Malformed bool
	// Fenced tells whether the fields below came with the report.
	Fenced            bool
	RegistrationEpoch int64
	LeaderEpoch       int32 // of the destination
	Sequence          int64
	SourceLeaderEpoch int32 // the one the destination's leader has aligned with
	PartitionCount    int32 // of the topic on the destination

	numReplicas, numISR int
	replicas            [MaxReportReplicas]ReplicaOffset
	isr                 [MaxReportReplicas]int32
}

// ReplicaOffset is a replica of the destination and its log end offset.
type ReplicaOffset struct {
	ID     int32
	Offset int64
}

// NumReplicas is the number of replicas reported.
func (it *ReportIter) NumReplicas() int { return it.numReplicas }

// Replica returns replica i.
func (it *ReportIter) Replica(i int) (id int32, offset int64) {
	return it.replicas[i].ID, it.replicas[i].Offset
}

// NumISR is the number of ISR members reported.
func (it *ReportIter) NumISR() int { return it.numISR }

// ISR returns the id of ISR member i.
func (it *ReportIter) ISR(i int) int32 { return it.isr[i] }

// Next moves to the next report.
func (it *ReportIter) Next() bool {
	for it.partsLeft == 0 {
		if it.inTopic {
			it.r.SkipTags()
		}
		it.inTopic = false
		if it.topicsLeft <= 0 || !it.r.Ok() {
			return false
		}
		it.topicsLeft--
		it.Topic = it.r.StringBytes(true)
		it.TopicID = it.r.UUID()
		if it.partsLeft = it.r.ArrayLen(true, 11); it.partsLeft < 0 {
			it.r.Fail()
			it.partsLeft = 0
		}
		it.inTopic = true
	}
	it.partsLeft--
	it.readReport()
	return it.r.Ok()
}

func (it *ReportIter) readReport() {
	r := &it.r
	it.Malformed, it.numReplicas, it.numISR = false, 0, 0
	it.Partition = r.Int32()
	n := r.ArrayLen(true, 13)
	if n < 0 {
		r.Fail()
	}
	for ; n > 0 && r.Ok(); n-- {
		o := ReplicaOffset{r.Int32(), r.Int64()}
		r.SkipTags()
		if it.numReplicas == MaxReportReplicas {
			it.Malformed = true
			continue
		}
		it.replicas[it.numReplicas] = o
		it.numReplicas++
	}
	if n = r.ArrayLen(true, 4); n < 0 {
		r.Fail()
	}
	for ; n > 0 && r.Ok(); n-- {
		id := r.Int32()
		if it.numISR == MaxReportReplicas {
			it.Malformed = true
			continue
		}
		it.isr[it.numISR] = id
		it.numISR++
	}
	it.MinISR = r.Int32()
	it.readFence()
}

func (it *ReportIter) readFence() {
	it.Fenced = false
	it.RegistrationEpoch, it.LeaderEpoch, it.Sequence, it.SourceLeaderEpoch, it.PartitionCount = -1, -1, -1, -1, -1
	for n := it.r.TagCount(); n > 0 && it.r.Ok(); n-- {
		key, val := it.r.Tag()
		if key != 0 {
			continue
		}
		in := NewReader(val)
		it.Fenced = true
		it.RegistrationEpoch, it.LeaderEpoch, it.Sequence = in.Int64(), in.Int32(), in.Int64()
		it.SourceLeaderEpoch, it.PartitionCount = in.Int32(), in.Int32()
		in.SkipTags()
		if in.Complete() != nil {
			it.r.Fail()
		}
	}
}

// Report is one report to be sent.
type Report struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Replicas  []ReplicaOffset
	ISR       []int32
	MinISR    int32

	Fenced            bool // whether to send the fields below
	RegistrationEpoch int64
	LeaderEpoch       int32
	Sequence          int64
	SourceLeaderEpoch int32
	PartitionCount    int32
}

// appendMirrorInfo appends MirrorReplicaInfo. Neighbours in reports with the
// same topic share one topic entry.
func appendMirrorInfo(b []byte, name, clusterID string, reports []Report) []byte {
	b = AppendString(b, name, true)
	topics := 0
	for i := range reports {
		topics += bit(i == 0 || reports[i].TopicID != reports[i-1].TopicID || reports[i].Topic != reports[i-1].Topic)
	}
	b = AppendArrayLen(b, topics, true)
	for i := 0; i < len(reports); {
		n := 1
		for i+n < len(reports) && reports[i+n].TopicID == reports[i].TopicID && reports[i+n].Topic == reports[i].Topic {
			n++
		}
		b = AppendString(b, reports[i].Topic, true)
		b = AppendUUID(b, reports[i].TopicID)
		b = AppendArrayLen(b, n, true)
		for ; n > 0; n-- {
			b = appendReport(b, &reports[i])
			i++
		}
		b = append(b, 0)
	}
	if clusterID == "" {
		return append(b, 0)
	}
	b = BeginTag(append(b, 1), 0)
	start := len(b)
	return EndTag(AppendString(b, clusterID, true), start)
}

func appendReport(b []byte, p *Report) []byte {
	b = AppendInt32(b, p.Partition)
	b = AppendArrayLen(b, len(p.Replicas), true)
	for i := range p.Replicas {
		b = AppendInt32(b, p.Replicas[i].ID)
		b = AppendInt64(b, p.Replicas[i].Offset)
		b = append(b, 0)
	}
	b = AppendArrayLen(b, len(p.ISR), true)
	for _, id := range p.ISR {
		b = AppendInt32(b, id)
	}
	b = AppendInt32(b, p.MinISR)
	if !p.Fenced {
		return append(b, 0)
	}
	b = append(b, 1, 0, 29)
	b = AppendInt64(b, p.RegistrationEpoch)
	b = AppendInt32(b, p.LeaderEpoch)
	b = AppendInt64(b, p.Sequence)
	b = AppendInt32(b, p.SourceLeaderEpoch)
	b = AppendInt32(b, p.PartitionCount)
	return append(b, 0)
}
