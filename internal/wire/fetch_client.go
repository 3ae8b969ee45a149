package wire

// FetchParams is a Fetch request without its partitions and reports.
type FetchParams struct {
	ReplicaID    int32 // -1 = a consumer
	ReplicaEpoch int64 // -1 = unknown
	MaxWaitMs    int32
	MinBytes     int32
	MaxBytes     int32
	Isolation    int8
	SessionID    int32
	SessionEpoch int32 // -1 = no session
	RackID       string
	Forgotten    []ForgottenPartition
	MirrorName   string // version 20: empty = no mirror
	ClusterID    string // version 20: of the destination, empty = not said
	Taken        int32  // ours, version 12 and up: answers of this session that have arrived, 0 = not said
}

// FetchTarget is a partition to fetch. -1 where nothing is known.
type FetchTarget struct {
	Topic              string   // below version 13
	TopicID            [16]byte // version 13 and up
	Partition          int32
	CurrentLeaderEpoch int32
	FetchOffset        int64
	LastFetchedEpoch   int32
	LogStartOffset     int64
	MaxBytes           int32
	HighWatermark      int64 // version 18 and up, -1 = not said
	DurableEnd         int64 // ours, version 12 and up: 0 = not said
	Generation         int32 // ours, version 12 and up: 0 = none
}

// ForgottenPartition is a partition that leaves the session.
type ForgottenPartition struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// AppendFetchRequest appends the body of a Fetch request, versions 4-20.
// Neighbours in targets with the same topic share one topic entry, so targets
// are grouped by topic. Reports travel from version 20 on.
func AppendFetchRequest(b []byte, v int16, p *FetchParams, targets []FetchTarget, reports []Report) []byte {
	flex := v >= 12
	if v <= 14 {
		b = AppendInt32(b, p.ReplicaID)
	}
	b = AppendInt32(b, p.MaxWaitMs)
	b = AppendInt32(b, p.MinBytes)
	b = AppendInt32(b, p.MaxBytes)
	b = AppendInt8(b, p.Isolation)
	if v >= 7 {
		b = AppendInt32(b, p.SessionID)
		b = AppendInt32(b, p.SessionEpoch)
	}
	b = appendTargets(b, v, targets)
	if v >= 7 {
		b = appendForgotten(b, v, p.Forgotten)
	}
	if v >= 11 {
		b = AppendString(b, p.RackID, flex)
	}
	if v >= 20 {
		b = appendMirrorInfo(b, p.MirrorName, p.ClusterID, reports)
	}
	if !flex {
		return b
	}
	replica := v >= 15 && (p.ReplicaID != -1 || p.ReplicaEpoch != -1)
	b = append(b, byte(bit(replica)+bit(p.Taken > 0)))
	if replica {
		b = AppendInt32(append(b, 1, 13), p.ReplicaID)
		b = append(AppendInt64(b, p.ReplicaEpoch), 0)
	}
	if p.Taken > 0 {
		b = AppendInt32(append(b, tagTaken, 4), p.Taken)
	}
	return b
}

func appendTargets(b []byte, v int16, targets []FetchTarget) []byte {
	flex := v >= 12
	same := func(i, j int) bool {
		return targets[i].TopicID == targets[j].TopicID && targets[i].Topic == targets[j].Topic
	}
	topics := 0
	for i := range targets {
		topics += bit(i == 0 || !same(i, i-1))
	}
	b = AppendArrayLen(b, topics, flex)
	for i := 0; i < len(targets); {
		n := 1
		for i+n < len(targets) && same(i, i+n) {
			n++
		}
		b = appendTopic(b, v, targets[i].Topic, targets[i].TopicID, flex)
		b = AppendArrayLen(b, n, flex)
		for ; n > 0; n-- {
			b = appendTarget(b, v, &targets[i])
			i++
		}
		b = appendTagCount(b, 0, flex)
	}
	return b
}

func appendTarget(b []byte, v int16, t *FetchTarget) []byte {
	b = AppendInt32(b, t.Partition)
	if v >= 9 {
		b = AppendInt32(b, t.CurrentLeaderEpoch)
	}
	b = AppendInt64(b, t.FetchOffset)
	if v >= 12 {
		b = AppendInt32(b, t.LastFetchedEpoch)
	}
	if v >= 5 {
		b = AppendInt64(b, t.LogStartOffset)
	}
	b = AppendInt32(b, t.MaxBytes)
	if v < 12 {
		return b
	}
	highWatermark := v >= 18 && t.HighWatermark >= 0
	b = append(b, byte(bit(highWatermark)+bit(t.DurableEnd > 0)+bit(t.Generation > 0)))
	if highWatermark {
		b = AppendInt64(append(b, 1, 8), t.HighWatermark)
	}
	if t.DurableEnd > 0 {
		b = AppendInt64(append(b, tagDurableEnd, 8), t.DurableEnd)
	}
	if t.Generation > 0 {
		b = AppendInt32(append(b, tagGeneration, 4), t.Generation)
	}
	return b
}

func appendForgotten(b []byte, v int16, forgotten []ForgottenPartition) []byte {
	flex := v >= 12
	same := func(i, j int) bool {
		return forgotten[i].TopicID == forgotten[j].TopicID && forgotten[i].Topic == forgotten[j].Topic
	}
	topics := 0
	for i := range forgotten {
		topics += bit(i == 0 || !same(i, i-1))
	}
	b = AppendArrayLen(b, topics, flex)
	for i := 0; i < len(forgotten); {
		n := 1
		for i+n < len(forgotten) && same(i, i+n) {
			n++
		}
		b = appendTopic(b, v, forgotten[i].Topic, forgotten[i].TopicID, flex)
		b = AppendArrayLen(b, n, flex)
		for ; n > 0; n-- {
			b = AppendInt32(b, forgotten[i].Partition)
			i++
		}
		b = appendTagCount(b, 0, flex)
	}
	return b
}

