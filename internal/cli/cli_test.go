package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"lockstep/internal/msg"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (-rewrite takes it over):\n%s", file, got)
	}
}

func TestPatterns(t *testing.T) {
	all := []string{"orders", "orders-eu", "payments", "a.b", "axb"}
	for list, want := range map[string][]string{
		"orders":             {"orders"},
		"orders-.*":          {"orders-eu"},
		" orders , pay.* ":   {"orders", "payments"},
		".*":                 {"a.b", "axb", "orders", "orders-eu", "payments"},
		"o|p":                nil, // anchored as a whole
		"orders|payments":    {"orders", "payments"},
		`a\.b`:               {"a.b"},
		"orders,orders,or.*": {"orders", "orders-eu"},
	} {
		if got := patterns(t, list).Filter(all); !slices.Equal(got, want) {
			t.Errorf("%q chose %v, want %v", list, got, want)
		}
	}
	for _, bad := range []string{"", ",", "a(", strings.Repeat("a,", maxPatterns+1)} {
		if _, err := ParsePatterns(bad); err == nil {
			t.Errorf("%.20q was accepted", bad)
		}
	}
	if names, ok := patterns(t, "orders,a.b").Literals(); !ok || len(names) != 2 {
		t.Error("plain names were not taken as such")
	}
	if _, ok := patterns(t, "orders,pay.*").Literals(); ok {
		t.Error("a pattern was taken for a name")
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		err  error
		ran  bool
		code int
		text string
	}{
		{nil, true, 0, ""},
		{errors.New("boom"), true, ExitFailed, "x: boom\n"},
		{errors.New("unknown flag: --y"), false, ExitUsage, "x: unknown flag: --y; see --help\n"},
		{Usage("give %s", "it"), true, ExitUsage, "x: give it; see --help\n"},
		{Fail("listing", context.DeadlineExceeded, "look"), true, ExitFailed, "x: listing: no answer in time; look\n"},
		{Fail("topic a", error(kerr.UnknownTopicOrPartition), ""), true, ExitFailed, "x: topic a: UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition\n"},
		{&Error{What: "unhealthy", Code: ExitUnhealthy}, true, ExitUnhealthy, "x: unhealthy\n"},
		{&Error{Code: ExitFailed}, true, ExitFailed, ""},
		{fmt.Errorf("wrapped: %w", Usage("u")), true, ExitUsage, "x: wrapped: u; see --help\n"},
	} {
		var b bytes.Buffer
		if code := Report(&b, "x", c.err, c.ran); code != c.code || b.String() != c.text {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.err, code, b.String(), c.code, c.text)
		}
	}
}

func TestCommandConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.properties")
	for _, c := range []struct{ text, flag, want, fails string }{
		{"bootstrap.servers=a:1,b:2\nrequest.timeout.ms=1500\nclient.id=me", "", "[a:1 b:2] me 1.5s", ""},
		{"bootstrap.servers=a:1", "c:3", "[c:3] lockstep-cli 30s", ""},
		{"security.protocol=SASL_SSL", "c:3", "", "only PLAINTEXT"},
		{"sasl.mechanism=PLAIN", "c:3", "", "sasl.mechanism: not known here"},
		{"request.timeout.ms=soon", "c:3", "", "not a number of milliseconds"},
		{"client.id=x", "", "", "no broker is named"},
		{"", "host", "", "not HOST:PORT"},
		{"", "host:99999", "", "not HOST:PORT"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Bootstrap: c.flag, CommandConfig: file}
		got, err := o.resolve()
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q: error %v, want %q", c.text, err, c.fails)
			}
		} else if text := fmt.Sprint(got.bootstrap, " ", got.id, " ", got.timeout); err != nil || text != c.want {
			t.Errorf("%q: %s, err %v; want %s", c.text, text, err, c.want)
		}
	}
}

