package wire

// ErrorCode is a Kafka error code as it travels.
type ErrorCode int16

// The codes by Kafka's names. 137 and up are the mirroring codes, which upstream
// has not assigned yet.
const (
	ErrNone                                     ErrorCode = 0
	ErrUnknownServerError                       ErrorCode = -1
	ErrOffsetOutOfRange                         ErrorCode = 1
	ErrCorruptMessage                           ErrorCode = 2
	ErrUnknownTopicOrPartition                  ErrorCode = 3
	ErrInvalidFetchSize                         ErrorCode = 4
	ErrLeaderNotAvailable                       ErrorCode = 5
	ErrNotLeaderOrFollower                      ErrorCode = 6
	ErrRequestTimedOut                          ErrorCode = 7
	ErrBrokerNotAvailable                       ErrorCode = 8
	ErrReplicaNotAvailable                      ErrorCode = 9
	ErrMessageTooLarge                          ErrorCode = 10
	ErrStaleControllerEpoch                     ErrorCode = 11
	ErrOffsetMetadataTooLarge                   ErrorCode = 12
	ErrNetworkException                         ErrorCode = 13
	ErrCoordinatorLoadInProgress                ErrorCode = 14
	ErrCoordinatorNotAvailable                  ErrorCode = 15
	ErrNotCoordinator                           ErrorCode = 16
	ErrInvalidTopic                             ErrorCode = 17
	ErrRecordListTooLarge                       ErrorCode = 18
	ErrNotEnoughReplicas                        ErrorCode = 19
	ErrNotEnoughReplicasAfterAppend             ErrorCode = 20
	ErrInvalidRequiredAcks                      ErrorCode = 21
	ErrIllegalGeneration                        ErrorCode = 22
	ErrInconsistentGroupProtocol                ErrorCode = 23
	ErrInvalidGroupId                           ErrorCode = 24
	ErrUnknownMemberId                          ErrorCode = 25
	ErrInvalidSessionTimeout                    ErrorCode = 26
	ErrRebalanceInProgress                      ErrorCode = 27
	ErrInvalidCommitOffsetSize                  ErrorCode = 28
	ErrTopicAuthorizationFailed                 ErrorCode = 29
	ErrGroupAuthorizationFailed                 ErrorCode = 30
	ErrClusterAuthorizationFailed               ErrorCode = 31
	ErrInvalidTimestamp                         ErrorCode = 32
	ErrUnsupportedSaslMechanism                 ErrorCode = 33
	ErrIllegalSaslState                         ErrorCode = 34
	ErrUnsupportedVersion                       ErrorCode = 35
	ErrTopicAlreadyExists                       ErrorCode = 36
	ErrInvalidPartitions                        ErrorCode = 37
	ErrInvalidReplicationFactor                 ErrorCode = 38
	ErrInvalidReplicaAssignment                 ErrorCode = 39
	ErrInvalidConfig                            ErrorCode = 40
	ErrNotController                            ErrorCode = 41
	ErrInvalidRequest                           ErrorCode = 42
	ErrUnsupportedForMessageFormat              ErrorCode = 43
	ErrPolicyViolation                          ErrorCode = 44
	ErrOutOfOrderSequenceNumber                 ErrorCode = 45
	ErrDuplicateSequenceNumber                  ErrorCode = 46
	ErrInvalidProducerEpoch                     ErrorCode = 47
	ErrInvalidTxnState                          ErrorCode = 48
	ErrInvalidProducerIdMapping                 ErrorCode = 49
	ErrInvalidTransactionTimeout                ErrorCode = 50
	ErrConcurrentTransactions                   ErrorCode = 51
	ErrTransactionCoordinatorFenced             ErrorCode = 52
	ErrTransactionalIdAuthorizationFailed       ErrorCode = 53
	ErrSecurityDisabled                         ErrorCode = 54
	ErrOperationNotAttempted                    ErrorCode = 55
	ErrKafkaStorageError                        ErrorCode = 56
	ErrLogDirNotFound                           ErrorCode = 57
	ErrSaslAuthenticationFailed                 ErrorCode = 58
	ErrUnknownProducerId                        ErrorCode = 59
	ErrReassignmentInProgress                   ErrorCode = 60
	ErrDelegationTokenAuthDisabled              ErrorCode = 61
	ErrDelegationTokenNotFound                  ErrorCode = 62
	ErrDelegationTokenOwnerMismatch             ErrorCode = 63
	ErrDelegationTokenRequestNotAllowed         ErrorCode = 64
	ErrDelegationTokenAuthorizationFailed       ErrorCode = 65
	ErrDelegationTokenExpired                   ErrorCode = 66
	ErrInvalidPrincipalType                     ErrorCode = 67
	ErrNonEmptyGroup                            ErrorCode = 68
	ErrGroupIdNotFound                          ErrorCode = 69
	ErrFetchSessionIdNotFound                   ErrorCode = 70
	ErrInvalidFetchSessionEpoch                 ErrorCode = 71
	ErrListenerNotFound                         ErrorCode = 72
	ErrTopicDeletionDisabled                    ErrorCode = 73
	ErrFencedLeaderEpoch                        ErrorCode = 74
	ErrUnknownLeaderEpoch                       ErrorCode = 75
	ErrUnsupportedCompressionType               ErrorCode = 76
	ErrStaleBrokerEpoch                         ErrorCode = 77
	ErrOffsetNotAvailable                       ErrorCode = 78
	ErrMemberIdRequired                         ErrorCode = 79
	ErrPreferredLeaderNotAvailable              ErrorCode = 80
	ErrGroupMaxSizeReached                      ErrorCode = 81
	ErrFencedInstanceId                         ErrorCode = 82
	ErrEligibleLeadersNotAvailable              ErrorCode = 83
	ErrElectionNotNeeded                        ErrorCode = 84
	ErrNoReassignmentInProgress                 ErrorCode = 85
	ErrGroupSubscribedToTopic                   ErrorCode = 86
	ErrInvalidRecord                            ErrorCode = 87
	ErrUnstableOffsetCommit                     ErrorCode = 88
	ErrThrottlingQuotaExceeded                  ErrorCode = 89
	ErrProducerFenced                           ErrorCode = 90
	ErrResourceNotFound                         ErrorCode = 91
	ErrDuplicateResource                        ErrorCode = 92
	ErrUnacceptableCredential                   ErrorCode = 93
	ErrInconsistentVoterSet                     ErrorCode = 94
	ErrInvalidUpdateVersion                     ErrorCode = 95
	ErrFeatureUpdateFailed                      ErrorCode = 96
	ErrPrincipalDeserializationFailure          ErrorCode = 97
	ErrSnapshotNotFound                         ErrorCode = 98
	ErrPositionOutOfRange                       ErrorCode = 99
	ErrUnknownTopicId                           ErrorCode = 100
	ErrDuplicateBrokerRegistration              ErrorCode = 101
	ErrBrokerIdNotRegistered                    ErrorCode = 102
	ErrInconsistentTopicId                      ErrorCode = 103
	ErrInconsistentClusterId                    ErrorCode = 104
	ErrTransactionalIdNotFound                  ErrorCode = 105
	ErrFetchSessionTopicIdError                 ErrorCode = 106
	ErrIneligibleReplica                        ErrorCode = 107
	ErrNewLeaderElected                         ErrorCode = 108
	ErrOffsetMovedToTieredStorage               ErrorCode = 109
	ErrFencedMemberEpoch                        ErrorCode = 110
	ErrUnreleasedInstanceId                     ErrorCode = 111
	ErrUnsupportedAssignor                      ErrorCode = 112
	ErrStaleMemberEpoch                         ErrorCode = 113
	ErrMismatchedEndpointType                   ErrorCode = 114
	ErrUnsupportedEndpointType                  ErrorCode = 115
	ErrUnknownControllerId                      ErrorCode = 116
	ErrUnknownSubscriptionId                    ErrorCode = 117
	ErrTelemetryTooLarge                        ErrorCode = 118
	ErrInvalidRegistration                      ErrorCode = 119
	ErrTransactionAbortable                     ErrorCode = 120
	ErrInvalidRecordState                       ErrorCode = 121
	ErrShareSessionNotFound                     ErrorCode = 122
	ErrInvalidShareSessionEpoch                 ErrorCode = 123
	ErrFencedStateEpoch                         ErrorCode = 124
	ErrInvalidVoterKey                          ErrorCode = 125
	ErrDuplicateVoter                           ErrorCode = 126
	ErrVoterNotFound                            ErrorCode = 127
	ErrInvalidRegularExpression                 ErrorCode = 128
	ErrRebootstrapRequired                      ErrorCode = 129
	ErrStreamsInvalidTopology                   ErrorCode = 130
	ErrStreamsInvalidTopologyEpoch              ErrorCode = 131
	ErrStreamsTopologyFenced                    ErrorCode = 132
	ErrShareSessionLimitReached                 ErrorCode = 133
	ErrGroupDeletionFailed                      ErrorCode = 134
	ErrStreamsTopologyDescriptionUpdateFailed   ErrorCode = 135
	ErrControllerIdNotRegistered                ErrorCode = 136
	ErrReadOnlyTopic                            ErrorCode = 137
	ErrClusterMirrorAlreadyExists               ErrorCode = 138
	ErrUnknownClusterMirror                     ErrorCode = 139
	ErrTopicAlreadyInClusterMirror              ErrorCode = 140
	ErrTopicNotInClusterMirror                  ErrorCode = 141
	ErrMirrorTopicAlreadyPaused                 ErrorCode = 142
	ErrMirrorTopicNotPaused                     ErrorCode = 143
	ErrMirrorTopicBeingStopped                  ErrorCode = 144
	ErrClusterMirrorNotEmpty                    ErrorCode = 145
	ErrClusterMirrorAuthorizationFailed         ErrorCode = 146
	ErrInvalidClusterMirrorStates               ErrorCode = 147
	ErrMirrorTopicNotStopped                    ErrorCode = 148
	ErrMirrorSyncReplicationTimeout             ErrorCode = 150
	ErrNotEnoughRemoteReplicasAfterAppend       ErrorCode = 151
	ErrInvalidSyncRegistration                  ErrorCode = 152
	ErrMirrorRegistrationPropagating            ErrorCode = 153
	ErrMirrorSyncReleasedRequiresFreshPromotion ErrorCode = 154
	ErrMirrorSyncVersionMismatch                ErrorCode = 155
)

