package watermark

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"lockstep/internal/invariant"
)

// An explicit-state model of one partition: a source {S0, S1} with clean
// elections, a destination {D0, D1} with pending ISR changes, leader changes
// and zombies, and a network that loses and reorders reports. It calls Source,
// Admit, JoinFloor and Truncated, so it cannot drift from them. Each rule can
// be taken out; each then loses an acknowledged record.

const (
	logCap  = 3
	brokers = 2
	msgCap  = 2
)

type rules struct {
	floor                            bool // R1: nobody joins below the floor
	ownLEO                           bool // R1: which includes the leader's LEO at its election
	clamp                            bool // R1: a truncation clamps the noted follower LEOs
	maximal                          bool // R1: reports count committed ∪ proposed
	sourceEp                         bool // R2: the source counts only its own epoch
	logMax, msgMax, seqMax, epochMax int8
}

type modelLog struct {
	n int8
	e [logCap]int8 // leader epoch of each record
}

func (l *modelLog) cut(n int8) {
	for i := n; i < l.n; i++ {
		l.e[i] = 0
	}
	l.n = min(l.n, n)
}

func (l *modelLog) put(e int8) { l.e[l.n], l.n = e, l.n+1 }

func common(a, b modelLog) (i int8) {
	for i < a.n && i < b.n && a.e[i] == b.e[i] {
		i++
	}
	return i
}

// wireReport is a report under way; low is the smallest LEO of its ISR.
type wireReport struct{ epoch, seq, low, aligned, size int8 }

// mirrorLeader is a destination broker's own view; epoch 0 = not leader.
type mirrorLeader struct {
	epoch, aligned, seq            int8
	isr, proposed                  uint8
	leo                            [brokers]int8 // noted
	tracked, leoAtElection, report int8
}

type modelState struct {
	src        [2]modelLog
	srcLeader  int8
	srcEpoch   int8
	srcMark    [2]int8
	counted    wireReport // size 0 = none
	acked      [logCap]int8
	dst        [brokers]modelLog
	ctlLeader  int8
	ctlEpoch   int8
	ctlISR     uint8
	at         [brokers]mirrorLeader
	wire       [msgCap]wireReport
	wired      int8
	hasCounted bool
}

func (s *modelState) report() Report {
	return Report{Valid: s.hasCounted, LeaderEpoch: int32(s.counted.epoch), Sequence: int64(s.counted.seq),
		MinLEO: int64(s.counted.low), ISRSize: int32(s.counted.size), MinISR: 1}
}

// raise runs the source rule and acknowledges what it passes.
func (s *modelState) raise() {
	l, f := s.srcLeader, 1-s.srcLeader
	local := Local{ISR: []Replica{{0, int64(s.src[l].n)}, {1, int64(common(s.src[l], s.src[f]))}}, InSync: 2, MinISR: 1}
	v := Source(int64(s.srcMark[l]), int64(s.src[l].n), local, []Mirror{{Report: s.report()}})
	for o := s.srcMark[l]; o < int8(v.Mark); o++ {
		s.acked[o] = s.src[l].e[o]
	}
	s.srcMark[l] = int8(v.Mark)
}

func (s *modelState) send(r wireReport) {
	s.wire[s.wired] = r
	s.wired++
	if s.wired == 2 && less(s.wire[1], s.wire[0]) {
		s.wire[0], s.wire[1] = s.wire[1], s.wire[0]
	}
}

func less(a, b wireReport) bool { return fmt.Sprint(a) < fmt.Sprint(b) }

func (s *modelState) take(i int8) wireReport {
	r := s.wire[i]
	if i == 0 {
		s.wire[0] = s.wire[1]
	}
	s.wired--
	s.wire[s.wired] = wireReport{}
	return r
}

// lost names an acknowledged record that an electable destination lacks.
func (s *modelState) lost() string {
	for o, e := range s.acked {
		for d := range s.dst {
			if e != 0 && s.ctlISR&(1<<d) != 0 && (int(s.dst[d].n) <= o || s.dst[d].e[o] != e) {
				return fmt.Sprintf("acknowledged record %d (epoch %d) is not on ISR member D%d", o, e, d)
			}
		}
	}
	return ""
}

