package wire

// FetchRequest is a view of a Fetch request, versions 4-20. It and its
// iterators alias the body given to Parse.
type FetchRequest struct {
	Version       int16
	ReplicaID     int32 // -1 = a consumer
	ReplicaEpoch  int64 // broker epoch of the follower, -1 = unknown
	MaxWaitMs     int32
	MinBytes      int32
	MaxBytes      int32
	Isolation     int8  // 0 = read uncommitted, 1 = read committed
	SessionID     int32 // 0 below version 7
	SessionEpoch  int32 // -1 below version 7
	RackID        []byte
	Mirror        MirrorInfo // empty below version 20
	Taken         int32      // ours: answers of this session that have arrived, 0 = not said
	NumPartitions int
	NumForgotten  int

	topics, forgotten Reader // at the arrays
}

// Parse checks the whole structure of a request body and sets the view.
func (f *FetchRequest) Parse(version int16, body []byte) error {
	*f = FetchRequest{Version: version, ReplicaID: -1, ReplicaEpoch: -1, SessionEpoch: -1}
	r := NewReader(body)
	if version <= 14 {
		f.ReplicaID = r.Int32()
	}
	f.MaxWaitMs, f.MinBytes, f.MaxBytes, f.Isolation = r.Int32(), r.Int32(), r.Int32(), r.Int8()
	if version >= 7 {
		f.SessionID, f.SessionEpoch = r.Int32(), r.Int32()
	}
	f.topics = r
	it := f.Partitions()
	for it.Next() {
		if f.NumPartitions++; f.NumPartitions > MaxPartitions {
			return ErrMalformed
		}
	}
	r = it.r
	if version >= 7 {
		f.forgotten = r
		it := f.Forgotten()
		for it.Next() {
			if f.NumForgotten++; f.NumForgotten > MaxPartitions {
				return ErrMalformed
			}
		}
		r = it.r
	}
	if version >= 11 {
		f.RackID = r.StringBytes(version >= 12)
	}
	if version >= 20 {
		f.Mirror.read(&r)
	}
	f.readTags(&r)
	return r.Err()
}

// readTags reads the tags at the end of the request.
func (f *FetchRequest) readTags(r *Reader) {
	if f.Version < 12 {
		return
	}
	for n := r.TagCount(); n > 0 && r.Ok(); n-- {
		switch key, val := r.Tag(); {
		case key == tagTaken:
			f.Taken = readInt32(r, val)
		case key == 1 && f.Version >= 15:
			in := NewReader(val)
			f.ReplicaID, f.ReplicaEpoch = in.Int32(), in.Int64()
			in.SkipTags()
			if in.Complete() != nil {
				r.Fail()
			}
		}
	}
}

// Partitions returns an iterator over the partitions to fetch.
func (f *FetchRequest) Partitions() FetchIter {
	return FetchIter{version: f.Version, topicWalk: newTopicWalk(f.topics, f.Version >= 12, f.Version >= 13, 16)}
}

// Forgotten returns an iterator over the partitions that leave the session.
func (f *FetchRequest) Forgotten() ForgottenIter {
	if f.Version < 7 {
		return ForgottenIter{}
	}
	return ForgottenIter{topicWalk: newTopicWalk(f.forgotten, f.Version >= 12, f.Version >= 13, 4)}
}

// FetchIter walks the partitions to fetch, topic by topic. Fields a version
// does not have are -1.
type FetchIter struct {
	topicWalk
	version            int16
	Partition          int32
	CurrentLeaderEpoch int32
	FetchOffset        int64
	LastFetchedEpoch   int32
	LogStartOffset     int64 // of the follower
	MaxBytes           int32
	HighWatermark      int64 // the follower's, version 18 and up
	DurableEnd         int64 // ours: end of what the follower has on disk, 0 = not said
	Generation         int32 // ours: of the cursor in a pipelined session, 0 = none
}

