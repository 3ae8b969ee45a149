package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/internal/wire"
)

const (
	fsIocShutdown   = 0x8004587d // FS_IOC_SHUTDOWN of ext4, XFS_IOC_GOINGDOWN
	noLogFlush      = 2
	cutSegmentBytes = 32 << 10
)

var cutConfig = Config{SegmentBytes: cutSegmentBytes, IndexIntervalBytes: 512, RetentionMs: -1, RetentionBytes: 4 * cutSegmentBytes, MaxMessageBytes: 4096}

// volume is a file system of its own on a loop device, whose power can be cut.
type volume struct {
	kind, dir, image, loop, mnt string
}

// newVolume makes and mounts one. An error says what this machine lacks.
func newVolume(t *testing.T, kind string) (*volume, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root for loop mounts")
	}
	mkfs, err := exec.LookPath("mkfs." + kind)
	if err != nil {
		return nil, fmt.Errorf("mkfs.%s is not installed", kind)
	}
	base := os.Getenv("LOCKSTEP_CUT_DIR")
	if base == "" {
		base = "/dev/shm" // the cut is the file system's; what lies below need not be slow
		if _, err := os.Stat(base); err != nil {
			base = ""
		}
	}
	dir, err := os.MkdirTemp(base, "lockstep-cut-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	v := &volume{kind: kind, dir: dir, image: filepath.Join(dir, "image"), mnt: filepath.Join(dir, "mnt")}
	size := map[string]int64{"ext4": 64 << 20, "xfs": 320 << 20}[kind]
	if err := errors.Join(os.Mkdir(v.mnt, 0o755), os.WriteFile(v.image, nil, 0o600), os.Truncate(v.image, size)); err != nil {
		return nil, err
	}
	args := map[string][]string{"ext4": {"-q", "-F", v.image}, "xfs": {"-q", "-f", v.image}}[kind]
	if out, err := exec.Command(mkfs, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.%s: %v: %s", kind, err, out)
	}
	out, err := exec.Command("losetup", "-f", "--show", v.image).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("loop devices are not allowed: %v: %s", err, strings.TrimSpace(string(out)))
	}
	v.loop = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		_ = unix.Unmount(v.mnt, unix.MNT_DETACH)
		_ = exec.Command("losetup", "-d", v.loop).Run()
	})
	if err := v.mount(); err != nil {
		return nil, fmt.Errorf("mounts of %s are not allowed: %w", kind, err)
	}
	return v, nil
}

func (v *volume) mount() error { return unix.Mount(v.loop, v.mnt, v.kind, 0, "") }

// cut drops everything that was not flushed, as a loss of power does.
func (v *volume) cut() error {
	fd, err := unix.Open(v.mnt, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.IoctlSetPointerInt(fd, fsIocShutdown, noLogFlush)
}

// again brings the power back.
func (v *volume) again() error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		err := unix.Unmount(v.mnt, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("umount: %w", err)
		}
	}
	return v.mount()
}

// cutLog is a partition with a writer of its own.
type cutLog struct {
	promise
	l      *Log
	r      *rand.Rand
	ghosts map[string]bool // batches that an earlier cut took
}

// adopt puts in place of what was written and not acknowledged what an earlier
// leader had written there: ext4 commits the length of a file before the data
// of a block that it has already, so the block may come back as it was. The
// offset and the epoch say which batch it is, and epochs do not fall.
func (p *cutLog) adopt() {
	got, why := contentOf(p.l)
	if why != "" {
		return
	}
	list := between(p.bs, p.l.Start(), p.l.End())
	var found []wire.Batch
	epoch := int32(-1)
	_, _ = Walk(got, func(_ int64, b wire.Batch) error {
		if len(found) < len(list) && bytes.Equal(b, list[len(found)]) ||
			b.BaseOffset() >= p.durable && p.ghosts[string(b)] && b.PartitionLeaderEpoch() >= epoch {
			found = append(found, append(wire.Batch(nil), b...))
			epoch = b.PartitionLeaderEpoch()
		}
		return nil
	})
	for _, b := range p.bs {
		if b.NextOffset() > p.durable {
			p.ghosts[string(b)] = true
		}
	}
	if bytes.Equal(got, join(found)) {
		p.bs = found
	}
}

