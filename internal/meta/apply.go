package meta

import (
	"lockstep/internal/invariant"
	"lockstep/internal/msg"
)

// Apply returns the View after the command at a raft index, and its result. It
// is pure: two replicas that apply the same commands hold the same facts. v is
// not changed. An unknown, malformed or refused command changes nothing but
// the index; an item that is refused leaves the other items alone.
func Apply(v *View, index uint64, cmd []byte) (*View, Result) {
	invariant.Check(index > v.index, "IndexOnlyRises", v.index, " then ", index)
	x := begin(v, index)
	if len(cmd) > MaxCommandBytes {
		x.fail(invalidRequest, "command too large")
	} else if m, err := Decode(cmd); err != nil {
		x.fail(unsupportedVersion, "unknown or malformed command")
	} else {
		x.run(m)
	}
	return x.commit(), x.res
}

func (x *tx) run(m Message) {
	if _, ok := m.(*msg.BootstrapCommand); !ok && x.v.clusterID == "" {
		x.fail(invalidRequest, "the cluster is not bootstrapped")
		return
	}
	if !x.runCluster(m) && !x.runTopics(m) && !x.runMirrors(m) {
		x.fail(unsupportedVersion, "not a command")
	}
}

func (x *tx) runCluster(m Message) bool {
	switch c := m.(type) {
	case *msg.BootstrapCommand:
		x.bootstrap(c)
	case *msg.RegisterBrokerCommand:
		x.registerBroker(c)
	case *msg.RegisterControllerCommand:
		x.registerController(c)
	case *msg.FenceBrokerCommand:
		x.fenceBroker(c)
	case *msg.UnfenceBrokerCommand:
		x.unfenceBroker(c)
	case *msg.UnregisterBrokerCommand:
		x.unregisterBroker(c)
	case *msg.ControlledShutdownCommand:
		x.controlledShutdown(c)
	case *msg.AllocateProducerIdsCommand:
		x.allocateProducerIDs(c)
	case *msg.SetFeatureCommand:
		x.setFeature(c)
	case *msg.RaiseFenceCommand:
		x.raiseFence(c)
	case *msg.AlterConfigsCommand:
		x.alterConfigs(c)
	default:
		return false
	}
	return true
}

func (x *tx) runTopics(m Message) bool {
	switch c := m.(type) {
	case *msg.CreateTopicsCommand:
		x.createTopics(c)
	case *msg.DeleteTopicsCommand:
		x.deleteTopics(c)
	case *msg.CreatePartitionsCommand:
		x.createPartitions(c)
	case *msg.AlterPartitionCommand:
		x.alterPartition(c)
	case *msg.ElectLeadersCommand:
		x.electLeaders(c)
	case *msg.BumpLeaderEpochsCommand:
		x.bumpLeaderEpochs(c)
	default:
		return false
	}
	return true
}

func (x *tx) runMirrors(m Message) bool {
	switch c := m.(type) {
	case *msg.CreateMirrorCommand:
		x.createMirror(c)
	case *msg.DeleteMirrorCommand:
		x.deleteMirror(c)
	case *msg.AddTopicsToMirrorCommand:
		x.addTopicsToMirror(c)
	case *msg.StopMirrorTopicsCommand:
		x.eachMirrorTopic(c.Mirror, c.Topics, x.stopTopic)
	case *msg.PauseMirrorTopicsCommand:
		x.eachMirrorTopic(c.Mirror, c.Topics, x.pauseTopic)
	case *msg.ResumeMirrorTopicsCommand:
		x.eachMirrorTopic(c.Mirror, c.Topics, x.resumeTopic)
	case *msg.AlterMirrorTopicTypeCommand:
		x.alterMirrorTopicType(c)
	case *msg.MirrorPartitionStatesCommand:
		x.mirrorPartitionStates(c)
	case *msg.PromotionStepCommand:
		x.promotionStep(c)
	case *msg.RegisterSyncCommand:
		x.registerSync(c)
	case *msg.UnregisterSyncCommand:
		x.unregisterSync(c)
	case *msg.ReleaseSyncCommand:
		x.releaseSync(c)
	default:
		return false
	}
	return true
}
