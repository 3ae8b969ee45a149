package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	lockFile   = ".lock"
	propsFile  = "meta.properties"
	markerFile = ".kafka_cleanshutdown"
	formatName = "lockstep.format"
	formatNow  = "1"
)

// DirOptions says whose directory it is.
type DirOptions struct {
	ClusterID string // "" = not known yet
	NodeID    int32
	// MaxOpenFiles is how many log files stay open and mapped before unused
	// logs are put to rest; 0 = a default.
	MaxOpenFiles int64
}

// Dir is a log directory.
type Dir struct {
	fs      FS
	path    string
	lock    io.Closer
	sync    Syncer
	clean   bool
	failed  atomic.Pointer[error]
	open    atomic.Int64 // files and maps
	lowered atomic.Int64

	onCrowded func()

	files  sync.Mutex // serialises writers of the small files; never held with a partition's lock, taken before mu
	mu     sync.Mutex // over the fields below; nobody waits for a disk under it
	opts   DirOptions
	logs   map[TopicPartition]*Log
	points map[TopicPartition]int64 // recovery points as the file has them
	starts map[TopicPartition]int64 // log start offsets as the file has them
	cleans map[TopicPartition]int64 // where the dirty parts begin as the file has them
	opened map[TopicPartition]bool  // no longer as the clean close left them
	closed manifest                 // what the clean close left
	sealed [][]byte                 // what this one will leave; of the thread that closes
}

// OpenDir locks a log directory, makes it if it is not there, checks whose it
// is and whether it was closed clean. The marker of a clean close is removed
// before anything is loaded, so that a crash from here on counts as one.
func OpenDir(disk FS, path string, o DirOptions) (*Dir, error) {
	if o.MaxOpenFiles == 0 {
		o.MaxOpenFiles = openFiles
	}
	d := &Dir{fs: disk, path: path, opts: o, logs: map[TopicPartition]*Log{}, opened: map[TopicPartition]bool{}}
	if err := makeRoot(disk, path); err != nil {
		return nil, err
	}
	lock, err := disk.Meta().Lock(filepath.Join(path, lockFile))
	if errors.Is(err, ErrInUse) {
		return nil, fmt.Errorf("log directory %s is %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("lock of log directory %s: %w", path, err)
	}
	d.lock = lock
	if d.sync, err = disk.Meta().OpenSync(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := d.load(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// makeRoot makes the directory if it is not there. Its name must be durable
// before anything in it is said to be.
func makeRoot(disk FS, path string) error {
	if _, err := disk.Meta().ReadDir(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := disk.Meta().MkdirAll(path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(path))
}

func (d *Dir) load() error {
	if err := d.checkProperties(); err != nil {
		return err
	}
	marker := filepath.Join(d.path, markerFile)
	text, err := d.fs.Meta().ReadFile(marker)
	if err == nil {
		d.clean = true
		d.closed, err = d.readManifest(string(text))
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if d.clean {
		if err := errors.Join(d.fs.Remove(marker), d.fs.SyncDir(d.path)); err != nil {
			return err
		}
	}
	if d.points, err = d.ReadCheckpoint(RecoveryPointCheckpoint); err != nil {
		return err
	}
	if d.starts, err = d.ReadCheckpoint(LogStartCheckpoint); err != nil {
		return err
	}
	if d.cleans, err = d.ReadCheckpoint(CleanerCheckpoint); err != nil {
		return err
	}
	return d.finishDeletes()
}

// checkProperties refuses the directory of another cluster or node and
// completes meta.properties.
func (d *Dir) checkProperties() error {
	path := filepath.Join(d.path, propsFile)
	data, err := d.fs.Meta().ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.writeProperties()
	}
	if err != nil {
		return err
	}
	props := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			props[key] = value
		}
	}
	if f := props[formatName]; f != formatNow {
		return fmt.Errorf("log directory %s has %s=%q, this build reads %s", d.path, formatName, f, formatNow)
	}
	if id := props["node.id"]; id != strconv.Itoa(int(d.opts.NodeID)) {
		return fmt.Errorf("log directory %s belongs to node %s, not to node %d", d.path, id, d.opts.NodeID)
	}
	was := props["cluster.id"]
	if was != "" && d.opts.ClusterID != "" && was != d.opts.ClusterID {
		return fmt.Errorf("log directory %s belongs to cluster %s, not to cluster %s", d.path, was, d.opts.ClusterID)
	}
	if was != "" {
		d.opts.ClusterID = was
		return nil
	}
	if d.opts.ClusterID == "" {
		return nil
	}
	return d.writeProperties()
}

func (d *Dir) writeProperties() error {
	var b strings.Builder
	fmt.Fprintf(&b, "version=1\nnode.id=%d\n%s=%s\n", d.opts.NodeID, formatName, formatNow)
	if d.opts.ClusterID != "" {
		fmt.Fprintf(&b, "cluster.id=%s\n", d.opts.ClusterID)
	}
	return d.fs.Meta().WriteFile(filepath.Join(d.path, propsFile), []byte(b.String()))
}

// Logs returns how many logs are open.
func (d *Dir) Logs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.logs)
}

// Path returns the directory's path.
func (d *Dir) Path() string { return d.path }

// OpenFiles returns how many log files are open and mapped.
func (d *Dir) OpenFiles() int64 { return d.open.Load() }

// Clean tells whether the directory was closed by CloseClean before.
func (d *Dir) Clean() bool { return d.clean }

// ClusterID returns the cluster the directory belongs to, "" if not known.
func (d *Dir) ClusterID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opts.ClusterID
}

