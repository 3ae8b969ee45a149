package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/internal/kafkareq"
	"lockstep/internal/msg"
	"lockstep/internal/wire"
	"lockstep/plugins/sdk"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tape is a kind's journal from its first event on: the broker keeps the last
// 4,096 of them.
type tape struct {
	node *node
	kind sdk.Kind

	mu     sync.Mutex
	lines  map[int64]journalView
	whole  int64 // the tape has all events up to this one
	faults []string
}

// tapeMargin is how many events are read again each time: a second line of an
// event comes after the first.
const tapeMargin = 500

func newTape(n *node, kind sdk.Kind) *tape {
	return &tape{node: n, kind: kind, lines: map[int64]journalView{}}
}

func (p *tape) read() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []journalView
	if json.Unmarshal([]byte(get(fmt.Sprintf("http://%s/plugins/journal?since=%d&kind=%s", p.node.admin, max(0, p.whole-tapeMargin), p.kind))), &list) != nil {
		return // asked again; what is missed in the end is a fault
	}
	here := map[int64]bool{}
	for _, e := range list {
		if old, ok := p.lines[e.Seq]; here[e.Seq] || ok && !reflect.DeepEqual(old, e) {
			p.faults = append(p.faults, fmt.Sprintf("event %d has a second line: %+v and %+v", e.Seq, old, e))
		}
		here[e.Seq] = true
		p.lines[e.Seq] = e
	}
	for ; len(p.lines) > 0; p.whole++ {
		if _, ok := p.lines[p.whole+1]; !ok {
			return
		}
	}
}

// all is every event in order.
func (p *tape) all() (list []journalView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for seq := int64(1); seq <= p.whole; seq++ {
		list = append(list, p.lines[seq])
	}
	return list
}

// some tells whether an event of a plugin has an error with text in it.
func (p *tape) some(plugin, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.lines {
		if strings.HasPrefix(e.Plugin, plugin+" ") && strings.Contains(e.Error, text) {
			return true
		}
	}
	return false
}

// accepted counts a journal line's accepted wishes of a kind.
func accepted(e journalView, do sdk.Action) (n int) {
	for _, v := range e.Verdicts {
		if v.Accepted && v.Do == do {
			n++
		}
	}
	return n
}

// script is a destination that exists in its requests only: it registers one
// topic, is released, recovers, leaves, and knows what each answer has to be.
type script struct {
	cl             *kgo.Client
	mirror, topic  string
	id             [16]byte
	r              *rand.Rand
	registers      []register // in order; each is one event of the release plugin
	epoch, highest int64      // the registration that stands; 0 none
	released       bool
	number         int64 // of the release; 0 = not told yet
	faults         []string
}

// register is a Register, what was true before it, and its answer.
type register struct {
	released bool // a marker stood
	rightful bool // only a Hold can refuse it
	code     wire.ErrorCode
	message  string
}

func (s *script) fault(format string, args ...any) {
	s.faults = append(s.faults, s.mirror+": "+fmt.Sprintf(format, args...))
}

// step sends one request. Fenced counts Registers refused because the plugin
// that had decided about them was replaced.
func (s *script) step(ctx context.Context, fenced *atomic.Int64) {
	switch n := s.r.IntN(10); {
	case n < 2 && (s.epoch > 0 || s.released):
		s.unregister(ctx, true)
	case n < 3 && s.epoch > 0:
		s.unregister(ctx, false)
	default:
		s.register(ctx, s.released && n > 4, s.released && n == 9 && s.number > 1, fenced)
	}
}

