package segment

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// EpochStart says that a leader epoch begins at an offset.
type EpochStart struct {
	Epoch int32
	Start int64
}

// epochs is the leader-epoch history: epochs and offsets both rise. Readers
// load one pointer; writers replace the list. The mutex orders the few
// writers and is never held across anything slow.
type epochs struct {
	mu    sync.Mutex
	p     atomic.Pointer[[]EpochStart]
	dirty atomic.Bool // differs from the file
}

func (e *epochs) list() []EpochStart {
	if p := e.p.Load(); p != nil {
		return *p
	}
	return nil
}

func (e *epochs) set(s []EpochStart) {
	e.p.Store(&s)
	e.dirty.Store(true)
}

func (e *epochs) latest() int32 {
	s := e.list()
	if len(s) == 0 {
		return -1
	}
	return s[len(s)-1].Epoch
}

func (e *epochs) at(offset int64) int32 {
	s := e.list()
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].Start <= offset {
			return s[i].Epoch
		}
	}
	return -1
}

// assign appends an epoch. Entries that could not come before it, with an
// epoch or a start at or above its own, are dropped, as in Kafka.
func (e *epochs) assign(epoch int32, start int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.list()
	if n := len(s); n > 0 && s[n-1].Epoch == epoch && s[n-1].Start <= start {
		return
	}
	keep := make([]EpochStart, 0, len(s)+1)
	for _, x := range s {
		if x.Epoch < epoch && x.Start < start {
			keep = append(keep, x)
		}
	}
	e.set(append(keep, EpochStart{epoch, start}))
}

func (e *epochs) endOffset(epoch int32, logEnd int64) (int32, int64) {
	s := e.list()
	if epoch < 0 || len(s) == 0 || epoch > s[len(s)-1].Epoch {
		return -1, -1
	}
	if epoch == s[len(s)-1].Epoch {
		return epoch, logEnd
	}
	if epoch < s[0].Epoch {
		return epoch, s[0].Start
	}
	i := 0
	for s[i+1].Epoch <= epoch {
		i++
	}
	return s[i].Epoch, s[i+1].Start
}

// truncateEnd drops what begins at or above end.
func (e *epochs) truncateEnd(end int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.list()
	n := len(s)
	for n > 0 && s[n-1].Start >= end {
		n--
	}
	if n < len(s) {
		e.set(append([]EpochStart(nil), s[:n]...))
	}
}

// truncateStart drops epochs that end at or below start; the one that spans
// it now begins there.
func (e *epochs) truncateStart(start int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.list()
	i := 0
	for i+1 < len(s) && s[i+1].Start <= start {
		i++
	}
	if len(s) == 0 || i == 0 && s[0].Start >= start {
		return
	}
	keep := append([]EpochStart(nil), s[i:]...)
	keep[0].Start = start
	e.set(keep)
}

// encodeEpochs writes Kafka's leader-epoch-checkpoint: version, count, lines.
func encodeEpochs(s []EpochStart) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(s))
	for _, x := range s {
		fmt.Fprintf(&b, "%d %d\n", x.Epoch, x.Start)
	}
	return b.Bytes()
}

// decodeEpochs returns false for anything but a whole file with rising
// epochs and offsets.
func decodeEpochs(data []byte) ([]EpochStart, bool) {
	lines, ok := checkpointLines(data)
	if !ok {
		return nil, false
	}
	var s []EpochStart
	for _, line := range lines {
		a, b, ok := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(a, 10, 32)
		start, err2 := strconv.ParseInt(b, 10, 64)
		if !ok || err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, false
		}
		x := EpochStart{int32(epoch), start}
		if n := len(s); n > 0 && (s[n-1].Epoch >= x.Epoch || s[n-1].Start >= x.Start) {
			return nil, false
		}
		s = append(s, x)
	}
	return s, true
}

// replace sets the whole history, as a truncation left it on disk.
func (e *epochs) replace(s []EpochStart) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set(s)
}