// FetchResponse is a view of a Fetch response, versions 4-20.
type FetchResponse struct {
	Version       int16
	ThrottleMs    int32
	Err           ErrorCode // 0 below version 7
	SessionID     int32     // 0 below version 7
	Window        int32     // ours: requests of the session that may be under way, 0 = one
	NumPartitions int
	NumAnswers    int

	topics, endpoints, answers Reader
}

// Parse checks the whole structure of a response body and sets the view. It
// does not look into the records.
func (f *FetchResponse) Parse(version int16, body []byte) error {
	*f = FetchResponse{Version: version}
	r := NewReader(body)
	f.ThrottleMs = r.Int32()
	if version >= 7 {
		f.Err, f.SessionID = ErrorCode(r.Int16()), r.Int32()
	}
	f.topics = r
	it := f.Partitions()
	for it.Next() {
		if f.NumPartitions++; f.NumPartitions > MaxPartitions {
			return ErrMalformed
		}
	}
	if r = it.r; version >= 12 {
		for n := r.TagCount(); n > 0 && r.Ok(); n-- {
			switch key, val := r.Tag(); {
			case key == 0 && version >= 16:
				f.endpoints = NewReader(val)
			case key == tagAnswers && version >= 20:
				f.answers = NewReader(val)
			case key == tagWindow:
				f.Window = readInt32(&r, val)
			}
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	answers := f.Answers()
	for answers.Next() {
		if f.NumAnswers++; f.NumAnswers > MaxPartitions {
			return ErrMalformed
		}
	}
	if err := answers.r.Complete(); err != nil {
		return err
	}
	return checkEndpoints(f.endpoints)
}

// Partitions returns an iterator over the partitions.
func (f *FetchResponse) Partitions() FetchResponseIter {
	return FetchResponseIter{version: f.Version, topicWalk: newTopicWalk(f.topics, f.Version >= 12, f.Version >= 13, 23)}
}

// Endpoints returns an iterator over the brokers named as leaders.
func (f *FetchResponse) Endpoints() EndpointIter { return newEndpointIter(f.endpoints) }

// Answers returns an iterator over the answers to mirror reports.
func (f *FetchResponse) Answers() AnswerIter {
	it := AnswerIter{r: f.answers}
	if f.answers.Remaining() > 0 {
		it.left = it.r.ArrayLen(true, 43)
	}
	return it
}

// FetchResponseIter walks the partitions of a response. Records alias the body.
type FetchResponseIter struct {
	topicWalk
	version          int16
	Partition        int32
	Err              ErrorCode
	HighWatermark    int64
	LastStable       int64
	LogStart         int64  // -1 below version 5
	PreferredReplica int32  // -1 = none
	Records          []byte // nil = null
	DivergingEpoch   int32  // -1 = the logs agree
	DivergingEnd     int64
	LeaderID         int32 // -1 = not said
	LeaderEpoch      int32 // -1 = not said
	Generation       int32 // ours: 0 = none
	Cursor           int64 // ours: offset the records were read from, -1 = not said
}

// Next moves to the next partition.
func (it *FetchResponseIter) Next() bool {
	if !it.next() {
		return false
	}
	r, v := &it.r, it.version
	it.LogStart, it.PreferredReplica = -1, -1
	it.Partition, it.Err = r.Int32(), ErrorCode(r.Int16())
	it.HighWatermark, it.LastStable = r.Int64(), r.Int64()
	if v >= 5 {
		it.LogStart = r.Int64()
	}
	for n := r.ArrayLen(it.flex, 16); n > 0 && r.Ok(); n-- { // aborted transactions
		r.Span(16)
		it.endPartition()
	}
	if v >= 11 {
		it.PreferredReplica = r.Int32()
	}
	it.Records = r.Bytes(it.flex)
	it.readTags()
	return r.Ok()
}

func (it *FetchResponseIter) readTags() {
	it.DivergingEpoch, it.DivergingEnd, it.LeaderID, it.LeaderEpoch, it.Generation, it.Cursor = -1, -1, -1, -1, 0, -1
	if !it.flex {
		return
	}
	for n := it.r.TagCount(); n > 0 && it.r.Ok(); n-- {
		switch key, val := it.r.Tag(); key {
		case 0:
			in := NewReader(val)
			it.DivergingEpoch, it.DivergingEnd = in.Int32(), in.Int64()
			in.SkipTags()
			if in.Complete() != nil {
				it.r.Fail()
			}
		case 1:
			it.LeaderID, it.LeaderEpoch = readLeader(&it.r, val)
		case tagGeneration:
			it.Generation = readInt32(&it.r, val)
		case tagCursor:
			it.Cursor = readInt64(&it.r, val)
		}
	}
}

// AnswerIter walks the answers to mirror reports.
type AnswerIter struct {
	r    Reader
	left int
	ReportAnswer
}

// Next moves to the next answer.
func (it *AnswerIter) Next() bool {
	if it.left <= 0 || !it.r.Ok() {
		return false
	}
	it.left--
	it.TopicID, it.Partition, it.Err = it.r.UUID(), it.r.Int32(), ErrorCode(it.r.Int16())
	it.Sequence, it.HighWatermark, it.PartitionCount = it.r.Int64(), it.r.Int64(), it.r.Int32()
	it.r.SkipTags()
	return it.r.Ok()
}
