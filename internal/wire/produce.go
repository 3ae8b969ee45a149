package wire

// ProduceRequest is a view of a Produce request, versions 3-14. It and its
// iterators alias the body given to Parse.
type ProduceRequest struct {
	Version         int16
	TransactionalID []byte // nil = null
	Acks            int16
	TimeoutMs       int32
	NumTopics       int // topics with at least one partition
	NumPartitions   int

	topics Reader // at the topic array
}

// Parse checks the whole structure of a request body and sets the view. It does
// not look into the records.
func (p *ProduceRequest) Parse(version int16, body []byte) error {
	flex := version >= 9
	r := NewReader(body)
	*p = ProduceRequest{Version: version}
	p.TransactionalID = r.NullableStringBytes(flex)
	p.Acks = r.Int16()
	p.TimeoutMs = r.Int32()
	p.topics = r
	it := p.Iter()
	for it.Next() {
		if it.newTopic {
			p.NumTopics++
		}
		if p.NumPartitions++; p.NumPartitions > MaxPartitions {
			return ErrMalformed
		}
	}
	if flex {
		it.r.SkipTags()
	}
	return it.r.Err()
}

// Iter returns an iterator at the start of the request.
func (p *ProduceRequest) Iter() ProduceIter {
	minPartition := 8 // number, length of the records
	if p.Version >= 9 {
		minPartition = 6 // number, length, tags
	}
	return ProduceIter{topicWalk: newTopicWalk(p.topics, p.Version >= 9, p.Version >= 13, minPartition)}
}

// ProduceIter walks the partitions of a request, topic by topic.
type ProduceIter struct {
	topicWalk
	partition int32
	records   []byte
}

// Next moves to the next partition.
func (it *ProduceIter) Next() bool {
	if !it.next() {
		return false
	}
	it.partition = it.r.Int32()
	it.records = it.r.Bytes(it.flex)
	it.endPartition()
	return it.r.Ok()
}

// Partition is the partition number.
func (it *ProduceIter) Partition() int32 { return it.partition }

// Records is the record data; nil = null.
func (it *ProduceIter) Records() []byte { return it.records }

// topicWalk is the part of an iterator that all messages shaped as topics of
// partitions share.
type topicWalk struct {
	r                     Reader
	flex, byID            bool
	newTopic, inTopic     bool
	minPartition          int // bytes a partition takes at least
	topicsLeft, partsLeft int
	parts                 int
	topic                 []byte
	id                    [16]byte
}

func newTopicWalk(r Reader, flex, byID bool, minPartition int) topicWalk {
	w := topicWalk{r: r, flex: flex, byID: byID, minPartition: minPartition}
	w.topicsLeft = w.r.ArrayLen(flex, 3)
	if w.topicsLeft < 0 {
		w.r.Fail()
	}
	return w
}

// next moves to the next partition, over the ends of topics and over topics
// without partitions.
func (w *topicWalk) next() bool {
	w.newTopic = false
	for w.partsLeft == 0 {
		if w.inTopic && w.flex {
			w.r.SkipTags()
		}
		w.inTopic = false
		if w.topicsLeft <= 0 || !w.r.Ok() {
			return false
		}
		w.topicsLeft--
		if w.byID {
			w.id = w.r.UUID()
		} else {
			w.topic = w.r.StringBytes(w.flex)
		}
		w.parts = w.r.ArrayLen(w.flex, w.minPartition)
		if w.parts < 0 {
			w.r.Fail()
			w.parts = 0
		}
		w.partsLeft, w.newTopic, w.inTopic = w.parts, true, true
	}
	w.partsLeft--
	return w.r.Ok()
}

// endPartition reads over the tags of a partition nobody looks at.
func (w *topicWalk) endPartition() {
	if w.flex {
		w.r.SkipTags()
	}
}

// Topic is the name of the topic, in versions that name topics.
func (w *topicWalk) Topic() []byte { return w.topic }

// TopicID is the id of the topic, in versions that carry ids.
func (w *topicWalk) TopicID() [16]byte { return w.id }

