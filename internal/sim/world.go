package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"

	"lockstep/internal/invariant"
	"lockstep/internal/mirror"
	"lockstep/internal/msg"
)

// Config is the shape of a world; Pick draws one from a seed.
type Config struct {
	Reactors    int
	Durable     bool // flush.ack
	Mirrors     int  // played by models
	Pair        bool // and one by a second broker
	Failover    bool // the source's site is lost at the end
	Faults      bool // disk, network, crashes
	Events      int
	Files       int64 // kept open at most, 0 all
	Memory      int   // of frames
	Compact     bool  // a topic is compacted
	Bad         bool  // plugins are swapped for bad ones
	AutoRelease int64 // ms of silence after which a policy may release, 0 never
	Whole       bool  // keep the whole trace
}

// Pick draws a shape.
func Pick(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 7))
	return Config{Reactors: []int{1, 3}[r.IntN(2)], Durable: r.IntN(3) == 0, Mirrors: r.IntN(3), Faults: r.IntN(3) > 0, Pair: r.IntN(2) == 0, Events: 4000,
		Failover: r.IntN(3) == 0, Files: []int64{0, 0, 3}[r.IntN(3)],
		Bad: r.IntN(3) > 0, Compact: r.IntN(2) == 0, Memory: []int{frameMemory, frameMemory, frameMemory / 4}[r.IntN(3)], AutoRelease: []int64{0, 0, 2000}[r.IntN(3)]}
}

// World is everything there is, and the order in which it happens.
type World struct {
	Seed       uint64
	cfg        Config
	rnd        *rand.Rand
	mono       int64
	src        *node
	dst        *node // nil without a pair
	nodes      []*node
	clients    []client
	mirrors    []*mirrorModel
	slots      []*slot
	release    *slot           // the source's
	pair       *pair           // nil without one
	registered map[int64]int64 // when, by epoch
	model      *model
	trace      []string
	events     int
	nextPID    int64
	nextID     uint64
	topicsMade int
	calm       bool // no more faults: the run is coming to its end
	failed     bool // the second site is on its own
	released   bool // nobody registers any more
}

// client is someone who speaks to a node. act does one small thing, or returns
// false when there is nothing to do.
type client interface {
	act() bool
	// owed is how many answers it waits for.
	owed() int
	// cut forgets its connections: the broker died. lost tells that records
	// which were acknowledged may be gone.
	cut(lost bool)
	// quit closes its connections.
	quit()
}

// Mono implements dataplane.Clock.
func (w *World) Mono() int64 { return w.mono }

// Wall implements dataplane.Clock.
func (w *World) Wall() int64 { return w.wall() }

func (w *World) wall() int64 { return w.wallAt(w.mono) }

func (w *World) wallAt(mono int64) int64 { return 1_700_000_000_000 + mono/1e6 }

// check is where a law is enforced.
func (w *World) check(ok bool, law string, args ...any) {
	if !ok {
		invariant.Check(false, law, args...)
	}
}

func (w *World) must(err error) { w.check(err == nil, "TheWorldWorks", err) }

// some is a count from 1 to n, often n.
func (w *World) some(n int) int {
	if n <= 1 || w.rnd.IntN(3) > 0 {
		return n
	}
	return 1 + w.rnd.IntN(n)
}