// Next moves to the next partition.
func (it *FetchIter) Next() bool {
	if !it.next() {
		return false
	}
	r, v := &it.r, it.version
	it.CurrentLeaderEpoch, it.LastFetchedEpoch, it.LogStartOffset, it.HighWatermark = -1, -1, -1, -1
	it.DurableEnd, it.Generation = 0, 0
	it.Partition = r.Int32()
	if v >= 9 {
		it.CurrentLeaderEpoch = r.Int32()
	}
	it.FetchOffset = r.Int64()
	if v >= 12 {
		it.LastFetchedEpoch = r.Int32()
	}
	if v >= 5 {
		it.LogStartOffset = r.Int64()
	}
	it.MaxBytes = r.Int32()
	if it.flex {
		it.readTags()
	}
	return r.Ok()
}

// readTags reads the tags of a partition. Tag 0 is the follower's directory and
// tag 2 the mirror leader epoch of version 19: nothing here depends on them.
func (it *FetchIter) readTags() {
	r := &it.r
	for n := r.TagCount(); n > 0 && r.Ok(); n-- {
		switch key, val := r.Tag(); {
		case key == 1 && it.version >= 18:
			it.HighWatermark = readInt64(r, val)
		case key == tagDurableEnd:
			it.DurableEnd = readInt64(r, val)
		case key == tagGeneration:
			it.Generation = readInt32(r, val)
		}
	}
}

// readInt64 reads the value of an int64 tag found by outer.
func readInt64(outer *Reader, val []byte) int64 {
	r := NewReader(val)
	v := r.Int64()
	if r.Complete() != nil {
		outer.Fail()
	}
	return v
}

// readInt32 reads the value of an int32 tag found by outer.
func readInt32(outer *Reader, val []byte) int32 {
	r := NewReader(val)
	v := r.Int32()
	if r.Complete() != nil {
		outer.Fail()
	}
	return v
}

// ForgottenIter walks the partitions that leave the fetch session.
type ForgottenIter struct {
	topicWalk
	Partition int32
}

// Next moves to the next partition.
func (it *ForgottenIter) Next() bool {
	if !it.next() {
		return false
	}
	it.Partition = it.r.Int32()
	return it.r.Ok()
}

// FetchPartition is the answer for one partition; its records travel outside
// the buffer, between AppendFetchPartition and AppendFetchPartitionTail.
type FetchPartition struct {
	Index            int32
	Err              ErrorCode // already down-mapped for the version
	HighWatermark    int64
	LastStable       int64
	LogStart         int64
	Aborted          []AbortedTransaction // nil = null, as for read uncommitted
	PreferredReplica int32                // -1 = none
	RecordsLen       int                  // bytes of records that follow
	DivergingEpoch   int32                // -1 = the logs agree
	DivergingEnd     int64
	LeaderID         int32 // where to go instead, -1 = say nothing
	LeaderEpoch      int32 // -1 = unknown
	Generation       int32 // ours: of the cursor these records belong to, 0 = none
	Cursor           int64 // ours, with a generation: offset these records were read from
}

// AbortedTransaction is a transaction whose records a reader of committed data skips.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset int64
}

// ReportAnswer is the answer to one mirror report.
type ReportAnswer struct {
	TopicID        [16]byte
	Partition      int32
	Err            ErrorCode
	Sequence       int64 // of the report that was accepted last
	HighWatermark  int64 // of the source
	PartitionCount int32 // of the topic on the source, -1 = not said
}

// Tags that are ours alone, far above those Kafka gives out.
const (
	tagAnswers    = 64 // top level of a response, version 20 and up
	tagDurableEnd = 64 // partition of a request
	tagGeneration = 65 // partition of a request and of a response
	tagCursor     = 66 // partition of a response
	tagWindow     = 65 // top level of a response
	tagTaken      = 64 // top level of a request
)

// AppendFetchHead begins a response body. Below version 7 err and sessionID
// have no place and are left out.
func AppendFetchHead(b []byte, v int16, throttleMs int32, err ErrorCode, sessionID int32, topics int) []byte {
	b = AppendInt32(b, throttleMs)
	if v >= 7 {
		b = AppendInt16(b, int16(err))
		b = AppendInt32(b, sessionID)
	}
	return AppendArrayLen(b, topics, v >= 12)
}

