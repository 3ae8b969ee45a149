package meta

// Kafka's error codes, as far as Apply gives them.
const (
	none                      int16 = 0
	unknownTopicOrPartition   int16 = 3
	notLeader                 int16 = 6
	invalidTopic              int16 = 17
	unsupportedVersion        int16 = 35
	topicAlreadyExists        int16 = 36
	invalidPartitions         int16 = 37
	invalidReplicationFactor  int16 = 38
	invalidReplicaAssignment  int16 = 39
	invalidConfig             int16 = 40
	invalidRequest            int16 = 42
	fencedLeaderEpoch         int16 = 74
	staleBrokerEpoch          int16 = 77
	preferredLeaderMissing    int16 = 80
	eligibleLeadersMissing    int16 = 83
	electionNotNeeded         int16 = 84
	invalidUpdateVersion      int16 = 95
	unknownTopicID            int16 = 100
	brokerIDNotRegistered     int16 = 102
	inconsistentTopicID       int16 = 103
	ineligibleReplica         int16 = 107
	mirrorAlreadyExists       int16 = 138
	unknownMirror             int16 = 139
	topicInOtherMirror        int16 = 140
	topicNotInMirror          int16 = 141
	topicNotPaused            int16 = 143
	topicBeingStopped         int16 = 144
	mirrorNotEmpty            int16 = 145
	invalidMirrorStates       int16 = 147
	topicNotStopped           int16 = 148
	invalidSyncRegistration   int16 = 152
	releasedNeedsFreshPromote int16 = 154
	mirrorSyncVersionMismatch int16 = 155
)

// refusal is why an item is not done; nil = it is.
type refusal struct {
	code int16
	text string
}

func refuse(code int16, text string) *refusal { return &refusal{code, text} }
