package sim

import (
	"slices"

	"lockstep/internal/wire"
	"lockstep/segment"
)

// power tells whether a crash takes the power, too. With a pair of clusters the
// source's only if what is acknowledged is durable: else the two may rightly
// differ, and an operator must fail over, see failover.
func (w *World) power(n *node) bool {
	return w.rnd.IntN(2) == 0 && (w.cfg.Durable || !w.cfg.Pair || n != w.src)
}

// restart ends a life and begins the next.
func (w *World) restart(n *node, power bool) {
	w.note("%s crashes, power lost: %v", n.name, power)
	n.crash(power)
	if n == w.src {
		floor := (*part).wasPublished
		if (power || n.gaveUp) && !n.sealed {
			floor = (*part).wasFlushed
		}
		if !n.sealed {
			for _, p := range w.model.parts {
				p.resume = 0
			}
		}
		lost := w.audit(n.disk, floor)
		for _, c := range w.clients {
			c.cut(lost)
		}
		w.model.applied = 0
	}
	n.gaveUp = n.gaveUp && !power && !n.sealed
	n.start()
}

// crash ends this life. With power lost, all that no sync covered may be gone:
// the tail of each file, any sectors of it, names. Without it all is in the page
// cache, but for what a failed flush gave up there.
func (n *node) crash(power bool) {
	for _, e := range n.fds {
		e.reset()
	}
	for _, e := range slices.Concat(n.backlog, n.shut) {
		e.reset()
	}
	n.disk.SetFault(nil)
	n.disk.SetShort(nil)
	rnd := n.w.rnd
	if !power {
		stays := n.w.cfg.Pair && !n.w.cfg.Durable // else as with power: the two may rightly differ
		n.disk = n.disk.Died(func(string) bool { return !stays && rnd.IntN(2) == 0 })
		return
	}
	torn, all := rnd.IntN(2) == 0, rnd.IntN(3) == 0
	n.disk = n.disk.PowerCut(segment.Loss{
		Tail: func(_ string, size int64) int64 {
			if all {
				return 0
			}
			if torn && rnd.IntN(2) == 0 {
				return size
			}
			return rnd.Int64N(size + 1)
		},
		Sector: func(string, int64) bool { return torn && rnd.IntN(4) == 0 },
		Names: func(_ string, changes int) int {
			if all {
				return 0
			}
			return rnd.IntN(changes + 1)
		},
	})
}

func (p *part) wasPublished() int64 { return p.end }
func (p *part) wasFlushed() int64   { return p.flushed }

// audit reads a disk as the next process would find it and tells whether
// anything is gone. AckedSurvives: below the floor nothing is, acknowledged or
// not. With flush.ack=durable an acknowledgement is below it by another law,
// MonotonicWatermark. NoHoles: what is gone is the end of the log.
func (w *World) audit(disk *segment.MemFS, floor func(*part) int64) (lost bool) {
	dir, err := segment.OpenDir(disk.Died(nil), "/d", segment.DirOptions{ClusterID: w.src.name, NodeID: 1})
	w.must(err)
	for _, p := range w.model.parts {
		if p.deleted {
			continue
		}
		if p.gen > 0 && floor(p) == 0 && w.notYet(dir, p) {
			continue // the old topic's files are still to go
		}
		start, end := w.readLog(dir, p, cleanedHere, "AckedSurvives", "the disk")
		w.check(end >= floor(p), "AckedSurvives", p.topic, p.index, ": the log ends at ", end, ", everything below ", floor(p), " was kept")
		w.check(start <= p.mayStart, "LogStartIsAllowed", p.topic, p.index, ": the log begins at ", start, ", allowed is ", p.mayStart)
		lost = p.forget(end) || lost
	}
	w.must(dir.Close())
	return lost
}

// notYet tells whether the directory of a partition is still an older topic's.
func (w *World) notYet(dir *segment.Dir, p *part) bool {
	ids, err := dir.Scan()
	w.must(err)
	for _, id := range ids {
		if id.Topic == p.topic && id.Partition == p.index {
			return id.TopicID != p.id
		}
	}
	return false
}

// othersFiles tells the same of the disk as it is.
func (w *World) othersFiles(p *part) bool {
	dir, err := segment.OpenDir(w.src.disk.Died(nil), "/d", segment.DirOptions{ClusterID: w.src.name, NodeID: 1})
	w.must(err)
	defer dir.Close()
	return w.notYet(dir, p)
}

// deletedIsGone: of a topic that is gone nothing stays.
func (w *World) deletedIsGone(disk *segment.MemFS) {
	dir, err := segment.OpenDir(disk.Died(nil), "/d", segment.DirOptions{ClusterID: w.src.name, NodeID: 1})
	w.must(err)
	ids, err := dir.Scan()
	w.must(err)
	for _, id := range ids {
		found := false
		for _, p := range w.model.parts {
			found = found || p.id == id.TopicID && p.index == id.Partition && !p.deleted
		}
		w.check(found, "DeletedIsGone", id.Topic, id.Partition, " of ", id.TopicID[:2], " is still there")
	}
	w.must(dir.Close())
}

// readLog reads a log from its start to its end.
func (w *World) readLog(dir *segment.Dir, p *part, cleaned uint8, law, by string) (start, end int64) {
	next, begun := int64(0), false
	there := map[int64]bool{}
	start, end = w.batches(dir, p, law, func(b wire.Batch, start int64) {
		if !begun {
			next, begun = start, true
		}
		next, _ = w.walk(p, b, next, cleaned, "NoHoles", by)
		for it := wire.Records(w.plain(b)); it.Next(); {
			there[b.BaseOffset()+int64(it.Record().OffsetDelta)] = true
		}
	})
	w.check(!begun && start == end || begun && next == end, "NoHoles", p.topic, p.index, ": read to ", next, ", the log ends at ", end, " in ", by)
	if w.keyed(p) && !w.failed {
		w.latest(p, there, start, end, by)
	}
	return start, end
}

// forget drops what lay at or above end and is gone.
func (p *part) forget(end int64) (lost bool) {
	for offset, id := range p.at {
		if offset >= end {
			delete(p.at, offset)
			delete(p.where, id)
			delete(p.acked, offset)
			delete(p.known, offset)
			lost = true
		}
	}
	for offset := range p.gone {
		if offset >= end {
			delete(p.gone, offset)
		}
	}
	lost = lost || p.mayStart > end // all was deleted, but a reader may be past it
	p.end, p.mayStart = min(p.end, end), min(p.mayStart, end)
	p.safe = min(p.safe, end)
	p.gated, p.held, p.flushed = min(p.gated, end), min(p.copy.end, end), min(p.flushed, end)
	return lost
}

// compare reads the second broker's disk: MirrorIsPrefixOfSource.
func (w *World) compare(disk *segment.MemFS) {
	dir, err := segment.OpenDir(disk.Died(nil), "/d", segment.DirOptions{ClusterID: "dst", NodeID: 1})
	w.must(err)
	for _, p := range w.model.parts {
		w.readLog(dir, p, cleanedHere|cleanedThere, "MirrorIsPrefixOfSource", "the second disk")
	}
	w.must(dir.Close())
}
