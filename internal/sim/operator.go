package sim

import (
	"errors"
	"fmt"
	"strings"

	"lockstep/internal/meta"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
	"lockstep/plugins/sdk"
	"lockstep/segment"
)

// build makes the cluster, its topics and everybody who uses them.
func (w *World) build() {
	n := newNode(w, "src", 9092)
	w.src, w.model = n, &model{}
	n.start()
	w.release = w.newSlot(n, sdk.Release, meta.FenceRelease)
	for i := range topics {
		for p := range partitions {
			w.model.parts = append(w.model.parts, &part{topic: fmt.Sprintf("t%d", i), index: int32(p)})
		}
		w.createTopic(i)
	}
	n.publish()
	w.nodes = []*node{n}
	w.people()
	if w.cfg.Pair {
		w.buildPair()
	}
}

func (w *World) people() {
	at := func() *part { return w.model.parts[w.rnd.IntN(len(w.model.parts))] }
	for range 7 {
		c := &producer{link: link{w: w}, p: at(), acks: []int16{-1, -1, -1, 1, 0}[w.rnd.IntN(5)],
			version: []int16{3, 7, 9, 12, 13, 14}[w.rnd.IntN(6)], pid: -1, max: 1 + w.rnd.IntN(5)}
		if c.acks != 0 && w.rnd.IntN(3) > 0 {
			c.pid = w.nextPID
			w.nextPID++
		}
		if c.acks == 0 {
			c.max = 1
		}
		w.clients = append(w.clients, c)
	}
	for _, p := range w.model.parts {
		w.clients = append(w.clients, &consumer{link: link{w: w}, p: p, version: []int16{4, 7, 11, 12, 13, 18, 20}[w.rnd.IntN(7)]})
	}
	w.clients = append(w.clients, &talker{link: link{w: w}, p: at()}, &browser{link: link{w: w}}, &wide{link: link{w: w}, acks: -1}, &wide{link: link{w: w}, acks: 1})
	for i := range w.cfg.Mirrors {
		m := &mirrorModel{w: w, name: fmt.Sprintf("m%d", i), cluster: fmt.Sprintf("dst%d", i), data: link{w: w}, report: link{w: w}, said: map[claim]int64{}}
		for _, p := range w.model.parts {
			m.parts = append(m.parts, &copyOf{p: p, joined: true, aligned: -1, lastEpoch: -1, minISR: 1 + int32(w.rnd.IntN(8))/7})
		}
		w.mirrors = append(w.mirrors, m)
		w.clients = append(w.clients, m, m, m)
	}
}

// operate is an operator's or a controller's command.
func (w *World) operate() {
	p := w.model.parts[w.rnd.IntN(len(w.model.parts))]
	if p.deleted {
		return
	}
	if w.cfg.Bad && w.rnd.IntN(3) == 0 {
		w.slots[w.rnd.IntN(len(w.slots))].swap(moods[w.rnd.IntN(len(moods))])
		return
	}
	if w.rnd.IntN(4) == 0 {
		w.lookSilence()
		return
	}
	if x := w.rnd.IntN(10); x < 3 || len(w.mirrors) == 0 {
		epoch := w.src.latest.TopicByID(p.id).Partitions[p.index].LeaderEpoch
		w.src.apply(&msg.BumpLeaderEpochsCommand{Partitions: []msg.BumpLeaderEpochsCommandPartition{{TopicId: p.id, Partition: p.index, MinLeaderEpoch: epoch}}})
		return
	}
	m := w.mirrors[w.rnd.IntN(len(w.mirrors))]
	switch x := w.rnd.IntN(10); {
	case x < 6:
		w.admit(m.name, m.cluster, msg.RegisterSyncCommandTopic{TopicId: p.id, Recovery: true, ReleaseNumber: -1}, func(meta.Result) {})
	case x < 8:
		w.src.apply(&msg.UnregisterSyncCommand{Mirror: m.name, ClusterId: m.cluster, Topics: []msg.UnregisterSyncCommandTopic{{TopicId: p.id, Epoch: -1}}})
	default:
		w.src.apply(&msg.ReleaseSyncCommand{Fence: noFence, RegistrationEpoch: mirror.AnyEpoch, Mirror: m.name, TopicIds: [][16]byte{p.id}})
	}
}

func (w *World) releaseModels() {
	for _, m := range w.mirrors {
		w.src.apply(&msg.ReleaseSyncCommand{Fence: noFence, RegistrationEpoch: mirror.AnyEpoch, Mirror: m.name})
	}
}

var errFault = errors.New("input/output error")

// fault is what the world does to a broker.
func (w *World) fault(n *node) {
	if n.broken && w.rnd.IntN(4) > 0 {
		w.restart(n, w.power(n))
		return
	}
	switch x := w.rnd.IntN(100); {
	case x < 15:
		if len(n.fds) > 0 {
			w.silence(n)
		}
	case x < 45:
		if len(n.fds) > 0 {
			w.note("a connection of %s is reset", n.name)
			w.anyOf(n).reset()
		}
	case x < 60:
		n.disk.SetShort(func(size int) int { return w.some(size) })
	case x < 80:
		w.note("the disk is full for a while")
		left := 1 + w.rnd.IntN(6)
		n.disk.SetFault(func(op, name string) error {
			if op == "allocate" && left > 0 {
				left--
				return segment.ErrNoSpace
			}
			return nil
		})
	case x < 88:
		w.breakDisk(n)
	default:
		w.restart(n, w.power(n))
	}
}

// anyOf is a random open connection.
func (w *World) anyOf(n *node) *end {
	for fd := int32(3 + w.rnd.IntN(24)); ; fd = 3 + (fd-2)%24 {
		if e := n.fds[fd]; e != nil {
			return e
		}
	}
}

// silence lets nothing through in one direction of a connection for a while.
func (w *World) silence(n *node) {
	e := w.anyOf(n)
	s := e.rx
	if w.rnd.IntN(2) == 0 {
		s = e.tx
	}
	s.until = w.mono + w.rnd.Int64N([]int64{50e6, 5e9, 50e9}[w.rnd.IntN(3)])
	w.note("a connection of %s is silent one way until %.6f", n.name, float64(s.until)/1e9)
}

// breakDisk lets one write or flush of a log fail, or all from then on.
func (w *World) breakDisk(n *node) {
	what := []string{"pwritev", "datasync"}[w.rnd.IntN(2)]
	w.note("the next %s fails", what)
	left := []int{1, 1 << 30}[w.rnd.IntN(2)]
	n.disk.SetFault(func(op, name string) error {
		if op == what && left > 0 && strings.Contains(name, ".log") {
			left--
			n.broken = true
			n.gaveUp = n.gaveUp || op == "datasync"
			return errFault
		}
		return nil
	})
}
