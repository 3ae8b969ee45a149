package dataplane

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"lockstep/internal/meta"
	"lockstep/internal/wire"
	"lockstep/ioring"
	"lockstep/segment"
)

// Views is where the data plane reads the cluster's facts.
type Views interface {
	// View returns the newest View.
	View() *meta.View
	// Committed is the newest commit index this broker has heard of, by the
	// controller's word: ahead of View().Index() while facts are on their way.
	Committed() uint64
}

// Cold serves requests that are not on the hot path. It runs on a goroutine of
// the cold pool and may block. nil closes the connection.
type Cold interface {
	Serve(r *ColdRequest) []byte
}

// ColdRequest is a request copied out of its frame. The response is a whole
// frame: size, header, body.
type ColdRequest struct {
	Key, Version int16
	Correlation  int32
	ClientID     string
	Listener     int32 // in the order of Listen
	Body         []byte
}

// Clock is the time by argument.
type Clock interface {
	Mono() int64 // ns, monotonic
	Wall() int64 // Unix time, ms
}

// Options is what an Engine is made of.
type Options struct {
	NodeID          int32
	Reactors        int
	MaxRequestBytes int   // socket.request.max.bytes
	FrameMemory     int   // bytes of frames being received, per reactor
	FetchMaxBytes   int   // fetch.max.bytes
	MaxConnections  int   // at most maxConnections; 0 = that many
	IdleMS          int64 // connections.max.idle.ms; 0 or less = a silent connection stays
	MirrorFetches   int   // lockstep.mirror.fetches; 0 = as many as a source allows
	Unstable        bool  // unstable.api.versions.enable
	Dirs            []*segment.Dir
	Settings        func(topic, cluster map[string]string) TopicSettings                // configs of a topic, and the cluster-wide dynamic ones
	Inflate         func(dst []byte, codec int8, src []byte, limit int) ([]byte, error) // into dst, as far as it goes
	Compress        func(codec int8, src []byte) ([]byte, error)                        // for the cleaner, which packs records again
	MayReport       func(mirror string) bool                                            // R3: nil allows all, as Kafka without an authorizer
	Views           Views
	Cold            Cold
	Clock           Clock
	Memory          ioring.Memory
	Log             *slog.Logger
	// Fatal is told that a shard cannot go on; the process should end.
	Fatal func(error)
	// Background runs a job off the ring: segment steps and flushes. nil uses
	// the engine's own goroutines. The simulator decides the order itself.
	Background func(kind JobKind, job func())
}

// JobKind tells background work apart: flushes, a few at a time so that they share
// the file system's commits,
// segment steps beside them, and the closing of unused files.
type JobKind uint8

// The kinds of background work.
const (
	jobGrow JobKind = iota
	jobFlush
	jobRest
)

// Flush is the kind of a group commit, for a driver that orders jobs itself.
const Flush = jobFlush

// Segment steps that Room may answer; the names of segment are too general
// here.
const (
	roomGrow   = segment.RoomGrow
	roomFailed = segment.RoomFailed
)

// Engine is the data plane of one broker.
type Engine struct {
	o         Options
	cores     []*Core
	listeners []int32
	m         shared

	mu    sync.RWMutex // over all and the maps below: goroutines only, never a shard's hot path
	all   directory
	parts []*Partition // those there are; a copy is made to take some out
	logs  map[segment.LogID]*segment.Log
	view  *meta.View // the last one applied
	// sweepFrom: logs of no topic are removed once a View of this index is applied, 0 never. Shard 0's.
	sweepFrom uint64

	targets        sources
	answer         atomic.Uint64                    // highest index at which a Register was answered OK
	failed         sync.Map                         // *segment.Dir that has been told of
	checkpointedAt uint64                           // sum of the last checkpoint; of whoever calls Checkpoint
	marks          map[segment.TopicPartition]int64 // high watermarks of the last run
	cold           chan coldJob
	grows          chan func()
	flushq         chan flushJob
	rests          chan func()
	cleaning       sync.Mutex // held by a round of the cleaner, and for ever at the end
	resting        atomic.Bool
	hand           atomic.Uint64 // where rest looks next
	refusals       refusals
	stop           chan struct{}
	draining       atomic.Bool
	sealing        atomic.Bool               // nobody appends any more, nor carries out a step
	names          [maxReactors]atomic.Value // string: what each shard runs on
	running        sync.WaitGroup

	unlinking sync.Mutex // of files by retention and by deletion, and checkpoints: a name may be the next topic's. Taken before a partition's lock, never by a shard

	inflateHot, inflateCold sync.Mutex // one large inflation at a time, of shards and of cold workers
}