// SetClusterID records the cluster of a directory that had none; another
// cluster than the recorded one is an error.
func (d *Dir) SetClusterID(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opts.ClusterID == id {
		return nil
	}
	if d.opts.ClusterID != "" {
		return fmt.Errorf("log directory %s belongs to cluster %s, not to cluster %s", d.path, d.opts.ClusterID, id)
	}
	d.opts.ClusterID = id
	if err := d.writeProperties(); err != nil {
		d.opts.ClusterID = ""
		return err
	}
	return nil
}

// Failed returns nil, or ErrDirFailed wrapping what failed the directory.
func (d *Dir) Failed() error {
	if p := d.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail ends the directory for the life of the process: every append, read,
// flush and plan is refused from now on. The first error is kept.
func (d *Dir) Fail(err error) {
	wrapped := fmt.Errorf("%w: %s: %w", ErrDirFailed, d.path, err)
	d.failed.CompareAndSwap(nil, &wrapped)
}

// Scan lists the partitions that have a directory.
func (d *Dir) Scan() ([]LogID, error) {
	names, err := d.fs.Meta().ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var ids []LogID
	for _, name := range names {
		p, ok := parsePartition(name)
		if !ok {
			continue
		}
		if id, _, ok := decodeID(d.closed[p]); ok {
			ids = append(ids, id)
			continue
		}
		data, err := d.fs.Meta().ReadFile(filepath.Join(d.path, name, metadataFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a crash before the first append was answered, or a file of that name
		}
		if err != nil {
			return nil, err
		}
		id, ok := decodeTopicID(data)
		if !ok {
			return nil, fmt.Errorf("%s has no topic id", filepath.Join(d.path, name, metadataFile))
		}
		ids = append(ids, LogID{Topic: p.Topic, Partition: p.Partition, TopicID: id})
	}
	return ids, nil
}

// parsePartition splits <topic>-<partition>.
func parsePartition(name string) (TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return TopicPartition{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return TopicPartition{}, false
	}
	return TopicPartition{name[:i], int32(n)}, true
}

// OpenLog opens the log of a partition and recovers it if it has files; now
// (ms) is when the producers it finds were last seen. Nothing is created
// before the first append. A *CorruptError means that bytes which were
// durable are damaged or gone: nothing was changed on disk.
func (d *Dir) OpenLog(id LogID, cfg Config, now int64) (*Log, RecoveryStats, error) {
	if err := d.Failed(); err != nil {
		return nil, RecoveryStats{}, err
	}
	p := id.TopicPartition()
	l := &Log{dir: d, id: id, path: filepath.Join(d.path, p.String()), failed: &d.failed, cfg: cfg, now: now, producers: newProducers()}
	d.mu.Lock()
	point, start, clean := d.points[p], d.starts[p], d.cleans[p]
	taken := d.logs[p] != nil
	l.clean = d.clean && !d.opened[p]
	if d.clean {
		d.opened[p] = true
	}
	entry := d.closed[p]
	delete(d.closed, p)
	d.mu.Unlock()
	if taken {
		return nil, RecoveryStats{}, fmt.Errorf("log %s is open already: %w", p, ErrBusy)
	}
	stats, err := RecoveryStats{}, error(nil)
	if entry == nil || !l.restore(entry, start) {
		stats, err = l.recover(point, start)
	}
	if err != nil {
		for _, s := range l.list() {
			s.retire()
		}
		return nil, stats, fmt.Errorf("log %s: %w", p, err)
	}
	l.cleaned.Store(min(clean, l.End()))
	d.mu.Lock()
	d.logs[p] = l
	d.mu.Unlock()
	if start > l.Start() || clean > l.End() { // of records that are lost; it must not hide those that come in their place
		if err := d.lowerCheckpoints(p); err != nil && !temporary(err) {
			l.Close()
			return nil, stats, fmt.Errorf("log %s: %w", p, err)
		}
	}
	return l, stats, nil
}

func (d *Dir) forget(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := l.id.TopicPartition(); d.logs[p] == l {
		delete(d.logs, p)
	}
}

// Delete closes logs and removes their files: the directories get names no
// partition has and then go. Log.Leave has said yes for all of them. Readers keep what
// they pinned. The disk is waited for a few times, however many logs there are.
func (d *Dir) Delete(logs ...*Log) error {
	if err := d.Failed(); err != nil {
		return err
	}
	for _, l := range logs {
		l.Close()
	}
	gone := make([]TopicPartition, 0, len(logs))
	for _, l := range logs {
		gone = append(gone, l.id.TopicPartition())
	}
	if err := errors.Join(d.dropCheckpoints(gone...), d.dropMarks(gone...)); err != nil {
		return err
	}
	var moved []string
	var errs []error
	for _, l := range logs {
		gone := l.id.deletedName(d.path)
		err := errors.Join(d.removeDir(gone), d.fs.Rename(l.path, gone))
		never := !l.exists && errors.Is(err, fs.ErrNotExist) // written to; on a full disk its directory may have been made all the same
		if err != nil && !never {
			errs = append(errs, err)
			continue
		}
		d.mu.Lock()
		delete(d.opened, l.id.TopicPartition()) // the next of its name begins with no files
		d.mu.Unlock()
		if !never {
			moved = append(moved, gone)
		}
	}
	if len(moved) > 0 {
		if err := d.fs.SyncDir(d.path); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, gone := range moved {
		errs = append(errs, d.removeDir(gone))
	}
	return errors.Join(errs...)
}

// finishDeletes removes what a crash left of deleted partitions.
func (d *Dir) finishDeletes() error {
	names, err := d.fs.Meta().ReadDir(d.path)
	for _, name := range names {
		if strings.HasSuffix(name, deleteSuffix) && err == nil {
			err = d.removeDir(filepath.Join(d.path, name))
		}
	}
	return err
}

func (d *Dir) removeDir(path string) error {
	names, err := d.fs.Meta().ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, d.fs.Remove(filepath.Join(path, name)))
	}
	return errors.Join(err, d.fs.Remove(path))
}

// CloseClean leaves the marker of a clean close and gives up the directory.
// All logs were sealed by SealClean and closed before.
func (d *Dir) CloseClean() error {
	if err := d.Failed(); err != nil {
		return errors.Join(err, d.Close())
	}
	sum, err := d.writeManifest()
	if err == nil {
		err = d.fs.Meta().WriteFile(filepath.Join(d.path, markerFile), []byte("version=0\n"+sum))
	}
	return errors.Join(err, d.Close())
}

// Close gives up the directory; the next OpenDir finds it not clean.
func (d *Dir) Close() error { return errors.Join(d.sync.Close(), d.lock.Close()) }
