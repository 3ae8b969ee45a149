package meta

import (
	"slices"
	"strconv"
)

// tx is one command under way: a copy of the View's root, and copies of the
// topics it has touched.
type tx struct {
	v     *View
	index int64
	res   Result
	own   map[string]*Topic // touched topics, nil = deleted
	set   *changeSet
}

func begin(v *View, index uint64) *tx {
	next := *v
	next.index = index
	return &tx{v: &next, index: int64(index), set: &changeSet{from: v.index, to: index}}
}

func (x *tx) commit() *View {
	for _, name := range x.set.topics {
		if t := x.own[name]; t != nil {
			t.Index = uint64(x.index)
			x.v.topics = x.v.topics.Set(name, t)
		} else {
			x.v.topics = x.v.topics.Delete(name)
		}
	}
	copy(x.v.recent[1:], x.v.recent[:recentChanges-1])
	x.v.recent[0] = x.set
	return x.v
}

// fail refuses the whole command. It is called before anything is touched.
func (x *tx) fail(code int16, text string) {
	x.res.ErrorCode, x.res.ErrorMessage = code, &text
}

// answer appends the result of an item; r nil = done.
func (x *tx) answer(item ResultItem, r *refusal) {
	if r != nil {
		item.ErrorCode, item.ErrorMessage = r.code, &r.text
	}
	x.res.Items = append(x.res.Items, item)
}

func topicItem(t *Topic, partition int32) ResultItem {
	return ResultItem{Name: t.Name, TopicId: t.ID, Partition: partition}
}

// topic finds a topic as this command has left it so far.
func (x *tx) topic(name string) *Topic {
	if t, ok := x.own[name]; ok {
		return t
	}
	return x.v.TopicByName(name)
}

func (x *tx) topicByID(id UUID) *Topic {
	name, ok := x.v.names.Get(id)
	if !ok {
		return nil
	}
	return x.topic(name)
}

// edit returns a topic that this command may change.
func (x *tx) edit(t *Topic) *Topic {
	if mine, ok := x.own[t.Name]; ok {
		return mine
	}
	c := *t
	c.Partitions = slices.Clone(t.Partitions)
	x.keep(t.Name, &c)
	return &c
}

// editPartition returns a partition of an edited topic that may be changed.
func editPartition(t *Topic, i int) *Partition {
	c := *t.Partitions[i]
	t.Partitions[i] = &c
	return &c
}

// editMirror returns the mirror side of an edited topic that may be changed.
func editMirror(t *Topic) *TopicMirror {
	c := *t.Mirror
	t.Mirror = &c
	return &c
}

func (x *tx) keep(name string, t *Topic) {
	if x.own == nil {
		x.own = map[string]*Topic{}
	}
	if _, ok := x.own[name]; !ok {
		x.set.topics = append(x.set.topics, name)
	}
	x.own[name] = t
}

func (x *tx) insert(t *Topic) {
	x.keep(t.Name, t)
	x.v.names = x.v.names.Set(t.ID, t.Name)
	x.v.partitions += len(t.Partitions)
}

func (x *tx) remove(t *Topic) {
	x.keep(t.Name, nil)
	x.v.names = x.v.names.Delete(t.ID)
	x.v.partitions -= len(t.Partitions)
}

// eachPartition visits every partition of every topic. It is for the rare
// commands about a whole broker.
func (x *tx) eachPartition(visit func(t *Topic, i int, p *Partition)) {
	for t := range x.v.Topics() {
		for i := range t.Partitions {
			at := x.topic(t.Name)
			visit(at, i, at.Partitions[i])
		}
	}
}

// alive tells whether a broker may lead or enter an ISR.
func (x *tx) alive(id int32) bool { return x.v.Broker(id).Alive() }

// config is a topic's dynamic config, else the cluster-wide default.
func (x *tx) config(t *Topic, key string) (string, bool) {
	if t != nil {
		if s, ok := t.Configs[key]; ok {
			return s, true
		}
	}
	s, ok := x.v.BrokerConfig()[key]
	return s, ok
}

func (x *tx) configInt(t *Topic, key string, otherwise int) int {
	if s, ok := x.config(t, key); ok {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	return otherwise
}

func (x *tx) minISR(t *Topic) int { return max(1, x.configInt(t, "min.insync.replicas", 1)) }

func (x *tx) unclean(t *Topic) bool {
	s, _ := x.config(t, "unclean.leader.election.enable")
	return s == "true"
}