// Name is the Kafka name of the code, UNKNOWN_SERVER_ERROR for one not in the table.
func (c ErrorCode) Name() string { return c.info().name }

// Message is one sentence for a person.
func (c ErrorCode) Message() string { return c.info().message }

// Retriable tells whether the same request may succeed later.
func (c ErrorCode) Retriable() bool { return c.info().retriable }

// String is Name, for formatted output.
func (c ErrorCode) String() string { return c.Name() }

func (c ErrorCode) info() errorInfo {
	if e, ok := errorTable[c]; ok {
		return e
	}
	return errorTable[ErrUnknownServerError]
}

// DownMapProduce returns the code a producer of the given Produce version can
// read: the two remote replication errors and READ_ONLY_TOPIC came with 14,
// TRANSACTION_ABORTABLE with 11, KAFKA_STORAGE_ERROR with 4.
func DownMapProduce(c ErrorCode, version int16) ErrorCode {
	switch {
	case version < 14 && (c == ErrMirrorSyncReplicationTimeout || c == ErrNotEnoughRemoteReplicasAfterAppend):
		return ErrNotEnoughReplicasAfterAppend
	case version < 14 && c == ErrReadOnlyTopic:
		return ErrPolicyViolation
	case version < 11 && c == ErrTransactionAbortable:
		return ErrInvalidTxnState
	case version < 4 && c == ErrKafkaStorageError:
		return ErrNotLeaderOrFollower
	}
	return c
}

// DownMapFetch returns the code a consumer of the given Fetch version can read:
// KAFKA_STORAGE_ERROR came with 6.
func DownMapFetch(c ErrorCode, version int16) ErrorCode {
	if version <= 5 && c == ErrKafkaStorageError {
		return ErrNotLeaderOrFollower
	}
	return c
}
