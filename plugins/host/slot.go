package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"lockstep/plugins/sdk"
)

// Slot is where the plugin of a kind stands: the broker asks the slot, whoever
// serves in it. It numbers the events, from before a swap to after it, and keeps
// the journal.
type Slot struct {
	kind   sdk.Kind
	seq    atomic.Int64
	serves atomic.Pointer[Instance]
	shadow atomic.Pointer[shadow]

	mu      sync.Mutex
	journal []Entry // a ring once it is full: the oldest is at first
	first   int
}

// NewSlot has no plugin yet: events go without a decision.
func NewSlot(kind sdk.Kind) *Slot { return &Slot{kind: kind} }

// InProcess is a slot whose plugin is a value of this process.
func InProcess(p sdk.Plugin) *Slot {
	s := NewSlot(p.Describe().Kind)
	s.Serve(NewInstance(p, ""))
	return s
}

// Serve makes an instance the one that is asked; nil = none. Its wishes count
// once SetFence has given it a number.
func (s *Slot) Serve(i *Instance) { s.serves.Store(i) }

// Fence is the fencing number of the instance that serves, 0 if it has none.
func (s *Slot) Fence() int64 {
	if i := s.serves.Load(); i != nil {
		return i.fence.Load()
	}
	return 0
}

// Fenced tells whether whoever serves has the cluster's number n; nobody needs
// none.
func (s *Slot) Fenced(n int64) bool {
	i := s.serves.Load()
	return i == nil || i.fence.Load() == n
}

// SetFence gives the instance that serves its fencing number: what it wishes is
// durable only while the cluster's number is the same.
func (s *Slot) SetFence(n int64) {
	if i := s.serves.Load(); i != nil {
		i.fence.Store(n)
	}
}

// Verdict says what became of a wish.
type Verdict struct {
	Wish     sdk.Wish
	Accepted bool
	Why      string // why not
}

// Entry is the journal's line of one event: what was asked, who answered, what
// became of it. Each sequence number has exactly one.
type Entry struct {
	Seq      int64
	Event    sdk.Event
	Plugin   sdk.Description
	SHA256   string
	Fence    int64
	Error    string // there is no decision
	Note     string // the policy's, for the operator
	Verdicts []Verdict
}

// Asked is an event that a plugin has decided about; its verdicts are due.
type Asked struct {
	sdk.Decision
	Seq   int64
	Fence int64
	slot  *Slot
	entry Entry
}

// Handle asks whoever serves. An event without a decision is in the journal when
// Handle returns; of the others the caller Settles each once.
func (s *Slot) Handle(ctx context.Context, e sdk.Event) (*Asked, error) {
	e.Seq = s.seq.Add(1)
	a := &Asked{Seq: e.Seq, slot: s, entry: Entry{Seq: e.Seq, Event: e}}
	i := s.serves.Load()
	err := ErrNone
	if i != nil {
		a.Fence = i.fence.Load()
		a.entry.Plugin, a.entry.SHA256, a.entry.Fence = i.about, i.sum, a.Fence
		sh := s.shadow.Load()
		if sh != nil {
			go sh.see(ctx, e)
		}
		if err = ErrNoFence; a.Fence != 0 { // nothing it wishes could count
			a.Decision, err = i.Handle(ctx, e)
		}
		if sh != nil {
			sh.put(e, a.Decision, err, false)
		}
	}
	if err != nil {
		a.entry.Error = err.Error()
		s.record(a.entry)
	}
	return a, err
}

// Settle enters the verdicts into the journal.
func (a *Asked) Settle(v ...Verdict) {
	a.entry.Verdicts, a.entry.Note = v, a.Decision.Note
	a.slot.record(a.entry)
}

func (s *Slot) record(e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.journal) < journalSize {
		s.journal = append(s.journal, e)
		return
	}
	s.journal[s.first] = e
	s.first = (s.first + 1) % journalSize
}

// Journal returns the entries kept, in the order they were settled.
func (s *Slot) Journal() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.journal[s.first:], s.journal[:s.first])
}

// Calls tells how often the plugin that serves was asked and how often it was
// silent.
func (s *Slot) Calls() (calls, silent int64) {
	if i := s.serves.Load(); i != nil {
		return i.calls.Load(), i.silent.Load()
	}
	return 0, 0
}

// Name is who serves, for a log line.
func (s *Slot) Name() string {
	if i := s.serves.Load(); i != nil {
		return i.about.Name
	}
	return "none"
}

// Difference is an event about which the serving and the next plugin disagree.
type Difference struct {
	Event sdk.Event
	Old   string
	New   string
}

// shadow is the next plugin, shown the same events. What it wishes is compared
// and forgotten.
type shadow struct {
	next *Instance

	mu    sync.Mutex
	half  map[int64]half
	seen  int64
	diffs []Difference // the first of them
	apart int64        // all of them
}

// half is an event that one of the two has decided about.
type half struct {
	text string
	next bool
}

// see asks the next plugin. Who asked the serving one may have its answer, and
// be gone, long before: that is no difference between the two.
func (h *shadow) see(ctx context.Context, e sdk.Event) {
	d, err := h.next.Handle(context.WithoutCancel(ctx), e)
	h.put(e, d, err, true)
}

func (h *shadow) put(e sdk.Event, d sdk.Decision, err error, next bool) {
	text := wishes(d, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	other, ok := h.half[e.Seq]
	if !ok {
		h.half[e.Seq] = half{text, next}
		return
	}
	delete(h.half, e.Seq)
	h.seen++
	if other.text == text {
		return
	}
	h.apart++
	if len(h.diffs) < shownDiffs {
		diff := Difference{Event: e, Old: text, New: other.text}
		if next {
			diff.Old, diff.New = diff.New, diff.Old
		}
		h.diffs = append(h.diffs, diff)
	}
}

func (h *shadow) report() (seen, apart int64, diffs []Difference) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen, h.apart, slices.Clone(h.diffs)
}

// wishes is a decision in words, without its reasons, which are free.
func wishes(d sdk.Decision, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	text := ""
	for _, w := range d.Wishes {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s[%d] step %d", w.Do, w.Topic, w.Partition, w.Step)
	}
	if text == "" {
		return "nothing"
	}
	return text
}