// AppendFetchTopic begins a topic: by name below version 13, by id from there.
func AppendFetchTopic(b []byte, v int16, name []byte, id [16]byte, partitions int) []byte {
	if v >= 13 {
		b = AppendUUID(b, id)
	} else {
		b = appendLength(b, len(name), v >= 12, false)
		b = append(b, name...)
	}
	return AppendArrayLen(b, partitions, v >= 12)
}

// AppendFetchPartition appends a partition up to and with the length of its
// records; the records and then AppendFetchPartitionTail follow.
func AppendFetchPartition(b []byte, v int16, p *FetchPartition) []byte {
	flex := v >= 12
	b = AppendInt32(b, p.Index)
	b = AppendInt16(b, int16(p.Err))
	b = AppendInt64(b, p.HighWatermark)
	b = AppendInt64(b, p.LastStable)
	if v >= 5 {
		b = AppendInt64(b, p.LogStart)
	}
	if p.Aborted == nil {
		b = AppendArrayLen(b, -1, flex)
	} else {
		b = AppendArrayLen(b, len(p.Aborted), flex)
	}
	for i := range p.Aborted {
		b = AppendInt64(b, p.Aborted[i].ProducerID)
		b = AppendInt64(b, p.Aborted[i].FirstOffset)
		b = appendTagCount(b, 0, flex)
	}
	if v >= 11 {
		b = AppendInt32(b, p.PreferredReplica)
	}
	return appendLength(b, p.RecordsLen, flex, true)
}

// AppendFetchPartitionTail ends a partition, after its records.
func AppendFetchPartitionTail(b []byte, v int16, p *FetchPartition) []byte {
	if v < 12 {
		return b
	}
	leader := p.LeaderID >= 0 || p.LeaderEpoch >= 0
	b = append(b, byte(bit(p.DivergingEpoch >= 0)+bit(leader)+2*bit(p.Generation > 0)))
	if p.DivergingEpoch >= 0 {
		b = append(b, 0, 13)
		b = AppendInt32(b, p.DivergingEpoch)
		b = AppendInt64(b, p.DivergingEnd)
		b = append(b, 0)
	}
	if leader {
		b = appendLeader(b, 1, p.LeaderID, p.LeaderEpoch)
	}
	if p.Generation > 0 {
		b = AppendInt32(append(b, tagGeneration, 4), p.Generation)
		b = AppendInt64(append(b, tagCursor, 8), p.Cursor)
	}
	return b
}

// AppendFetchTopicEnd ends a topic.
func AppendFetchTopicEnd(b []byte, v int16) []byte { return appendTagCount(b, 0, v >= 12) }

// AppendFetchTail ends the body. Endpoints are left out below version 16,
// answers below version 20. window is ours: how many requests of this session
// may be under way, 0 = one.
func AppendFetchTail(b []byte, v int16, endpoints []NodeEndpoint, answers []ReportAnswer, window int32) []byte {
	if v < 12 {
		return b
	}
	hasEndpoints, hasAnswers := v >= 16 && len(endpoints) > 0, v >= 20 && len(answers) > 0
	b = append(b, byte(bit(hasEndpoints)+bit(hasAnswers)+bit(window > 0)))
	if hasEndpoints {
		b = appendNodeEndpoints(b, endpoints)
	}
	if hasAnswers {
		b = appendAnswers(b, answers)
	}
	if window > 0 {
		b = AppendInt32(append(b, tagWindow, 4), window)
	}
	return b
}

func appendAnswers(b []byte, answers []ReportAnswer) []byte {
	b = BeginTag(b, tagAnswers)
	start := len(b)
	b = AppendArrayLen(b, len(answers), true)
	for i := range answers {
		a := &answers[i]
		b = AppendUUID(b, a.TopicID)
		b = AppendInt32(b, a.Partition)
		b = AppendInt16(b, int16(a.Err))
		b = AppendInt64(b, a.Sequence)
		b = AppendInt64(b, a.HighWatermark)
		b = AppendInt32(b, a.PartitionCount)
		b = append(b, 0)
	}
	return EndTag(b, start)
}