// pair is a destination with one mirror, and its source.
func pair(t *testing.T) (dst, src *fake) {
	dst, src = newFake(t), newFake(t)
	src.topics = []string{"orders", "orders-eu", "payments"}
	dst.mirrors = []msg.ListClusterMirrorsResponseClusterMirror{{MirrorName: "dr", SourceBootstrap: src.addr, SourceClusterId: "SRC", TopicCount: 2, TopicNames: []string{"orders", "payments"}}}
	return dst, src
}

func TestAddSync(t *testing.T) {
	dst, _ := pair(t)
	remark := "weak destination: min.insync.replicas=1"
	dst.describe = func() msg.DescribeClusterMirrorsResponse {
		return msg.DescribeClusterMirrorsResponse{Mirrors: []msg.DescribeClusterMirrorsResponseDescribedMirror{{MirrorName: "dr",
			Topics: []msg.DescribeClusterMirrorsResponseDescribedTopic{{TopicName: "orders", Annotation: &remark, Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{{}}}}}}}
	}
	d := at(t, dst, false)
	if err := d.Add(context.Background(), "dr", patterns(t, "orders.*"), true); err != nil {
		t.Fatal(err)
	}
	if got, want := d.out.String(), "Added 2 mirror topic(s) to mirror dr: [orders, orders-eu]\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if got, want := d.err.String(), "WARNING: orders: "+remark+"\n"; got != want {
		t.Errorf("remarked %q, want %q", got, want)
	}
	req, ok := dst.requests()[0].(*msg.AddTopicsToMirrorRequest)
	if !ok || len(req.Topics) != 2 || *req.Topics[0].MirrorName != "dr" || req.Topics[0].MirrorType != 1 {
		t.Errorf("asked %+v", req)
	}
}

// TestIncompatibleSource: nothing is sent, the error names what is missing.
func TestIncompatibleSource(t *testing.T) {
	for _, c := range []struct {
		unstable bool
		feature  int16
		want     string
	}{
		{false, 1, "Fetch up to version 18"},
		{true, 0, "mirror.sync.version is 0"},
	} {
		dst, src := pair(t)
		src.unstable, src.feature = c.unstable, c.feature
		d := at(t, dst, false)
		for name, verb := range map[string]func(context.Context, string, Patterns, bool) error{"add": d.Add, "alter": d.Alter} {
			err := verb(context.Background(), "dr", patterns(t, "orders"), true)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "does not support SYNC") {
				t.Errorf("%s: error %v, want %q", name, err, c.want)
			}
			if code := Report(new(bytes.Buffer), "x", err, true); code != 1 {
				t.Errorf("%s: exit %d", name, code)
			}
		}
		if n := len(dst.requests()); n != 0 {
			t.Errorf("%d changes were sent", n)
		}
		if err := d.Add(context.Background(), "dr", patterns(t, "orders"), false); err != nil {
			t.Errorf("ASYNC was refused: %v", err)
		}
	}
}

// TestUnreachableSource: a warning, and on it goes; patterns cannot be resolved.
func TestUnreachableSource(t *testing.T) {
	dst, _ := pair(t)
	dst.mirrors[0].SourceBootstrap = "127.0.0.1:1"
	d := at(t, dst, false)
	if err := d.Add(context.Background(), "dr", patterns(t, "orders"), true); err != nil {
		t.Fatal(err)
	}
	if got := d.err.String(); !strings.Contains(got, "WARNING: the source of mirror dr at 127.0.0.1:1 does not answer") {
		t.Errorf("remarked %q", got)
	}
	if n := len(dst.requests()); n != 1 {
		t.Errorf("%d changes were sent, want 1", n)
	}
	if err := d.Add(context.Background(), "dr", patterns(t, "ord.*"), false); err == nil {
		t.Error("a pattern was resolved without the source")
	}
	if n := len(dst.requests()); n != 1 {
		t.Errorf("%d changes were sent, want 1", n)
	}
}