// write appends and flushes until the power goes.
func (p *cutLog) write(parts []*cutLog, early bool, off *atomic.Bool) {
	var w Write
	epoch := p.l.LatestEpoch() + 1
	for n := 0; ; n++ {
		for range 1 + p.r.IntN(4) {
			s := plain(p.l.NextOffset(), 1+p.r.IntN(4), p.r.IntN(300))
			s.epoch = max(epoch, 0)
			b := build(s)
			if grow(p.l, len(b), int64(n)) != nil {
				return
			}
			p.bs = append(p.bs, b)
			p.l.Queue(b, nothing{})
			if drain(p.l, &w) != nil {
				return
			}
		}
		f, ok := p.l.FlushPlan()
		if !ok {
			return
		}
		if early && !off.Load() {
			p.durable = f.End()
		}
		f.Do()
		// XFS may answer a flush with success that it finds shut down on its
		// way: the log lets go of the inode, and that looks like done. With the
		// power really off nobody would hear that answer.
		if p.l.Flushed(f) != nil || off.Load() {
			return
		}
		p.durable = f.End()
		if n%8 == 7 {
			points := map[TopicPartition]int64{}
			for _, q := range parts {
				points[q.id.TopicPartition()] = q.l.Durable()
			}
			if p.l.Dir().WriteCheckpoint(RecoveryPointCheckpoint, points) != nil {
				return
			}
		}
		if d, ok := p.l.Drop(p.l.RetentionPlan(0, p.l.Durable())); ok {
			p.start = p.l.Start()
			err := d.Do()
			p.l.Unlinked(d)
			if err != nil {
				return
			}
		}
	}
}

// cutting is a log directory on a volume.
type cutting struct {
	v     *volume
	parts []*cutLog
	d     *Dir
	stats []RecoveryStats
}

func newCutting(v *volume, seed uint64) *cutting {
	c := &cutting{v: v}
	for i := range 3 {
		id := LogID{Topic: "orders", Partition: int32(i), TopicID: [16]byte{9, byte(i)}}
		c.parts = append(c.parts, &cutLog{promise: promise{id: id, dropped: true}, r: rand.New(rand.NewPCG(seed, uint64(i))), ghosts: map[string]bool{}})
	}
	return c
}

// open recovers the logs and returns the acknowledged records that are lost.
func (c *cutting) open() (lost int64, why string) {
	d, err := OpenDir(DiskFS{}, filepath.Join(c.v.mnt, "data"), DirOptions{ClusterID: "c1", NodeID: 7})
	if err != nil {
		return 0, err.Error()
	}
	c.d, c.stats = d, nil
	for _, p := range c.parts {
		l, stats, err := d.OpenLog(p.id, cutConfig, 0)
		if err != nil {
			return lost, err.Error()
		}
		c.stats = append(c.stats, stats)
		p.l = l
		p.adopt()
		lost += p.lost(l)
		if x := p.holds(l, false); x != "" && why == "" {
			why = x
		}
		p.durable = min(p.durable, l.End())
		p.bs = append([]wire.Batch(nil), between(p.bs, l.Start(), l.End())...)
	}
	return lost, why
}

// describe says what the logs look like, for a law that was broken.
func (c *cutting) describe() string {
	var b strings.Builder
	for i, p := range c.parts {
		if p.l == nil {
			continue
		}
		fmt.Fprintf(&b, "\n%s durable %d, recovery point %d, %+v:", p.l.path, p.durable, c.d.points[p.id.TopicPartition()], c.stats[i])
		for _, s := range p.l.Segments() {
			fmt.Fprintf(&b, " %d..%d %d bytes;", s.Base, s.End, s.Bytes)
		}
	}
	return b.String()
}

func (c *cutting) close() {
	for _, p := range c.parts {
		p.l.Close()
	}
	_ = c.d.Close()
}

// run writes for a while and cuts the power under it.
func (c *cutting) run(r *rand.Rand, early bool) error {
	var wg sync.WaitGroup
	var off atomic.Bool // the power is going: what is answered now is not heard
	for _, p := range c.parts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p.write(c.parts, early, &off)
		}()
	}
	time.Sleep(time.Duration(2+r.IntN(28)) * time.Millisecond)
	off.Store(true)
	err := c.v.cut()
	wg.Wait()
	c.close()
	return errors.Join(err, c.v.again())
}

