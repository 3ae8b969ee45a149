package control

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"lockstep/internal/meta"
)

// fsm is raft's state machine over meta.Apply: decode, apply, publish. It holds
// no logic of its own.
type fsm struct {
	view      atomic.Pointer[meta.View]
	committed atomic.Uint64 // newest command index heard of
	published func(*meta.View)
	hold      atomic.Pointer[func()] // tests: called before each command
}

func newFSM(published func(*meta.View)) *fsm {
	f := &fsm{published: published}
	f.view.Store(meta.Empty())
	return f
}

// Apply runs one command. raft calls it in log order on one goroutine.
func (f *fsm) Apply(l *raft.Log) any {
	f.committed.Store(l.Index)
	if hold := f.hold.Load(); hold != nil {
		(*hold)()
	}
	next, result := meta.Apply(f.view.Load(), l.Index, l.Data)
	f.view.Store(next)
	f.published(next)
	return result
}

// Snapshot takes the View's pointer: it is immutable, so this is free.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return &snapshot{f.view.Load()}, nil }

// Restore replaces everything by a snapshot.
func (f *fsm) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	v, err := meta.ReadSnapshot(b)
	if err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	f.view.Store(v)
	f.committed.Store(max(f.committed.Load(), v.Index()))
	f.published(v)
	return nil
}

type snapshot struct{ v *meta.View }

// Persist writes the snapshot; raft's store adds a checksum.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := io.Copy(sink, bytes.NewReader(meta.AppendSnapshot(nil, s.v))); err != nil {
		return fmt.Errorf("metadata snapshot: %w", cancelled{err, sink.Cancel()})
	}
	return sink.Close()
}

func (s *snapshot) Release() {}

// cancelled is a write error with what became of the cleaning up.
type cancelled struct{ err, cancel error }

func (c cancelled) Error() string { return c.err.Error() }
func (c cancelled) Unwrap() error { return c.err }
