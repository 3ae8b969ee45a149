package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"lockstep/control/remote"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/internal/wire"
	"lockstep/plugins/coordinator"
	"lockstep/plugins/host"
	"lockstep/plugins/promotion"
	"lockstep/plugins/release"
	"lockstep/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuf keeps log lines.
type logBuf struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuf) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func (l *logBuf) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type partKey struct {
	id    [16]byte
	index int32
}

// fakePart is one partition of the fake data plane. It outlives the node.
type fakePart struct {
	end         int64
	latest      int32 // greatest epoch in the log
	inStep      bool
	failing     int64
	markers     []marker
	open        []status.OpenTransaction
	offline     bool
	undrained   bool
	epochBehind bool
	outOfReach  bool
	reported    time.Time // of the last counted report of every registered mirror
	leads       int32     // leader epoch the data plane has reached; 0 = the View's
}

type marker struct {
	epoch int32 // leader epoch it was appended in
	pid   bool  // the producer id reset
	base  int64
}

// fakeData is a data plane over a node's View.
type fakeData struct {
	mu      sync.Mutex
	node    *Node
	parts   map[partKey]*fakePart
	sources map[string]map[string][]status.SourceLeader
	append_ func(ctx context.Context, k partKey) error // before an append; nil = no trouble
	after   func()                                     // after an append
	lag     uint64                                     // Applied is behind by it
	answers []uint64
}

func newData() *fakeData {
	return &fakeData{parts: map[partKey]*fakePart{}, sources: map[string]map[string][]status.SourceLeader{}}
}

func (d *fakeData) part(id [16]byte, i int32) *fakePart {
	k := partKey{id, i}
	if d.parts[k] == nil {
		d.parts[k] = &fakePart{latest: -1}
	}
	return d.parts[k]
}

func (d *fakeData) set(id [16]byte, i int32, f func(*fakePart)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.part(id, i))
}

func (d *fakeData) Status(id [16]byte, i int32) (status.Partition, bool) {
	t := d.node.View().TopicByID(id)
	if t == nil {
		return status.Partition{}, false
	}
	p := t.Partitions[i]
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.part(id, i)
	s := status.Partition{Topic: t.Name, TopicID: id, Partition: i, Leader: true, LeaderEpoch: p.LeaderEpoch, End: x.end, LatestEpoch: x.latest,
		Offline: x.offline, MinISR: 1}
	if t.Mirror != nil && p.State != mirror.Stopped {
		s.Mirror = &status.Mirror{Name: t.Mirror.Mirror, InStep: x.inStep, FailingSinceMS: x.failing, EpochBehind: x.epochBehind, OutOfReach: x.outOfReach,
			MaxSourceEpoch: -1,
			Drained:        !x.undrained && p.State != mirror.Mirroring && p.State != mirror.LogTruncation}
	}
	for _, r := range t.Registrations {
		age := int64(-1)
		if !x.reported.IsZero() {
			age = time.Since(x.reported).Milliseconds()
		}
		s.Mirrors = append(s.Mirrors, status.Report{Name: r.Mirror, AgeMS: age})
	}
	if x.leads != 0 {
		s.LeaderEpoch = x.leads
	}
	if s.Mirror != nil && x.epochBehind {
		s.Mirror.MaxSourceEpoch = p.LeaderEpoch + 1
	}
	return s, true
}

func (d *fakeData) AppendControl(ctx context.Context, id [16]byte, i int32, build func() []byte) error {
	d.mu.Lock()
	before, after := d.append_, d.after
	d.mu.Unlock()
	if before != nil {
		if err := before(ctx, partKey{id, i}); err != nil {
			return err
		}
	}
	st, _ := d.Status(id, i)
	pid := wire.Batch(build()).ProducerID()
	d.mu.Lock()
	x := d.part(id, i)
	x.markers = append(x.markers, marker{epoch: st.LeaderEpoch, pid: pid < 0, base: x.end})
	x.end++
	x.latest = st.LeaderEpoch
	x.open = slices.DeleteFunc(slices.Clone(x.open), func(o status.OpenTransaction) bool { return o.ProducerID == pid })
	d.mu.Unlock()
	if after != nil {
		after()
	}
	return nil
}

