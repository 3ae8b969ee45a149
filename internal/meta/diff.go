package meta

import "github.com/benbjohnson/immutable"

// changeSet is what one command has changed.
type changeSet struct {
	from, to uint64   // View indexes
	topics   []string // names, in order of first change
	brokers  bool
	mirrors  bool
	configs  bool
	features bool
}

// TopicChange is a topic before and after; nil = not there.
type TopicChange struct{ Old, New *Topic }

// Changes is the difference of two Views.
type Changes struct {
	Topics   []TopicChange
	Brokers  bool // a broker or controller
	Mirrors  bool
	Configs  bool // of brokers
	Features bool
}

// Diff lists what differs between two Views. When new lies at most a few
// commands after old it looks at what those have touched, otherwise at
// everything. A topic that was deleted and created again under its name is one
// change with two ids.
func Diff(old, new *View) Changes {
	if old == new {
		return Changes{}
	}
	if c, ok := diffRecent(old, new); ok {
		return c
	}
	c := Changes{
		Brokers:  !samePointers(old.brokers, new.brokers) || !samePointers(old.controllers, new.controllers),
		Mirrors:  old.mirrors != new.mirrors,
		Configs:  old.brokerCfg != new.brokerCfg,
		Features: len(old.features) != len(new.features),
	}
	for i := range new.features {
		c.Features = c.Features || i >= len(old.features) || old.features[i] != new.features[i]
	}
	if old.topics != new.topics {
		c.Topics = diffTopics(old.topics, new.topics)
	}
	return c
}

func diffRecent(old, new *View) (c Changes, ok bool) {
	var seen map[string]bool
	at := new.index
	for _, s := range new.recent {
		if at == old.index || s == nil || s.to != at {
			break
		}
		c.Brokers = c.Brokers || s.brokers
		c.Mirrors = c.Mirrors || s.mirrors
		c.Configs = c.Configs || s.configs
		c.Features = c.Features || s.features
		for _, name := range s.topics {
			if seen[name] {
				continue
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[name] = true
			if was, is := old.TopicByName(name), new.TopicByName(name); was != is {
				c.Topics = append(c.Topics, TopicChange{was, is})
			}
		}
		at = s.from
	}
	return c, at == old.index
}

func diffTopics(old, new *immutable.SortedMap[string, *Topic]) (out []TopicChange) {
	a, b := old.Iterator(), new.Iterator()
	was, more := next(a)
	is, moreNew := next(b)
	for more || moreNew {
		switch {
		case !moreNew || more && was.Name < is.Name:
			out = append(out, TopicChange{was, nil})
			was, more = next(a)
		case !more || is.Name < was.Name:
			out = append(out, TopicChange{nil, is})
			is, moreNew = next(b)
		default:
			if was != is {
				out = append(out, TopicChange{was, is})
			}
			was, more = next(a)
			is, moreNew = next(b)
		}
	}
	return out
}

func next(it *immutable.SortedMapIterator[string, *Topic]) (*Topic, bool) {
	if it.Done() {
		return nil, false
	}
	_, t, ok := it.Next()
	return t, ok
}

func samePointers[T any](a, b []*T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
