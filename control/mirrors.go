package control

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"lockstep/control/remote"
	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/internal/status"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
)

// Data is the data plane as the mirrors need it.
type Data interface {
	Status(id [16]byte, partition int32) (status.Partition, bool)
	AppendControl(ctx context.Context, id [16]byte, partition int32, build func() []byte) error
	OpenTransactions(id [16]byte, partition int32) []status.OpenTransaction
	RestartAt(id [16]byte, partition int32, offset int64)
	SetSources(mirror string, topics map[string][]status.SourceLeader)
	// Applied is the View index that every shard has finished, gates
	// re-evaluated.
	Applied() uint64
	// Answered notes that a Register at this index was answered OK.
	Answered(index uint64)
}

// Source is a mirror's source cluster as the mirrors need it: *remote.Source.
type Source interface {
	ClusterID(ctx context.Context) (string, error)
	Topics(ctx context.Context, names []string) ([]remote.Topic, error)
	EarliestOffset(ctx context.Context, topic string, partition int32) (int64, error)
	Config(ctx context.Context, topic, name string) (string, error)
	Register(ctx context.Context, req *msg.RegisterMirrorSyncTopicRequest) (*msg.RegisterMirrorSyncTopicResponse, error)
	Unregister(ctx context.Context, req *msg.UnregisterMirrorSyncTopicRequest) (*msg.UnregisterMirrorSyncTopicResponse, error)
	Close()
}

// MirrorOptions is what Mirrors is made of.
type MirrorOptions struct {
	NodeID          int32
	Node            *Node
	Data            Data
	Log             *slog.Logger
	Now             func() time.Time
	DemoteTimeout   time.Duration                                   // mirror.sync.topic.demote.timeout.ms
	RegisterBarrier time.Duration                                   // lockstep.mirror.register.barrier.ms
	AutoRelease     time.Duration                                   // lockstep.mirror.auto.release.ms; 0 = only operators release
	Refresh         time.Duration                                   // mirror.metadata.refresh.interval.ms
	Dial            func(configs map[string]string) (Source, error) // nil = remote.Dial
	Coordinator     *host.Slot
	Promotion       *host.Slot
	Release         *host.Slot
}

// Mirrors keeps the mirrors of this cluster going and answers for the
// registrations of others.
type Mirrors struct {
	o    MirrorOptions
	kick chan struct{}

	mu       sync.Mutex
	sources  map[string]*source
	busy     map[busyKey]bool // work under way that waits: one of a kind for a topic
	stops    map[[16]byte]*stop
	tries    map[[16]byte]tryAt
	retries  map[partitionKey]time.Time
	notes    map[[16]byte]string // what describe says of a promotion
	rejected map[string]int64    // SyncRegistrationRejected by reason
	silence  silence             // Run's alone
	turn     turn                // Run's alone
	running  sync.WaitGroup
}

// busyKey tells a topic's fail-over from its work at the source: a stop never
// waits for a Register that nobody answers.
type busyKey struct {
	id   [16]byte
	stop bool
}

type partitionKey struct {
	id    [16]byte
	index int32
}

// tryAt is when a promotion may be tried again, after so many failures.
type tryAt struct {
	attempts int32
	at       time.Time
}

// source is a mirror's client and what was last learnt.
type source struct {
	client  Source // nil: the configs do not make one
	configs map[string]string
	next    time.Time // of the next look
	looking bool
	epochs  map[string][]int32 // leader epochs by topic
	err     string
	wrong   map[string]string // by topic: why what the source has is not what was added
}

// NewMirrors makes it; Run starts it.
func NewMirrors(o MirrorOptions) *Mirrors {
	if o.Refresh <= 0 {
		o.Refresh = sourceRefresh
	}
	if o.Dial == nil {
		o.Dial = func(configs map[string]string) (Source, error) { return remote.Dial(configs) }
	}
	return &Mirrors{o: o, kick: make(chan struct{}, 1), sources: map[string]*source{}, busy: map[busyKey]bool{},
		stops: map[[16]byte]*stop{}, tries: map[[16]byte]tryAt{}, retries: map[partitionKey]time.Time{},
		notes: map[[16]byte]string{}, rejected: map[string]int64{}, silence: silence{since: map[registrationKey]time.Time{}}}
}