type emitter func(modelState, func() string)

func (r rules) sourceMoves(s modelState, emit emitter) {
	l, f := s.srcLeader, 1-s.srcLeader
	if s.src[l].n < r.logMax {
		t := s
		t.src[l].put(s.srcEpoch)
		emit(t, func() string { return fmt.Sprintf("S%d appends offset %d", l, s.src[l].n) })
	}
	if c := common(s.src[l], s.src[f]); s.src[f].n > c || c < s.src[l].n {
		t := s
		t.src[f].cut(c)
		if c < t.src[l].n {
			t.src[f].put(t.src[l].e[c])
		}
		if t.srcMark[f] < t.srcMark[l] && t.srcMark[l] <= t.src[f].n {
			t.srcMark[f] = t.srcMark[l]
		}
		t.raise()
		emit(t, func() string { return fmt.Sprintf("S%d replicates, LEO %d", f, t.src[f].n) })
	}
	if s.srcEpoch < r.epochMax {
		t := s
		t.srcLeader, t.srcEpoch = f, s.srcEpoch+1
		t.counted, t.hasCounted = wireReport{}, false
		emit(t, func() string { return fmt.Sprintf("source elects S%d, epoch %d", f, t.srcEpoch) })
	}
	for i := int8(0); i < s.wired; i++ {
		r.receive(s, i, emit)
	}
}

func (r rules) receive(s modelState, i int8, emit emitter) {
	t := s
	w := t.take(i)
	emit(t, func() string { return "a report is lost" })
	in := Incoming{Fenced: true, LeaderEpoch: int32(w.epoch), Sequence: int64(w.seq), SourceLeaderEpoch: int32(w.aligned), MinISR: 1}
	for id := range int32(w.size) {
		in.Replicas = append(in.Replicas, Replica{id, int64(w.low)})
		in.ISR = append(in.ISR, id)
	}
	fence := Fence{ClusterMatches: true, SourceLeaderEpoch: int32(s.srcEpoch), End: int64(s.src[s.srcLeader].n)}
	if !r.sourceEp {
		fence.SourceLeaderEpoch = in.SourceLeaderEpoch
	}
	got, a := Admit(s.report(), in, fence)
	if a != Counted {
		return
	}
	w.low = int8(got.MinLEO)
	t.counted, t.hasCounted = w, true
	t.raise()
	emit(t, func() string { return fmt.Sprintf("S%d counts %+v, mark %d", s.srcLeader, w, t.srcMark[s.srcLeader]) })
}

func (r rules) followerMoves(s modelState, d int8, emit emitter) {
	ld := s.ctlLeader
	if ld == d || s.at[ld].epoch != s.ctlEpoch {
		return
	}
	c := common(s.dst[ld], s.dst[d])
	if s.dst[d].n > c {
		t := s
		t.dst[d].cut(c)
		emit(t, func() string { return fmt.Sprintf("D%d truncates to %d", d, c) })
		return
	}
	if s.at[ld].leo[d] != s.dst[d].n {
		t := s
		t.at[ld].leo[d] = s.dst[d].n
		emit(t, func() string { return fmt.Sprintf("D%d fetches at %d, D%d notes it", d, s.dst[d].n, ld) })
	}
	if c < s.dst[ld].n {
		t := s
		t.dst[d].put(t.dst[ld].e[c])
		emit(t, func() string { return fmt.Sprintf("D%d replicates offset %d", d, c) })
	}
}

