package segment

// Files and maps are a budget of the machine: 100,000 partitions do not fit
// it. Once a directory has more of them open than DirOptions.MaxOpenFiles, a
// log that is not used is put to rest: its files are closed and its maps given
// back, and the first append (by a step of GrowPlan) or read opens them again.

// Rest is a log's open files on their way out.
type Rest struct {
	maps []*mapping
}

// RestPlan takes away the files of segments that were not used since the last
// call that found the directory above its budget. It returns false within the
// budget, when all are in use, and when anything is under way. The caller asks
// every log now and then. [L]
func (l *Log) RestPlan() (Rest, bool) {
	if l.dir.open.Load() <= l.dir.opts.MaxOpenFiles {
		return Rest{}, false
	}
	return l.restPlan()
}

func (l *Log) restPlan() (Rest, bool) {
	if l.err() != nil || !l.idle() || l.growing || l.truncating || l.flushing {
		return Rest{}, false
	}
	var r Rest
	for _, s := range l.list() {
		if s.used.Swap(false) {
			continue
		}
		if m := s.m.Swap(nil); m != nil {
			r.maps = append(r.maps, m)
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
