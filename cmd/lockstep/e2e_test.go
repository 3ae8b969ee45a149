package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"

	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/internal/testcluster"
	"lockstep/ioring"
)

var (
	e2eBytes = flag.String("e2e.bytes", "24MiB", "bytes per engine and reactor count: 1GiB for the full run")
	e2eRace  = flag.Bool("e2e.race", false, "build the broker with the race detector")
	e2eSeed  = flag.Uint64("e2e.seed", 0, "seed, 0 = from the clock")
)

// brokerBinary builds the broker once for all tests of the package.
var brokerBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lockstep-e2e-")
	if err != nil {
		return "", err
	}
	var flags []string
	if *e2eRace || raceEnabled {
		flags = append(flags, "-race")
	}
	return testcluster.Build(context.Background(), dir, flags...)
})

func TestMain(m *testing.M) {
	if args := os.Getenv("LOCKSTEP_TEST_FORBID_RING"); args != "" {
		fmt.Fprintln(os.Stderr, forbidRing(strings.Split(args, "\n")))
		os.Exit(3)
	}
	if len(os.Args) == 3 && os.Args[1] == "plugin" { // a broker of this process starts its plugins
		os.Exit(run(os.Args[1:]))
	}
	flag.Parse()
	rc := m.Run()
	if path, err := brokerBinary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(rc)
}

// node is a broker process of a test.
type node struct {
	t     *testing.T
	dir   string
	addr  string
	admin string
	args  []string
	cmd   *exec.Cmd
	log   *os.File

	logName string
}

// startNode runs a broker on free ports in a directory of its own.
func startNode(t *testing.T, overrides ...string) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	n.addr, n.admin = freeAddr(t), freeAddr(t)
	for _, o := range overrides {
		if dir, ok := strings.CutPrefix(o, "log.dirs="); ok {
			n.dir = dir
		}
	}
	n.args = append([]string{"broker", "--override", "log.dirs=" + n.dir, "--override", "listeners=PLAINTEXT://" + n.addr,
		"--override", "lockstep.admin.listener=" + n.admin}, overrideArgs(overrides)...)
	n.start()
	t.Cleanup(n.kill)
	return n
}

func overrideArgs(list []string) (out []string) {
	for _, o := range list {
		out = append(out, "--override", o)
	}
	return out
}

func (n *node) start() {
	n.t.Helper()
	path, err := brokerBinary()
	if err != nil {
		n.t.Fatal(err)
	}
	if n.logName == "" {
		n.logName = filepath.Join(n.t.TempDir(), "broker.log")
	}
	n.log, err = os.OpenFile(n.logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd = exec.Command(path, n.args...)
	n.cmd.Stderr, n.cmd.Stdout = n.log, n.log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if get("http://"+n.admin+"/readyz") == "ready\n" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.t.Fatalf("broker not ready in 20 s; log:\n%s", n.tail())
}

func (n *node) whole() string {
	b, _ := os.ReadFile(n.log.Name())
	return string(b)
}

func (n *node) tail() string {
	s := n.whole()
	return s[max(0, len(s)-4000):]
}

// stop ends the broker clean and fails the test if it was not.
func (n *node) stop() {
	n.t.Helper()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	if err := n.cmd.Wait(); err != nil {
		n.t.Errorf("broker did not end clean: %v; log:\n%s", err, n.tail())
	}
	n.cmd = nil
}

// crash is kill -9; start runs it again.
func (n *node) crash() {
	n.t.Helper()
	if err := n.cmd.Process.Kill(); err != nil {
		n.t.Fatal(err)
	}
	_ = n.cmd.Wait()
	n.cmd = nil
}

func (n *node) kill() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		n.cmd = nil
	}
	if strings.Contains(n.whole(), "DATA RACE") {
		n.t.Errorf("the race detector spoke in %s:\n%s", n.addr, n.whole())
	}
	if n.t.Failed() {
		n.t.Logf("log of %s:\n%s", n.addr, n.tail())
	}
}

func parseSize(s string) int64 {
	for suffix, by := range map[string]int64{"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10} {
		if v, ok := strings.CutSuffix(s, suffix); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err == nil {
				return n * by
			}
		}
	}
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// fill makes the bytes of one record from who sent it and its number: half of
// it repeats, so that every codec has something to do.
func fill(b []byte, producer, index uint32, seed uint64) {
	x := seed ^ uint64(producer)<<32 ^ uint64(index)*0x9e3779b97f4a7c15
	for i := 0; i < len(b); i += 8 {
		if i%128 < 64 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], x)
		copy(b[i:], w[:])
	}
}

func sizeOf(r *rand.Rand) int {
	switch r.IntN(10) {
	case 0:
		return 1 + r.IntN(16)
	case 1:
		return 1 + r.IntN(900<<10)
	case 2, 3:
		return 1 + r.IntN(64<<10)
	}
	return 1 + r.IntN(4<<10)
}

// engineNames are the values of lockstep.io.engine and what output calls them
// in this build.
var engineNames = map[string]string{"io_uring": ioring.RingName, "portable": "portable"}

func TestE2E(t *testing.T) {
	seed := *e2eSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, %s a run", seed, *e2eBytes)
	for _, engine := range []string{"io_uring", "portable"} {
		for _, reactors := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", engineNames[engine], reactors), func(t *testing.T) {
				roundTrip(t, seed, engine, reactors)
			})
		}
	}
}