func (r rules) leaderMoves(s modelState, d int8, emit emitter) {
	b, l := s.at[d], s.srcLeader
	if b.aligned != s.srcEpoch {
		t := s
		r.align(&t, d)
		emit(t, func() string { return fmt.Sprintf("D%d aligns with S%d, LEO %d", d, l, t.dst[d].n) })
	} else if s.dst[d].n < s.src[l].n && common(s.dst[d], s.src[l]) == s.dst[d].n {
		t := s
		t.dst[d].put(s.src[l].e[s.dst[d].n])
		emit(t, func() string { return fmt.Sprintf("D%d mirrors offset %d", d, s.dst[d].n) })
	}
	if b.aligned == s.srcEpoch && b.tracked < s.srcMark[l] {
		t := s
		t.at[d].tracked = s.srcMark[l]
		emit(t, func() string { return fmt.Sprintf("D%d tracks mark %d", d, s.srcMark[l]) })
	}
	if b.seq < r.seqMax && s.wired < r.msgMax {
		t := s
		w := r.makeReport(&t, d)
		emit(t, func() string { return fmt.Sprintf("D%d reports %+v", d, w) })
	}
	r.isrMoves(s, d, emit)
	if b.epoch != s.ctlEpoch {
		t := s
		t.at[d] = mirrorLeader{}
		emit(t, func() string { return fmt.Sprintf("D%d learns that it is not leader", d) })
	}
}

func (r rules) align(t *modelState, d int8) {
	b := &t.at[d]
	c := common(t.dst[d], t.src[t.srcLeader])
	b.aligned = t.srcEpoch
	if c >= t.dst[d].n {
		return
	}
	t.dst[d].cut(c)
	var noted [brokers]Replica
	for i := range noted {
		noted[i].LEO = int64(b.leo[i])
	}
	f, _ := Truncated(Following{Tracked: int64(b.tracked), LEOAtElection: int64(b.leoAtElection), Reported: int64(b.report),
		Followers: noted[:]}, int64(c))
	b.tracked, b.leoAtElection, b.report = int8(f.Tracked), int8(f.LEOAtElection), int8(f.Reported)
	if r.clamp {
		for i := range noted {
			b.leo[i] = int8(noted[i].LEO)
		}
	}
}

func (r rules) makeReport(t *modelState, d int8) wireReport {
	b := &t.at[d]
	isr := b.isr
	if b.proposed != 0 {
		isr |= b.proposed
		if !r.maximal {
			isr = b.proposed
		}
	}
	b.seq++
	w := wireReport{epoch: b.epoch, seq: b.seq, aligned: b.aligned, low: logCap}
	for i := range int8(brokers) {
		if isr&(1<<i) == 0 {
			continue
		}
		w.size++
		if i == d {
			w.low = min(w.low, t.dst[d].n)
		} else {
			w.low = min(w.low, b.leo[i])
		}
	}
	b.report = max(b.report, w.low)
	t.send(w)
	return w
}

func (r rules) isrMoves(s modelState, d int8, emit emitter) {
	b := s.at[d]
	if b.proposed != 0 {
		t := s
		t.at[d].proposed = 0
		if b.epoch == s.ctlEpoch {
			t.ctlISR, t.at[d].isr = b.proposed, b.proposed
		}
		emit(t, func() string { return fmt.Sprintf("controller answers D%d's proposal, ISR %02b", d, t.ctlISR) })
		return
	}
	for j := range int8(brokers) {
		bit := uint8(1) << j
		if j == d {
			continue
		}
		t := s
		if b.isr&bit != 0 {
			t.at[d].proposed = b.isr &^ bit
			emit(t, func() string { return fmt.Sprintf("D%d proposes to drop D%d", d, j) })
			continue
		}
		floor := JoinFloor(int64(b.tracked), int64(b.leoAtElection), int64(b.report))
		if !r.ownLEO {
			floor = JoinFloor(int64(b.tracked), 0, int64(b.report))
		}
		if !r.floor {
			floor = int64(b.tracked)
		}
		if int64(b.leo[j]) >= floor {
			t.at[d].proposed = b.isr | bit
			emit(t, func() string { return fmt.Sprintf("D%d proposes D%d at %d, floor %d", d, j, b.leo[j], floor) })
		}
	}
}

