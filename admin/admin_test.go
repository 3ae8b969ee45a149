package admin

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
	"lockstep/internal/wire"
)

// fakeCluster is some listeners that answer by a function for each key.
type fakeCluster struct {
	t       *testing.T
	mu      sync.Mutex
	brokers []*fakeBroker
	asked   []msg.Message // requests of our own keys
}

type fakeBroker struct {
	c        *fakeCluster
	id       int32
	ln       net.Listener
	versions wire.ApiVersionsAnswer
	hide     []int16                                   // keys left out of the answer
	answer   func(req msg.Message) (msg.Message, bool) // false = close the connection
}

func newCluster(t *testing.T, brokers int) *fakeCluster {
	c := &fakeCluster{t: t}
	for i := range brokers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b := &fakeBroker{c: c, id: int32(i + 1), ln: ln, versions: wire.ApiVersionsAnswer{Unstable: true, FinalizedEpoch: 4,
			Finalized: []wire.FinalizedFeature{{Name: "mirror.sync.version", Min: 1, Max: 1}}}}
		c.brokers = append(c.brokers, b)
		var conns sync.WaitGroup
		conns.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				conns.Go(func() { b.serve(conn) })
			}
		})
		t.Cleanup(func() { ln.Close(); conns.Wait() })
	}
	return c
}

func (b *fakeBroker) serve(conn net.Conn) {
	defer conn.Close()
	for {
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		h, body, err := wire.ParseHeader(frame)
		if err != nil {
			b.c.t.Errorf("key %d version %d: %v", h.Key, h.Version, err)
			return
		}
		out := b.respond(h, body)
		if out == nil {
			return
		}
		wire.EndResponse(out, 0, 0)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (b *fakeBroker) respond(h wire.Header, body []byte) []byte {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	out := wire.BeginResponse(nil, h.Key, h.Version, h.Correlation)
	switch h.Key {
	case wire.KeyApiVersions:
		v, code := h.Version, wire.ErrNone
		if v > 4 {
			v, code = 0, wire.ErrUnsupportedVersion
		}
		at := len(out)
		out = wire.AppendApiVersions(out, v, &b.versions)
		if len(b.hide) > 0 {
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.SetVersion(v)
			if err := resp.ReadFrom(out[at:]); err != nil {
				b.c.t.Error(err)
			}
			resp.ApiKeys = slices.DeleteFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return slices.Contains(b.hide, k.ApiKey) })
			out = resp.AppendTo(out[:at])
		}
		binary.BigEndian.PutUint16(out[at:], uint16(code))
		return out
	case wire.KeyMetadata:
		resp := kmsg.NewPtrMetadataResponse()
		resp.SetVersion(h.Version)
		name := "faraway"
		resp.ClusterID, resp.ControllerID = &name, 1
		for _, o := range b.c.brokers {
			a := o.ln.Addr().(*net.TCPAddr)
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: o.id, Host: a.IP.String(), Port: int32(a.Port)})
		}
		return resp.AppendTo(out)
	}
	req := msg.NewRequest(h.Key)
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		b.c.t.Errorf("key %d: %v", h.Key, err)
		return nil
	}
	b.c.asked = append(b.c.asked, req)
	resp, ok := b.answer(req)
	if !ok {
		return nil
	}
	return resp.AppendTo(out)
}