// Kick makes the next look come at once.
func (m *Mirrors) Kick() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Run looks at every mirror, again and again, until ctx ends. It returns when
// all work it began has ended.
func (m *Mirrors) Run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	defer m.close()
	fenced := false
	for {
		if m.o.Node.Leads() {
			if !fenced || !m.fencesHold() {
				fenced = m.raiseFences(ctx, !fenced)
			}
			m.look(ctx)
			m.lookSilence(ctx, m.o.Node.View())
		} else {
			fenced = false
			clear(m.silence.since) // what a later term has not seen is not silence
		}
		select {
		case <-t.C:
		case <-m.kick:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Mirrors) close() {
	m.running.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sources {
		s.close()
	}
}

func (s *source) close() {
	if s.client != nil {
		s.client.Close()
	}
}

// background runs work that waits for a source or for the data plane.
func (m *Mirrors) background(key busyKey, f func()) {
	m.mu.Lock()
	if m.busy[key] {
		m.mu.Unlock()
		return
	}
	m.busy[key] = true
	m.mu.Unlock()
	m.running.Add(1)
	go func() {
		defer m.running.Done()
		f()
		m.mu.Lock()
		delete(m.busy, key)
		m.mu.Unlock()
		m.Kick()
	}()
}

// look compares what should be with what is.
func (m *Mirrors) look(ctx context.Context) {
	v := m.o.Node.View()
	active := map[string][]string{} // topics that are fetched, by mirror
	moved := map[string]bool{}
	for t := range v.Topics() {
		if t.Mirror == nil {
			continue
		}
		if t.Mirror.Desired != mirror.Stopped {
			active[t.Mirror.Mirror] = append(active[t.Mirror.Mirror], t.Name)
		}
	}
	m.keepSources(ctx, v, active)
	m.turn.begin(v)
	for t := range v.Topics() {
		if t.Mirror == nil || !m.turn.has(t) {
			continue
		}
		// A look at many topics takes a while: this one may be elsewhere by now.
		if v = m.o.Node.View(); v.TopicByID(t.ID) != t {
			if t = v.TopicByID(t.ID); t == nil || t.Mirror == nil {
				continue
			}
		}
		if m.lookPartitions(ctx, v, t) {
			moved[t.Mirror.Mirror] = true
		}
		if t.Mirror.Desired != mirror.Stopped {
			delete(m.stops, t.ID) // of an earlier life
			m.lookPromotion(ctx, t)
		} else {
			m.lookStop(ctx, v, t)
		}
	}
	m.mu.Lock()
	for name := range moved {
		if s := m.sources[name]; s != nil {
			if soon := m.o.Now().Add(sourceRefreshSoon); s.next.After(soon) {
				s.next = soon
			}
		}
	}
	m.mu.Unlock()
}

// keepSources has a client for each mirror in use and asks it, from time to
// time, who leads what.
func (m *Mirrors) keepSources(ctx context.Context, v *meta.View, active map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Now()
	for name, s := range m.sources {
		mir := v.Mirror(name)
		if s.looking || mir != nil && maps.Equal(mir.Configs, s.configs) {
			continue
		}
		s.close()
		delete(m.sources, name)
		if mir == nil {
			m.o.Data.SetSources(name, nil)
		}
	}
	for name, topics := range active {
		s := m.sourceLocked(v, name)
		if s == nil || s.client == nil || s.looking || now.Before(s.next) {
			continue
		}
		s.looking = true
		m.running.Add(1)
		slices.Sort(topics)
		go func() {
			defer m.running.Done()
			m.refresh(ctx, name, s, topics)
		}()
	}
}

func (m *Mirrors) sourceLocked(v *meta.View, name string) *source {
	if s := m.sources[name]; s != nil {
		return s
	}
	mir := v.Mirror(name)
	if mir == nil {
		return nil
	}
	s := &source{configs: mir.Configs}
	if client, err := m.o.Dial(mir.Configs); err == nil {
		s.client = client
	} else { // said once; other configs are another source
		m.o.Log.Warn("mirror cannot be used", "mirror", name, "error", err)
	}
	m.sources[name] = s
	return s
}

// refresh asks a source for its leaders and tells the data plane.
func (m *Mirrors) refresh(ctx context.Context, name string, s *source, topics []string) {
	c, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	found, err := s.client.Topics(c, topics)
	var wrong map[string]string
	if err == nil {
		wrong, err = m.identify(c, name, s.client, topics, found)
	}
	leaders := map[string][]status.SourceLeader{}
	epochs := map[string][]int32{}
	for _, t := range found {
		if wrong[t.Name] != "" {
			continue
		}
		leaders[t.Name] = t.Leaders
		for _, l := range t.Leaders {
			epochs[t.Name] = append(epochs[t.Name], l.Epoch)
		}
	}
	m.mu.Lock()
	s.looking = false
	wait := m.o.Refresh
	if err == nil {
		for t, why := range wrong {
			if s.wrong[t] == "" {
				m.o.Log.Error("mirrored topic is not the source's any more; stop it, or bring the old source back", "mirror", name, "topic", t, "why", why)
			}
		}
		s.wrong = wrong
	}
	if err != nil {
		if s.err == "" && ctx.Err() == nil {
			m.o.Log.Warn("mirror source does not answer", "mirror", name, "error", err)
		}
		s.err, wait = err.Error(), time.Second
	} else {
		if s.err != "" {
			m.o.Log.Info("mirror source answers again", "mirror", name)
		}
		s.err, s.epochs = "", epochs
		if len(leaders) < len(topics) {
			wait = time.Second
		}
	}
	s.next = m.o.Now().Add(wait)
	m.mu.Unlock()
	if err == nil {
		m.o.Data.SetSources(name, leaders)
		m.Kick()
	}
}

// identify compares who answers, and what topics it has, with what the mirror
// was made of: an address can come back as another cluster, a name as another
// topic, and neither is what this cluster has a copy of (R16).
func (m *Mirrors) identify(ctx context.Context, name string, client Source, topics []string, found []remote.Topic) (map[string]string, error) {
	v := m.o.Node.View()
	wrong := map[string]string{}
	mir := v.Mirror(name)
	if mir == nil {
		return nil, nil
	}
	if want := mir.SourceClusterID(); want != "" {
		id, err := client.ClusterID(ctx)
		if err != nil {
			return nil, err
		}
		if id != want {
			for _, t := range topics {
				wrong[t] = "bootstrap.servers leads to cluster " + id + ", the mirror is of " + want
			}
			return wrong, nil
		}
	}
	for _, t := range found {
		if here := v.TopicByName(t.Name); here != nil && t.ID != ([16]byte{}) && t.ID != here.ID {
			wrong[t.Name] = "the source's topic was deleted and made anew"
		}
	}
	return wrong, nil
}

// notTheSources says why a topic's source is not the one that was added, "" if
// it is.
func (m *Mirrors) notTheSources(name, topic string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sources[name]; s != nil {
		return s.wrong[topic]
	}
	return ""
}

func (m *Mirrors) sourceEpoch(name, topic string, index int32) (int32, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sources[name]
	if s == nil || int(index) >= len(s.epochs[topic]) {
		return -1, false
	}
	return s.epochs[topic][index], true
}

func (m *Mirrors) client(name string) Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sourceLocked(m.o.Node.View(), name); s != nil {
		return s.client
	}
	return nil
}

