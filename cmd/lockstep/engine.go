package main

import (
	"fmt"
	"runtime"
	"sync"

	"lockstep/ioring"
)

func (b *broker) runEngine() error {
	name, why, err := chooseEngine(b.cfg.IOEngine)
	if err != nil {
		return err
	}
	all := meeting(b.reactors())
	err = b.engine.Start(func(pool *ioring.Pool) (ioring.Engine, error) {
		if name == "portable" {
			return ioring.NewPortable(pool)
		}
		r, err := ioring.NewRing(pool)
		if b.cfg.IOEngine != "auto" {
			return r, err
		}
		// What one ring needs, as the probe has seen, is not what all need. One
		// engine for all: the descriptors of a ring's sockets block.
		if why := all(err); why != nil {
			if err == nil {
				err = r.Close()
				b.log.Debug("ring given back", "error", err)
			}
			return ioring.NewPortable(pool)
		}
		return r, nil
	})
	if err != nil {
		return err
	}
	if name != b.engine.EngineName() {
		name, why = b.engine.EngineName(), fmt.Sprintf("not every reactor can have a ring: %v", all(nil))
	}
	b.log.Info("engine", "name", name, "why", why, "reactors", b.reactors())
	b.log.Info("flush", "ack", b.cfg.FlushAck, "meaning", map[string]string{
		"appended": "acknowledged when in the page cache of every in-sync replica",
		"durable":  "acknowledged when on the disk of every in-sync replica"}[b.cfg.FlushAck])
	b.log.Warn("no TLS, SASL or ACL yet: everyone who reaches a listener may do everything")
	b.engine.ViewChanged()
	return nil
}

// meeting lets n callers wait for each other; each hears the first error that
// one of them came with, as does who asks later.
func meeting(n int) func(error) error {
	var mu sync.Mutex
	var first error
	come, over := 0, make(chan struct{})
	return func(err error) error {
		mu.Lock()
		if come++; come == n {
			close(over)
		}
		if first == nil && come <= n {
			first = err
		}
		mu.Unlock()
		<-over
		return first
	}
}

// chooseEngine decides between the ring and the portable engine, and says why.
func chooseEngine(want string) (name, why string, err error) {
	if want == "portable" {
		return "portable", "lockstep.io.engine=portable", nil
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- ioring.Probe()
	}()
	err = <-done
	switch {
	case err == nil:
		return ioring.RingName, "the kernel has all that is needed", nil
	case want == "io_uring":
		return "", "", fmt.Errorf("lockstep.io.engine=io_uring cannot be had: %w", err)
	}
	return "portable", err.Error(), nil
}