func (s *script) register(ctx context.Context, recovery, wrong bool, fenced *atomic.Int64) {
	q := msg.RegisterMirrorSyncTopicRequestTopicState{TopicId: s.id, TopicName: s.topic, RecoveryPromotion: recovery, ReleaseNumber: -1}
	if recovery && s.number > 0 {
		q.ReleaseNumber = s.number
	}
	if wrong {
		q.ReleaseNumber--
	}
	var resp msg.RegisterMirrorSyncTopicResponse
	err := kafkareq.Do(ctx, s.cl, &msg.RegisterMirrorSyncTopicRequest{MirrorName: s.mirror, DestinationClusterId: "to-" + s.mirror,
		Topics: []msg.RegisterMirrorSyncTopicRequestTopicState{q}}, &resp)
	if err != nil || len(resp.Topics) != 1 {
		s.fault("Register has no answer: %v", err)
		return
	}
	a := &resp.Topics[0]
	reg := register{released: s.released, rightful: s.released && recovery && !wrong, code: wire.ErrorCode(a.ErrorCode), message: deref(a.ErrorMessage)}
	s.registers = append(s.registers, reg)
	switch {
	case reg.code == wire.ErrNone && (!s.released || reg.rightful):
		if a.RegistrationEpoch <= s.highest {
			s.fault("epoch %d after %d", a.RegistrationEpoch, s.highest)
		}
		s.epoch, s.highest, s.released, s.number = a.RegistrationEpoch, a.RegistrationEpoch, false, 0
	case reg.code == wire.ErrMirrorSyncReleasedRequiresFreshPromotion && s.released:
		if s.number > 0 && a.ReleaseNumber != s.number {
			s.fault("release %d, was %d", a.ReleaseNumber, s.number)
		}
		s.number = a.ReleaseNumber
	case reg.code == wire.ErrInvalidUpdateVersion && s.released && strings.Contains(reg.message, "replaced"):
		fenced.Add(1)
	default:
		s.fault("released %v, recovery %v, wrong number %v: %s %s", s.released, recovery, wrong, reg.code.Name(), reg.message)
	}
}

func (s *script) unregister(ctx context.Context, release bool) {
	req := &msg.UnregisterMirrorSyncTopicRequest{MirrorName: s.mirror, Release: release,
		Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{{TopicId: s.id, TopicName: s.topic, RegistrationEpoch: -1}}}
	if !release {
		req.DestinationClusterId = "to-" + s.mirror
	}
	var resp msg.UnregisterMirrorSyncTopicResponse
	if err := kafkareq.Do(ctx, s.cl, req, &resp); err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		s.fault("Unregister, release %v: %v %+v", release, err, resp.Topics)
	}
	s.epoch = 0
	if release {
		s.released, s.number = true, 0
	}
}

// account compares what the journal says was accepted with what happened: the
// k-th Register of a script is the k-th event of its mirror. It returns the
// Holds applied.
func (s *script) account(events []journalView) (holds int) {
	if len(events) != len(s.registers) {
		s.fault("%d events for %d Registers", len(events), len(s.registers))
		return 0
	}
	for k, reg := range s.registers {
		hold := accepted(events[k], sdk.Hold)
		refused := reg.code == wire.ErrMirrorSyncReleasedRequiresFreshPromotion
		if hold > 1 || hold == 1 && !refused || hold == 0 && refused && reg.rightful {
			s.fault("%s %s, but the journal has %d holds: %+v", reg.code.Name(), reg.message, hold, events[k])
		}
		holds += hold
	}
	return holds
}

// stands compares the ledger's entry with the last answer.
func (s *script) stands(g *msg.DescribeClusterMirrorsResponseRegistration) {
	switch {
	case g == nil && (s.epoch != 0 || s.released):
		s.fault("not in the ledger: epoch %d, released %v", s.epoch, s.released)
	case g == nil:
	case g.Released != s.released, !s.released && g.RegistrationEpoch != s.epoch, s.number > 0 && g.ReleaseNumber != s.number:
		s.fault("the ledger has %+v; epoch %d, released %v, number %d", *g, s.epoch, s.released, s.number)
	}
}

// toggler takes a mirrored topic in and out of SYNC, for the promotion plugin,
// or mirrors one topic after the other, for the coordinator.
type toggler struct {
	p        *pair
	topic    string
	r        *rand.Rand
	releases int // each is one demotion
	rounds   int
	slowest  time.Duration // fail-over
	fault    string
}

// registered tells whether the source gates the topic by its mirror.
func (g *toggler) registered() bool {
	return g.p.src.metric(fmt.Sprintf("lockstep_sync_registration{mirror=%q,topic=%q}", mirrorName, g.topic)) == 1
}

