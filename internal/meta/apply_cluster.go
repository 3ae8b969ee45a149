package meta

import (
	"cmp"
	"slices"
	"strings"

	"lockstep/internal/msg"
)

func (x *tx) bootstrap(c *msg.BootstrapCommand) {
	switch {
	case x.v.clusterID != "":
		x.fail(invalidRequest, "the cluster is bootstrapped already")
		return
	case c.ClusterId == "":
		x.fail(invalidRequest, "a cluster needs an id")
		return
	}
	x.v.clusterID = c.ClusterId
	for _, f := range c.Features {
		x.putFeature(f.Name, f.Level)
	}
}

func (x *tx) registerBroker(c *msg.RegisterBrokerCommand) {
	if c.BrokerId < 0 {
		x.fail(invalidRequest, "broker ids are not negative")
		return
	}
	old := x.v.Broker(c.BrokerId)
	if old != nil && old.Incarnation == c.IncarnationId {
		x.res.Number = old.Epoch // the answer to the first one was lost
		return
	}
	b := &Broker{ID: c.BrokerId, Epoch: x.index, Incarnation: c.IncarnationId, Host: c.Host, Port: c.Port, Fenced: true}
	if c.Rack != nil {
		b.Rack = *c.Rack
	}
	x.putBroker(b)
	if old != nil {
		// The new process starts fenced, so it leads nothing; without proof of
		// a clean shutdown it may also have lost what it had acknowledged.
		x.loseBroker(b.ID, !c.CleanShutdown)
	}
	x.res.Number = b.Epoch
}

func (x *tx) registerController(c *msg.RegisterControllerCommand) {
	n := &Controller{ID: c.ControllerId, Incarnation: c.IncarnationId, Host: c.Host, Port: c.Port}
	i, found := slices.BinarySearchFunc(x.v.controllers, n.ID, func(a *Controller, id int32) int { return cmp.Compare(a.ID, id) })
	x.v.controllers = slices.Clone(x.v.controllers)
	if found {
		x.v.controllers[i] = n
	} else {
		x.v.controllers = slices.Insert(x.v.controllers, i, n)
	}
	x.set.brokers = true
}

// putBroker adds or replaces a broker.
func (x *tx) putBroker(b *Broker) {
	i, found := slices.BinarySearchFunc(x.v.brokers, b.ID, func(a *Broker, id int32) int { return cmp.Compare(a.ID, id) })
	x.v.brokers = slices.Clone(x.v.brokers)
	if found {
		x.v.brokers[i] = b
	} else {
		x.v.brokers = slices.Insert(x.v.brokers, i, b)
	}
	x.set.brokers = true
}

// broker finds a broker by id and epoch, or refuses the command.
func (x *tx) broker(id int32, epoch int64) *Broker {
	b := x.v.Broker(id)
	switch {
	case b == nil:
		x.fail(brokerIDNotRegistered, "broker is not registered")
		return nil
	case b.Epoch != epoch:
		x.fail(staleBrokerEpoch, "broker epoch is not that of its registration")
		return nil
	}
	return b
}

func (x *tx) fenceBroker(c *msg.FenceBrokerCommand) {
	b := x.broker(c.BrokerId, c.BrokerEpoch)
	if b == nil || b.Fenced {
		return
	}
	fenced := *b
	fenced.Fenced = true
	x.putBroker(&fenced)
	x.loseBroker(b.ID, false)
}

func (x *tx) unfenceBroker(c *msg.UnfenceBrokerCommand) {
	b := x.broker(c.BrokerId, c.BrokerEpoch)
	if b == nil || !b.Fenced {
		return
	}
	live := *b
	live.Fenced = false
	x.putBroker(&live)
	x.gainBroker(b.ID)
}

func (x *tx) unregisterBroker(c *msg.UnregisterBrokerCommand) {
	if x.v.Broker(c.BrokerId) == nil {
		x.fail(brokerIDNotRegistered, "broker is not registered")
		return
	}
	x.v.brokers = slices.DeleteFunc(slices.Clone(x.v.brokers), func(b *Broker) bool { return b.ID == c.BrokerId })
	x.set.brokers = true
	x.loseBroker(c.BrokerId, false)
}

// controlledShutdown keeps the broker where nobody else is in sync: it serves
// until it goes.
func (x *tx) controlledShutdown(c *msg.ControlledShutdownCommand) {
	b := x.broker(c.BrokerId, c.BrokerEpoch)
	if b == nil {
		return
	}
	if !b.InShutdown {
		leaving := *b
		leaving.InShutdown = true
		x.putBroker(&leaving)
	}
	x.eachPartition(func(t *Topic, i int, p *Partition) {
		if !slices.Contains(p.ISR, b.ID) {
			return
		}
		if !slices.ContainsFunc(p.ISR, x.alive) {
			if p.Leader == b.ID {
				x.res.Number++
			}
			return
		}
		t = x.edit(t)
		p = editPartition(t, i)
		p.drop(b.ID, x.minISR(t), false)
		if p.Leader == b.ID {
			p.elect(x.alive, x.minISR(t), false)
		}
		p.PartitionEpoch++
	})
}

func (x *tx) allocateProducerIDs(c *msg.AllocateProducerIdsCommand) {
	if x.broker(c.BrokerId, c.BrokerEpoch) == nil {
		return
	}
	x.res.Number = x.v.nextPID
	x.v.nextPID += ProducerIDBlock
}

func (x *tx) setFeature(c *msg.SetFeatureCommand) {
	if c.Name == "" || len(c.Name) > MaxNameLength || c.Level < 0 {
		x.fail(invalidRequest, "a feature needs a name and a level of at least 0")
		return
	}
	x.putFeature(c.Name, c.Level)
}

func (x *tx) putFeature(name string, level int16) {
	i, found := slices.BinarySearchFunc(x.v.features, name, func(f Feature, n string) int { return strings.Compare(f.Name, n) })
	x.v.features = slices.Clone(x.v.features)
	if found {
		x.v.features[i].Level = level
	} else {
		x.v.features = slices.Insert(x.v.features, i, Feature{name, level})
	}
	x.set.features = true
}

func (x *tx) raiseFence(c *msg.RaiseFenceCommand) {
	if c.Kind < -1 || c.Kind >= int8(FenceKinds) {
		x.fail(invalidRequest, "unknown kind of plugin")
		return
	}
	for k := range x.v.fences {
		if c.Kind < 0 || int8(k) == c.Kind {
			x.v.fences[k] = x.index
		}
	}
	x.res.Number = x.index
}

// fenceHolds tells whether a wish is of the current instance. -1 is the
// controller itself, which needs no plugin.
func (x *tx) fenceHolds(kind FenceKind, fence int64) bool {
	if fence == -1 || fence == x.v.fences[kind] {
		return true
	}
	x.fail(invalidUpdateVersion, "the plugin instance has been replaced")
	return false
}
