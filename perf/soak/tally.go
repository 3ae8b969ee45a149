package soak

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// tally counts what was done and keeps the first failure of each kind.
type tally struct {
	mu     sync.Mutex
	did    map[string]int64
	failed map[string]int64
	first  map[string]error
}

func newTally() *tally {
	return &tally{did: map[string]int64{}, failed: map[string]int64{}, first: map[string]error{}}
}

func (t *tally) add(what string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.did[what] += n
}

// end notes the end of one doing of something; err may be nil. What the end of
// the run has broken off is neither done nor failed.
func (t *tally) end(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.did[what]++
		return
	}
	if t.failed[what]++; t.first[what] == nil && len(t.first) < kindsOfErrors {
		t.first[what] = err
	}
}

func (t *tally) errors() (list []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for what, err := range t.first {
		list = append(list, fmt.Sprintf("%s failed %d times, first: %v", what, t.failed[what], err))
	}
	return list
}

// every does something again and again until the end; a doing that lasts longer
// than the pause delays the next.
func every(ctx context.Context, pause time.Duration, do func(n int)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(n)
		}
	}
}