func TestRefusals(t *testing.T) {
	dst, _ := pair(t)
	d := at(t, dst, true)
	dst.refuse["payments"] = 140
	err := d.Add(context.Background(), "dr", patterns(t, "orders,payments"), false)
	if err == nil || !strings.Contains(err.Error(), "1 of 2 topics") || !strings.Contains(d.err.String(), "payments: TOPIC_ALREADY_IN_CLUSTER_MIRROR") {
		t.Errorf("error %v, remarks %q", err, d.err)
	}
	var doc struct {
		Topics []struct{ Topic, Error string }
	}
	if err := json.Unmarshal(d.out.Bytes(), &doc); err != nil || len(doc.Topics) != 2 || doc.Topics[1].Error == "" {
		t.Errorf("wrote %s, err %v", d.out, err)
	}
	for name, err := range map[string]error{
		"no such mirror": d.Add(context.Background(), "other", patterns(t, "orders"), false),
		"no such topic":  d.Add(context.Background(), "dr", patterns(t, "nothing.*"), false),
		"not mirrored":   d.Stop(context.Background(), "dr", patterns(t, "orders-eu"), 0),
		"no bootstrap":   d.CreateWith(context.Background(), "new", map[string]string{"a": "b"}),
	} {
		if err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: error %v, want one that says what to do", name, err)
		}
	}
	if n := len(dst.requests()); n != 1 {
		t.Errorf("%d changes were sent, want the first alone", n)
	}
}

