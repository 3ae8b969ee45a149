package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// The operations of IncrementalAlterConfigs, as in the command.
const (
	opSet int8 = iota
	opDelete
	opAppend
	opSubtract
)

// alterConfigsOf checks the resources, proposes those that are right, and
// returns an outcome for each.
func (s *Server) alterConfigsOf(ctx context.Context, resources []msg.AlterConfigsCommandResource, validateOnly bool) []Outcome {
	out := make([]Outcome, len(resources))
	type key struct {
		kind int8
		name string
	}
	count := map[key]int{}
	for i := range resources {
		count[key{resources[i].Type, resources[i].Name}]++
	}
	cmd := &msg.AlterConfigsCommand{ValidateOnly: validateOnly}
	var asked []int
	for i := range resources {
		r := &resources[i]
		if count[key{r.Type, r.Name}] > 1 {
			out[i] = Outcome{wire.ErrInvalidRequest, "the resource is named twice in the request: name it once"}
		} else if out[i] = s.checkAlter(r); out[i].Code == wire.ErrNone {
			asked = append(asked, i)
			cmd.Resources = append(cmd.Resources, *r)
		}
	}
	if len(asked) == 0 {
		return out
	}
	res, o := s.propose(ctx, cmd, 0)
	for k, i := range asked {
		if res != nil {
			o = item(res, k)
		}
		out[i] = o
	}
	return out
}

// checkAlter checks one resource as it would be afterwards. An append to a
// setting that is not set starts from its default, so it becomes a set.
func (s *Server) checkAlter(r *msg.AlterConfigsCommandResource) Outcome {
	v := s.d.Control.View()
	var defaults map[string]string
	switch r.Type {
	case meta.ResourceTopic:
		t, o := findTopic(v, r.Name)
		if t == nil {
			return o
		}
		defaults = map[string]string{}
		for _, kv := range config.NewTopic(s.d.Config).Values() {
			defaults[kv[0]] = kv[1]
		}
	case meta.ResourceBroker:
		if r.Name != "" {
			return Outcome{wire.ErrInvalidRequest, "settings of a single broker are in its server.properties: change them there and restart it, or name no broker to set them for all"}
		}
		defaults = plainBroker
	case meta.ResourceMirror:
		if o := unknownMirror(v, r.Name); o.Code != wire.ErrNone {
			return o
		}
	default:
		return unknownResource
	}
	next, o := altered(v.ConfigOf(r.Type, r.Name), defaults, r)
	if o.Code != wire.ErrNone {
		return o
	}
	return s.checkConfigs(r, next)
}

// altered is what the operations of r make of old.
func altered(old, defaults map[string]string, r *msg.AlterConfigsCommandResource) (map[string]string, Outcome) {
	next := map[string]string{}
	if !r.Full {
		maps.Copy(next, old)
	}
	seen := map[string]bool{}
	for i := range r.Ops {
		op := &r.Ops[i]
		switch {
		case op.Name == "":
			return nil, Outcome{wire.ErrInvalidRequest, "a setting has no name: give it one"}
		case seen[op.Name]:
			return nil, Outcome{wire.ErrInvalidRequest, op.Name + " is named twice: name it once"}
		case op.Op < opSet || op.Op > opSubtract:
			return nil, Outcome{wire.ErrInvalidRequest, fmt.Sprintf("operation %d on %s is not known: use set (0), delete (1), append (2) or subtract (3)", op.Op, op.Name)}
		case op.Op != opDelete && op.Value == nil:
			return nil, Outcome{wire.ErrInvalidConfig, op.Name + " has no value: give it one, or delete the setting"}
		case op.Op >= opAppend && typeOf(op.Name, "") != kmsg.ConfigTypeList:
			return nil, Outcome{wire.ErrInvalidConfig, op.Name + " is not a list: set it instead"}
		}
		seen[op.Name] = true
		if _, own := next[op.Name]; op.Op >= opAppend && !own {
			all := changedList(defaults[op.Name], *op.Value, op.Op == opAppend)
			op.Op, op.Value = opSet, &all
		}
		switch op.Op {
		case opSet:
			next[op.Name] = *op.Value
		case opDelete:
			delete(next, op.Name)
		default:
			next[op.Name] = changedList(next[op.Name], *op.Value, op.Op == opAppend)
		}
	}
	return next, Outcome{}
}

// changedList adds items to a comma list, or takes them out.
func changedList(list, items string, add bool) string {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	}
	have := split(list)
	for _, item := range split(items) {
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

// checkConfigs tells whether a resource may have these settings.
func (s *Server) checkConfigs(r *msg.AlterConfigsCommandResource, next map[string]string) Outcome {
	var err error
	switch r.Type {
	case meta.ResourceTopic:
		_, err = s.topicConfig(next)
	case meta.ResourceBroker:
		for _, name := range slices.Sorted(maps.Keys(next)) {
			if !slices.Contains(dynamicNames, name) {
				return Outcome{wire.ErrInvalidConfig, fmt.Sprintf("%.100q cannot change while brokers run: set it in server.properties and restart; what can is %s",
					name, strings.Join(dynamicNames, ", "))}
			}
			if _, _, e := config.Load(nil, []string{name + "=" + next[name]}); e != nil {
				err = e
			}
		}
	case meta.ResourceMirror:
		var m config.Mirror
		if m, err = config.MirrorOf(next); err == nil {
			err = m.Complete()
		}
	}
	if err != nil {
		return badConfig(err)
	}
	return Outcome{}
}
