package meta

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"lockstep/internal/msg"
)

const (
	opSet int8 = iota
	opDelete
	opAppend
	opSubtract
)

func (x *tx) alterConfigs(c *msg.AlterConfigsCommand) {
	for i := range c.Resources {
		r := &c.Resources[i]
		x.answer(ResultItem{Name: r.Name, Partition: -1}, x.alterResource(r, c.ValidateOnly))
	}
}

func (x *tx) alterResource(r *msg.AlterConfigsCommandResource, dry bool) *refusal {
	var old map[string]string
	switch r.Type {
	case ResourceTopic:
		t := x.topic(r.Name)
		if t == nil {
			return refuse(unknownTopicOrPartition, "no such topic")
		}
		old = t.Configs
	case ResourceBroker:
		if _, err := strconv.ParseInt(r.Name, 10, 32); r.Name != "" && err != nil {
			return refuse(invalidRequest, "a broker resource is named by its id")
		}
		old, _ = x.v.brokerCfg.Get(r.Name)
	case ResourceMirror:
		m := x.v.Mirror(r.Name)
		if m == nil {
			return refuse(unknownMirror, "no such mirror")
		}
		old = m.Configs
	default:
		return refuse(invalidRequest, "unknown type of resource")
	}
	next, bad := changedConfigs(old, r)
	if bad != nil || dry || maps.Equal(old, next) {
		return bad
	}
	return x.putConfigs(r, old, next)
}

func (x *tx) putConfigs(r *msg.AlterConfigsCommandResource, old, next map[string]string) *refusal {
	const minISR = "min.insync.replicas"
	changedMin := old[minISR] != next[minISR]
	switch r.Type {
	case ResourceTopic:
		t := x.edit(x.topic(r.Name))
		t.Configs = next
		if changedMin {
			x.clearELR(t)
		}
		for i, p := range t.Partitions {
			if p.Leader < 0 { // unclean election may just have been allowed
				x.electLeaderless(t, i)
			}
		}
	case ResourceBroker:
		x.v.brokerCfg = x.v.brokerCfg.Set(r.Name, next)
		x.set.configs = true
		if changedMin && r.Name == "" {
			for t := range x.v.Topics() {
				if _, own := t.Configs[minISR]; !own {
					x.clearELR(x.topic(t.Name))
				}
			}
		}
	case ResourceMirror:
		m := &Mirror{Name: r.Name, Configs: next}
		if bad := x.checkMirrorConfigs(m); bad != nil {
			return bad
		}
		if m.SourceClusterID() != x.v.Mirror(r.Name).SourceClusterID() {
			return refuse(invalidConfig, "the source cluster of a mirror cannot change")
		}
		x.v.mirrors = x.v.mirrors.Set(r.Name, m)
		x.set.mirrors = true
	}
	return nil
}

// clearELR forgets who was eligible under another minimum.
func (x *tx) clearELR(t *Topic) {
	for i, p := range t.Partitions {
		if len(p.ELR) > 0 {
			t = x.edit(t)
			p = editPartition(t, i)
			p.ELR = nil
			p.PartitionEpoch++
		}
	}
}

func changedConfigs(old map[string]string, r *msg.AlterConfigsCommandResource) (map[string]string, *refusal) {
	next := map[string]string{}
	if !r.Full {
		maps.Copy(next, old)
	}
	for i := range r.Ops {
		op := &r.Ops[i]
		if op.Name == "" || op.Op != opDelete && op.Value == nil {
			return nil, refuse(invalidConfig, "a config needs a name and a value")
		}
		switch op.Op {
		case opSet:
			next[op.Name] = *op.Value
		case opDelete:
			delete(next, op.Name)
		case opAppend, opSubtract:
			next[op.Name] = changedList(next[op.Name], *op.Value, op.Op == opAppend)
		default:
			return nil, refuse(invalidRequest, "unknown config operation")
		}
	}
	return next, nil
}

// changedList adds items to a comma list, or takes them out.
func changedList(list, items string, add bool) string {
	have := splitList(list)
	for _, item := range splitList(items) {
		at := slices.Index(have, item)
		switch {
		case add && at < 0:
			have = append(have, item)
		case !add && at >= 0:
			have = slices.Delete(have, at, at+1)
		}
	}
	return strings.Join(have, ",")
}

func splitList(s string) (out []string) {
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
