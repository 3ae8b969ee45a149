package dataplane

// timer is an entry of a shard's heap, embedded in what it belongs to.
type timer struct {
	at    int64
	index int // in the heap plus one, 0 = not armed
	owner expirer
}

// expirer hears of its deadline on its shard.
type expirer interface{ expired(c *Core) }

// timers is a binary heap by deadline; entries know their place, so a timer
// that is not needed any more is taken out and never piles up.
type timers struct{ heap []*timer }

func (t *timers) next() (at int64, ok bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].at, true
}

func (t *timers) arm(x *timer, at int64) {
	if x.index != 0 {
		t.disarm(x)
	}
	x.at = at
	t.heap = append(t.heap, x)
	x.index = len(t.heap)
	t.up(len(t.heap) - 1)
}

func (t *timers) disarm(x *timer) {
	if x.index == 0 {
		return
	}
	i, last := x.index-1, len(t.heap)-1
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	x.index = 0
	if i < last {
		t.down(i)
		t.up(i)
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].index, t.heap[j].index = i+1, j+1
}

func (t *timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].at <= t.heap[i].at {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timers) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(t.heap); k++ {
			if t.heap[k].at < t.heap[least].at {
				least = k
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}
