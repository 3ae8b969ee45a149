package wire

// API keys, by Kafka's names.
const (
	KeyProduce                   = 0
	KeyFetch                     = 1
	KeyListOffsets               = 2
	KeyMetadata                  = 3
	KeyApiVersions               = 18
	KeyCreateTopics              = 19
	KeyDeleteTopics              = 20
	KeyDeleteRecords             = 21
	KeyInitProducerId            = 22
	KeyOffsetForLeaderEpoch      = 23
	KeyDescribeConfigs           = 32
	KeyAlterConfigs              = 33
	KeyDescribeLogDirs           = 35
	KeyCreatePartitions          = 37
	KeyIncrementalAlterConfigs   = 44
	KeyDescribeCluster           = 60
	KeyAddTopicsToMirror         = 95
	KeyRemoveTopicsFromMirror    = 96
	KeyListClusterMirrors        = 98
	KeyDescribeClusterMirrors    = 99
	KeyPauseMirrorTopics         = 102
	KeyResumeMirrorTopics        = 103
	KeyDeleteClusterMirror       = 104
	KeyCreateClusterMirror       = 106
	KeyRegisterMirrorSyncTopic   = 107
	KeyUnregisterMirrorSyncTopic = 108
	KeyAlterMirrorTopicType      = 109
)

// Ends of the version ranges that unstable.api.versions.enable=false takes away.
const (
	StableProduceMax = 13
	StableFetchMax   = 18
)

// API is one row of the version table.
type API struct {
	Key          int16
	Name         string
	Min, Max     int16 // advertised
	ServedMin    int16 // below it a request closes the connection; >= Min
	FlexibleFrom int16 // first version with compact forms and tags; -1 = none
	Hot          bool  // answered on the ring thread
	Unstable     bool  // hidden when unstable versions are off
}

// Flexible tells whether version uses compact forms and tags. It answers for
// versions above Max too: a header must be readable to be refused.
func (a *API) Flexible(version int16) bool {
	return a.FlexibleFrom >= 0 && version >= a.FlexibleFrom
}

// Serves tells whether requests of this version are answered.
func (a *API) Serves(version int16) bool { return version >= a.ServedMin && version <= a.Max }

// apis is the table, ordered by key. Produce advertises 0 although it serves
// from 3: librdkafka takes a larger minimum for a broker without compression.
var apis = [...]API{
	{Key: KeyProduce, Name: "Produce", Min: 0, Max: 14, ServedMin: 3, FlexibleFrom: 9, Hot: true},
	{Key: KeyFetch, Name: "Fetch", Min: 4, Max: 20, ServedMin: 4, FlexibleFrom: 12, Hot: true},
	{Key: KeyListOffsets, Name: "ListOffsets", Min: 1, Max: 11, ServedMin: 1, FlexibleFrom: 6, Hot: true},
	{Key: KeyMetadata, Name: "Metadata", Min: 0, Max: 13, ServedMin: 0, FlexibleFrom: 9},
	{Key: KeyApiVersions, Name: "ApiVersions", Min: 0, Max: 4, ServedMin: 0, FlexibleFrom: 3, Hot: true},
	{Key: KeyCreateTopics, Name: "CreateTopics", Min: 2, Max: 7, ServedMin: 2, FlexibleFrom: 5},
	{Key: KeyDeleteTopics, Name: "DeleteTopics", Min: 1, Max: 6, ServedMin: 1, FlexibleFrom: 4},
	{Key: KeyDeleteRecords, Name: "DeleteRecords", Min: 0, Max: 2, ServedMin: 0, FlexibleFrom: 2},
	{Key: KeyInitProducerId, Name: "InitProducerId", Min: 0, Max: 5, ServedMin: 0, FlexibleFrom: 2},
	{Key: KeyOffsetForLeaderEpoch, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, ServedMin: 2, FlexibleFrom: 4},
	{Key: KeyDescribeConfigs, Name: "DescribeConfigs", Min: 1, Max: 4, ServedMin: 1, FlexibleFrom: 4},
	{Key: KeyAlterConfigs, Name: "AlterConfigs", Min: 0, Max: 2, ServedMin: 0, FlexibleFrom: 2},
	{Key: KeyDescribeLogDirs, Name: "DescribeLogDirs", Min: 1, Max: 4, ServedMin: 1, FlexibleFrom: 2},
	{Key: KeyCreatePartitions, Name: "CreatePartitions", Min: 0, Max: 3, ServedMin: 0, FlexibleFrom: 2},
	{Key: KeyIncrementalAlterConfigs, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, ServedMin: 0, FlexibleFrom: 1},
	{Key: KeyDescribeCluster, Name: "DescribeCluster", Min: 0, Max: 2, ServedMin: 0, FlexibleFrom: 0},
	{Key: KeyAddTopicsToMirror, Name: "AddTopicsToMirror"},
	{Key: KeyRemoveTopicsFromMirror, Name: "RemoveTopicsFromMirror"},
	{Key: KeyListClusterMirrors, Name: "ListClusterMirrors"},
	{Key: KeyDescribeClusterMirrors, Name: "DescribeClusterMirrors"},
	{Key: KeyPauseMirrorTopics, Name: "PauseMirrorTopics"},
	{Key: KeyResumeMirrorTopics, Name: "ResumeMirrorTopics"},
	{Key: KeyDeleteClusterMirror, Name: "DeleteClusterMirror"},
	{Key: KeyCreateClusterMirror, Name: "CreateClusterMirror"},
	{Key: KeyRegisterMirrorSyncTopic, Name: "RegisterMirrorSyncTopic", Unstable: true},
	{Key: KeyUnregisterMirrorSyncTopic, Name: "UnregisterMirrorSyncTopic", Unstable: true},
	{Key: KeyAlterMirrorTopicType, Name: "AlterMirrorTopicType", Unstable: true},
}

// byKey finds a row without a search; it is filled once, here.
var byKey = func() (t [128]*API) {
	for i := range apis {
		t[apis[i].Key] = &apis[i]
	}
	return t
}()

// Lookup returns the row of an API key, nil when we do not speak it.
func Lookup(key int16) *API {
	if key < 0 || int(key) >= len(byKey) {
		return nil
	}
	return byKey[key]
}

// APIs returns the table, ordered by key. Callers do not change it.
func APIs() []API { return apis[:] }

// MaxVersion is the largest version offered for a row, given whether unstable
// versions are on; -1 = the row is not offered.
func (a *API) MaxVersion(unstable bool) int16 {
	switch {
	case unstable:
		return a.Max
	case a.Unstable:
		return -1
	case a.Key == KeyProduce:
		return StableProduceMax
	case a.Key == KeyFetch:
		return StableFetchMax
	}
	return a.Max
}
