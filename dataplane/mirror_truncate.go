package dataplane

import (
	"errors"

	"lockstep/internal/watermark"
	"lockstep/segment"
)

// cutLog truncates a mirrored log off the ring, once its appends have ended.
func (c *Core) cutLog(s *session) {
	p := s.p
	p.lock()
	empty := p.log.Start() == p.log.NextOffset()
	var t segment.Truncation
	var err error
	if s.full {
		t, err = p.log.RestartPlan(s.cutAt)
	} else {
		t, err = p.log.TruncatePlan(max(s.cutAt, 0))
	}
	p.unlock()
	if errors.Is(err, segment.ErrBusy) {
		s.timer.owner = s
		c.timers.arm(&s.timer, c.now+1e6)
		return
	}
	if err != nil {
		s.state = sessionHeld
		return
	}
	c.eng.background(jobGrow, func() {
		t.Do()
		p.lock()
		err := p.log.Truncated(t)
		lost := int64(0)
		if err == nil {
			lost = p.clamp(t.End(), empty)
		}
		p.unlock()
		if lost > 0 {
			c.eng.o.Log.Warn("the source dropped records that were below our high watermark (unclean leader election); followed it",
				"topic", p.topic, "partition", p.index, "truncated_to", t.End(), "records", lost)
		}
		c.inbox.put(note{kind: noteCall, fn: func(c *Core) { c.truncated(s, err) }})
	})
}

// clamp follows a truncation in everything that names an offset (R1, R26). Of a
// log that was empty nothing is lost. [L]
func (p *Partition) clamp(to int64, empty bool) (lost int64) {
	d := p.down
	f := watermark.Following{Mark: p.high.Load(), Followers: p.local.ISR}
	if d != nil {
		f.Tracked, f.LEOAtElection, f.Reported = max(d.tracked, 0), d.leoAtElection, d.reportedLEO
	}
	if f, lost = watermark.Truncated(f, to); empty {
		lost = 0
	}
	p.high.Reset(f.Mark)
	p.end.Reset(min(p.end.Load(), to))
	p.tail.Reset(min(p.tail.Load(), to))
	if d != nil {
		d.tracked, d.leoAtElection, d.reportedLEO = f.Tracked, f.LEOAtElection, f.Reported
		d.lostAcked += lost
		d.alignedEpoch = -1 // earlier reports are void: they named another log
	}
	return lost
}

func (c *Core) truncated(s *session, err error) {
	if c.lanes.sessions[s.p] != s {
		return
	}
	if err != nil {
		s.state = sessionHeld
		c.eng.o.Log.Error("mirrored log could not be truncated", "topic", s.p.topic, "partition", s.p.index, "error", err)
		return
	}
	s.state = sessionReady
	if s.frame != nil { // records that did not fit where the log ended
		s.state = sessionStalled
		c.lanes.roomFor(c, s.p)
		return
	}
	c.changed(s)
}

// expired: a truncation that met a busy log tries again.
func (s *session) expired(c *Core) {
	if s.state == sessionTruncating && c.lanes.sessions[s.p] == s {
		c.cutLog(s)
	}
}