func TestReleaseSync(t *testing.T) {
	f := newFake(t)
	f.describe = func() msg.DescribeClusterMirrorsResponse {
		return msg.DescribeClusterMirrorsResponse{Registrations: []msg.DescribeClusterMirrorsResponseRegistration{
			{MirrorName: "dr", TopicName: "orders", TopicId: [16]byte{1}}, {MirrorName: "dr", TopicName: "done", TopicId: [16]byte{2}, Released: true},
			{MirrorName: "dr", TopicName: "payments", TopicId: [16]byte{3}}, {MirrorName: "other", TopicName: "orders", TopicId: [16]byte{1}}}}
	}
	d := at(t, f, false)
	none := patterns(t, "xyz")
	if err := d.ReleaseSync(context.Background(), "dr", &none); err == nil || !strings.Contains(err.Error(), "xyz fits none of [orders, payments]") {
		t.Errorf("error %v", err)
	}
	if err := d.ReleaseSync(context.Background(), "unknown", nil); err == nil {
		t.Error("a mirror without registrations was released")
	}
	if n := len(f.requests()); n != 0 {
		t.Fatalf("%d changes were sent", n)
	}
	if err := d.ReleaseSync(context.Background(), "dr", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := d.out.String(), "Released 2 sync registration(s) of mirror dr: [orders, payments]\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	req := f.requests()[0].(*msg.UnregisterMirrorSyncTopicRequest)
	if !req.Release || len(req.Topics) != 2 {
		t.Errorf("asked %+v", req)
	}
}

func describedPair(t *testing.T) *fake {
	dst, _ := pair(t)
	why, remark := strings.Repeat("the source closed the connection ", 4), "failed over: writable here"
	part := func(i int32, state string, src, end int64, epoch int32) msg.DescribeClusterMirrorsResponseDescribedPartition {
		return msg.DescribeClusterMirrorsResponseDescribedPartition{PartitionIndex: i, StateValue: state, SourceOffset: src, DestinationOffset: end,
			Lag: max(-1, src-end), LastSourceEpoch: epoch, LastContactMs: 997_000}
	}
	failed := part(1, "FAILED", -1, 7, 2)
	failed.Lag, failed.ErrorMessage, failed.RetryAttempt, failed.LastContactMs = -1, &why, -1, -1
	dst.describe = func() msg.DescribeClusterMirrorsResponse {
		return msg.DescribeClusterMirrorsResponse{
			Mirrors: []msg.DescribeClusterMirrorsResponseDescribedMirror{
				{MirrorName: "dr", Topics: []msg.DescribeClusterMirrorsResponseDescribedTopic{
					{TopicName: "orders", DesiredMirrorType: 1, EffectiveMirrorType: 1, RegistrationEpoch: 12, FlushAck: "appended",
						Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{part(0, "MIRRORING", 100, 98, 3), failed}},
					{TopicName: "payments", Annotation: &remark, RegistrationEpoch: -1, Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{part(0, "STOPPED", 5, 5, 1)}}}},
				{MirrorName: "dr2", Topics: []msg.DescribeClusterMirrorsResponseDescribedTopic{
					{TopicName: "orders", RegistrationEpoch: -1, Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{part(0, "MIRRORING", 100, 99, 3)}}}}},
			Registrations: []msg.DescribeClusterMirrorsResponseRegistration{{MirrorName: "back", TopicName: "payments", DestinationClusterId: "DST", RegistrationEpoch: 44, Unfenced: true, ReleaseNumber: -1}}}
	}
	return dst
}

// TestOutputs: layouts that scripts read.
func TestOutputs(t *testing.T) {
	f := describedPair(t)
	empty := newFake(t)
	var all strings.Builder
	show := func(name string, f *fake, json bool, verb func(desk) error) {
		d := at(t, f, json)
		if err := verb(d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fmt.Fprintf(&all, "== %s\n%s", name, strings.ReplaceAll(d.out.String(), f.addr, "ADDR"))
	}
	describe := func(v View) func(desk) error {
		return func(d desk) error { return d.Describe(context.Background(), nil, nil, v) }
	}
	list := func(d desk) error { return d.List(context.Background()) }
	f.mirrors[0].SourceBootstrap = "source-1:9092,source-2:9092"
	show("list", f, false, list)
	show("list --json", f, true, list)
	show("list, none", empty, false, list)
	show("list --json, none", empty, true, list)
	show("describe", f, false, describe(ViewKIP))
	show("describe --json", f, true, describe(ViewKIP))
	show("describe, none", empty, false, describe(ViewKIP))
	show("describe --json, none", empty, true, describe(ViewKIP))
	show("describe --failed", f, false, describe(ViewFailed))
	show("describe --failed, none", empty, false, describe(ViewFailed))
	show("lockstep mirrors describe", f, false, describe(ViewFull))
	show("lockstep mirrors describe --json", f, true, describe(ViewFull))
	golden(t, "outputs.txt", all.String())
}

// TestStop waits through the states and says them.
func TestStop(t *testing.T) {
	dst, _ := pair(t)
	states := []string{"MIRRORING", "STOPPING", "STOPPING", "STOPPED"}
	n := 0
	dst.describe = func() msg.DescribeClusterMirrorsResponse {
		s := states[min(n, len(states)-1)]
		n++
		return msg.DescribeClusterMirrorsResponse{Mirrors: []msg.DescribeClusterMirrorsResponseDescribedMirror{{MirrorName: "dr", Topics: []msg.DescribeClusterMirrorsResponseDescribedTopic{
			{TopicName: "orders", Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{{StateValue: s, LostAckedRecords: n == 1}}},
			{TopicName: "payments", Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{{StateValue: "MIRRORING"}}}}}}}
	}
	d := at(t, dst, false)
	if err := d.Stop(context.Background(), "dr", patterns(t, "orders"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, want := d.out.String(), "Stopped mirroring for topics [orders] in mirror dr\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	want := "WARNING: orders-0: this destination has lost acknowledged records; another destination may have them\norders-0: STOPPING\norders-0: STOPPED\n"
	if got := d.err.String(); got != want {
		t.Errorf("remarked %q, want %q", got, want)
	}
	d = at(t, dst, false)
	if err := d.Stop(context.Background(), "dr", patterns(t, "orders"), 0); err != nil || d.out.String() != "Stopping mirroring for topics [orders] in mirror dr\n" {
		t.Errorf("without a wait: %q, err %v", d.out, err)
	}
	d = at(t, dst, false)
	now := int64(0)
	d.Now = func() time.Time { now++; return time.Unix(now, 0) }
	if err := d.Stop(context.Background(), "dr", patterns(t, "payments"), 2*time.Second); err == nil || !strings.Contains(err.Error(), "1 of 1 partitions are not STOPPED") {
		t.Errorf("a stop that does not come about: %v", err)
	}
}