func (w *World) note(format string, args ...any) {
	if len(w.trace) >= 2*traceLines && !w.cfg.Whole {
		w.trace = append(w.trace[:0], w.trace[len(w.trace)-traceLines:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%12.6f ", float64(w.mono)/1e9)+fmt.Sprintf(format, args...))
}

// Trace is the last events.
func (w *World) Trace() string {
	from := max(0, len(w.trace)-traceLines)
	if w.cfg.Whole {
		from = 0
	}
	return strings.Join(w.trace[from:], "\n")
}

// Run plays a world to its end. An error names the law that was broken.
func Run(seed uint64, cfg Config) (w *World, err error) {
	w = &World{Seed: seed, cfg: cfg, rnd: rand.New(rand.NewPCG(seed, 0)), mono: 1e9, nextPID: 1000, registered: map[int64]int64{}}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("seed %d, %+v, event %d: %v\n%s\n%s", seed, cfg, w.events, r, stack(), w.Trace())
		}
	}()
	w.build()
	for w.events = 0; w.events < cfg.Events; w.events++ {
		w.event()
		w.laws()
	}
	if cfg.Pair && cfg.Failover {
		w.failover()
	} else {
		w.settle()
	}
	return w, nil
}

// event lets one thing happen.
func (w *World) event() {
	w.tendPlugins()
	n := w.nodes[w.rnd.IntN(len(w.nodes))]
	switch x := w.rnd.IntN(1010); {
	case x < 500:
		n.kernels[w.rnd.IntN(len(n.kernels))].turn(false)
	case x < 780:
		w.clients[w.rnd.IntN(len(w.clients))].act()
	case x < 850:
		n.runJob()
	case x < 870:
		n.eng.RunCold()
	case x < 900:
		n.publish()
	case x < 960:
		w.mono += w.rnd.Int64N(3e6)
	case x < 965:
		w.mono += w.rnd.Int64N(3e9)
	case x < 975:
		w.operate()
	case x < 985:
		n.housekeep()
	case x < 989:
		w.administrate()
	case x >= 1008:
		w.stopClean(n)
	case x >= 1000:
		if w.cfg.Compact {
			n.clean()
		}
	case w.cfg.Faults:
		w.fault(n)
	}
}

func (n *node) housekeep() {
	switch n.w.rnd.IntN(3) {
	case 0:
		if n.dir.Failed() == nil {
			_ = n.eng.Checkpoint() // a directory may fail meanwhile
		}
	case 1:
		n.eng.FlushAll()
	case 2:
		if n == n.w.src {
			n.w.mayDrop()
		}
		n.eng.Retain()
	}
}

// settle ends a run: faults are over, mirrors are released, and everything
// that waits must be answered.
func (w *World) settle() {
	w.calm = true
	w.note("faults are over")
	for _, n := range w.nodes {
		n.disk.SetFault(nil)
		n.disk.SetShort(nil)
		if n.broken {
			w.restart(n, false)
		}
	}
	w.tidy()
	w.releaseModels() // they are silent from here on
	if w.pair != nil {
		w.promoted()
	}
	w.released = true
	w.src.apply(&msg.ReleaseSyncCommand{Fence: noFence, RegistrationEpoch: mirror.AnyEpoch, Mirror: pairName})
	deadline := w.mono + patience
	for range settleTurns {
		if !w.quietStep() && w.owed() == 0 && w.caughtUp() {
			w.finish()
			return
		}
		w.laws()
		if w.mono >= deadline {
			w.stuck("not after so long;")
		}
	}
	w.stuck("no end in sight;")
}

// promoted is PluginDeathIsInvisible: whatever plugins have done, once good ones
// serve every partition is mirrored, and every topic in SYNC at both sites.
func (w *World) promoted() {
	inSync := func() bool {
		for topic := range topics {
			p := w.of(topic)[0]
			for _, mp := range w.dst.latest.TopicByID(p.id).Partitions {
				if mp.State != mirror.Mirroring {
					return false
				}
			}
			pr := w.dst.latest.TopicByID(p.id).Mirror.Promotion
			stands := false
			for _, r := range w.src.latest.TopicByID(p.id).Registrations {
				stands = stands || r.Mirror == pairName && r.Gates() && r.Epoch == pr.RegistrationEpoch
			}
			if pr.Phase != mirror.InSync || !stands {
				return false
			}
		}
		return true
	}
	for deadline := w.mono + patience; !inSync(); {
		w.quietStep()
		w.mono += 1e6 // who is refused at once asks again at once
		w.laws()
		w.check(w.mono < deadline, "PluginDeathIsInvisible", "not in SYNC after so long;", w.pair.stand(), w.where())
	}
}

// stuck names the law that a run without an end has broken.
func (w *World) stuck(how string) {
	law := "EveryRequestIsAnswered"
	for _, p := range w.model.parts {
		if st, ok := w.src.eng.Status(p.id, p.index); ok && len(st.Mirrors) > 0 && st.High < st.End {
			law = "ReleasedNeverGates"
		} else if !ok && w.othersFiles(p) {
			law = "DeletedIsGone"
		}
	}
	w.check(false, law, how, " ", w.owed(), " answers are owed;", w.debtors(), w.where())
}

// quietStep lets everybody act once, and time pass when nobody can.
func (w *World) quietStep() bool {
	moved := false
	w.tendPlugins()
	for _, n := range w.nodes {
		n.publish()
		if w.dst != nil {
			w.pairLaws()
		}
		for _, k := range n.kernels {
			moved = k.turn(true) || moved
		}
		for n.runJob() || n.eng.RunCold() {
			moved = true
		}
	}
	for _, c := range w.clients {
		for range 8 {
			if !c.act() {
				break
			}
			moved = true
		}
	}
	if !moved {
		w.mono += 50e6
	}
	return moved
}

func (w *World) owed() (n int) {
	for _, c := range w.clients {
		n += c.owed()
	}
	return n
}

// finish closes every connection and looks at what is left behind.
func (w *World) finish() {
	for _, c := range w.clients {
		c.quit()
	}
	if w.dst != nil {
		w.compare(w.dst.disk)
		w.dst.crash(false)
		w.nodes = w.nodes[:1]
	}
	for range 50 {
		for _, k := range w.src.kernels {
			k.turn(true)
		}
		for w.src.runJob() || w.src.eng.RunCold() {
		}
	}
	w.nothingLeaks()
	w.deletedIsGone(w.src.disk)
	w.audit(w.src.disk, (*part).wasFlushed)
}

// connect opens a connection from a node to whoever listens at addr.
func (w *World) connect(n *node, addr netip.AddrPort) int32 {
	for _, to := range w.nodes {
		if to.addr == addr && to != n && w.rnd.IntN(20) > 0 {
			a, b := pipe()
			to.backlog = append(to.backlog, b)
			return n.install(a)
		}
	}
	return -int32(syscall.ECONNREFUSED)
}

// dial opens a client's connection.
func (w *World) dial(n *node) *end {
	a, b := pipe()
	n.backlog = append(n.backlog, b)
	return a
}