// fences are the policies by the kind of their fence.
func (m *Mirrors) fences() map[meta.FenceKind]*host.Slot {
	return map[meta.FenceKind]*host.Slot{meta.FenceCoordinator: m.o.Coordinator,
		meta.FencePromotion: m.o.Promotion, meta.FenceRelease: m.o.Release}
}

// fencesHold: no other controller has led, and raised them, between two looks.
func (m *Mirrors) fencesHold() bool {
	v := m.o.Node.View()
	for kind, slot := range m.fences() {
		if !slot.Fenced(v.Fence(kind)) {
			return false
		}
	}
	return true
}

// raiseFences makes wishes of earlier instances stale: all of them first in a
// term, and one kind's when another instance serves.
func (m *Mirrors) raiseFences(ctx context.Context, all bool) bool {
	v := m.o.Node.View()
	for kind, slot := range m.fences() {
		if !all && slot.Fenced(v.Fence(kind)) {
			continue
		}
		res, err := m.o.Node.Propose(ctx, raiseFence(kind))
		if err != nil || res.ErrorCode != 0 {
			return false
		}
		slot.SetFence(res.Number)
	}
	return true
}

// verdict on a wish; an empty why accepts it.
func (m *Mirrors) verdict(w sdk.Wish, why string) host.Verdict {
	if why != "" {
		m.o.Log.Debug("wish refused", "wish", w.Do, "topic", w.Topic, "partition", w.Partition, "why", why)
	}
	return host.Verdict{Wish: w, Accepted: why == "", Why: why}
}

// due is the verdicts of one event. The guard's word is not the last: what it
// accepts is carried out only if the quorum takes the command.
type due struct {
	asked    *host.Asked // nil: no decision, and the journal has it already
	verdicts []host.Verdict
	done     func() // says what was carried out; nil = nothing is to be said
}

// settle enters the verdicts into the journal. lost says why the quorum did not
// take what was accepted; "" it did.
func (d *due) settle(lost string) {
	for i := range d.verdicts {
		if v := &d.verdicts[i]; lost != "" && v.Accepted {
			v.Accepted, v.Why = false, lost
		}
	}
	if d.asked != nil {
		d.asked.Settle(d.verdicts...)
	}
	if d.done != nil && lost == "" {
		d.done()
	}
}
