package meta

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

func seed(t testing.TB) int64 {
	s := time.Now().UnixNano()
	if env := os.Getenv("LOCKSTEP_SEED"); env != "" {
		var err error
		if s, err = strconv.ParseInt(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LOCKSTEP_SEED=%d", s)
	return s
}

// randomizer makes commands that are plausible against a View: names and ids
// that exist, epochs that mostly match.
type randomizer struct {
	*rand.Rand
	v *View
}

func commands() (all []Message) {
	for _, m := range msg.All() {
		if strings.HasSuffix(reflect.TypeOf(m).Elem().Name(), "Command") {
			all = append(all, m)
		}
	}
	return all
}

func (r *randomizer) command(all []Message) Message {
	kind := all[r.Intn(len(all))]
	switch kind.(type) {
	case *msg.FenceBrokerCommand, *msg.UnregisterBrokerCommand, *msg.ControlledShutdownCommand, *msg.RegisterBrokerCommand,
		*msg.DeleteTopicsCommand, *msg.DeleteMirrorCommand, *msg.AddTopicsToMirrorCommand, *msg.ReleaseSyncCommand:
		if r.Intn(8) > 0 { // a cluster that is always being torn down has no history
			return r.command(all)
		}
	}
	m := reflect.New(reflect.TypeOf(kind).Elem())
	r.fill(m.Elem(), "")
	r.match(m.Elem(), 1+int32(r.Intn(3)))
	if r.Intn(10) > 0 {
		r.sensible(m.Interface().(Message))
	}
	return m.Interface().(Message)
}

// sensible makes the commands legal that hardly ever are by chance.
func (r *randomizer) sensible(m Message) {
	name := []string{"a", "b", "c"}[r.Intn(3)]
	t := r.v.TopicByName(name)
	in := smallNames[3+r.Intn(2)]
	if t != nil && t.Mirror != nil {
		in = t.Mirror.Mirror
	}
	switch c := m.(type) {
	case *msg.CreateTopicsCommand:
		c.Topics = c.Topics[:1]
		c.Topics[0].Name, c.Topics[0].ReplicationFactor, c.Topics[0].NumPartitions = name, int16(1+r.Intn(3)), int32(1+r.Intn(3))
		r.Read(c.Topics[0].TopicId[:])
		if r.Intn(2) == 0 {
			c.Topics[0].Assignments = nil
		}
	case *msg.DeleteTopicsCommand:
		c.Topics = []msg.DeleteTopicsCommandTopic{{Name: name}}
	case *msg.CreatePartitionsCommand:
		if t != nil {
			c.Topics = []msg.CreatePartitionsCommandTopic{{Name: name, Count: int32(len(t.Partitions) + r.Intn(2)), Override: r.Intn(2) == 0}}
		}
	case *msg.CreateMirrorCommand:
		c.Configs = []msg.CreateMirrorCommandConfig{{Name: "bootstrap.servers", Value: "h:1"}, {Name: "mirror.source.cluster.id", Value: in}}
	case *msg.AddTopicsToMirrorCommand:
		c.Mirror, c.Topics = in, c.Topics[:1]
		c.Topics[0].Name, c.Topics[0].NumPartitions, c.Topics[0].MirrorType = name, 2, int8(r.Intn(2))
		c.Topics[0].ReplicationFactor = 1
		if t != nil {
			c.Topics[0].TopicId, c.Topics[0].NumPartitions = t.ID, int32(len(t.Partitions)+r.Intn(2))
		} else {
			r.Read(c.Topics[0].TopicId[:])
		}
	case *msg.ElectLeadersCommand:
		c.ElectionType, c.Partitions = int8(r.Intn(2)), nil
	case *msg.StopMirrorTopicsCommand:
		c.Mirror, c.Topics = in, []string{name}
	case *msg.PauseMirrorTopicsCommand:
		c.Mirror, c.Topics = in, []string{name}
	case *msg.ResumeMirrorTopicsCommand:
		c.Mirror, c.Topics = in, []string{name}
	case *msg.AlterMirrorTopicTypeCommand:
		c.Mirror, c.Topics = in, []msg.AlterMirrorTopicTypeCommandTopic{{Name: name, MirrorType: int8(r.Intn(2))}}
	}
}

var smallNames = []string{"a", "b", "c", "m", "n"}

func (r *randomizer) topicID() (id UUID) {
	if t := r.v.TopicByName(smallNames[r.Intn(3)]); t != nil && r.Intn(10) > 0 {
		return t.ID
	}
	id[0] = byte(r.Intn(4))
	return id
}

func (r *randomizer) text(field string) string {
	switch {
	case field == "Mirror":
		return smallNames[3+r.Intn(2)]
	case strings.Contains(field, "ClusterId"):
		return []string{"X", "Y"}[r.Intn(2)]
	case field == "Value":
		return []string{"1", "2", "true", "X", "a:1,b:2"}[r.Intn(5)]
	}
	return smallNames[r.Intn(3)]
}

func (r *randomizer) fill(to reflect.Value, field string) {
	switch to.Kind() {
	case reflect.Struct:
		for i := range to.NumField() {
			name := to.Type().Field(i).Name
			if name != "Version" && name != "UnknownTags" {
				r.fill(to.Field(i), name)
			}
		}
	case reflect.Pointer:
		if r.Intn(4) > 0 {
			to.Set(reflect.New(to.Type().Elem()))
			r.fill(to.Elem(), field)
		}
	case reflect.Slice:
		n := r.Intn(3)
		if field == "Topics" || field == "Partitions" || field == "Replicas" {
			n++
		}
		to.Set(reflect.MakeSlice(to.Type(), n, n))
		for i := range n {
			r.fill(to.Index(i), field)
		}
	case reflect.Array:
		to.Set(reflect.ValueOf(r.topicID()))
	case reflect.String:
		to.SetString(r.text(field))
	case reflect.Bool:
		to.SetBool(r.Intn(4) == 0)
	default:
		to.SetInt(int64(r.Intn(4)))
	}
}

// match makes most epochs the current ones, and the numbers legal.
func (r *randomizer) match(m reflect.Value, broker int32) int32 {
	set := func(name string, value int64) {
		if f := m.FieldByName(name); f.IsValid() && f.CanInt() && r.Intn(10) > 0 {
			f.SetInt(value)
		}
	}
	set("Fence", -1)
	if id := m.FieldByName("TopicId"); id.IsValid() {
		if t := r.v.TopicByID(id.Interface().(UUID)); t != nil {
			i := r.Intn(len(t.Partitions))
			p := t.Partitions[i]
			set("Partition", int64(i))
			set("LeaderEpoch", int64(p.LeaderEpoch))
			set("PartitionEpoch", int64(p.PartitionEpoch))
			set("StateEpoch", int64(p.StateEpoch))
			if t.Mirror != nil {
				set("ExpectedPhase", int64(t.Mirror.Phase))
				set("Event", []int64{2, 4, 4, 5, 6, 9, 12}[r.Intn(7)])
				var next []int64 // states that may follow, a stop's most of all
				for _, s := range mirror.PartitionStates {
					if mirror.Allowed(p.State, s) {
						next = append(next, int64(s))
					}
				}
				set("State", next[r.Intn(len(next))])
				if t.Mirror.Desired == mirror.Stopped {
					set("State", int64(max(mirror.Stopping, min(p.State+1, mirror.Stopped))))
				}
			}
			if m.FieldByName("LeaderEpoch").IsValid() {
				broker = p.Leader
			}
			if isr := m.FieldByName("ISR"); isr.IsValid() {
				keep := slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return id != p.Leader && r.Intn(2) == 0 })
				isr.Set(reflect.ValueOf(keep))
			}
		}
	}
	if set := m.FieldByName("Replicas"); set.IsValid() {
		set.Set(reflect.ValueOf([][]int32{{1}, {1, 2}, {2, 3, 1}, {3, 2}}[r.Intn(4)]))
	}
	for i := range m.NumField() {
		if f := m.Field(i); f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct {
			for k := range f.Len() {
				broker = r.match(f.Index(k), broker)
			}
		}
	}
	set("BrokerId", int64(broker))
	if b := r.v.Broker(broker); b != nil {
		set("BrokerEpoch", b.Epoch)
	}
	return broker
}

