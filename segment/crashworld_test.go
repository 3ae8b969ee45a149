package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lockstep/internal/compress"
	"lockstep/internal/wire"
)

// crashConfig makes a segment of a few batches.
var crashConfig = Config{SegmentBytes: 2048, IndexIntervalBytes: 128, RetentionMs: -1, RetentionBytes: 4096, MaxMessageBytes: 2048}

// narrowConfig makes one of a batch or two, so that retention has what to drop.
var narrowConfig = Config{SegmentBytes: 640, IndexIntervalBytes: 128, RetentionMs: -1, RetentionBytes: 640, MaxMessageBytes: 640}

// promise is what a log owes at one moment: a run over the disk as of any
// operation must find between durable and the end of bs, byte for byte.
type promise struct {
	id      LogID
	bs      []wire.Batch // all that was ever queued, from the log's first offset on
	alt     []wire.Batch // what it held before a truncation that is under way
	durable int64        // acknowledged with flush.ack=durable
	start   int64        // deleted on purpose below this
	dropped bool         // producers of what is gone may be gone too
	gone    bool         // deleted, or being deleted: it may be absent
	absent  bool         // deleted for good
}

// mark is a promise that holds from an operation on.
type mark struct {
	at   int
	part int
	p    promise
}

type crashPart struct {
	promise
	l *Log
}

// crashWorld plays a broker's use of a log directory on a crashFS and notes
// what it has promised when.
type crashWorld struct {
	r     *rand.Rand
	fs    *crashFS
	d     *Dir
	parts []*crashPart
	marks []mark
	cfg   Config
	early bool // the planted bug: acknowledged before the fdatasync
	now   int64
	epoch int32          // of the leader, never given out twice
	done  map[string]int // steps by kind
}

// narrow is a world whose logs retention shortens often, the other a world in
// which they grow.
func newCrashWorld(r *rand.Rand, narrow bool) *crashWorld {
	w := &crashWorld{r: r, cfg: crashConfig, fs: newCrashFS(), now: 1000, done: map[string]int{}}
	if narrow {
		w.cfg = narrowConfig
	}
	for i := range 2 {
		w.parts = append(w.parts, newCrashPart(LogID{Topic: "orders", Partition: int32(i), TopicID: [16]byte{1, byte(i)}}))
	}
	return w
}

func newCrashPart(id LogID) *crashPart {
	return &crashPart{promise: promise{id: id}}
}

// note records what part i owes from now on.
func (w *crashWorld) note(i int) {
	w.marks = append(w.marks, mark{w.fs.length(), i, w.parts[i].promise})
}

// open opens the directory and all logs, as a broker's start does.
func (w *crashWorld) open() error {
	d, err := OpenDir(w.fs, "/data", DirOptions{ClusterID: "c1", NodeID: 7})
	if err != nil {
		return err
	}
	w.d = d
	there, err := d.Scan()
	if err != nil {
		return errors.Join(err, d.Close())
	}
	for i, p := range w.parts {
		if p.gone && !slices.Contains(there, p.id) { // what was being deleted may be there or not
			*p = *newCrashPart(nextID(p.id))
		}
		p.gone = false
		l, err := openOver(d, there, p.id, w.cfg, w.now)
		if err != nil {
			_ = d.Close()
			return err
		}
		p.l = l
		w.note(i)
	}
	return nil
}

// crash carries the world over to what a loss of power left at operation k.
// The law held there, so the promises are cut down to what was found.
func (w *crashWorld) crash(k int, how loss) {
	for i, p := range w.owed(k) {
		w.parts[i].promise = p
	}
	w.fs = w.fs.image(k, how, w.r)
	w.marks = nil
	w.epoch++
	for i := range w.parts {
		w.note(i)
	}
}

