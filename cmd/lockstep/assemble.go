package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/control"
	"lockstep/control/api"
	"lockstep/dataplane"
	"lockstep/internal/compress"
	"lockstep/internal/config"
	"lockstep/internal/meta"
	"lockstep/internal/status"
	"lockstep/ioring"
	"lockstep/plugins/sdk"
	"lockstep/segment"
)

// broker is one running node: the only place where the data plane, control and
// the policies meet.
type broker struct {
	cfg     config.Config
	log     *slog.Logger
	dirs    []*segment.Dir
	node    *control.Node
	engine  *dataplane.Engine
	mirrors *control.Mirrors
	plugins *pluginSet
	api     *api.Server
	epoch   int64
	names   []string // listeners, in the order they were opened
	bound   []config.Listener
	stop    context.CancelFunc
	work    sync.WaitGroup
	fatal   chan error
	ready   chan struct{}

	maxConnections int
}

type systemClock struct{ start time.Time }

func (c systemClock) Mono() int64 { return int64(time.Since(c.start)) }
func (c systemClock) Wall() int64 { return time.Now().UnixMilli() }

// coldServer hands cold requests to the API handlers once they exist.
type coldServer struct{ b *broker }

func (s coldServer) Serve(r *dataplane.ColdRequest) []byte {
	<-s.b.ready
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	name := ""
	if int(r.Listener) < len(s.b.names) {
		name = s.b.names[r.Listener]
	}
	return s.b.api.Serve(ctx, api.Request{Key: r.Key, Version: r.Version, Correlation: r.Correlation,
		ClientID: r.ClientID, Listener: name, Body: r.Body})
}

// startBroker brings a node up: directories, quorum, data plane, membership,
// listeners, mirrors, in this order. What it has begun ends on an error.
func startBroker(ctx context.Context, cfg config.Config, log *slog.Logger) (*broker, error) {
	b := &broker{cfg: cfg, log: log, fatal: make(chan error, 1), ready: make(chan struct{})}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	return b, nil
}

func (b *broker) start(ctx context.Context) error {
	files, conns := descriptors(len(b.cfg.LogDirs))
	b.maxConnections = conns
	for _, path := range b.cfg.LogDirs {
		d, err := openDir(ctx, path, segment.DirOptions{NodeID: b.cfg.NodeID, MaxOpenFiles: files})
		if err != nil {
			return err
		}
		b.dirs = append(b.dirs, d)
	}
	if err := b.openEngine(); err != nil {
		return err
	}
	if err := b.openPlugins(); err != nil {
		return err
	}
	if err := b.openNode(); err != nil {
		return err
	}
	if err := b.runEngine(); err != nil {
		return err
	}
	if err := b.listen(); err != nil {
		return err
	}
	if err := b.join(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.serve(run)
	return nil
}

// openDir waits a little for the lock: the kernel gives the files of a killed
// process back only when its ring is gone, some time after the process.
func openDir(ctx context.Context, path string, o segment.DirOptions) (*segment.Dir, error) {
	for deadline := time.Now().Add(lockWait); ; {
		d, err := segment.OpenDir(segment.DiskFS{}, path, o)
		if !errors.Is(err, segment.ErrInUse) || time.Now().After(deadline) || ctx.Err() != nil {
			return d, err
		}
		time.Sleep(lockWait / 20)
	}
}

// descriptors divides RLIMIT_NOFILE: half is for log files, which are closed
// and opened again when there are more, what they may be above that for a
// moment and a reserve are left free, and the rest is for connections.
func descriptors(dirs int) (filesPerDir int64, connections int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = minDescriptors
	}
	all := int64(min(limit.Cur, 1<<20))
	files := min(all/2, maxLogFiles)
	return max(files/int64(dirs), 1), int(max(all-files-files/8-min(all/8, keptDescriptors), 1))
}

func (b *broker) reactors() int {
	if b.cfg.IOReactors > 0 {
		return int(b.cfg.IOReactors)
	}
	return max(1, runtime.NumCPU()/2)
}

