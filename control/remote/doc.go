// Package remote asks a mirror's source cluster what is not on the data lane:
// who leads which partition, what its topics are, and to register, unregister
// or look up a registration. It works with any Kafka-protocol cluster; only the
// registration calls need a Lockstep.
package remote