func (c *fakeCluster) client() *Client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	a, err := New(ctx, Config{Bootstrap: []string{c.brokers[0].ln.Addr().String()}, Timeout: 5 * time.Second,
		Options: []kgo.Opt{kgo.RequestRetries(0), kgo.DialTimeout(time.Second)}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(a.Close)
	return a
}

// change changes what the brokers share with the test.
func (c *fakeCluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// requests are those of our own keys since the last call.
func (c *fakeCluster) requests() []msg.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.asked
	c.asked = nil
	return out
}

// all makes every broker answer the same way, and forgets what was asked.
func (c *fakeCluster) all(answer func(req msg.Message) (msg.Message, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = nil
	for _, b := range c.brokers {
		b.answer = answer
	}
}

func text(s string) *string { return &s }

func TestVerbsReachTheBrokerAndBringItsAnswerBack(t *testing.T) {
	c := newCluster(t, 1)
	a := c.client()
	ctx := context.Background()
	id := [16]byte{1, 2}
	bad := int16(wire.ErrTopicNotInClusterMirror)
	mirror := "m"
	for _, x := range []struct {
		name   string
		call   func() (any, error)
		asked  msg.Message
		answer msg.Message
		want   any
		err    error
	}{
		{"create", func() (any, error) { return nil, a.CreateMirror(ctx, "m", map[string]string{"b": "2", "a": "1"}) },
			&msg.CreateClusterMirrorRequest{MirrorName: "m", Config: []msg.CreateClusterMirrorRequestMirrorConfig{{Name: "a", Value: text("1")}, {Name: "b", Value: text("2")}}},
			&msg.CreateClusterMirrorResponse{ErrorCode: 138, ErrorMessage: text("mirror m exists")}, nil,
			&Error{138, "CLUSTER_MIRROR_ALREADY_EXISTS", "mirror m exists"}},
		{"delete", func() (any, error) { return nil, a.DeleteMirror(ctx, "m") }, &msg.DeleteClusterMirrorRequest{MirrorName: "m"},
			&msg.DeleteClusterMirrorResponse{}, nil, nil},
		{"add", func() (any, error) { return a.AddTopics(ctx, "m", []string{"x", "y"}, Sync) },
			&msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{{TopicName: "x", MirrorName: &mirror, MirrorType: 1}, {TopicName: "y", MirrorName: &mirror, MirrorType: 1}}},
			&msg.AddTopicsToMirrorResponse{Topics: []msg.AddTopicsToMirrorResponseTopicResult{{Name: "x"}, {Name: "y", ErrorCode: 17}}},
			[]TopicResult{{"x", nil}, {"y", &Error{17, "INVALID_TOPIC_EXCEPTION",
				strings.TrimSuffix(wire.ErrInvalidTopic.Message(), ".") + "; " + NextStep(17)}}}, nil},
		{"remove", func() (any, error) { return a.RemoveTopics(ctx, "m", []string{"x"}) },
			&msg.RemoveTopicsFromMirrorRequest{MirrorName: "m", Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: "x"}}},
			&msg.RemoveTopicsFromMirrorResponse{Topics: []msg.RemoveTopicsFromMirrorResponseTopicResult{{Name: "x", ErrorCode: bad, ErrorMessage: text("no")}}},
			[]TopicResult{{"x", &Error{bad, "TOPIC_NOT_IN_CLUSTER_MIRROR", "no"}}}, nil},
		{"alter", func() (any, error) { return a.AlterMirrorTopicType(ctx, "m", []string{"x"}, Sync) },
			&msg.AlterMirrorTopicTypeRequest{MirrorName: "m", Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: "x", MirrorType: 1}}},
			&msg.AlterMirrorTopicTypeResponse{Topics: []msg.AlterMirrorTopicTypeResponseTopicResult{{TopicName: "x"}}}, []TopicResult{{"x", nil}}, nil},
		{"register", func() (any, error) {
			return a.RegisterMirrorSyncTopics(ctx, "m", "dest", []RegisterTopic{{Topic: "x", ID: id, Recovery: true, ReleaseNumber: 9}, {Topic: "y"}})
		}, &msg.RegisterMirrorSyncTopicRequest{MirrorName: "m", DestinationClusterId: "dest", Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{
			{TopicId: id, TopicName: "x", RecoveryPromotion: true, ReleaseNumber: 9}, {TopicName: "y", ReleaseNumber: -1}}},
			&msg.RegisterMirrorSyncTopicResponse{Topics: []msg.RegisterMirrorSyncTopicResponseTopicResult{{TopicName: "x", RegistrationEpoch: 5, ReleaseNumber: -1},
				{TopicName: "y", ErrorCode: 154, ErrorMessage: text("released"), RegistrationEpoch: -1, ReleaseNumber: 8}}},
			[]RegisterResult{{"x", nil, 5, -1}, {"y", &Error{154, "MIRROR_SYNC_RELEASED_REQUIRES_FRESH_PROMOTION", "released"}, -1, 8}}, nil},
		{"unregister", func() (any, error) {
			return a.UnregisterMirrorSyncTopics(ctx, "m", "dest", []UnregisterTopic{{Topic: "x", ID: id, Epoch: 4}, {Topic: "y"}})
		}, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "m", DestinationClusterId: "dest", Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{
			{TopicId: id, TopicName: "x", RegistrationEpoch: 4}, {TopicName: "y", RegistrationEpoch: -1}}},
			&msg.UnregisterMirrorSyncTopicResponse{Topics: []msg.UnregisterMirrorSyncTopicResponseTopicResult{{TopicName: "x", CurrentEpoch: 6}}}, []UnregisterResult{{"x", nil, 6}}, nil},
		{"release", func() (any, error) { return a.ReleaseMirrorSyncTopics(ctx, "m", nil) }, &msg.UnregisterMirrorSyncTopicRequest{MirrorName: "m", Release: true},
			&msg.UnregisterMirrorSyncTopicResponse{ErrorCode: 42, ErrorMessage: text("why")}, []UnregisterResult(nil), &Error{42, "INVALID_REQUEST", "why"}},
		{"list", func() (any, error) { return a.ListMirrors(ctx) }, &msg.ListClusterMirrorsRequest{IncludeTopicNames: true},
			&msg.ListClusterMirrorsResponse{Mirrors: []msg.ListClusterMirrorsResponseClusterMirror{{MirrorName: "m", SourceBootstrap: "b:1", SourceClusterId: "s", TopicCount: 2, TopicNames: []string{"x"}}}},
			[]ListedMirror{{"m", "b:1", "s", 2, []string{"x"}}}, nil},
	} {
		c.all(func(msg.Message) (msg.Message, bool) { return x.answer, true })
		got, err := x.call()
		if !reflect.DeepEqual(err, x.err) {
			t.Errorf("%s: error %v, want %v", x.name, err, x.err)
		}
		if !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: got %+v, want %+v", x.name, got, x.want)
		}
		asked := c.requests()
		if len(asked) != 1 || string(asked[0].AppendTo(nil)) != string(x.asked.AppendTo(nil)) || reflect.TypeOf(asked[0]) != reflect.TypeOf(x.asked) {
			t.Errorf("%s: the broker was asked %+v, want %+v", x.name, asked, x.asked)
		}
	}
}

