package segment

// Files and maps are a budget of the machine: 100,000 partitions do not fit
// it. Once a directory has more of them open than DirOptions.MaxOpenFiles, a
// log that is not used is put to rest: its files are closed and its maps given
// back, and the first append (by a step of GrowPlan) or read opens them again.

// Rest is a log's open files on their way out.
type Rest struct {
	maps []*mapping
}

// OnCrowded names a function that is told when the directory has more files
// open than its budget. It must not block: it runs wherever the file was
// opened. Before the first log is opened.
func (d *Dir) OnCrowded(f func()) { d.onCrowded = f }

// Crowded tells whether logs should be put to rest. Once they are, it is an
// eighth below the budget that this is over, so that a file more does not
// begin it anew.
func (d *Dir) Crowded(resting bool) bool {
	budget := d.opts.MaxOpenFiles
	if resting {
		budget -= budget / 8
	}
	return d.open.Load() > budget
}

// Overfull tells that files are opened faster than they are put to rest.
func (d *Dir) Overfull() bool { return d.open.Load() > d.opts.MaxOpenFiles+d.opts.MaxOpenFiles/8 }

// RestPlan takes away the files of segments that are durable and were not used
// since it was last called while the directory was crowded. It returns false
// when the directory is not, when all are in use, and when anything is under
// way. A file with bytes that are not durable stays open: were it closed, the
// kernel might have nobody to tell that they never reached the disk. The
// caller asks every log in turn. [L]
func (l *Log) RestPlan() (Rest, bool) {
	if !l.dir.Crowded(true) {
		return Rest{}, false
	}
	return l.restPlan()
}

func (l *Log) restPlan() (Rest, bool) {
	if l.err() != nil || !l.idle() || l.growing || l.truncating || l.flushing || l.cleaning {
		return Rest{}, false
	}
	var r Rest
	for _, s := range l.list() {
		if s.used.Swap(false) || s.end.Load() > l.Durable() {
			continue
		}
		if m := s.m.Swap(nil); m != nil {
			r.maps = append(r.maps, m)
			s.ring.Store(nil)
		}
	}
	return r, len(r.maps) > 0
}

// Do closes the files that nobody has pinned; the others are closed when the
// last pin is gone.
func (r *Rest) Do() {
	for _, m := range r.maps {
		m.unpin()
	}
	r.maps = nil
}