func (d *fakeData) OpenTransactions(id [16]byte, i int32) []status.OpenTransaction {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.part(id, i).open
}

func (d *fakeData) RestartAt(id [16]byte, i int32, offset int64) {
	d.set(id, i, func(p *fakePart) { p.end, p.outOfReach = offset, false })
}

func (d *fakeData) SetSources(m string, topics map[string][]status.SourceLeader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sources[m] = maps.Clone(topics)
}

func (d *fakeData) Applied() uint64 { return d.node.View().Index() - d.lag }

func (d *fakeData) Answered(i uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers = append(d.answers, i)
}

// sent is one request the fake source got.
type sent struct {
	at      time.Time
	recover bool
	number  int64 // release number of a Register, epoch of an Unregister
}

// fakeSource is a source cluster.
type fakeSource struct {
	mu          sync.Mutex
	down        bool // refuses connections at once
	hole        bool // swallows everything
	epoch       int32
	topics      map[string]remote.Topic
	registers   []sent
	unregisters []sent
	onRegister  func(n int, r *msg.RegisterMirrorSyncTopicRequestTopicState) (msg.RegisterMirrorSyncTopicResponseTopicResult, error)
	onUnreg     func(n int, r *msg.UnregisterMirrorSyncTopicRequestTopicState) (msg.UnregisterMirrorSyncTopicResponseTopicResult, error)
	dials       int
	dialErr     error
	closed      int
}

var errDown = errors.New("connection refused")

func (s *fakeSource) reach(ctx context.Context) error {
	s.mu.Lock()
	down, hole := s.down, s.hole
	s.mu.Unlock()
	if hole {
		<-ctx.Done()
		return ctx.Err()
	}
	if down {
		return errDown
	}
	return nil
}

func (s *fakeSource) ClusterID(ctx context.Context) (string, error) {
	return "source-cluster", s.reach(ctx)
}