func TestErrorsAreComparedByCode(t *testing.T) {
	err := failure(int16(wire.ErrUnknownClusterMirror), text("no mirror m"))
	var typed *Error
	if !errors.Is(err, ErrUnknownMirror) || errors.Is(err, ErrMirrorExists) || !errors.As(err, &typed) || typed.Retriable() {
		t.Fatalf("%v", err)
	}
	if err.Error() != "UNKNOWN_CLUSTER_MIRROR: no mirror m" {
		t.Fatal(err)
	}
	if !failure(int16(wire.ErrMirrorRegistrationPropagating), nil).(*Error).Retriable() {
		t.Fatal("PROPAGATING is to be tried again")
	}
}

func TestNewNeedsABrokerThatAnswers(t *testing.T) {
	if _, err := New(context.Background(), Config{}); err == nil {
		t.Fatal("no bootstrap servers were accepted")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := New(ctx, Config{Bootstrap: []string{addr}}); err == nil || !strings.Contains(err.Error(), addr) {
		t.Fatalf("%v", err)
	}
}

func TestProbeTellsWhatTheLeastBrokerCan(t *testing.T) {
	c := newCluster(t, 3)
	got, err := c.client().Probe(context.Background())
	if want := (Capabilities{"faraway", 20, 14, 1}); err != nil || got != want {
		t.Fatalf("%+v %v, want %+v", got, err, want)
	}
	c.change(func() { c.brokers[1].versions.Unstable = false }) // no sync keys, Fetch 18, Produce 13
	got, err = c.client().Probe(context.Background())
	if want := (Capabilities{"faraway", wire.StableFetchMax, wire.StableProduceMax, 0}); err != nil || got != want {
		t.Fatalf("%+v %v, want %+v", got, err, want)
	}
	c.change(func() { c.brokers[1].versions.Unstable, c.brokers[2].versions.Finalized = true, nil })
	if got, err = c.client().Probe(context.Background()); err != nil || got.MirrorSync != 0 || got.FetchMax != 20 {
		t.Fatalf("%+v %v: the feature is off on broker 3", got, err)
	}
	c.brokers[2].ln.Close()
	if got, err = c.client().Probe(context.Background()); err == nil || !strings.Contains(err.Error(), "broker 3") {
		t.Fatalf("%+v %v: broker 3 is dead", got, err)
	}
}

func TestAClusterThatDoesNotKnowMirrorsIsAnError(t *testing.T) {
	c := newCluster(t, 1)
	c.brokers[0].hide = []int16{wire.KeyCreateClusterMirror, wire.KeyRegisterMirrorSyncTopic}
	a := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := a.CreateMirror(ctx, "m", nil); err == nil || ctx.Err() != nil {
		t.Fatalf("%v", err)
	}
	if got, err := a.Probe(ctx); err != nil || got.MirrorSync != 0 {
		t.Fatalf("%+v %v", got, err)
	}
}

// describing answers Describe as broker n of two would.
func describing(topics []msg.DescribeClusterMirrorsResponseDescribedTopic, regs ...msg.DescribeClusterMirrorsResponseRegistration) func(msg.Message) (msg.Message, bool) {
	return func(msg.Message) (msg.Message, bool) {
		return &msg.DescribeClusterMirrorsResponse{Mirrors: []msg.DescribeClusterMirrorsResponseDescribedMirror{{MirrorName: "m", Topics: topics}}, Registrations: regs}, true
	}
}

func TestDescribeMergesTheBrokers(t *testing.T) {
	c := newCluster(t, 3)
	part := func(i int32, leo, lag int64) msg.DescribeClusterMirrorsResponseDescribedPartition {
		return msg.DescribeClusterMirrorsResponseDescribedPartition{PartitionIndex: i, SourceOffset: leo + lag, DestinationOffset: leo, Lag: lag, StateValue: "MIRRORING", LastSourceEpoch: 3, LastContactMs: 7}
	}
	reg := msg.DescribeClusterMirrorsResponseRegistration{TopicName: "r", TopicId: [16]byte{1}, MirrorName: "x", RegistrationEpoch: 5, ReleaseNumber: -1}
	newer, unfenced := reg, reg
	newer.RegistrationEpoch, unfenced.Unfenced = 6, true
	type topic = msg.DescribeClusterMirrorsResponseDescribedTopic
	c.brokers[2].answer = describing([]topic{{TopicName: "t", Annotation: text("promotion pending: lag 4; weak"), DesiredMirrorType: 1,
		Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{part(2, 10, 4), part(3, 1, 0)}}}, newer)
	c.brokers[1].answer = describing([]topic{{TopicName: "t", Annotation: text("promotion pending: lag 2; weak; note"), DesiredMirrorType: 1,
		Partitions: []msg.DescribeClusterMirrorsResponseDescribedPartition{part(0, 20, 2), part(3, 5, 0)}}, {TopicName: "a"}}, unfenced)
	c.brokers[0].answer = func(msg.Message) (msg.Message, bool) {
		return &msg.DescribeClusterMirrorsResponse{Mirrors: []msg.DescribeClusterMirrorsResponseDescribedMirror{{MirrorName: "m", ErrorCode: 139}}}, true
	}
	a := c.client()
	d, err := a.DescribeMirrors(context.Background(), "m")
	if err != nil {
		t.Fatal(err)
	}
	p := func(i int32, leo, lag int64) DescribedPartition {
		return DescribedPartition{Partition: i, State: "MIRRORING", SourceOffset: leo + lag, DestinationOffset: leo, Lag: lag, LastSourceEpoch: 3, LastContactMS: 7}
	}
	remarks := d.Mirrors[0].Topics[1].Remarks
	slices.Sort(remarks[1:])
	want := Description{Silent: map[int32]error{},
		Mirrors: []DescribedMirror{{Name: "m", Topics: []DescribedTopic{{Topic: "a"},
			{Topic: "t", Desired: Sync, Remarks: []string{"promotion pending: lag 6", "note", "weak"}, Partitions: []DescribedPartition{p(0, 20, 2), p(2, 10, 4), p(3, 5, 0)}}}}},
		Registrations: []Registration{{Topic: "r", TopicID: [16]byte{1}, Mirror: "x", Epoch: 6, ReleaseNumber: -1, Unfenced: true}}}
	if !reflect.DeepEqual(d, want) {
		t.Fatalf("got  %+v\nwant %+v", d, want)
	}
	asked := c.requests()
	for _, req := range asked {
		if q := req.(*msg.DescribeClusterMirrorsRequest); !slices.Equal(q.MirrorNames, []string{"m"}) {
			t.Fatalf("asked for %v", q.MirrorNames)
		}
	}
	if len(asked) != 3 {
		t.Fatalf("%d brokers were asked", len(asked))
	}

	mute := func(msg.Message) (msg.Message, bool) { return nil, false }
	c.change(func() { c.brokers[1].answer = mute })
	if d, err = a.DescribeMirrors(context.Background(), "m"); err != nil || len(d.Silent) != 1 || d.Silent[2] == nil || len(d.Mirrors[0].Topics[0].Partitions) != 2 {
		t.Fatalf("%+v %v: broker 2 says nothing", d, err)
	}
	c.all(mute)
	if _, err = a.DescribeMirrors(context.Background(), "m"); err == nil {
		t.Fatal("nobody answered and that was no error")
	}
}

// TestNextSteps: a bare code of an operator's verb says what to do; a broker's
// words stand as they are, and so does what describe says of a mirror.
func TestNextSteps(t *testing.T) {
	operators := []wire.ErrorCode{wire.ErrReadOnlyTopic, wire.ErrClusterMirrorAlreadyExists, wire.ErrUnknownClusterMirror, wire.ErrTopicAlreadyInClusterMirror,
		wire.ErrTopicNotInClusterMirror, wire.ErrMirrorTopicBeingStopped, wire.ErrClusterMirrorNotEmpty, wire.ErrMirrorTopicNotStopped,
		wire.ErrInvalidClusterMirrorStates, wire.ErrMirrorSyncReleasedRequiresFreshPromotion, wire.ErrMirrorSyncVersionMismatch, wire.ErrInvalidSyncRegistration,
		wire.ErrNotController, wire.ErrRequestTimedOut, wire.ErrTopicAlreadyExists, wire.ErrUnknownTopicOrPartition}
	for _, code := range operators {
		if got := failure(int16(code), nil).Error(); NextStep(int16(code)) == "" || !strings.HasSuffix(got, "; "+NextStep(int16(code))) || strings.Contains(got, ".;") {
			t.Errorf("%v: %q", code.Name(), got)
		}
	}
	if got := failure(139, text("no mirror dr: create it first")).Error(); got != "UNKNOWN_CLUSTER_MIRROR: no mirror dr: create it first" {
		t.Errorf("a broker's words: %q", got)
	}
	for code := range nextSteps {
		if code.Name() == wire.ErrUnknownServerError.Name() && code != wire.ErrUnknownServerError {
			t.Errorf("advice on code %d, which is none", code)
		}
	}
}