func (b *broker) openEngine() error {
	r := b.reactors()
	// A thread that comes back from a wait needs a free P: one spare a ring.
	runtime.GOMAXPROCS(runtime.NumCPU() + r)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var err error
	b.engine, err = dataplane.New(dataplane.Options{
		NodeID: b.cfg.NodeID, Reactors: r, MaxRequestBytes: int(b.cfg.RequestMaxBytes), FrameMemory: 256 << 20,
		FetchMaxBytes: int(b.cfg.FetchMaxBytes), MaxConnections: min(b.maxConnections, int(b.cfg.MaxConnections)), IdleMS: b.cfg.ConnectionsIdleMs, MirrorFetches: int(b.cfg.MirrorFetches), Unstable: b.cfg.UnstableAPIs, Dirs: b.dirs, Settings: b.settings,
		Inflate: compress.Inflate, Compress: compress.Compress, Views: b, Cold: coldServer{b}, Clock: systemClock{time.Now()}, Memory: ioring.OffHeap{},
		Log: b.log, Fatal: func(err error) {
			select {
			case b.fatal <- err:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	began, last := time.Now(), time.Now()
	return b.engine.Open(b.settings(nil, nil).Segment, func(done, total int, stats segment.RecoveryStats) {
		if stats.TornBytes > 0 {
			b.log.Warn("torn tail cut after a crash", "bytes", stats.TornBytes, "log", done)
		}
		if time.Since(last) > 2*time.Second {
			last = time.Now()
			b.log.Info("recovering logs", "done", done, "total", total, "seconds", int(time.Since(began).Seconds()))
		}
	})
}

// View and Committed let the data plane read facts before and after the quorum
// is up.
func (b *broker) View() *meta.View {
	if b.node == nil {
		return meta.Empty()
	}
	return b.node.View()
}

// Committed is the newest command index this node has heard of.
func (b *broker) Committed() uint64 {
	if b.node == nil {
		return 0
	}
	return b.node.Committed()
}

func (b *broker) openNode() error {
	var voters []control.Peer
	for _, v := range b.cfg.QuorumVoters {
		voters = append(voters, control.Peer{ID: v.ID, Addr: fmt.Sprintf("%s:%d", v.Host, v.Port)})
	}
	o := control.NodeOptions{NodeID: b.cfg.NodeID, Dir: filepath.Join(b.cfg.LogDirs[0], "lockstep-metadata"), Voters: voters,
		Log: b.log, Published: func(*meta.View) {
			if b.engine != nil {
				b.engine.ViewChanged()
			}
		}}
	for _, l := range b.cfg.Listeners {
		for _, name := range b.cfg.ControllerListeners {
			if l.Name == name && len(voters) > 1 {
				o.Listen = fmt.Sprintf("%s:%d", l.Host, l.Port)
			}
		}
	}
	node, err := control.OpenNode(o)
	b.node = node
	return err
}

// listen opens every listener that is not a controller's.
func (b *broker) listen() error {
	controller := map[string]bool{}
	for _, n := range b.cfg.ControllerListeners {
		controller[n] = true
	}
	for _, l := range b.cfg.Listeners {
		if controller[l.Name] {
			continue
		}
		if l.Protocol != "PLAINTEXT" {
			return fmt.Errorf("listener %s wants %s: only PLAINTEXT is there yet", l.Name, l.Protocol)
		}
		host := l.Host
		if host == "" {
			host = "0.0.0.0"
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return fmt.Errorf("listener %s: %q is not an address; name one of this machine, or leave it empty for all", l.Name, host)
		}
		at, err := b.engine.Listen(netip.AddrPortFrom(ip, uint16(l.Port)))
		if err != nil {
			if errors.Is(err, unix.EADDRINUSE) {
				return fmt.Errorf("%w: another process listens there; stop it or choose another port in listeners", err)
			}
			return err
		}
		l.Port = int32(at.Port())
		b.names = append(b.names, l.Name)
		b.bound = append(b.bound, l)
	}
	if len(b.bound) == 0 {
		return errors.New("no listener for clients: name one in listeners")
	}
	return nil
}

// endpoint is what a client that came in on a listener is told of a broker.
func (b *broker) endpoint(listener string, x *meta.Broker) (string, int32) {
	if x.ID == b.cfg.NodeID {
		for _, a := range b.cfg.Advertised {
			if a.Name == listener && a.Host != "" {
				if a.Port == 0 {
					a.Port = b.port(listener)
				}
				return a.Host, a.Port
			}
		}
		for _, l := range b.bound {
			if l.Name == listener {
				return advertisable(l.Host), l.Port
			}
		}
	}
	return x.Host, x.Port
}

func (b *broker) port(listener string) int32 {
	for _, l := range b.bound {
		if l.Name == listener {
			return l.Port
		}
	}
	return 0
}

// advertisable is a host clients can reach: for a listener on all addresses
// the machine's name.
func advertisable(host string) string {
	if host != "" && host != "0.0.0.0" && host != "::" {
		return host
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

func (b *broker) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	clean := true
	for _, d := range b.dirs {
		clean = clean && d.Clean()
	}
	id := b.cfg.ClusterID
	if id == "" {
		u := newID()
		id = base64.RawURLEncoding.EncodeToString(u[:])
	}
	host, port := b.endpoint(b.bound[0].Name, &meta.Broker{ID: b.cfg.NodeID})
	var err error
	b.epoch, err = b.node.Join(ctx, control.Member{NodeID: b.cfg.NodeID, Incarnation: newID(), Host: host, Port: port,
		Rack: b.cfg.Rack, Clean: clean, NewCluster: id, Features: map[string]int16{meta.FeatureMirrorSync: 1, "mirror.version": 1},
		Applied: b.engine.Applied})
	if err != nil {
		return err
	}
	for _, d := range b.dirs {
		if err := d.SetClusterID(b.node.View().ClusterID()); err != nil {
			return err
		}
	}
	b.engine.Sweep(uint64(b.epoch))
	return nil
}

// serve begins everything that goes on until the broker stops.
func (b *broker) serve(ctx context.Context) {
	b.mirrors = control.NewMirrors(control.MirrorOptions{NodeID: b.cfg.NodeID, Node: b.node, Data: b.engine, Log: b.log, Now: time.Now,
		DemoteTimeout:   time.Duration(b.cfg.MirrorDemoteTimeoutMs) * time.Millisecond,
		RegisterBarrier: time.Duration(b.cfg.MirrorRegisterBarrierMs) * time.Millisecond,
		AutoRelease:     time.Duration(b.cfg.MirrorAutoReleaseMs) * time.Millisecond,
		Refresh:         time.Duration(b.cfg.MirrorRefreshMs) * time.Millisecond,
		Coordinator:     b.plugins.of[sdk.Coordinator].Slot(), Promotion: b.plugins.of[sdk.Promotion].Slot(), Release: b.plugins.of[sdk.Release].Slot()})
	b.api = api.New(api.Deps{NodeID: b.cfg.NodeID, Config: &b.cfg, Control: quorum{b.node}, Data: brokerData{b.engine, b}, Mirrors: mirrorVerbs{b.mirrors},
		Log: b.log, NewID: newID, Now: func() int64 { return time.Now().UnixMilli() }, Rack: b.cfg.Rack, Endpoint: b.endpoint, Note: b.mirrors.Note})
	close(b.ready)
	b.runPlugins(ctx)
	b.goDo(func() { b.mirrors.Run(ctx) })
	b.goDo(func() { b.every(ctx, 5*time.Second, b.checkpoint) })
	b.goDo(func() { b.every(ctx, time.Duration(b.cfg.RetentionCheckMs)*time.Millisecond, b.engine.Retain) })
	if b.cfg.CleanerEnable {
		b.goDo(func() { b.every(ctx, time.Duration(b.cfg.CleanerBackoffMs)*time.Millisecond, b.engine.Clean) })
	}
	if ms := b.cfg.FlushMs; ms > 0 && ms < int64(time.Hour/time.Millisecond) {
		b.goDo(func() { b.every(ctx, time.Duration(ms)*time.Millisecond, b.engine.FlushAll) })
	}
}

func (b *broker) goDo(f func()) {
	b.work.Add(1)
	go func() {
		defer b.work.Done()
		f()
	}()
}

func (b *broker) every(ctx context.Context, period time.Duration, f func()) {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

func (b *broker) checkpoint() {
	if err := b.engine.Checkpoint(); err != nil {
		b.log.Warn("checkpoint not written; tried again soon", "error", err)
	}
}

// close drains and marks a clean shutdown.
func (b *broker) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := b.node.Leave(ctx, b.cfg.NodeID, b.epoch); err != nil {
		b.log.Warn("the quorum did not take our leave", "error", err)
	}
	b.stop()
	err := b.engine.Close(5 * time.Second)
	b.work.Wait()
	b.plugins.close()
	return errors.Join(err, b.node.Close())
}

// abandon ends what a failed start has begun.
func (b *broker) abandon() error {
	var errs []error
	b.plugins.close()
	if b.engine != nil && b.engine.EngineName() != "" {
		errs = append(errs, b.engine.Close(0))
	} else {
		for _, d := range b.dirs {
			errs = append(errs, d.Close())
		}
	}
	if b.node != nil {
		errs = append(errs, b.node.Close())
	}
	return errors.Join(errs...)
}

func newID() (u [16]byte) {
	_, _ = rand.Read(u[:]) // never fails: see crypto/rand
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

// settings is a topic's configuration as the data plane needs it: its own over
// the cluster's dynamic defaults over the file's. A View holds only what was
// validated; should a value be bad all the same, the defaults hold and the log
// says so.
func (b *broker) settings(configs, cluster map[string]string) dataplane.TopicSettings {
	if len(cluster) > 0 {
		own := configs
		configs = map[string]string{}
		for _, name := range config.TopicNames() {
			if v, ok := cluster[name]; ok {
				configs[name] = v
			}
		}
		maps.Copy(configs, own)
	}
	t, err := config.TopicOf(&b.cfg, configs)
	if err != nil {
		b.log.Error("topic configuration not understood; defaults hold", "error", err)
		t = config.NewTopic(&b.cfg)
	}
	deletes := false
	for _, p := range t.CleanupPolicy {
		deletes = deletes || p == "delete"
	}
	return dataplane.TopicSettings{
		Segment: segment.Config{SegmentBytes: int64(t.SegmentBytes), SegmentMs: t.SegmentMs, IndexIntervalBytes: t.IndexIntervalBytes,
			RetentionMs: t.RetentionMs, RetentionBytes: t.RetentionBytes, MaxMessageBytes: t.MaxMessageBytes, Durable: t.Durable()},
		MinISR: t.MinInsyncReplicas, MaxMessageBytes: int(t.MaxMessageBytes), Durable: t.Durable(), Compact: t.Compacted(),
		LogAppendTime: t.TimestampType == "LogAppendTime", TimestampBefore: t.TimestampBeforeMaxMs, TimestampAfter: t.TimestampAfterMaxMs,
		Retention: deletes, ProducerExpiryMS: int64(b.cfg.ProducerExpirationMs),
		Cleaner: dataplane.Cleaner{MinLagMS: t.MinCompactionLagMs, MaxLagMS: t.MaxCompactionLagMs, DeleteRetentionMS: t.DeleteRetentionMs, MinDirtyRatio: t.MinCleanableDirty},
	}
}

// brokerData is the data plane with the disks as the API handlers see them.
type brokerData struct {
	*dataplane.Engine
	b *broker
}

// Dirs tells the state of the log directories.
func (d brokerData) Dirs() []status.Dir {
	var out []status.Dir
	for _, dir := range d.b.dirs {
		s := status.Dir{Path: dir.Path(), TotalBytes: -1, UsableBytes: -1}
		if err := dir.Failed(); err != nil {
			s.Error = err.Error()
		}
		var fs unix.Statfs_t
		if unix.Statfs(dir.Path(), &fs) == nil {
			s.TotalBytes, s.UsableBytes = int64(fs.Blocks)*fs.Bsize, int64(fs.Bavail)*fs.Bsize
		}
		out = append(out, s)
	}
	return out
}