// roundTrip produces from several clients with every codec into the same
// partitions and reads all of it back, byte for byte, also after a restart.
func roundTrip(t *testing.T, seed uint64, engine string, reactors int) {
	n := startNode(t, "lockstep.io.engine="+engine, "lockstep.io.reactors="+strconv.Itoa(reactors), "log.segment.bytes=67108864")
	if n.metric(`lockstep_info{engine="`+engineNames[engine]+`"}`) != 1 {
		t.Fatalf("the broker does not run on %s", engineNames[engine])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	adm, err := kgo.NewClient(kgo.SeedBrokers(n.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	if _, err := kadm.NewClient(adm).CreateTopic(ctx, 2, 1, nil, "mixed"); err != nil {
		t.Fatal(err)
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(), kgo.NoCompression()}
	share := parseSize(*e2eBytes) / int64(len(codecs))
	counts := make([]uint32, len(codecs))
	var wg sync.WaitGroup
	start := time.Now()
	for i, codec := range codecs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			counts[i] = produceShare(ctx, t, n.addr, uint32(i), codec, share, seed)
		}()
	}
	wg.Wait()
	took := time.Since(start)
	if t.Failed() {
		return
	}
	t.Logf("produced %s in %v (%.0f MB/s)", *e2eBytes, took.Round(time.Millisecond), float64(parseSize(*e2eBytes))/1e6/took.Seconds())
	consumeAll(ctx, t, n.addr, counts, seed)
	n.stop()
	n.start()
	consumeAll(ctx, t, n.addr, counts, seed)
	n.crash() // and once more after a crash
	n.start()
	consumeAll(ctx, t, n.addr, counts, seed)
}

func produceShare(ctx context.Context, t *testing.T, addr string, id uint32, codec kgo.CompressionCodec, share int64, seed uint64) uint32 {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("mixed"), kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(1_000_000), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedBytes(32<<20))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer cl.Close()
	r := rand.New(rand.NewPCG(seed, uint64(id)))
	index := uint32(0)
	for sent := int64(0); sent < share && !t.Failed(); index++ {
		b := make([]byte, 8+sizeOf(r))
		binary.BigEndian.PutUint32(b, id)
		binary.BigEndian.PutUint32(b[4:], index)
		fill(b[8:], id, index, seed)
		sent += int64(len(b))
		cl.Produce(ctx, &kgo.Record{Value: b, Partition: int32(index % 2)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("producer %d: %v", id, err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Errorf("producer %d: %v", id, err)
	}
	return index
}

// consumeAll reads every record once, in order by producer and partition, with
// its own bytes.
func consumeAll(ctx context.Context, t *testing.T, addr string, counts []uint32, seed uint64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("mixed"), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	total := uint32(0)
	for _, c := range counts {
		total += c
	}
	next := map[[2]uint32]uint32{}
	offsets := map[int32]int64{}
	want := make([]byte, 1<<20)
	for got := uint32(0); got < total; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", got, total, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if o, ok := offsets[r.Partition]; ok && r.Offset != o {
				t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, o-1)
			}
			offsets[r.Partition] = r.Offset + 1
			id, index := binary.BigEndian.Uint32(r.Value), binary.BigEndian.Uint32(r.Value[4:])
			key := [2]uint32{id, uint32(r.Partition)}
			if _, seen := next[key]; !seen {
				next[key] = uint32(r.Partition)
			}
			if index != next[key] || int(id) >= len(counts) || index >= counts[id] {
				t.Fatalf("producer %d partition %d: record %d, want %d", id, r.Partition, index, next[key])
			}
			next[key] += 2
			w := want[:len(r.Value)-8]
			fill(w, id, index, seed)
			if string(w) != string(r.Value[8:]) {
				t.Fatalf("producer %d record %d: bytes differ", id, index)
			}
			got++
		})
	}
}

// kcat speaks librdkafka: it produces with each of its codecs and reads back.
func TestE2EKcat(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed: the Go clients stand in for it")
	}
	n := startNode(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		var in strings.Builder
		for i := range 500 {
			fmt.Fprintf(&in, "%s line %d %s\n", codec, i, strings.Repeat("x", i))
		}
		p := exec.Command(kcat, "-b", n.addr, "-P", "-t", "kcat-"+codec, "-z", codec, "-X", "enable.idempotence=true", "-X", "debug=msg")
		p.Stdin = strings.NewReader(in.String())
		out, err := p.CombinedOutput()
		// librdkafka before 2.11.1 takes FindCoordinator for a sign of lz4, and
		// that key is not advertised before groups work: lz4 goes out plain.
		plain := strings.Contains(string(out), "not compressing") && codec != "lz4"
		if err != nil || plain {
			t.Fatalf("kcat -P %s: %v: %s", codec, err, out[max(0, len(out)-600):])
		}
		c := exec.Command(kcat, "-b", n.addr, "-C", "-t", "kcat-"+codec, "-e", "-q")
		got, err := c.Output()
		if err != nil || string(got) != in.String() {
			t.Fatalf("kcat -C %s: %v, %d of %d bytes", codec, err, len(got), in.Len())
		}
	}
}
