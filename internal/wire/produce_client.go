package wire

// ProduceParams is a Produce request for one batch of one partition.
type ProduceParams struct {
	TransactionalID string // empty = null
	Acks            int16  // -1, 0 or 1
	TimeoutMs       int32
	Topic           string   // below version 13
	TopicID         [16]byte // version 13 and up
	Partition       int32
}

// AppendProduceRequest appends the body of a Produce request, versions 3-14.
func AppendProduceRequest(b []byte, v int16, p *ProduceParams, batch []byte) []byte {
	flex := v >= 9
	b = appendOrNull(b, p.TransactionalID, flex)
	b = AppendInt16(b, p.Acks)
	b = AppendInt32(b, p.TimeoutMs)
	b = AppendArrayLen(b, 1, flex)
	b = appendTopic(b, v, p.Topic, p.TopicID, flex)
	b = AppendArrayLen(b, 1, flex)
	b = AppendInt32(b, p.Partition)
	b = AppendBytes(b, batch, flex)
	if flex {
		b = append(b, 0, 0, 0) // tags of partition, topic, request
	}
	return b
}

// appendTopic names a topic as Produce and Fetch do.
func appendTopic(b []byte, v int16, name string, id [16]byte, flex bool) []byte {
	if v >= 13 {
		return AppendUUID(b, id)
	}
	return AppendString(b, name, flex)
}

// ProduceResponse is a view of a Produce response, versions 3-14.
type ProduceResponse struct {
	Version       int16
	NumPartitions int
	ThrottleMs    int32

	topics    Reader
	endpoints Reader
}

// Parse checks the whole structure of a response body and sets the view.
func (p *ProduceResponse) Parse(version int16, body []byte) error {
	*p = ProduceResponse{Version: version, topics: NewReader(body)}
	it := p.Iter()
	for it.Next() {
		if p.NumPartitions++; p.NumPartitions > MaxPartitions {
			return ErrMalformed
		}
	}
	p.ThrottleMs = it.r.Int32()
	if version >= 9 {
		for n := it.r.TagCount(); n > 0 && it.r.Ok(); n-- {
			if key, val := it.r.Tag(); key == 0 && version >= 10 {
				p.endpoints = NewReader(val)
			}
		}
	}
	if err := it.r.Err(); err != nil {
		return err
	}
	return checkEndpoints(p.endpoints)
}

// Iter returns an iterator over the partitions.
func (p *ProduceResponse) Iter() ProduceResponseIter {
	return ProduceResponseIter{version: p.Version, topicWalk: newTopicWalk(p.topics, p.Version >= 9, p.Version >= 13, 22)}
}

// Endpoints returns an iterator over the brokers named as leaders.
func (p *ProduceResponse) Endpoints() EndpointIter { return newEndpointIter(p.endpoints) }

// ProduceResponseIter walks the partitions of a response. The message aliases
// the body.
type ProduceResponseIter struct {
	topicWalk
	version       int16
	Partition     int32
	Err           ErrorCode
	BaseOffset    int64
	LogAppendTime int64
	LogStart      int64  // -1 below version 5
	Message       []byte // nil = null
	LeaderID      int32  // -1 = not said
	LeaderEpoch   int32  // -1 = not said
}

// Next moves to the next partition.
func (it *ProduceResponseIter) Next() bool {
	if !it.next() {
		return false
	}
	r, v := &it.r, it.version
	it.Partition, it.Err = r.Int32(), ErrorCode(r.Int16())
	it.BaseOffset, it.LogAppendTime = r.Int64(), r.Int64()
	it.LogStart, it.Message, it.LeaderID, it.LeaderEpoch = -1, nil, -1, -1
	if v >= 5 {
		it.LogStart = r.Int64()
	}
	if v >= 8 {
		for n := r.ArrayLen(it.flex, 5); n > 0 && r.Ok(); n-- {
			r.Int32()
			r.NullableStringBytes(it.flex)
			it.endPartition()
		}
		it.Message = r.NullableStringBytes(it.flex)
	}
	if it.flex {
		for n := r.TagCount(); n > 0 && r.Ok(); n-- {
			if key, val := r.Tag(); key == 0 && v >= 10 {
				it.LeaderID, it.LeaderEpoch = readLeader(r, val)
			}
		}
	}
	return r.Ok()
}

// readLeader reads the value of a leader tag found by outer.
func readLeader(outer *Reader, val []byte) (id, epoch int32) {
	r := NewReader(val)
	id, epoch = r.Int32(), r.Int32()
	r.SkipTags()
	if r.Complete() != nil {
		outer.Fail()
	}
	return id, epoch
}

// EndpointIter walks node endpoints. Strings alias the body.
type EndpointIter struct {
	r    Reader
	left int

	NodeID int32
	Host   []byte
	Port   int32
	Rack   []byte // nil = null
}

func newEndpointIter(r Reader) EndpointIter {
	it := EndpointIter{r: r}
	if r.Remaining() > 0 {
		it.left = it.r.ArrayLen(true, 11)
	}
	return it
}

// Next moves to the next endpoint.
func (it *EndpointIter) Next() bool {
	if it.left <= 0 || !it.r.Ok() {
		return false
	}
	it.left--
	it.NodeID = it.r.Int32()
	it.Host = it.r.StringBytes(true)
	it.Port = it.r.Int32()
	it.Rack = it.r.NullableStringBytes(true)
	it.r.SkipTags()
	return it.r.Ok()
}

// checkEndpoints walks the endpoints once, for Parse.
func checkEndpoints(r Reader) error {
	it := newEndpointIter(r)
	for it.Next() {
	}
	return it.r.Complete()
}