func (s *fakeSource) Topics(ctx context.Context, names []string) ([]remote.Topic, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []remote.Topic
	for _, n := range names {
		if t, ok := s.topics[n]; ok {
			t.Leaders = append([]status.SourceLeader(nil), t.Leaders...)
			for i := range t.Leaders {
				t.Leaders[i].Epoch = s.epoch
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func (s *fakeSource) EarliestOffset(ctx context.Context, _ string, _ int32) (int64, error) {
	return 5, s.reach(ctx)
}

func (s *fakeSource) Config(ctx context.Context, _, _ string) (string, error) {
	return "durable", s.reach(ctx)
}

func (s *fakeSource) Register(ctx context.Context, req *msg.RegisterMirrorSyncTopicRequest) (*msg.RegisterMirrorSyncTopicResponse, error) {
	q := &req.Topics[0]
	s.mu.Lock()
	s.registers = append(s.registers, sent{time.Now(), q.RecoveryPromotion, q.ReleaseNumber})
	n, f := len(s.registers), s.onRegister
	s.mu.Unlock()
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	r := msg.RegisterMirrorSyncTopicResponseTopicResult{RegistrationEpoch: int64(100 + n)}
	if f != nil {
		var err error
		if r, err = f(n, q); err != nil {
			return nil, err
		}
	}
	return &msg.RegisterMirrorSyncTopicResponse{Topics: []msg.RegisterMirrorSyncTopicResponseTopicResult{r}}, nil
}

func (s *fakeSource) Unregister(ctx context.Context, req *msg.UnregisterMirrorSyncTopicRequest) (*msg.UnregisterMirrorSyncTopicResponse, error) {
	q := &req.Topics[0]
	s.mu.Lock()
	s.unregisters = append(s.unregisters, sent{at: time.Now(), number: q.RegistrationEpoch})
	n, f := len(s.unregisters), s.onUnreg
	s.mu.Unlock()
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	var r msg.UnregisterMirrorSyncTopicResponseTopicResult
	if f != nil {
		var err error
		if r, err = f(n, q); err != nil {
			return nil, err
		}
	}
	return &msg.UnregisterMirrorSyncTopicResponse{Topics: []msg.UnregisterMirrorSyncTopicResponseTopicResult{r}}, nil
}

func (s *fakeSource) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

func (s *fakeSource) set(f func(*fakeSource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *fakeSource) asked() (registers, unregisters []sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.registers...), append([]sent(nil), s.unregisters...)
}

// bed is a node with its mirrors, over fakes, in a synctest bubble.
type bed struct {
	t         *testing.T
	dir       string
	data      *fakeData
	src       *fakeSource
	logs      *logBuf
	node      *Node
	mirrors   *Mirrors
	cancel    context.CancelFunc
	over      chan struct{}
	published atomic.Pointer[func(*meta.View)]
	lives     byte

	autoRelease                     time.Duration
	coordinator, promotion, release *host.Slot
	policies                        map[sdk.Kind]sdk.Plugin
}

var topicID = [16]byte{7}

const (
	topicName  = "orders"
	mirrorName = "dr"
	demoteTime = 30 * time.Second
)

// bubble runs f with a bed of a topic with so many partitions, in virtual time.
func bubble(t *testing.T, partitions int, f func(*testing.T, *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, dir: t.TempDir(), data: newData(), logs: &logBuf{}, policies: map[sdk.Kind]sdk.Plugin{},
			src: &fakeSource{epoch: 3, topics: map[string]remote.Topic{topicName: {Name: topicName, ID: topicID, Leaders: make([]status.SourceLeader, partitions)}}}}
		for i := range partitions {
			b.src.topics[topicName].Leaders[i].Addr = netip.MustParseAddrPort("127.0.0.1:9")
		}
		b.open()
		defer b.close()
		f(t, b)
	})
}

// open begins a life of the process over the same directory.
func (b *bed) open() {
	b.t.Helper()
	b.lives++
	var err error
	b.node, err = OpenNode(NodeOptions{NodeID: 1, Dir: b.dir, Log: b.logs.logger(), Published: func(v *meta.View) {
		if f := b.published.Load(); f != nil {
			(*f)(v)
		}
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.data.node = b.node
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if _, err := b.node.Join(ctx, Member{NodeID: 1, Incarnation: [16]byte{b.lives}, Host: "here", Port: 1, NewCluster: "dest-cluster",
		Features: map[string]int16{meta.FeatureMirrorSync: 1}, Applied: b.data.Applied}); err != nil {
		b.t.Fatal(err)
	}
	b.runMirrors()
}

// runMirrors starts the loops; haltMirrors ends them and leaves the node.
func (b *bed) runMirrors() {
	of := func(kind sdk.Kind, p sdk.Plugin) *host.Slot {
		if q := b.policies[kind]; q != nil {
			p = q
		}
		return host.InProcess(p)
	}
	b.coordinator, b.promotion, b.release = of(sdk.Coordinator, coordinator.Policy{}), of(sdk.Promotion, promotion.Policy{}), of(sdk.Release, release.Policy{})
	b.mirrors = NewMirrors(MirrorOptions{NodeID: 1, Node: b.node, Data: b.data, Log: b.logs.logger(), Now: time.Now, DemoteTimeout: demoteTime,
		RegisterBarrier: 10 * time.Second, AutoRelease: b.autoRelease, Coordinator: b.coordinator, Promotion: b.promotion, Release: b.release,
		Dial: func(map[string]string) (Source, error) {
			b.src.mu.Lock()
			defer b.src.mu.Unlock()
			b.src.dials++
			return b.src, b.src.dialErr
		}})
	run, cancelRun := context.WithCancel(context.Background())
	b.cancel, b.over = cancelRun, make(chan struct{})
	m, over := b.mirrors, b.over
	go func() { defer close(over); m.Run(run) }()
}

// close ends the life: what it was doing is cut.
func (b *bed) close() {
	b.t.Helper()
	b.haltMirrors()
	if err := b.node.Close(); err != nil {
		b.t.Error(err)
	}
}

func (b *bed) haltMirrors() {
	b.cancel()
	<-b.over
}

// mirror makes the mirror and adds the topic to it.
func (b *bed) mirror(sync bool) {
	b.t.Helper()
	if o := b.mirrors.Create(b.t.Context(), mirrorName, map[string]string{"bootstrap.servers": "far:1"}); o.Code != 0 {
		b.t.Fatal(o)
	}
	x := AddTopic{Name: topicName, Mirror: mirrorName}
	if sync {
		x.Type = 1
	}
	if o := b.mirrors.AddTopics(b.t.Context(), []AddTopic{x}); o[0].Code != 0 {
		b.t.Fatal(o)
	}
}

func (b *bed) topic() *meta.Topic { return b.node.View().TopicByID(topicID) }

func (b *bed) partitions() int32 { return int32(len(b.src.topics[topicName].Leaders)) }

func (b *bed) each(f func(*fakePart)) {
	for i := range b.partitions() {
		b.data.set(topicID, i, f)
	}
}

// until waits in virtual time.
func (b *bed) until(what string, limit time.Duration, cond func() bool) time.Duration {
	b.t.Helper()
	start := time.Now()
	for time.Since(start) <= limit {
		if cond() {
			return time.Since(start)
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.t.Fatalf("not %s within %v; %s\n%s", what, limit, b.dump(), b.tail())
	return 0
}

func (b *bed) dump() string {
	t := b.topic()
	if t == nil || t.Mirror == nil {
		return fmt.Sprint(t)
	}
	s := fmt.Sprintf("desired %v promotion %+v", t.Mirror.Desired, t.Mirror.Promotion)
	for i, p := range t.Partitions {
		s += fmt.Sprintf(" %d:%v/%v epoch %d", i, p.State, p.StopStep, p.LeaderEpoch)
	}
	return s
}

func (b *bed) tail() string {
	b.logs.mu.Lock()
	defer b.logs.mu.Unlock()
	s := b.logs.b.String()
	return s[max(0, len(s)-3000):]
}

func (b *bed) phase() mirror.Phase { return b.topic().Mirror.Phase }

func (b *bed) inPhase(p mirror.Phase) func() bool {
	return func() bool { return b.phase() == p }
}

func (b *bed) allIn(s mirror.PartitionState) func() bool {
	return func() bool {
		t := b.topic()
		for _, p := range t.Partitions {
			if p.State != s {
				return false
			}
		}
		return true
	}
}

// sync brings the topic into SYNC.
func (b *bed) sync() {
	b.t.Helper()
	b.mirror(true)
	b.until("MIRRORING", 20*time.Second, b.allIn(mirror.Mirroring))
	b.each(func(p *fakePart) { p.inStep, p.end, p.latest = true, 10, 3 })
	b.until("SYNC", 20*time.Second, b.inPhase(mirror.InSync))
}

func (b *bed) stop() {
	b.t.Helper()
	if o := b.mirrors.RemoveTopics(b.t.Context(), mirrorName, []string{topicName}); o[0].Code != 0 {
		b.t.Fatal(o)
	}
}

func (b *bed) alter(typ int8) {
	b.t.Helper()
	if o := b.mirrors.AlterType(b.t.Context(), mirrorName, []AlterTopic{{Name: topicName, Type: typ}}); o[0].Code != 0 {
		b.t.Fatal(o)
	}
}

func (b *bed) must(cmd meta.Message) meta.Result {
	b.t.Helper()
	res, err := b.node.Propose(b.t.Context(), cmd)
	if err != nil || res.ErrorCode != 0 {
		b.t.Fatal(res, err)
	}
	for _, it := range res.Items {
		if it.ErrorCode != 0 {
			b.t.Fatal(it.ErrorCode, text(it.ErrorMessage))
		}
	}
	return res
}
