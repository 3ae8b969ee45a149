package sim

import (
	"bytes"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"lockstep/dataplane"
	"lockstep/internal/compress"
	"lockstep/internal/meta"
	"lockstep/internal/msg"
	"lockstep/segment"
)

// node is one broker: the engine, its shards' kernels, its disk and the facts
// its controller would send it.
type node struct {
	w       *World
	name    string // its cluster
	addr    netip.AddrPort
	eng     *dataplane.Engine
	kernels []*kernel
	disk    *segment.MemFS
	dir     *segment.Dir
	fds     map[int32]*end
	backlog []*end
	shut    []*end   // closed in this life: what they carry goes with it
	jobs    []func() // segment steps, in any order
	flushes []func() // one after the other

	life    int // counts restarts
	latest  *meta.View
	view    *meta.View // what the engine may see
	history map[uint64]*meta.View
	broken  bool // a fault was injected that kills the directory
	sealed  bool // stopped clean, and not started since
	gaveUp  bool // a flush has failed: the page cache has what the disk has not
}

func newNode(w *World, name string, port uint16) *node {
	n := &node{w: w, name: name, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port),
		disk: segment.NewMemFS(), latest: meta.Empty(), view: meta.Empty(), history: map[uint64]*meta.View{0: meta.Empty()}}
	n.apply(&msg.BootstrapCommand{ClusterId: name, Features: []msg.BootstrapCommandFeatureLevel{{Name: meta.FeatureMirrorSync, Level: 1}}})
	return n
}

// Write puts a line of the broker's log among the events.
func (n *node) Write(line []byte) (int, error) {
	_, text, _ := bytes.Cut(bytes.TrimSpace(line), []byte("level=")) // its time is not ours
	n.w.note("%s says %s", n.name, text)
	return len(line), nil
}

// View implements dataplane.Views.
func (n *node) View() *meta.View { return n.view }

// Committed implements dataplane.Views.
func (n *node) Committed() uint64 { return n.latest.Index() }

// Serve implements dataplane.Cold: it echoes what it was asked.
func (n *node) Serve(r *dataplane.ColdRequest) []byte {
	return coldAnswer(r.Key, r.Version, r.Correlation)
}

// apply commits a command. The engine sees it when it is published.
func (n *node) apply(m meta.Message) meta.Result {
	next, res := meta.Apply(n.latest, n.latest.Index()+1, meta.Encode(m))
	n.latest = next
	n.history[next.Index()] = next
	n.w.note("%s commits %T at %d: %d", n.name, m, next.Index(), res.ErrorCode)
	return res
}

// publish lets the engine see a View.
func (n *node) publish() {
	if n.view != n.latest {
		n.view = n.latest
		n.eng.ViewChanged()
	}
}

// start makes a new life of the broker on what the disk holds.
func (n *node) start() {
	w := n.w
	n.fds, n.backlog, n.shut, n.jobs, n.flushes, n.kernels, n.broken = map[int32]*end{}, nil, nil, nil, nil, nil, false
	n.life++
	dir, err := segment.OpenDir(n.disk, "/d", segment.DirOptions{ClusterID: n.name, NodeID: 1, MaxOpenFiles: w.cfg.Files})
	w.must(err)
	w.check(!n.sealed || dir.Clean(), "CleanStopIsClean", n.name, ": the directory does not carry the mark")
	n.dir, n.sealed = dir, false
	n.eng, err = dataplane.New(dataplane.Options{NodeID: 1, Reactors: w.cfg.Reactors, MaxRequestBytes: requestBytes,
		FrameMemory: w.cfg.Memory, FetchMaxBytes: 256 << 10, Unstable: true, Dirs: []*segment.Dir{dir}, Settings: n.settings, Inflate: compress.Inflate, Compress: compress.Compress,
		Views: n, Cold: n, Clock: w, Memory: heap{}, Log: slog.New(slog.NewTextHandler(n, nil)), Background: n.background})
	w.must(err)
	for _, c := range n.eng.Cores() {
		k := &kernel{n: n, core: c, awake: true}
		c.SetWake(func() { k.awake = true })
		n.kernels = append(n.kernels, k)
	}
	w.must(n.eng.Open(n.settings(nil, nil).Segment, func(int, int, segment.RecoveryStats) {}))
	inc := [16]byte{byte(n.life), byte(n.life >> 8), 1}
	reg := n.apply(&msg.RegisterBrokerCommand{BrokerId: 1, IncarnationId: inc, Host: "h", Port: int32(n.addr.Port())})
	n.apply(&msg.UnfenceBrokerCommand{BrokerId: 1, BrokerEpoch: reg.Number})
	n.view = n.latest
	n.eng.ViewChanged()
	n.eng.Sweep(n.latest.Index())
	n.eng.ListenOn(listener)
}

func (n *node) background(kind dataplane.JobKind, job func()) {
	if kind == dataplane.Flush {
		n.flushes = append(n.flushes, job)
	} else {
		n.jobs = append(n.jobs, job)
	}
	n.w.check(len(n.jobs)+len(n.flushes) < jobsPending, "LimitsHold", "background jobs pile up")
}

// runJob runs a background job if there is one.
func (n *node) runJob() bool {
	if len(n.flushes) > 0 && (len(n.jobs) == 0 || n.w.rnd.IntN(2) == 0) {
		job := n.flushes[0]
		n.flushes = n.flushes[1:]
		job()
		n.w.note("%s flushed", n.name)
		return true
	}
	if len(n.jobs) == 0 {
		return false
	}
	i := n.w.rnd.IntN(len(n.jobs))
	job := n.jobs[i]
	n.jobs = append(n.jobs[:i], n.jobs[i+1:]...)
	job()
	n.w.note("%s ran a segment step", n.name)
	return true
}

func (n *node) settings(configs, _ map[string]string) dataplane.TopicSettings {
	number := func(name string, unset int64) int64 {
		n, err := strconv.ParseInt(configs[name], 10, 64)
		if err != nil {
			return unset
		}
		return n
	}
	durable := n.w.cfg.Durable
	if v, ok := configs["flush.ack"]; ok {
		durable = v == "durable"
	}
	return dataplane.TopicSettings{
		Segment: segment.Config{SegmentBytes: segmentBytes, IndexIntervalBytes: 512, SegmentMs: number("segment.ms", 0),
			RetentionMs: number("retention.ms", -1), RetentionBytes: number("retention.bytes", -1), MaxMessageBytes: messageBytes, Durable: durable},
		MinISR: int32(number("min.insync.replicas", 1)), MaxMessageBytes: messageBytes, Durable: durable,
		Retention: configs["cleanup.policy"] == "" || strings.Contains(configs["cleanup.policy"], "delete"), Compact: strings.Contains(configs["cleanup.policy"], "compact"),
		Cleaner:       dataplane.Cleaner{MaxLagMS: 200, DeleteRetentionMS: number("delete.retention.ms", 300), MinDirtyRatio: 0.01},
		LogAppendTime: configs["message.timestamp.type"] == "LogAppendTime", TimestampBefore: math.MaxInt64, TimestampAfter: math.MaxInt64,
		ProducerExpiryMS: math.MaxInt64 / 2,
	}
}

// install gives a connection the lowest free descriptor, as a kernel does: a
// number is soon in use again.
func (n *node) install(e *end) int32 {
	fd := int32(3)
	for n.fds[fd] != nil {
		fd++
	}
	n.fds[fd] = e
	return fd
}
