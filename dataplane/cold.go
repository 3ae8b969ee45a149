package dataplane

// coldJob is a request for the cold pool and the place of its answer.
type coldJob struct {
	core *Core
	ans  *answer
	run  func() []byte
}

// serveCold hands a copied request to the cold pool.
func (e *Engine) serveCold(c *Core, r *ColdRequest, a *answer) {
	e.runCold(c, a, func() []byte { return e.o.Cold.Serve(r) })
}

// runCold runs a function in the cold pool; what it returns goes to the
// reserved place. With the queue full the connection is closed: the client
// backs off and comes again.
func (e *Engine) runCold(c *Core, a *answer, run func() []byte) {
	select {
	case e.cold <- coldJob{c, a, run}:
	default:
		c.m.badRequests.Add(1)
		c.inbox.put(note{kind: noteCold, ans: a})
	}
}

// coldWorker serves until the engine stops.
func (e *Engine) coldWorker() {
	for {
		select {
		case j := <-e.cold:
			j.core.inbox.put(note{kind: noteCold, ans: j.ans, bytes: j.run()})
		case <-e.stop:
			return
		}
	}
}

// RunCold serves one queued cold request, for a driver without goroutines.
func (e *Engine) RunCold() bool {
	select {
	case j := <-e.cold:
		j.core.inbox.put(note{kind: noteCold, ans: j.ans, bytes: j.run()})
		return true
	default:
		return false
	}
}
