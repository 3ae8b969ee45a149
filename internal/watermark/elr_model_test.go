package watermark

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
)

// A model of one cluster's partition with eligible leader replicas: leader 0,
// followers 1 and 2, min.insync.replicas 2, and a controller whose answers to
// ISR proposals may be late or a refusal. The law: whoever can be elected
// cleanly, from ISR or ELR, holds everything below the mark.

type elrState struct {
	n        [3]int8 // LEOs; followers hold prefixes
	isr, elr uint8   // committed
	proposed uint8   // 0 = none
	mark     int8
}

// raise runs the rule; committedOnly is the rule under test.
func (s *elrState) raise(committedOnly bool) {
	maximal := s.isr | s.proposed
	local := Local{MinISR: 2, InSync: int32(bits.OnesCount8(maximal))}
	if committedOnly {
		local.InSync = int32(bits.OnesCount8(s.isr))
	}
	for i := range int32(3) {
		if maximal&(1<<i) != 0 {
			local.ISR = append(local.ISR, Replica{i, int64(s.n[i])})
		}
	}
	s.mark = int8(Source(int64(s.mark), int64(s.n[0]), local, nil).Mark)
}

// commit is the controller's side, as meta does it.
func (s *elrState) commit() {
	was := s.isr
	s.isr, s.proposed = s.proposed, 0
	if bits.OnesCount8(s.isr) >= 2 {
		s.elr = 0
	} else {
		s.elr = (s.elr | was) &^ s.isr
	}
}

func elrMoves(s elrState, emit func(elrState, string)) {
	if s.n[0] < 2 {
		t := s
		t.n[0]++
		emit(t, "leader appends")
	}
	for f := 1; f < 3; f++ {
		bit := uint8(1) << f
		if s.n[f] < s.n[0] {
			t := s
			t.n[f]++
			emit(t, fmt.Sprintf("%d replicates", f))
		}
		if s.proposed == 0 && s.isr&bit != 0 {
			t := s
			t.proposed = s.isr &^ bit
			emit(t, fmt.Sprintf("leader proposes to drop %d", f))
		}
		if s.proposed == 0 && s.isr&bit == 0 && s.n[f] >= s.mark {
			t := s
			t.proposed = s.isr | bit
			emit(t, fmt.Sprintf("leader proposes %d", f))
		}
	}
	if s.proposed != 0 {
		t := s
		t.commit()
		emit(t, fmt.Sprintf("controller commits, ISR %03b ELR %03b", t.isr, t.elr))
		t = s
		t.proposed = 0
		emit(t, "controller refuses")
	}
}

func exploreELR(committedOnly bool) (states int, trace []string) {
	type node struct {
		parent int
		move   string
	}
	s0 := elrState{isr: 0b111}
	seen, queue, nodes := map[elrState]bool{s0: true}, []elrState{s0}, []node{{parent: -1}}
	for at := 0; at < len(queue) && trace == nil; at++ {
		elrMoves(queue[at], func(t elrState, move string) {
			t.raise(committedOnly)
			if trace != nil || seen[t] {
				return
			}
			seen[t] = true
			queue, nodes = append(queue, t), append(nodes, node{at, move})
			for i, n := range t.n {
				if (t.isr|t.elr)&(1<<i) != 0 && n < t.mark {
					for x := len(nodes) - 1; x > 0; x = nodes[x].parent {
						trace = append(trace, nodes[x].move)
					}
					slices.Reverse(trace)
					return
				}
			}
		})
	}
	return len(nodes), trace
}

func TestEligibleReplicasHoldTheMark(t *testing.T) {
	states, trace := exploreELR(true)
	t.Logf("%d states, all of them", states)
	if trace != nil {
		t.Fatalf("an eligible replica lacks acknowledged records:\n  %s", strings.Join(trace, "\n  "))
	}
	if _, trace := exploreELR(false); trace == nil {
		t.Fatal("counting proposed members towards min.insync.replicas loses nothing: the model is blind")
	} else {
		t.Logf("without the rule:\n  %s", strings.Join(trace, "\n  "))
	}
}