// TestCrashPowerCut cuts the power of a mounted file system under a log
// directory that is written with flush.ack=durable, again and again: what was
// acknowledged is there after the mount. The control acknowledges before the
// fdatasync and must lose.
func TestCrashPowerCut(t *testing.T) {
	if *crashCuts == 0 {
		t.Skip("power cuts on loop mounts: make crash, make linux-test")
	}
	for _, kind := range []string{"ext4", "xfs"} {
		for _, early := range []bool{false, true} {
			name, n := "power-cut "+kind, *crashCuts
			if early {
				name, n = name+" control", max(20, n/10)
			}
			t.Run(name, func(t *testing.T) { powerCuts(t, name, kind, n, early) })
		}
	}
}

func powerCuts(t *testing.T, name, kind string, n int, early bool) {
	y := newTally(t, name)
	defer y.print(t)
	v, err := newVolume(t, kind)
	if err != nil {
		y.Skipped = err.Error()
		t.Skip(err)
	}
	r := rand.New(rand.NewPCG(y.Seed, 17))
	c := newCutting(v, y.Seed)
	if _, why := c.open(); why != "" {
		t.Fatal(why)
	}
	for y.Cuts < n {
		before := c.acked()
		if err := c.run(r, early); err != nil {
			if y.Cuts == 0 {
				c.v = v
				y.Skipped = fmt.Sprintf("FS_IOC_SHUTDOWN on %s: %v", kind, err)
				t.Skip(y.Skipped)
			}
			t.Fatal(err)
		}
		y.Cuts++
		y.Checked += c.acked() - before
		lost, why := c.open()
		y.Lost += lost
		if why != "" && !early {
			if keep := os.Getenv("LOCKSTEP_CUT_KEEP"); keep != "" {
				out, err := exec.Command("cp", "-a", filepath.Join(v.mnt, "data"), keep).CombinedOutput()
				t.Logf("the directory as recovered is in %s: %s %v", keep, out, err)
			}
			t.Fatalf("cut %d of seed %d: %s; %s", y.Cuts, y.Seed, why, c.describe())
		}
	}
	c.close()
	if early && y.Lost == 0 {
		t.Fatal("the harness does not see an acknowledgement before the fdatasync")
	}
	if early {
		y.Note = "an acknowledgement planted before the fdatasync: it must lose"
	}
}

// acked counts the records acknowledged as durable.
func (c *cutting) acked() (n int64) {
	for _, p := range c.parts {
		n += p.durable
	}
	return n
}

// TestFullDisk fills a real file system: appends are refused, what is there is
// read and flushed, a start comes up, and with space appends go on.
func TestFullDisk(t *testing.T) {
	if !*fullDisk {
		t.Skip("fills a loop mount: make linux-test")
	}
	v, err := newVolume(t, "ext4")
	if err != nil {
		t.Skip(err)
	}
	cfg := cutConfig
	cfg.SegmentBytes, cfg.RetentionBytes = 1<<20, -1
	path := filepath.Join(v.mnt, "data")
	d := openDir(t, DiskFS{}, path)
	l := openLog(t, d, cfg)
	bs := put(t, l, plain(0, 3, 100))
	ballast := filepath.Join(v.mnt, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(piece)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var w Write
	for n := 0; ; n++ {
		b := build(plain(l.NextOffset(), 4, 300))
		if err := grow(l, len(b), 1); err != nil {
			if !errors.Is(err, ErrNoSpace) || d.Failed() != nil {
				t.Fatalf("a full disk is answered %v, directory %v", err, d.Failed())
			}
			break
		}
		l.Queue(b, nothing{})
		if err := drain(l, &w); err != nil {
			t.Fatal(err)
		}
		if bs = append(bs, b); n > 100000 {
			t.Fatal("the disk does not fill")
		}
	}
	flush(t, l)
	if got := all(t, l); string(got) != string(join(bs)) {
		t.Fatal("reads of a full disk")
	}
	l.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, DiskFS{}, path)
	l = openLog(t, d, cfg)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	bs = append(bs, put(t, l, plain(l.End(), 2, 500))...)
	flush(t, l)
	if got := all(t, l); string(got) != string(join(bs)) || d.Failed() != nil {
		t.Fatal("after the disk had space again: ", d.Failed())
	}
	l.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
