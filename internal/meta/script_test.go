package meta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"lockstep/internal/msg"
)

// TestScripts plays testdata/*.txt. A script has blocks:
//
//	apply        one command a line: its name without "Command", and a JSON body.
//	             A uuid is "@topic" (the id of a topic) or text, padded.
//	show         all brokers and topics
//	dump         AppendDump
//
// apply prints the result of each command and the topics it has changed.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		v := Empty()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out bytes.Buffer
			switch d.Cmd {
			case "apply":
				for line := range strings.SplitSeq(d.Input, "\n") {
					v = applyLine(t, &out, v, line)
				}
			case "show":
				show(&out, v)
			case "dump":
				out.Write(AppendDump(nil, v))
			default:
				d.Fatalf(t, "unknown block")
			}
			restored, err := ReadSnapshot(AppendSnapshot(nil, v))
			if err != nil || !bytes.Equal(AppendSnapshot(nil, restored), AppendSnapshot(nil, v)) {
				d.Fatalf(t, "snapshot does not come back: %v", err)
			}
			return out.String()
		})
	})
}

func commandNamed(name string) Message {
	for _, m := range msg.All() {
		if reflect.TypeOf(m).Elem().Name() == name+"Command" {
			return m
		}
	}
	return nil
}

func applyLine(t *testing.T, out *bytes.Buffer, v *View, line string) *View {
	name, body, _ := strings.Cut(line, " ")
	m := commandNamed(name)
	if m == nil {
		t.Fatalf("unknown command %q", name)
	}
	var values any = map[string]any{}
	if body != "" {
		if err := json.Unmarshal([]byte(body), &values); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	fill(t, v, reflect.ValueOf(m).Elem(), values)
	next, res := Apply(v, v.index+1, Encode(m))
	fmt.Fprintf(out, "%d %s: %s\n", next.index, name, resultText(res))
	changes := Diff(v, next)
	full := Diff(v, withoutRecent(next))
	if len(changes.Topics) != len(full.Topics) || changes.Brokers != full.Brokers || changes.Mirrors != full.Mirrors ||
		changes.Configs != full.Configs || changes.Features != full.Features {
		t.Fatalf("%s: Diff by change list %+v, by scan %+v", line, changes, full)
	}
	for _, c := range changes.Topics {
		if c.New == nil {
			fmt.Fprintf(out, "  - %s\n", c.Old.Name)
		} else {
			topicText(out, c.New)
		}
	}
	return next
}

func withoutRecent(v *View) *View {
	c := *v
	c.recent = [recentChanges]*changeSet{}
	return &c
}

// fill sets a generated struct from JSON values; what is not named keeps the
// default of the schema.
func fill(t *testing.T, v *View, to reflect.Value, from any) {
	switch to.Kind() {
	case reflect.Struct:
		if d, ok := to.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		for key, value := range from.(map[string]any) {
			f := to.FieldByName(key)
			if !f.IsValid() {
				t.Fatalf("%v has no field %s", to.Type(), key)
			}
			fill(t, v, f, value)
		}
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		fill(t, v, to.Elem(), from)
	case reflect.Slice:
		list := from.([]any)
		to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
		for i := range list {
			fill(t, v, to.Index(i), list[i])
		}
	case reflect.Array:
		to.Set(reflect.ValueOf(scriptID(t, v, from.(string))))
	case reflect.String:
		to.SetString(from.(string))
	case reflect.Bool:
		to.SetBool(from.(bool))
	default:
		to.SetInt(int64(from.(float64)))
	}
}

func scriptID(t *testing.T, v *View, s string) (id UUID) {
	if name, ok := strings.CutPrefix(s, "@"); ok {
		topic := v.TopicByName(name)
		if topic == nil {
			t.Fatalf("no topic %s", name)
		}
		return topic.ID
	}
	copy(id[:], s)
	return id
}

func resultText(r Result) string {
	s := "ok"
	if r.ErrorCode != 0 {
		s = fmt.Sprintf("error %d %s", r.ErrorCode, *r.ErrorMessage)
	}
	if r.Number != 0 {
		s += fmt.Sprintf(" number=%d", r.Number)
	}
	for _, i := range r.Items {
		s += "\n  " + i.Name
		if i.Partition >= 0 {
			s += fmt.Sprintf("-%d", i.Partition)
		}
		s += ": ok"
		if i.ErrorCode != 0 {
			s = s[:len(s)-2] + fmt.Sprintf("error %d", i.ErrorCode)
		}
		if i.ErrorMessage != nil {
			s += " " + *i.ErrorMessage
		}
		if i.Number != 0 || i.Current != 0 {
			s += fmt.Sprintf(" number=%d current=%d", i.Number, i.Current)
		}
	}
	return s
}

func topicText(out *bytes.Buffer, t *Topic) {
	fmt.Fprintf(out, "  = %s index=%d", t.Name, t.Index)
	for _, k := range sortedKeys(t.Configs) {
		fmt.Fprintf(out, " %s=%s", k, t.Configs[k])
	}
	out.WriteByte('\n')
	if m := t.Mirror; m != nil {
		fmt.Fprintf(out, "    mirror %s of %s desired=%v phase=%v epoch=%d owed=%d recovery=%v/%d attempts=%d unregistered=%v\n", m.Mirror,
			m.SourceClusterID, m.Desired, m.Phase, m.RegistrationEpoch, m.OwedUnregister, m.Recovery, m.ReleaseNumber, m.Attempts, m.UnregisterDone)
	}
	for _, r := range t.Registrations {
		fmt.Fprintf(out, "    registered %s by %s epoch=%d released=%v/%d\n", r.Mirror, r.ClusterID, r.Epoch, r.Released, r.ReleaseNumber)
	}
	for i, p := range t.Partitions {
		fmt.Fprintf(out, "    %d: replicas=%v isr=%v elr=%v leader=%d epoch=%d/%d", i, p.Replicas, p.ISR, p.ELR, p.Leader, p.LeaderEpoch, p.PartitionEpoch)
		if t.Mirror != nil || p.StateEpoch > 0 {
			fmt.Fprintf(out, " %v/%d step=%v lme=%d:%d lineage=%d", p.State, p.StateEpoch, p.StopStep, p.LMEEpoch, p.LMEOffset, len(p.Lineage))
		}
		if p.Error != "" {
			fmt.Fprintf(out, " retry=%d %q", p.RetryAttempt, p.Error)
		}
		out.WriteByte('\n')
	}
}

func show(out *bytes.Buffer, v *View) {
	fmt.Fprintf(out, "index=%d cluster=%s topics=%d partitions=%d pid=%d fences=%v features=%v\n",
		v.Index(), v.ClusterID(), v.NumTopics(), v.NumPartitions(), v.NextProducerID(), v.fences, v.Features())
	for _, b := range v.Brokers() {
		fmt.Fprintf(out, "  broker %d epoch=%d %s:%d fenced=%v shutdown=%v\n", b.ID, b.Epoch, b.Host, b.Port, b.Fenced, b.InShutdown)
	}
	for m := range v.Mirrors() {
		keys := sortedKeys(m.Configs)
		fmt.Fprintf(out, "  mirror %s %v\n", m.Name, keys)
	}
	var names []string
	for t := range v.Topics() {
		names = append(names, t.Name)
		if v.TopicByID(t.ID) != t {
			fmt.Fprintf(out, "  TOPIC %s IS NOT FOUND BY ITS ID\n", t.Name)
		}
	}
	if !slices.IsSorted(names) {
		out.WriteString("  TOPICS ARE NOT IN ORDER\n")
	}
	for t := range v.Topics() {
		topicText(out, t)
	}
}