// prepared is a cluster of three brokers and two mirrors.
func prepared(t testing.TB) *View {
	v := Empty()
	do := func(m Message) {
		var res Result
		if v, res = Apply(v, v.index+1, Encode(m)); res.ErrorCode != 0 {
			t.Fatal(*res.ErrorMessage)
		}
	}
	do(&msg.BootstrapCommand{ClusterId: "me", Features: []msg.BootstrapCommandFeatureLevel{{Name: FeatureMirrorSync, Level: 1}}})
	for id := int32(1); id <= 3; id++ {
		do(&msg.RegisterBrokerCommand{BrokerId: id, IncarnationId: UUID{byte(id)}, Host: "h", Port: 9092})
		do(&msg.UnfenceBrokerCommand{BrokerId: id, BrokerEpoch: int64(v.index)})
	}
	for _, name := range []string{"m", "n"} {
		do(&msg.CreateMirrorCommand{Mirror: name, Configs: []msg.CreateMirrorCommandConfig{
			{Name: "bootstrap.servers", Value: "h:1"}, {Name: "mirror.source.cluster.id", Value: name}}})
	}
	return v
}

// TestRandomCommands plays the same random commands on two replicas, one of
// which restarts from snapshots, and checks the laws of a View after each.
func TestRandomCommands(t *testing.T) {
	r := &randomizer{Rand: rand.New(rand.NewSource(seed(t)))}
	all := commands()
	a := prepared(t)
	b, err := ReadSnapshot(AppendSnapshot(nil, a))
	if err != nil {
		t.Fatal(err)
	}
	tried, done := map[string]int{}, map[string]int{}
	const rounds = 30_000
	for n := range rounds {
		r.v = a
		m := r.command(all)
		name := reflect.TypeOf(m).Elem().Name()
		cmd := Encode(m)
		index := a.index + 1 + uint64(r.Intn(2))
		before := AppendSnapshot(nil, a)
		next, res := Apply(a, index, cmd)
		if n%20 == 0 && !bytes.Equal(before, AppendSnapshot(nil, a)) {
			t.Fatalf("round %d: %s changed the View it was applied to", n, name)
		}
		other, res2 := Apply(b, index, cmd)
		if !reflect.DeepEqual(res, res2) {
			t.Fatalf("round %d: %s answers %v and %v", n, name, res, res2)
		}
		tried[name]++
		if res.ErrorCode == 0 && (len(res.Items) == 0 || slices.ContainsFunc(res.Items, func(i ResultItem) bool { return i.ErrorCode == 0 })) {
			done[name]++
		}
		checkLaws(t, a, next, fmt.Sprintf("round %d: %s %+v", n, name, m))
		if a, b = next, other; n%100 == 0 {
			bytesA, bytesB := AppendSnapshot(nil, a), AppendSnapshot(nil, b)
			if !bytes.Equal(bytesA, bytesB) {
				t.Fatalf("round %d: replicas differ", n)
			}
			if b, err = ReadSnapshot(bytesB); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range all {
		name := reflect.TypeOf(m).Elem().Name()
		t.Logf("%-32s %5d of %5d", name, done[name], tried[name])
		if done[name] == 0 && name != "BootstrapCommand" {
			t.Errorf("%s never succeeded: its paths are not tested", name)
		}
	}
}

func checkLaws(t *testing.T, old, v *View, what string) {
	partitions := 0
	for topic := range v.Topics() {
		partitions += len(topic.Partitions)
		if v.TopicByID(topic.ID) != topic {
			t.Fatalf("%s: topic %s is not found by its id", what, topic.Name)
		}
		was := old.TopicByID(topic.ID)
		if was != topic && topic.Index != v.index {
			t.Fatalf("%s: topic %s has changed, but not its index", what, topic.Name)
		}
		for i, p := range topic.Partitions {
			var before *Partition
			if was != nil && i < len(was.Partitions) {
				before = was.Partitions[i]
			}
			if law := partitionLaw(v, p, before); law != "" {
				t.Fatalf("%s: %s-%d: %s\n%+v\n%+v", what, topic.Name, i, law, before, p)
			}
		}
		if m := topic.Mirror; m != nil {
			if (m.Phase == mirror.InSync) != (m.RegistrationEpoch > 0) {
				t.Fatalf("%s: %s: %+v", what, topic.Name, m)
			}
			if topic.Gated() && !topic.fullyStopped() {
				t.Fatalf("%s: %s gates while it is mirrored", what, topic.Name)
			}
		}
	}
	if partitions != v.NumPartitions() {
		t.Fatalf("%s: %d partitions counted, %d there", what, v.NumPartitions(), partitions)
	}
}

func partitionLaw(v *View, p, before *Partition) string {
	in := func(set []int32, id int32) bool { return slices.Contains(set, id) }
	for _, id := range slices.Concat(p.ISR, p.ELR) {
		if !in(p.Replicas, id) {
			return "ISR and ELR are replicas"
		}
	}
	for _, id := range p.ELR {
		if in(p.ISR, id) {
			return "ISR and ELR are disjoint"
		}
	}
	if p.Leader >= 0 && (!in(p.ISR, p.Leader) || v.Broker(p.Leader) == nil || v.Broker(p.Leader).Fenced) {
		return "a leader is in sync and not fenced"
	}
	if before == nil || before == p {
		return ""
	}
	if p.LeaderEpoch < before.LeaderEpoch || p.PartitionEpoch < before.PartitionEpoch || p.StateEpoch < before.StateEpoch {
		return "EpochNeverFalls"
	}
	if p.Leader != before.Leader && p.LeaderEpoch == before.LeaderEpoch {
		return "OneLeaderPerEpoch"
	}
	changed := p.Leader != before.Leader || !slices.Equal(p.ISR, before.ISR) || !slices.Equal(p.ELR, before.ELR)
	if changed && p.PartitionEpoch == before.PartitionEpoch {
		return "a change of the ISR raises the partition epoch"
	}
	oneStep := p.StateEpoch == before.StateEpoch+1 // a command may hold several deltas of one partition
	if oneStep && !mirror.Allowed(before.State, p.State) && p.State != mirror.Unknown {
		return "mirror states move by the machine"
	}
	return ""
}

// TestDiffOverSeveral compares the change lists of up to twenty commands with a
// full scan.
func TestDiffOverSeveral(t *testing.T) {
	r := &randomizer{Rand: rand.New(rand.NewSource(seed(t)))}
	all := commands()
	v := prepared(t)
	short, long := 0, 0
	for range 300 {
		old := v
		n := 1 + r.Intn(20)
		for range n {
			r.v = v
			v, _ = Apply(v, v.index+1, Encode(r.command(all)))
		}
		if _, ok := diffRecent(old, v); ok != (n <= recentChanges) {
			t.Fatalf("%d commands: change lists reach: %v", n, ok)
		} else if ok {
			short++
		} else {
			long++
		}
		got, want := Diff(old, v), Diff(old, withoutRecent(v))
		name := func(c TopicChange) string {
			if c.New != nil {
				return c.New.Name
			}
			return c.Old.Name
		}
		slices.SortFunc(got.Topics, func(a, b TopicChange) int { return strings.Compare(name(a), name(b)) })
		if !slices.Equal(got.Topics, want.Topics) || want.Brokers && !got.Brokers || want.Features && !got.Features {
			t.Fatalf("change lists %+v, scan %+v", got, want)
		}
	}
	if short == 0 || long == 0 {
		t.Fatalf("%d short, %d long", short, long)
	}
}

// TestTruncatedCommands cuts every command at every byte.
func TestTruncatedCommands(t *testing.T) {
	r := &randomizer{Rand: rand.New(rand.NewSource(seed(t)))}
	v := prepared(t)
	for _, m := range commands() {
		r.v = v
		r.fill(reflect.ValueOf(m).Elem(), "")
		cmd := Encode(m)
		for n := range cmd {
			next, res := Apply(v, v.index+1, cmd[:n])
			if res.ErrorCode == 0 || next.index != v.index+1 || len(Diff(v, next).Topics) > 0 {
				t.Fatalf("%T cut to %d bytes: %+v", m, n, res)
			}
		}
	}
	for _, cmd := range [][]byte{nil, {0}, {0xe8, 7, 9}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, make([]byte, MaxCommandBytes+1)} {
		if _, res := Apply(v, v.index+1, cmd); res.ErrorCode == 0 {
			t.Fatalf("%d bytes of nothing are a command", len(cmd))
		}
	}
}
