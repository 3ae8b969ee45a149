package sim

import "time"

// stopClean ends a life by a clean shutdown and begins the next, at times with the power
// lost in between: all is durable by then.
//
// CleanStopIsClean: the shards end in time, and a directory that has not failed
// carries the mark. By other laws: nothing is gone, AckedSurvives; the marks are
// where they were, MonotonicWatermark; producers go on, OnceInTheLog.
func (w *World) stopClean(n *node) {
	if n.broken || n.dir.Failed() != nil {
		return
	}
	w.note("%s is stopped", n.name)
	n.disk.SetFault(nil)
	n.disk.SetShort(nil)
	n.eng.Drain(time.Duration(w.rnd.Int64N(int64(drainMost))))
	for deadline := w.mono + drainMost + int64(1e9); !n.eng.Drained(); w.mono += 1e6 {
		w.check(w.mono < deadline, "CleanStopIsClean", n.name, ": shards do not end")
		for _, k := range n.kernels {
			k.turn(true)
		}
		n.runJob()
		w.laws()
	}
	for n.runJob() {
	}
	w.laws()
	if n == w.src {
		for _, p := range w.model.parts {
			p.resume = p.high
		}
	}
	err := n.eng.Close(0)
	w.check(err == nil, "CleanStopIsClean", n.name, ": ", err)
	n.sealed = true
	for _, c := range w.clients { // what it was told in time, but reads later, is of a life the laws cannot ask any more
		if x, ok := c.(*consumer); ok && x.n == n {
			x.cut(false)
		}
	}
	w.restart(n, w.rnd.IntN(2) == 0)
}