// NewTopic is true on the first partition of each topic.
func (w *topicWalk) NewTopic() bool { return w.newTopic }

// TopicPartitions is the number of partitions of the current topic.
func (w *topicWalk) TopicPartitions() int { return w.parts }

// NodeEndpoint is the address of a broker named as a leader.
type NodeEndpoint struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   string // empty = null
}

func appendNodeEndpoints(b []byte, endpoints []NodeEndpoint) []byte {
	b = BeginTag(b, 0)
	start := len(b)
	b = AppendArrayLen(b, len(endpoints), true)
	for i := range endpoints {
		e := &endpoints[i]
		b = AppendInt32(b, e.NodeID)
		b = AppendString(b, e.Host, true)
		b = AppendInt32(b, e.Port)
		b = appendOrNull(b, e.Rack, true)
		b = append(b, 0)
	}
	return EndTag(b, start)
}

// appendOrNull appends a string, the empty one as null.
func appendOrNull(b []byte, s string, flex bool) []byte {
	if s == "" {
		return appendLength(b, -1, flex, false)
	}
	return AppendString(b, s, flex)
}

// ProducePartition is the answer for one partition.
type ProducePartition struct {
	Index         int32
	Err           ErrorCode // already down-mapped for the version
	BaseOffset    int64     // -1 on error
	LogAppendTime int64     // milliseconds, -1 = the records keep their own
	LogStart      int64
	Message       string // empty = null
	LeaderID      int32  // version 10 and up: where to go instead, -1 = say nothing
	LeaderEpoch   int32  // -1 = unknown
}

// AppendProduceHead begins a response body with the given number of topics.
func AppendProduceHead(b []byte, v int16, topics int) []byte {
	return AppendArrayLen(b, topics, v >= 9)
}

// AppendProduceTopic begins a topic: by name below version 13, by id from there.
func AppendProduceTopic(b []byte, v int16, name []byte, id [16]byte, partitions int) []byte {
	if v >= 13 {
		b = AppendUUID(b, id)
	} else {
		b = appendLength(b, len(name), v >= 9, false)
		b = append(b, name...)
	}
	return AppendArrayLen(b, partitions, v >= 9)
}

// AppendProducePartition appends one partition of the current topic.
func AppendProducePartition(b []byte, v int16, p *ProducePartition) []byte {
	b = AppendInt32(b, p.Index)
	b = AppendInt16(b, int16(p.Err))
	b = AppendInt64(b, p.BaseOffset)
	b = AppendInt64(b, p.LogAppendTime)
	if v >= 5 {
		b = AppendInt64(b, p.LogStart)
	}
	if v >= 8 {
		b = AppendArrayLen(b, 0, v >= 9) // errors of single records
		b = appendOrNull(b, p.Message, v >= 9)
	}
	if v < 9 {
		return b
	}
	if v < 10 || (p.LeaderID < 0 && p.LeaderEpoch < 0) {
		return append(b, 0)
	}
	b = append(b, 1)
	return appendLeader(b, 0, p.LeaderID, p.LeaderEpoch)
}

// appendLeader appends the tagged struct of a leader and its epoch.
func appendLeader(b []byte, tag byte, id, epoch int32) []byte {
	b = append(b, tag, 9)
	b = AppendInt32(b, id)
	b = AppendInt32(b, epoch)
	return append(b, 0)
}

// AppendProduceTopicEnd ends a topic.
func AppendProduceTopicEnd(b []byte, v int16) []byte { return appendTagCount(b, 0, v >= 9) }

// AppendProduceTail ends the body. Endpoints are left out below version 10.
func AppendProduceTail(b []byte, v int16, throttleMs int32, endpoints []NodeEndpoint) []byte {
	b = AppendInt32(b, throttleMs)
	if v < 9 {
		return b
	}
	if v < 10 || len(endpoints) == 0 {
		return append(b, 0)
	}
	return appendNodeEndpoints(append(b, 1), endpoints)
}