// New makes an engine. Open recovers its logs, Start begins to serve.
func New(o Options) (*Engine, error) {
	if o.Reactors < 1 || o.Reactors > maxReactors {
		return nil, errors.New("lockstep.io.reactors must be from 1 to 64")
	}
	if o.MaxConnections <= 0 || o.MaxConnections > maxConnections {
		o.MaxConnections = maxConnections
	}
	e := &Engine{o: o, logs: map[segment.LogID]*segment.Log{}, view: meta.Empty(), stop: make(chan struct{}),
		cold: make(chan coldJob, coldQueue), grows: make(chan func(), backgroundJobs), flushq: make(chan flushJob, backgroundJobs), rests: make(chan func(), 1)}
	e.all.init()
	for _, d := range o.Dirs {
		d.OnCrowded(e.crowded)
	}
	for i := range o.Reactors {
		e.cores = append(e.cores, newCore(e, uint(i), o.Memory, func() {}))
	}
	return e, nil
}

// SetWake tells a shard how to end its wait; before Start.
func (c *Core) SetWake(wake func()) { c.inbox.wake, c.home.wake = wake, wake }

// Pool is where the shard's received frames live: a driver that carries out the
// shard's operations takes buffers from it on the shard's behalf.
func (c *Core) Pool() *ioring.Pool { return c.pool }

// AnswerBytes is how many bytes of responses and parked requests are held. It
// belongs to the shard's thread.
func (c *Core) AnswerBytes() int { return c.answers.InUse() }

// Cores are the shards, for whoever drives them.
func (e *Engine) Cores() []*Core { return e.cores }

func (e *Engine) fatal(err error) {
	if e.o.Fatal != nil {
		e.o.Fatal(err)
	}
}

func (e *Engine) clock() int64 { return e.o.Clock.Mono() }
func (e *Engine) wall() int64  { return e.o.Clock.Wall() }

func (e *Engine) background(kind JobKind, job func()) {
	if e.o.Background != nil {
		e.o.Background(kind, job)
		return
	}
	q := [...]chan func(){jobGrow: e.grows, jobFlush: nil, jobRest: e.rests}[kind] // a flush comes here when its queue is full
	select {
	case q <- job:
	default:
		// The queue holds one job a partition at most, so this is a partition
		// count far over the bound: a goroutine of its own delays nobody.
		e.spawn(job)
	}
}

// wakeShards tells shards that marks of p moved.
func (e *Engine) wakeShards(p *Partition, mask uint64) {
	for s := range e.cores {
		if mask&(1<<s) != 0 {
			e.cores[s].inbox.put(note{kind: noteMoved, part: p})
		}
	}
}

// named finds a partition by name from any goroutine.
func (e *Engine) named(name []byte, index int32) (*Partition, wire.ErrorCode) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.all.named(name, index)
}

// byID finds a partition by topic id from any goroutine, nil if there is none.
func (e *Engine) byID(id [16]byte, index int32) *Partition {
	e.mu.RLock()
	defer e.mu.RUnlock()
	p, _ := e.all.find(nil, id, true, index)
	return p
}

// apiVersions is what the handshake says beside the table.
func (e *Engine) apiVersions() wire.ApiVersionsAnswer {
	v := e.o.Views.View()
	a := wire.ApiVersionsAnswer{Unstable: e.o.Unstable, FinalizedEpoch: int64(v.Index()), Supported: supportedFeatures}
	for _, f := range v.Features() {
		if f.Level > 0 {
			a.Finalized = append(a.Finalized, wire.FinalizedFeature{Name: f.Name, Min: f.Level, Max: f.Level})
		}
	}
	return a
}

var supportedFeatures = []wire.Feature{
	{Name: "metadata.version", Min: 1, Max: 27},
	{Name: meta.FeatureMirrorSync, Min: 0, Max: 1},
	{Name: "mirror.version", Min: 0, Max: 1},
}

// Answered notes that a Register at this index was answered OK: from here on an
// acknowledgement by an older set of mirrors is counted, and there must be none.
func (e *Engine) Answered(index uint64) {
	for old := e.answer.Load(); old < index && !e.answer.CompareAndSwap(old, index); old = e.answer.Load() {
	}
}

// Applied is the index that every shard has finished, gates re-evaluated: no
// raise from an older set of mirrors can land any more (R10).
func (e *Engine) Applied() uint64 {
	low := e.cores[0].finished.Load()
	for _, c := range e.cores[1:] {
		low = min(low, c.finished.Load())
	}
	return low
}
