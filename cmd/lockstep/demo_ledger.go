package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kgo"
)

// demoLedger knows what was sent and what was acknowledged.
type demoLedger struct {
	seed uint64

	mu      sync.Mutex
	acked   []bool
	count   int // of acked
	flight  int
	singles []time.Duration // acknowledgements of records sent one at a time
	half    chan struct{}   // closed at half of the records, with some under way
	failed  error           // the first error of a record since the last clear

	pace atomic.Int64 // ns between two records
}

func newDemoLedger(records int, seed uint64) *demoLedger {
	return &demoLedger{seed: seed, acked: make([]bool, records), half: make(chan struct{})}
}

// record makes record i: its bytes follow from seed and number.
func (l *demoLedger) record(i int) *kgo.Record {
	return &kgo.Record{Topic: demoTopic, Partition: int32(i % demoPartitions), Key: binary.BigEndian.AppendUint64(nil, uint64(i)), Value: demoValue(l.seed, i)}
}

func demoValue(seed uint64, i int) []byte {
	r := rand.NewPCG(seed, uint64(i))
	b := make([]byte, 0, demoRecord)
	for len(b) < demoRecord {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b
}

func (l *demoLedger) ackedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func (l *demoLedger) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flight
}

// sent notes that a record is under way.
func (l *demoLedger) sent() {
	l.mu.Lock()
	l.flight++
	l.mu.Unlock()
}

// answer notes the outcome of record i.
func (l *demoLedger) answer(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight--
	if err != nil {
		if l.failed == nil {
			l.failed = err
		}
		return
	}
	if !l.acked[i] {
		l.acked[i] = true
		l.count++
	}
	if 2*l.count >= len(l.acked) && l.flight > 0 {
		select {
		case <-l.half:
		default:
			close(l.half)
		}
	}
}

// missing lists the records that are not acknowledged.
func (l *demoLedger) missing() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []int
	for i, ok := range l.acked {
		if !ok {
			list = append(list, i)
		}
	}
	return list
}

// failure is the first error of a record since the last call.
func (l *demoLedger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.failed
	l.failed = nil
	return err
}

func (l *demoLedger) singleP50() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.singles) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(l.singles))
	return s[len(s)/2]
}

// one sends records one at a time and keeps how long each took. The first of
// each partition warms the connection up and does not count.
func (l *demoLedger) one(ctx context.Context, cl *kgo.Client, list []int) error {
	for n, i := range list {
		l.sent()
		begin := time.Now()
		err := cl.ProduceSync(ctx, l.record(i)).FirstErr()
		took := time.Since(begin)
		l.answer(i, err)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if n >= demoPartitions {
			l.mu.Lock()
			l.singles = append(l.singles, took)
			l.mu.Unlock()
		}
	}
	return nil
}

// errCut tells that produce was ended from outside.
var errCut = errors.New("the writer was stopped")

// produce sends the records of list in order, at most demoWindow under way,
// until all are answered or stop is closed: then the client is closed, which
// fails what has no answer.
func (l *demoLedger) produce(ctx context.Context, cl *kgo.Client, list []int, stop <-chan struct{}, show io.Writer) error {
	window := make(chan struct{}, demoWindow)
	bar := newDemoBar(show, len(l.acked))
	defer bar.end()
	cut := false
	for _, i := range list {
		select {
		case window <- struct{}{}:
		case <-stop:
			cut = true
		case <-ctx.Done():
			cut = true
		}
		if cut {
			break
		}
		time.Sleep(time.Duration(l.pace.Load()))
		l.sent()
		cl.Produce(ctx, l.record(i), func(_ *kgo.Record, err error) {
			l.answer(i, err)
			<-window
		})
		bar.at(l.ackedCount())
	}
	for n := 0; n < demoWindow && !cut; n++ { // all answers: the window is ours
		select {
		case window <- struct{}{}:
		case <-stop:
			cut = true
		case <-ctx.Done():
			cut = true
		}
		bar.at(l.ackedCount())
	}
	if cut {
		cl.Close()
		for l.inFlight() > 0 {
			time.Sleep(time.Millisecond)
		}
		return errors.Join(errCut, ctx.Err())
	}
	return l.failure()
}

// demoBar shows progress: a bar on a terminal, a line at each tenth elsewhere.
type demoBar struct {
	bar   *progressbar.ProgressBar
	out   io.Writer
	total int
	tenth int
}

func newDemoBar(out io.Writer, total int) *demoBar {
	b := &demoBar{out: out, total: total}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("            acknowledged"),
				progressbar.OptionShowCount(), progressbar.OptionSetWidth(40), progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionClearOnFinish())
		}
	}
	return b
}

func (b *demoBar) at(n int) {
	if b.bar != nil {
		_ = b.bar.Set(n) // a terminal that cannot be written to is no reason to stop
		return
	}
	if t := 10 * n / b.total; t > b.tenth {
		b.tenth = t
		fmt.Fprintf(b.out, "            acknowledged %d of %d\n", n, b.total)
	}
}

func (b *demoBar) end() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
