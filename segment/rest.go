package segment

// Files and maps are a budget of the machine: 100,000 partitions do not fit
// it. A log that is not used is put to rest: its files are closed and its maps
// given back, and the first append (by a step of GrowPlan) or read opens them
// again. The caller decides when, by Dir.OpenFiles.

// Rest is a log's open files on their way out.
type Rest struct {
	maps []*mapping
}

// RestPlan takes away the files of segments that were not used since the last
// call; false when there are none, or when anything is under way. [L]
func (l *Log) RestPlan() (Rest, bool) {
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
