package wire

// Timestamps of ListOffsets with a meaning of their own.
const (
	TimestampLatest        = -1
	TimestampEarliest      = -2
	TimestampMax           = -3
	TimestampEarliestLocal = -4
)

// ListOffsetsRequest is a view of a ListOffsets request, versions 1-11. It and
// its iterator alias the body given to Parse.
type ListOffsetsRequest struct {
	Version       int16
	ReplicaID     int32
	Isolation     int8  // 0 below version 2
	TimeoutMs     int32 // 0 below version 10
	NumTopics     int   // topics with at least one partition
	NumPartitions int

	topics Reader
}

// Parse checks the whole structure of a request body and sets the view.
func (l *ListOffsetsRequest) Parse(version int16, body []byte) error {
	*l = ListOffsetsRequest{Version: version}
	r := NewReader(body)
	l.ReplicaID = r.Int32()
	if version >= 2 {
		l.Isolation = r.Int8()
	}
	l.topics = r
	it := l.Iter()
	for it.Next() {
		l.NumTopics += bit(it.newTopic)
		if l.NumPartitions++; l.NumPartitions > MaxPartitions {
			return ErrMalformed
		}
	}
	if version >= 10 {
		l.TimeoutMs = it.r.Int32()
	}
	if version >= 6 {
		it.r.SkipTags()
	}
	return it.r.Err()
}

// Iter returns an iterator at the start of the request.
func (l *ListOffsetsRequest) Iter() ListOffsetsIter {
	return ListOffsetsIter{version: l.Version, topicWalk: newTopicWalk(l.topics, l.Version >= 6, false, 12)}
}

// ListOffsetsIter walks the partitions of a request, topic by topic.
type ListOffsetsIter struct {
	topicWalk
	version            int16
	Partition          int32
	CurrentLeaderEpoch int32 // -1 below version 4
	Timestamp          int64 // milliseconds, or one of the Timestamp constants
}

// Next moves to the next partition.
func (it *ListOffsetsIter) Next() bool {
	if !it.next() {
		return false
	}
	it.Partition, it.CurrentLeaderEpoch = it.r.Int32(), -1
	if it.version >= 4 {
		it.CurrentLeaderEpoch = it.r.Int32()
	}
	it.Timestamp = it.r.Int64()
	it.endPartition()
	return it.r.Ok()
}

// ListOffsetsPartition is the answer for one partition.
type ListOffsetsPartition struct {
	Index       int32
	Err         ErrorCode
	Timestamp   int64 // -1 = none
	Offset      int64 // -1 = none
	LeaderEpoch int32 // of the record at Offset, -1 = unknown
}

// AppendListOffsetsHead begins a response body with the given number of topics.
func AppendListOffsetsHead(b []byte, v int16, throttleMs int32, topics int) []byte {
	if v >= 2 {
		b = AppendInt32(b, throttleMs)
	}
	return AppendArrayLen(b, topics, v >= 6)
}

// AppendListOffsetsTopic begins a topic.
func AppendListOffsetsTopic(b []byte, v int16, name []byte, partitions int) []byte {
	b = appendLength(b, len(name), v >= 6, false)
	b = append(b, name...)
	return AppendArrayLen(b, partitions, v >= 6)
}

// AppendListOffsetsPartition appends one partition of the current topic.
func AppendListOffsetsPartition(b []byte, v int16, p *ListOffsetsPartition) []byte {
	b = AppendInt32(b, p.Index)
	b = AppendInt16(b, int16(p.Err))
	b = AppendInt64(b, p.Timestamp)
	b = AppendInt64(b, p.Offset)
	if v >= 4 {
		b = AppendInt32(b, p.LeaderEpoch)
	}
	return appendTagCount(b, 0, v >= 6)
}

// AppendListOffsetsTopicEnd ends a topic.
func AppendListOffsetsTopicEnd(b []byte, v int16) []byte { return appendTagCount(b, 0, v >= 6) }

// AppendListOffsetsTail ends the body.
func AppendListOffsetsTail(b []byte, v int16) []byte { return appendTagCount(b, 0, v >= 6) }

// AppendListOffsetsRequest appends the body of a request for one partition, as
// a consumer, read uncommitted. currentLeaderEpoch is -1 when unknown.
func AppendListOffsetsRequest(b []byte, v int16, topic string, partition, currentLeaderEpoch int32, timestamp int64, timeoutMs int32) []byte {
	flex := v >= 6
	b = AppendInt32(b, -1)
	if v >= 2 {
		b = AppendInt8(b, 0)
	}
	b = AppendArrayLen(b, 1, flex)
	b = AppendString(b, topic, flex)
	b = AppendArrayLen(b, 1, flex)
	b = AppendInt32(b, partition)
	if v >= 4 {
		b = AppendInt32(b, currentLeaderEpoch)
	}
	b = AppendInt64(b, timestamp)
	b = appendTagCount(b, 0, flex)
	b = appendTagCount(b, 0, flex)
	if v >= 10 {
		b = AppendInt32(b, timeoutMs)
	}
	return appendTagCount(b, 0, flex)
}

// ParseListOffsetsResponse reads the first partition of a response body.
func ParseListOffsetsResponse(v int16, body []byte) (p ListOffsetsPartition, err error) {
	r := NewReader(body)
	if v >= 2 {
		r.Int32()
	}
	w := newTopicWalk(r, v >= 6, false, 22)
	if !w.next() {
		return p, ErrMalformed
	}
	p.Index, p.Err = w.r.Int32(), ErrorCode(w.r.Int16())
	p.Timestamp, p.Offset, p.LeaderEpoch = w.r.Int64(), w.r.Int64(), -1
	if v >= 4 {
		p.LeaderEpoch = w.r.Int32()
	}
	return p, w.r.Err()
}