// openOver opens a log; what an earlier topic of its name has left goes, as
// at a broker that finds a partition its view does not have.
func openOver(d *Dir, there []LogID, id LogID, cfg Config, now int64) (*Log, error) {
	for _, old := range there {
		if old.TopicPartition() == id.TopicPartition() && old != id {
			l, _, err := d.OpenLog(old, cfg, now)
			if err == nil {
				err = d.Delete(l)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	l, _, err := d.OpenLog(id, cfg, now)
	return l, err
}

// flushed is what the log says is durable. An empty log that begins at an
// offset it was told has nothing on disk that says so.
func (p *crashPart) flushed() int64 {
	if len(p.bs) == 0 {
		return 0
	}
	return p.l.Durable()
}

func nextID(id LogID) LogID {
	id.TopicID[2]++
	return id
}

// reconcile takes the logs as they were found for what they are: what was not
// promised and is gone is gone.
func (w *crashWorld) reconcile() {
	for i, p := range w.parts {
		list, _ := p.match(p.l)
		if p.bs = upTo(list, p.l.End()); len(p.bs) > 0 {
			p.alt = nil // else it may come back, until the next flush of names
		}
		w.note(i)
	}
}

// upTo returns the batches below an offset.
func upTo(bs []wire.Batch, end int64) []wire.Batch {
	i := len(bs)
	for i > 0 && bs[i-1].NextOffset() > end {
		i--
	}
	return bs[:i:i]
}

// owed returns what each part owed at operation k.
func (w *crashWorld) owed(k int) []promise {
	out := make([]promise, len(w.parts))
	for i, p := range w.parts {
		out[i] = promise{id: p.id}
	}
	for _, m := range w.marks {
		if m.at > k {
			break
		}
		out[m.part] = m.p
	}
	return out
}

// step does one thing a broker does. An error is a refusal or a failed
// directory; it is for the caller to say whether one was due.
func (w *crashWorld) step() error {
	i := w.r.IntN(len(w.parts))
	w.now += int64(w.r.IntN(50))
	n := w.r.IntN(100)
	var kind string
	var do func() error
	switch {
	case w.cfg == narrowConfig && n >= 69 && n < 78:
		kind, do = "retention", func() error { return w.retention(i) }
	case n < 45:
		kind, do = "append", func() error { return w.append(i, 1+w.r.IntN(4)) }
	case n < 65:
		kind, do = "flush", func() error { return w.flush(i) }
	case n < 75:
		kind, do = "checkpoint", w.checkpoint
	case n < 80:
		kind, do = "truncate", func() error { return w.truncate(i) }
	case n < 84:
		kind, do = "retention", func() error { return w.retention(i) }
	case n < 87:
		kind, do = "delete records", func() error { return w.deleteRecords(i) }
	case n < 90:
		kind, do = "rest", func() error { return w.rest(i) }
	case n < 92:
		kind, do = "delete topic", func() error { return w.deleteTopic(i) }
	case n < 96:
		kind, do = "clean restart", func() error { return w.restart(true) }
	default:
		kind, do = "kill", func() error { return w.restart(false) }
	}
	w.done[kind]++
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// batch makes the next batch of a part, of any codec, plain or of a producer.
func (w *crashWorld) batch(p *crashPart) wire.Batch {
	s := plain(p.l.NextOffset(), 1+w.r.IntN(4), w.r.IntN(120))
	s.ts = w.now
	if w.r.IntN(12) == 0 {
		w.epoch++
	}
	s.epoch = w.epoch
	if pid := w.r.Int64N(5); pid < 4 {
		s = produced(s, p.l, pid, w.r)
	}
	b := build(s)
	if s.attrs&32 != 0 {
		return b
	}
	return recoded(b, int8(w.r.IntN(5)))
}

// recoded compresses the records of a batch.
func recoded(b wire.Batch, codec int8) wire.Batch {
	if codec == 0 {
		return b
	}
	packed, err := compress.Compress(codec, b[batchHeader:])
	if err != nil {
		panic(err)
	}
	c := append(slices.Clone(b[:batchHeader]), packed...)
	be := binary.BigEndian
	be.PutUint32(c[8:], uint32(len(c)-batchOverhead))
	be.PutUint16(c[21:], be.Uint16(c[21:])|uint16(codec))
	be.PutUint32(c[17:], crc32.Checksum(c[21:], castagnoli))
	return wire.Batch(c)
}

func (w *crashWorld) append(i, n int) error {
	p := w.parts[i]
	var wr Write
	for range n {
		b := w.batch(p)
		err := grow(p.l, len(b), w.now)
		if errors.Is(err, ErrBusy) { // a full segment drains first
			if err = w.drain(i, &wr); err == nil {
				err = grow(p.l, len(b), w.now)
			}
		}
		if err != nil {
			return errors.Join(err, w.drain(i, &wr))
		}
		p.l.Queue(b, nothing{})
		p.start = min(p.start, b.BaseOffset())
		p.bs = append(p.bs[:len(p.bs):len(p.bs)], b)
	}
	return w.drain(i, &wr)
}

func (w *crashWorld) drain(i int, wr *Write) error {
	p := w.parts[i]
	w.note(i)
	err := drain(p.l, wr)
	p.bs = upTo(p.bs, max(p.l.End(), p.l.NextOffset()))
	if err == nil {
		w.note(i)
	}
	return err
}

func (w *crashWorld) flush(i int) error {
	p := w.parts[i]
	f, ok := p.l.FlushPlan()
	if !ok {
		return nil
	}
	if w.early {
		p.durable = f.End()
		w.note(i)
	}
	f.Do()
	if err := p.l.Flushed(f); err != nil {
		return err
	}
	p.durable, p.alt = max(p.durable, p.flushed()), nil
	w.note(i)
	return nil
}

// rest puts a log to rest, for which it is flushed.
func (w *crashWorld) rest(i int) error {
	err := w.flush(i)
	for range 2 {
		if r, ok := w.parts[i].l.restPlan(); ok && err == nil {
			r.Do()
		}
	}
	return err
}

func (w *crashWorld) checkpoint() error {
	points, starts := map[TopicPartition]int64{}, map[TopicPartition]int64{}
	for _, p := range w.parts {
		points[p.id.TopicPartition()], starts[p.id.TopicPartition()] = p.l.Durable(), p.l.Start()
	}
	return errors.Join(w.d.WriteCheckpoint(RecoveryPointCheckpoint, points), w.d.WriteCheckpoint(LogStartCheckpoint, starts))
}

func (w *crashWorld) truncate(i int) error {
	p := w.parts[i]
	to := p.l.Start() + w.r.Int64N(p.l.End()-p.l.Start()+1)
	plan := p.l.TruncatePlan
	if w.r.IntN(5) == 0 {
		to, plan = p.l.End()+w.r.Int64N(20), p.l.RestartPlan
	}
	t, err := plan(to)
	if err != nil {
		return err
	}
	was := p.promise
	p.alt, p.durable = p.bs, min(p.durable, t.End())
	if !t.noop {
		p.bs = upTo(p.bs, t.End())
	}
	if t.full {
		p.bs, p.durable, p.dropped, p.start = nil, 0, true, max(t.End(), p.l.End())
	}
	w.note(i)
	t.Do()
	if err := p.l.Truncated(t); err != nil {
		if p.l.err() == nil { // refused: as it was, but for what it promises
			was.durable = p.durable
			p.promise = was
			w.note(i)
		}
		return err
	}
	p.alt = nil
	p.start = min(p.start, t.End())
	w.epoch++
	w.note(i)
	return nil
}

func (w *crashWorld) retention(i int) error {
	p := w.parts[i]
	n := p.l.RetentionPlan(w.now, p.l.End())
	d, ok := p.l.Drop(n)
	if !ok {
		return nil
	}
	if n > 0 {
		p.start, p.dropped = max(p.start, p.l.Start()), true
		w.note(i)
	}
	err := d.Do()
	p.l.Unlinked(d)
	return err
}

func (w *crashWorld) deleteRecords(i int) error {
	p := w.parts[i]
	at := p.l.Start() + w.r.Int64N(p.l.End()-p.l.Start()+1)
	if err := p.l.AdvanceStart(at); err != nil {
		return err
	}
	p.start = max(p.start, at) // what retention has taken may be back
	w.note(i)
	return w.checkpoint()
}

func (w *crashWorld) deleteTopic(i int) error {
	p := w.parts[i]
	p.gone = true
	w.note(i)
	if err := w.d.Delete(p.l); err != nil {
		return err
	}
	p.absent = true
	w.note(i)
	*p = *newCrashPart(nextID(p.id))
	l, _, err := w.d.OpenLog(p.id, w.cfg, w.now)
	p.l = l
	if err == nil {
		w.note(i)
	}
	return err
}

// restart closes everything and opens it again; not clean stands for kill -9,
// which the disk survives.
func (w *crashWorld) restart(clean bool) error {
	err := w.shut(clean)
	if err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	for i, p := range w.parts {
		w.epoch++
		why := p.holds(p.l, true)
		if strings.Contains(why, syscall.EIO.Error()) {
			return fmt.Errorf("%s: %w", why, syscall.EIO) // a log is opened by its first read
		}
		if why != "" {
			return fmt.Errorf("%w: %s", errLaw, why)
		}
		p.durable = max(p.durable, p.flushed())
		w.note(i)
	}
	return nil
}

// shut closes everything in the broker's order.
func (w *crashWorld) shut(clean bool) error {
	var err error
	if clean {
		for i := range w.parts {
			err = errors.Join(err, w.flush(i))
		}
		if err == nil {
			err = w.checkpoint()
		}
	}
	for _, p := range w.parts {
		if clean && err == nil {
			err = p.l.SealClean()
		}
	}
	for _, p := range w.parts {
		p.l.Close()
	}
	if clean && err == nil {
		return w.d.CloseClean()
	}
	return errors.Join(err, w.d.Close())
}

var errLaw = errors.New("law broken")

// match returns the history a recovered log is a part of.
func (p *promise) match(l *Log) ([]wire.Batch, string) {
	got, why := contentOf(l)
	if why != "" {
		return nil, why
	}
	for _, list := range [][]wire.Batch{p.bs, p.alt} {
		if bytes.Equal(got, join(between(list, l.Start(), l.End()))) && (len(got) > 0 || l.Start() == l.End()) {
			if n := len(upTo(list, l.End())); n == 0 || n > 0 && list[n-1].NextOffset() == l.End() || len(got) == 0 {
				return list, ""
			}
		}
	}
	return nil, fmt.Sprintf("%d bytes at %d..%d are not what was written: %s; before a truncation %s; %s",
		len(got), l.Start(), l.End(), ranges(p.bs), ranges(p.alt), difference(got, between(p.bs, l.Start(), l.End())))
}

// difference names the first batch that is another.
func difference(got []byte, want []wire.Batch) string {
	why := "one is shorter"
	_, _ = Walk(got, func(pos int64, b wire.Batch) error {
		if len(want) == 0 {
			return nil
		}
		if w := want[0]; !bytes.Equal(b, w) {
			why = fmt.Sprintf("at %d..%d (byte %d, epoch %d, CRC %v), written %d..%d (epoch %d)",
				b.BaseOffset(), b.NextOffset(), pos, b.PartitionLeaderEpoch(), b.CheckCRC(), w.BaseOffset(), w.NextOffset(), w.PartitionLeaderEpoch())
			return errLaw
		}
		want = want[1:]
		return nil
	})
	return why
}

func ranges(bs []wire.Batch) string {
	if len(bs) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d batches %d..%d", len(bs), bs[0].BaseOffset(), endOf(bs, 0))
}

// between returns the batches that have offsets in [from, to).
func between(bs []wire.Batch, from, to int64) []wire.Batch {
	i, k := 0, len(bs)
	for i < k && bs[i].NextOffset() <= from {
		i++
	}
	for k > i && bs[k-1].BaseOffset() >= to {
		k--
	}
	return bs[i:k]
}

// contentOf reads a log from start to end.
func contentOf(l *Log) ([]byte, string) {
	var out []byte
	for at := l.Start(); at < l.End(); {
		s, err := l.Read(at, 1<<20, l.End(), true)
		if err != nil || s.Next <= at {
			return nil, fmt.Sprintf("read at %d of %d..%d: next %d, %v", at, l.Start(), l.End(), s.Next, err)
		}
		out = append(out, s.Bytes...)
		at = s.Next
		s.Release()
	}
	return out, ""
}

// lost counts the records that were acknowledged as durable and are not there.
func (p *promise) lost(l *Log) int64 {
	return max(0, p.durable-max(l.End(), p.start))
}

// holds says how a recovered log breaks the promise, "" if it does not.
func (p *promise) holds(l *Log, whole bool) string {
	if n := p.lost(l); n > 0 {
		return fmt.Sprintf("%s ends at %d, %d was durable: %d acknowledged records lost", l.path, l.End(), p.durable, n)
	}
	if l.Start() > p.start {
		return fmt.Sprintf("%s starts at %d, nothing at or above %d was deleted", l.path, l.Start(), p.start)
	}
	list, why := p.match(l)
	if why != "" {
		return l.path + ": " + why
	}
	if whole && len(p.bs) > 0 && l.End() < endOf(p.bs, 0) && p.alt == nil {
		return fmt.Sprintf("%s ends at %d after a kill, %d was appended", l.path, l.End(), endOf(p.bs, 0))
	}
	epoch := int32(-1)
	for _, b := range between(list, l.Start(), l.End()) {
		epoch = max(epoch, b.PartitionLeaderEpoch())
		at := max(b.BaseOffset(), l.Start())
		if got := l.EpochAt(at); got != epoch {
			return fmt.Sprintf("%s: epoch %d at %d, want %d of %v", l.path, got, at, epoch, l.Epochs())
		}
	}
	if !p.dropped {
		got, want := l.producers, replay(list, l.End())
		for _, x := range []*Producers{got, want} {
			for _, e := range x.byID {
				e.seen = 0
			}
		}
		if !bytes.Equal(got.encode(0), want.encode(0)) || got.ongoing != want.ongoing {
			return fmt.Sprintf("%s: producers at %d are not those of its batches", l.path, l.End())
		}
	}
	return ""
}

func endOf(bs []wire.Batch, start int64) int64 {
	if len(bs) == 0 {
		return start
	}
	return bs[len(bs)-1].NextOffset()
}

// verify recovers a disk and says how it breaks what was owed, and how many
// acknowledged records were looked for and lost.
func verify(disk *crashFS, owed []promise, whole bool) (checked, lost int64, why string) {
	d, err := OpenDir(disk, "/data", DirOptions{ClusterID: "c1", NodeID: 7})
	if err != nil {
		return 0, 0, err.Error()
	}
	defer d.Close()
	there, err := d.Scan()
	if err != nil {
		return 0, 0, err.Error()
	}
	for i := range owed {
		p := &owed[i]
		if p.gone {
			continue
		}
		checked += max(0, p.durable-p.start)
		l, err := openOver(d, there, p.id, crashConfig, 0)
		if err != nil {
			return checked, lost, err.Error()
		}
		lost += p.lost(l)
		if x := p.holds(l, whole); x != "" {
			return checked, lost, x
		}
		if x := goesOn(l, p); x != "" {
			return checked, lost, x
		}
		l.Close()
	}
	return checked, lost, ""
}

// goesOn appends to a recovered log and flushes it.
func goesOn(l *Log, p *promise) string {
	before, why := contentOf(l)
	if why != "" {
		return why
	}
	b := build(spec{base: l.End(), count: 2, pad: 9, ts: 5, epoch: 1 << 20, pid: -1, pepoch: -1, seq: -1})
	var wr Write
	if err := grow(l, len(b), 5); err != nil {
		return err.Error()
	}
	l.Queue(b, nothing{})
	if err := drain(l, &wr); err != nil {
		return err.Error()
	}
	if f, ok := l.FlushPlan(); ok {
		f.Do()
		if err := l.Flushed(f); err != nil {
			return err.Error()
		}
	}
	after, why := contentOf(l)
	if why == "" && (!bytes.Equal(after, append(before, b...)) || l.Durable() != l.End()) {
		why = l.path + " does not go on after recovery"
	}
	return why
}

// blockLog plays lives of a world, wide and narrow ones in turn, each ended by a loss of power, and checks
// the disk as of every operation of each, into y. It stops at the first broken law
// or, where early acknowledgements are planted, at the first loss.
func blockLog(t *testing.T, s uint64, lives, steps int, early bool, y *tally) {
	t.Helper()
	r := rand.New(rand.NewPCG(s, 7))
	w := newCrashWorld(r, s%2 == 1)
	for life := range lives {
		w.early = early
		if err := w.open(); err != nil {
			t.Fatalf("seed %d life %d: %v", s, life, err)
		}
		if life > 0 {
			w.reconcile()
		}
		for i := range steps {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d life %d step %d: %v", s, life, i, err)
			}
		}
		for k := 0; k <= w.fs.length(); k++ {
			how := loss(r.IntN(int(losses)))
			c, n, why := verify(w.fs.image(k, how, r), w.owed(k), false)
			y.Points, y.Checked, y.Lost = y.Points+1, y.Checked+c, y.Lost+n
			if why != "" && !early {
				t.Fatalf("seed %d life %d, power lost after operation %d of %d (%s), %s: %s",
					s, life, k, w.fs.length(), w.fs.describe(k), how, why)
			}
			if y.Lost > 0 && early {
				return
			}
		}
		k := w.fs.length() - r.IntN(min(8, w.fs.length()))
		w.crash(k, loss(r.IntN(int(losses))))
	}
}

func (f *crashFS) describe(k int) string {
	if k == 0 {
		return "none"
	}
	op := f.ops[k-1]
	return fmt.Sprintf("%s %s %s at %d, %d bytes", [...]string{"write", "truncate", "sync", "create", "remove", "rename", "syncdir"}[op.kind],
		op.name, op.to, op.off, len(op.data))
}