func (g *toggler) is(ctx context.Context, cond func(msg.DescribeClusterMirrorsResponseDescribedTopic) bool) bool {
	for _, x := range g.p.describe(ctx) {
		if x.TopicName == g.topic {
			return cond(x)
		}
	}
	return false
}

func (g *toggler) wait(what string, cond func() bool) {
	for end := time.Now().Add(30 * time.Second); g.fault == ""; time.Sleep(30 * time.Millisecond) {
		if cond() {
			return
		}
		if time.Now().After(end) {
			g.fault = g.topic + ": not within 30 s: " + what
		}
	}
}

func (g *toggler) do(ctx context.Context, req, resp msg.Message, code func() int16) {
	if err := kafkareq.Do(ctx, g.p.dstCl, req, resp); err != nil || code() != 0 {
		said, _ := json.Marshal(resp)
		g.fault = fmt.Sprintf("%s: %T: %v, %s", g.topic, req, err, said)
	}
}

func (g *toggler) alter(ctx context.Context, to int8) {
	var resp msg.AlterMirrorTopicTypeResponse
	g.do(ctx, &msg.AlterMirrorTopicTypeRequest{MirrorName: mirrorName,
		Topics: []msg.AlterMirrorTopicTypeRequestAlterMirrorTopic{{TopicName: g.topic, MirrorType: to}}}, &resp, func() int16 {
		if len(resp.Topics) != 1 {
			return -1
		}
		return resp.Topics[0].ErrorCode
	})
}

// promotions is one round out of SYNC and back, by this side's operator or the
// source's.
func (g *toggler) promotions(ctx context.Context) {
	g.wait("SYNC", func() bool { return g.is(ctx, inSync) && g.registered() })
	g.rounds++
	if g.r.IntN(2) == 0 {
		g.alter(ctx, 0)
		g.wait("ASYNC", func() bool { return !g.is(ctx, inSync) && !g.registered() })
		g.alter(ctx, 1)
		return
	}
	var resp msg.UnregisterMirrorSyncTopicResponse
	req := &msg.UnregisterMirrorSyncTopicRequest{MirrorName: mirrorName, Release: true,
		Topics: []msg.UnregisterMirrorSyncTopicRequestTopicState{{TopicName: g.topic, RegistrationEpoch: -1}}}
	if err := kafkareq.Do(ctx, g.p.srcCl, req, &resp); err != nil || resp.ErrorCode != 0 {
		g.fault = fmt.Sprintf("%s: release: %v, code %d", g.topic, err, resp.ErrorCode)
	}
	g.releases++
	g.wait("registered again", g.registered)
}

// flows mirrors a new topic, and fails it over.
func (g *toggler) flows(ctx context.Context) {
	g.topic = fmt.Sprintf("flow-%d", g.rounds)
	g.rounds++
	if _, err := kadm.NewClient(g.p.srcCl).CreateTopic(ctx, 1, 1, nil, g.topic); err != nil {
		g.fault = err.Error()
		return
	}
	name := mirrorName
	var added msg.AddTopicsToMirrorResponse
	g.do(ctx, &msg.AddTopicsToMirrorRequest{Topics: []msg.AddTopicsToMirrorRequestTopicState{{TopicName: g.topic, MirrorName: &name}}},
		&added, func() int16 { return added.ErrorCode })
	g.wait("MIRRORING", func() bool {
		return g.is(ctx, func(x msg.DescribeClusterMirrorsResponseDescribedTopic) bool {
			return len(x.Partitions) == 1 && x.Partitions[0].StateValue == "MIRRORING"
		})
	})
	var removed msg.RemoveTopicsFromMirrorResponse
	g.do(ctx, &msg.RemoveTopicsFromMirrorRequest{MirrorName: mirrorName, Topics: []msg.RemoveTopicsFromMirrorRequestTopicState{{TopicName: g.topic}}},
		&removed, func() int16 { return removed.ErrorCode })
	began := time.Now()
	g.wait("STOPPED", func() bool { return g.is(ctx, stopped) })
	g.slowest = max(g.slowest, time.Since(began))
}
