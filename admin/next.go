package admin

import "lockstep/internal/wire"

// nextSteps are what a person does next about an error code. Lockstep's brokers
// say it themselves in most of their messages; these are for a bare code.
var nextSteps = map[wire.ErrorCode]string{
	wire.ErrUnknownTopicOrPartition:    "list the topics to see which exist",
	wire.ErrUnknownTopicId:             "the topic was deleted or made anew: describe it",
	wire.ErrInconsistentTopicId:        "the topic was deleted or made anew: describe it",
	wire.ErrTopicAlreadyExists:         "choose another name, or delete that topic first",
	wire.ErrInvalidTopic:               "choose a name of 1 to 249 letters, digits, dots, dashes and underscores",
	wire.ErrInvalidPartitions:          "ask for at least one, and for more than the topic has",
	wire.ErrInvalidReplicationFactor:   "lower the replication factor, or start more brokers",
	wire.ErrInvalidConfig:              "correct the setting",
	wire.ErrInvalidRequest:             "describe what is there, and correct the request",
	wire.ErrPolicyViolation:            "ask who runs the cluster for its rules",
	wire.ErrTopicDeletionDisabled:      "set delete.topic.enable=true at the brokers first",
	wire.ErrTopicAuthorizationFailed:   "connect as somebody who may",
	wire.ErrClusterAuthorizationFailed: "connect as somebody who may",
	wire.ErrNotController:              "ask again; if that lasts, see that a majority of the controllers runs",
	wire.ErrLeaderNotAvailable:         "ask again; if that lasts, describe the topic to see who should lead",
	wire.ErrRequestTimedOut:            "look whether it was done before you ask again",
	wire.ErrUnsupportedVersion:         "run the same release on all brokers",
	wire.ErrKafkaStorageError:          "make room or replace the disk, then ask again",
	wire.ErrUnknownServerError:         "see the broker's log",

	wire.ErrReadOnlyTopic:                            "stop its mirror to make it writable",
	wire.ErrClusterMirrorAlreadyExists:               "choose another name, or delete that mirror first",
	wire.ErrUnknownClusterMirror:                     "list the mirrors to see which exist; they live on the destination",
	wire.ErrTopicAlreadyInClusterMirror:              "stop it there first",
	wire.ErrTopicNotInClusterMirror:                  "describe the mirror to see its topics",
	wire.ErrMirrorTopicBeingStopped:                  "wait until describe shows STOPPED on all partitions",
	wire.ErrClusterMirrorNotEmpty:                    "stop its topics, and wait until describe shows STOPPED",
	wire.ErrMirrorTopicNotStopped:                    "stop it first",
	wire.ErrInvalidClusterMirrorStates:               "describe the mirror to see its states",
	wire.ErrClusterMirrorAuthorizationFailed:         "connect as somebody who may",
	wire.ErrInvalidSyncRegistration:                  "describe the mirrors of the source to see the registrations",
	wire.ErrMirrorRegistrationPropagating:            "ask again",
	wire.ErrMirrorSyncReleasedRequiresFreshPromotion: "nothing: the destination registers again by itself when it has caught up",
	wire.ErrMirrorSyncVersionMismatch:                "set mirror.sync.version to 1 when all brokers run this release",
}

// NextStep is what to do about an error code, in words for a person; "" if there
// is nothing to say.
func NextStep(code int16) string { return nextSteps[wire.ErrorCode(code)] }