func (r rules) moves(s modelState, emit emitter) {
	r.sourceMoves(s, emit)
	for d := range int8(brokers) {
		if s.at[d].epoch == 0 {
			r.followerMoves(s, d, emit)
		} else {
			r.leaderMoves(s, d, emit)
		}
		if s.ctlEpoch < r.epochMax && s.ctlISR&(1<<d) != 0 { // the same leader again is a bump or a restart
			t := s
			t.ctlLeader, t.ctlEpoch = d, s.ctlEpoch+1
			t.at[d] = mirrorLeader{epoch: t.ctlEpoch, isr: s.ctlISR, leoAtElection: s.dst[d].n}
			emit(t, func() string { return fmt.Sprintf("destination elects D%d, LEO %d", d, s.dst[d].n) })
		}
	}
}

// explore walks breadth first and returns the shortest trace to a loss.
func (r rules) explore(limit int) (states int, trace []string, loss string) {
	type node struct {
		parent int
		move   func() string
	}
	s0 := modelState{srcEpoch: 1, ctlEpoch: 1, ctlISR: 1<<brokers - 1}
	s0.at[0] = mirrorLeader{epoch: 1, isr: s0.ctlISR, aligned: 1}
	seen, queue, nodes := map[modelState]bool{s0: true}, []modelState{s0}, []node{{parent: -1}}
	for at := 0; at < len(queue) && loss == "" && len(nodes) < limit; at++ {
		r.moves(queue[at], func(t modelState, move func() string) {
			if loss != "" || seen[t] {
				return
			}
			seen[t] = true
			queue, nodes = append(queue, t), append(nodes, node{at, move})
			if loss = t.lost(); loss != "" {
				for n := len(nodes) - 1; n > 0; n = nodes[n].parent {
					trace = append([]string{nodes[n].move()}, trace...)
				}
			}
		})
		queue[at] = modelState{}
	}
	return len(nodes), trace, loss
}

var allRules = rules{floor: true, ownLEO: true, clamp: true, maximal: true, sourceEp: true, logMax: 2, msgMax: 2, seqMax: 2, epochMax: 2}

// stateLimit bounds the search in the larger space; every trace to a loss is
// found far below it.
const stateLimit = 400_000

// TestModelHolds walks one small space to its end, and the first states of the
// space in which TestModelGoesRed finds its losses. LOCKSTEP_MODEL_STATES sets
// another limit.
func TestModelHolds(t *testing.T) {
	limit := stateLimit
	if env := os.Getenv("LOCKSTEP_MODEL_STATES"); env != "" {
		var err error
		if limit, err = strconv.Atoi(env); err != nil {
			t.Fatal(err)
		}
	}
	small := allRules
	small.logMax, small.msgMax = 1, 1
	spaces := []rules{small, allRules}
	if invariant.Enabled {
		spaces = spaces[:1] // the race detector is slow, and this is one goroutine
	}
	for _, r := range spaces {
		states, trace, loss := r.explore(limit)
		t.Logf("records %d, reports under way %d: %d states", r.logMax, r.msgMax, states)
		if loss != "" {
			t.Fatalf("%s\n  %s", loss, strings.Join(trace, "\n  "))
		}
		if r == small && states >= limit {
			t.Fatal("the small space is larger than the limit: it is not walked to its end")
		}
	}
}

func TestModelGoesRed(t *testing.T) {
	for name, off := range map[string]func(*rules){
		"floor":        func(r *rules) { r.floor = false },
		"own LEO":      func(r *rules) { r.ownLEO = false },
		"clamp":        func(r *rules) { r.clamp = false },
		"maximal ISR":  func(r *rules) { r.maximal = false },
		"source epoch": func(r *rules) { r.sourceEp = false },
	} {
		t.Run(name, func(t *testing.T) {
			r := allRules
			off(&r)
			states, trace, loss := r.explore(stateLimit)
			if loss == "" {
				t.Fatalf("%d states without the rule, and nothing is lost: the model is blind", states)
			}
			t.Logf("%d states, %d steps: %s\n  %s", states, len(trace), loss, strings.Join(trace, "\n  "))
		})
	}
}
