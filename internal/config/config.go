package config

import "iter"

// Config is the configuration of a node. Times are milliseconds (Ms) and sizes
// bytes (Bytes); -1 means no limit where the range has it.
type Config struct {
	// Node and cluster.
	NodeID              int32
	Broker, Controller  bool // process.roles
	Rack                string
	ClusterID           string
	QuorumVoters        []Voter    // controller.quorum.voters; empty = this node alone
	QuorumBootstrap     []HostPort // controller.quorum.bootstrap.servers
	HeartbeatIntervalMs int32
	SessionTimeoutMs    int32

	// Listeners.
	Listeners           []Listener
	Advertised          []Listener
	InterBrokerListener string
	ControllerListeners []string
	Security            map[string]string // ssl.*, sasl.* and listener.name.*, as given: holds secrets
	AuthorizerClass     string
	SuperUsers          string
	AllowEveryone       bool

	// Log.
	LogDirs               []string
	SegmentBytes          int32
	RollMs, RollJitterMs  int64
	RetentionMs           int64
	RetentionBytes        int64
	RetentionCheckMs      int64
	IndexIntervalBytes    int32
	IndexMaxBytes         int32
	FlushMessages         int64
	FlushMs               int64
	DeleteDelayMs         int64
	CleanupPolicy         []string
	CleanerEnable         bool
	CleanerBackoffMs      int64
	CleanerDeleteMs       int64
	CleanerMinDirtyRatio  float64
	CleanerMinLagMs       int64
	CleanerMaxLagMs       int64
	CompressionType       string
	MessageMaxBytes       int32
	TimestampType         string
	TimestampBeforeMaxMs  int64
	TimestampAfterMaxMs   int64
	ProducerExpirationMs  int32
	Preallocate           bool
	FlushAck              string // lockstep.flush.ack: appended or durable
	UncleanLeaderElection bool
	MinInsyncReplicas     int32
	NumPartitions         int32
	DefaultReplication    int32
	AutoCreateTopics      bool
	DeleteTopics          bool

	// Replication.
	ReplicaLagTimeMaxMs       int64
	ReplicaFetchWaitMaxMs     int32
	ReplicaFetchMinBytes      int32
	ReplicaFetchMaxBytes      int32
	ReplicaFetchResponseBytes int32
	ReplicaFetchBackoffMs     int32
	NumReplicaFetchers        int32

	// Requests.
	RequestMaxBytes   int32
	FetchMaxBytes     int32
	QueuedMaxRequests int32
	QueuedMaxBytes    int64
	ConnectionsIdleMs int64
	MaxConnections    int32
	RequestTimeoutMs  int32
	UnstableAPIs      bool

	// Groups and transactions.
	OffsetsPartitions           int32
	OffsetsReplication          int32
	OffsetsSegmentBytes         int32
	OffsetsRetentionMinutes     int32
	OffsetMetadataMaxBytes      int32
	GroupMinSessionMs           int32
	GroupMaxSessionMs           int32
	GroupInitialDelayMs         int32
	GroupMaxSize                int32
	TransactionPartitions       int32
	TransactionReplication      int32
	TransactionMinISR           int32
	TransactionSegmentBytes     int32
	TransactionMaxTimeoutMs     int32
	TransactionalIDExpirationMs int32

	// Mirrors.
	MirrorStatePartitions    int32
	MirrorStateReplication   int32
	MirrorFetchers           int32
	MirrorRefreshMs          int64
	MirrorRetryInitialMs     int64
	MirrorRetryMaxMs         int64
	MirrorRetryMaxAttempts   int32
	MirrorAdminListener      string // empty = the inter-broker listener
	MirrorAdminMechanism     string // empty = the inter-broker mechanism
	MirrorThrottledRate      int64  // bytes per second
	MirrorCoordinatorThreads int32
	MirrorWriteTimeoutMs     int32
	MirrorAppendLingerMs     int32
	MirrorLoadBufferBytes    int32
	MirrorDemoteTimeoutMs    int64
	MirrorFetches            int32 // lockstep.mirror.fetches: under way at a source, beside the one that names changes
	MirrorRegisterBarrierMs  int64 // 0 = the KIP's behaviour
	MirrorAutoReleaseMs      int64 // 0 = only an operator releases

	// Ours alone.
	IOEngine      string // auto, io_uring or portable
	IOReactors    int32  // 0 = by the number of cores
	AdminListener string // empty = none

	// Policies' programs; an empty path is the default policy.
	PluginCoordinator Plugin
	PluginPromotion   Plugin
	PluginRelease     Plugin
}

// Plugin is a policy's program.
type Plugin struct {
	Path   string
	SHA256 string // of the file, hex
}

// plugins are the policies' programs by kind, in the table's order.
func (c *Config) plugins() iter.Seq2[string, *Plugin] {
	return func(yield func(string, *Plugin) bool) {
		_ = yield("coordinator", &c.PluginCoordinator) && yield("promotion", &c.PluginPromotion) && yield("release", &c.PluginRelease)
	}
}

// raw holds settings that become fields together with others.
type raw struct {
	brokerID, nodeID                   int32
	roles                              []string
	listeners, advertised, protocolMap []string
	voters, bootstrap                  []string
	logDir                             []string
	rollHours, rollJitterHours         int64
	retentionMinutes, retentionHours   int64
}

// bind ties all used settings to c and r.
func bind(c *Config, r *raw) *binder {
	b := new(binder)
	bindNode(b, c, r)
	bindLog(b, c, r)
	bindRequests(b, c)
	bindGroups(b, c)
	bindMirrors(b, c)
	return b
}

func bindNode(b *binder, c *Config, r *raw) {
	num(b, "node.id", &r.nodeID, 1, 0, maxInt32)
	num(b, "broker.id", &r.brokerID, -1, -1, maxInt32)
	list(b, "process.roles", &r.roles, "broker,controller", "broker", "controller")
	text(b, "broker.rack", &c.Rack, "")
	text(b, "cluster.id", &c.ClusterID, "")
	list(b, "controller.quorum.voters", &r.voters, "")
	list(b, "controller.quorum.bootstrap.servers", &r.bootstrap, "")
	num(b, "broker.heartbeat.interval.ms", &c.HeartbeatIntervalMs, 2000, 1, maxInt32)
	num(b, "broker.session.timeout.ms", &c.SessionTimeoutMs, 9000, 1, maxInt32)
	list(b, "listeners", &r.listeners, "PLAINTEXT://:9092")
	list(b, "advertised.listeners", &r.advertised, "")
	list(b, "listener.security.protocol.map", &r.protocolMap, "")
	text(b, "inter.broker.listener.name", &c.InterBrokerListener, "")
	list(b, "controller.listener.names", &c.ControllerListeners, "")
	text(b, "authorizer.class.name", &c.AuthorizerClass, "")
	text(b, "super.users", &c.SuperUsers, "")
	flag(b, "allow.everyone.if.no.acl.found", &c.AllowEveryone, false)
	oneOf(b, "lockstep.io.engine", &c.IOEngine, "auto", "auto", "io_uring", "portable")
	num(b, "lockstep.io.reactors", &c.IOReactors, 0, 0, 1024)
	text(b, "lockstep.admin.listener", &c.AdminListener, "127.0.0.1:9644")
	for kind, p := range c.plugins() {
		text(b, "lockstep.plugin."+kind+".path", &p.Path, "")
		text(b, "lockstep.plugin."+kind+".sha256", &p.SHA256, "")
	}
}

func bindLog(b *binder, c *Config, r *raw) {
	list(b, "log.dirs", &c.LogDirs, "")
	list(b, "log.dir", &r.logDir, "/tmp/kafka-logs")
	num(b, "log.segment.bytes", &c.SegmentBytes, 1<<30, 1<<20, maxInt32)
	num(b, "log.roll.ms", &c.RollMs, 0, 1, maxInt64)
	num(b, "log.roll.hours", &r.rollHours, 168, 1, maxInt32)
	num(b, "log.roll.jitter.ms", &c.RollJitterMs, 0, 0, maxInt64)
	num(b, "log.roll.jitter.hours", &r.rollJitterHours, 0, 0, maxInt32)
	num(b, "log.retention.ms", &c.RetentionMs, 0, -1, maxInt64)
	num(b, "log.retention.minutes", &r.retentionMinutes, 0, -1, maxInt32)
	num(b, "log.retention.hours", &r.retentionHours, 168, -1, maxInt32)
	num(b, "log.retention.bytes", &c.RetentionBytes, -1, -1, maxInt64)
	num(b, "log.retention.check.interval.ms", &c.RetentionCheckMs, 300_000, 1, maxInt64)
	num(b, "log.index.interval.bytes", &c.IndexIntervalBytes, 4096, 0, maxInt32)
	num(b, "log.index.size.max.bytes", &c.IndexMaxBytes, 10<<20, 4, maxInt32)
	num(b, "log.flush.interval.messages", &c.FlushMessages, maxInt64, 1, maxInt64)
	num(b, "log.flush.interval.ms", &c.FlushMs, maxInt64, 0, maxInt64)
	num(b, "log.segment.delete.delay.ms", &c.DeleteDelayMs, 60_000, 0, maxInt64)
	list(b, "log.cleanup.policy", &c.CleanupPolicy, "delete", "compact", "delete")
	flag(b, "log.cleaner.enable", &c.CleanerEnable, true)
	num(b, "log.cleaner.backoff.ms", &c.CleanerBackoffMs, 15_000, 1, maxInt32)
	num(b, "log.cleaner.delete.retention.ms", &c.CleanerDeleteMs, 86_400_000, 0, maxInt64)
	number(b, "log.cleaner.min.cleanable.ratio", &c.CleanerMinDirtyRatio, 0.5, 0, 1)
	num(b, "log.cleaner.min.compaction.lag.ms", &c.CleanerMinLagMs, 0, 0, maxInt64)
	num(b, "log.cleaner.max.compaction.lag.ms", &c.CleanerMaxLagMs, maxInt64, 1, maxInt64)
	oneOf(b, "compression.type", &c.CompressionType, "producer", compressionTypes...)
	num(b, "message.max.bytes", &c.MessageMaxBytes, 1048588, 0, maxInt32)
	oneOf(b, "log.message.timestamp.type", &c.TimestampType, "CreateTime", "CreateTime", "LogAppendTime")
	num(b, "log.message.timestamp.before.max.ms", &c.TimestampBeforeMaxMs, maxInt64, 0, maxInt64)
	num(b, "log.message.timestamp.after.max.ms", &c.TimestampAfterMaxMs, 3_600_000, 0, maxInt64)
	num(b, "producer.id.expiration.ms", &c.ProducerExpirationMs, 86_400_000, 1, maxInt32)
	flag(b, "log.preallocate", &c.Preallocate, false)
	oneOf(b, "lockstep.flush.ack", &c.FlushAck, FlushAppended, FlushAppended, FlushDurable)
	flag(b, "unclean.leader.election.enable", &c.UncleanLeaderElection, false)
	num(b, "min.insync.replicas", &c.MinInsyncReplicas, 1, 1, maxInt32)
	num(b, "num.partitions", &c.NumPartitions, 1, 1, maxInt32)
	num(b, "default.replication.factor", &c.DefaultReplication, 1, 1, 32767)
	flag(b, "auto.create.topics.enable", &c.AutoCreateTopics, true)
	flag(b, "delete.topic.enable", &c.DeleteTopics, true)
}

func bindRequests(b *binder, c *Config) {
	num(b, "replica.lag.time.max.ms", &c.ReplicaLagTimeMaxMs, 30_000, 1, maxInt64)
	num(b, "replica.fetch.wait.max.ms", &c.ReplicaFetchWaitMaxMs, 500, 0, maxInt32)
	num(b, "replica.fetch.min.bytes", &c.ReplicaFetchMinBytes, 1, 0, maxInt32)
	num(b, "replica.fetch.max.bytes", &c.ReplicaFetchMaxBytes, 1<<20, 0, maxInt32)
	num(b, "replica.fetch.response.max.bytes", &c.ReplicaFetchResponseBytes, 10<<20, 0, maxInt32)
	num(b, "replica.fetch.backoff.ms", &c.ReplicaFetchBackoffMs, 1000, 0, maxInt32)
	num(b, "num.replica.fetchers", &c.NumReplicaFetchers, 1, 1, 1024)
	num(b, "socket.request.max.bytes", &c.RequestMaxBytes, 100<<20, 1, maxRequest)
	num(b, "fetch.max.bytes", &c.FetchMaxBytes, 55<<20, 1024, maxInt32)
	num(b, "queued.max.requests", &c.QueuedMaxRequests, 500, 1, maxInt32)
	num(b, "queued.max.request.bytes", &c.QueuedMaxBytes, -1, -1, maxInt64)
	num(b, "connections.max.idle.ms", &c.ConnectionsIdleMs, 600_000, -1, maxInt64)
	num(b, "max.connections", &c.MaxConnections, maxInt32, 1, maxInt32)
	num(b, "request.timeout.ms", &c.RequestTimeoutMs, 30_000, 1, maxInt32)
	flag(b, "unstable.api.versions.enable", &c.UnstableAPIs, true)
}

func bindGroups(b *binder, c *Config) {
	num(b, "offsets.topic.num.partitions", &c.OffsetsPartitions, 50, 1, maxInt32)
	num(b, "offsets.topic.replication.factor", &c.OffsetsReplication, 3, 1, 32767)
	num(b, "offsets.topic.segment.bytes", &c.OffsetsSegmentBytes, 100<<20, 1, maxInt32)
	num(b, "offsets.retention.minutes", &c.OffsetsRetentionMinutes, 10_080, 1, maxInt32)
	num(b, "offset.metadata.max.bytes", &c.OffsetMetadataMaxBytes, 4096, 0, maxInt32)
	num(b, "group.min.session.timeout.ms", &c.GroupMinSessionMs, 6000, 1, maxInt32)
	num(b, "group.max.session.timeout.ms", &c.GroupMaxSessionMs, 1_800_000, 1, maxInt32)
	num(b, "group.initial.rebalance.delay.ms", &c.GroupInitialDelayMs, 3000, 0, maxInt32)
	num(b, "group.max.size", &c.GroupMaxSize, maxInt32, 1, maxInt32)
	num(b, "transaction.state.log.num.partitions", &c.TransactionPartitions, 50, 1, maxInt32)
	num(b, "transaction.state.log.replication.factor", &c.TransactionReplication, 3, 1, 32767)
	num(b, "transaction.state.log.min.isr", &c.TransactionMinISR, 2, 1, maxInt32)
	num(b, "transaction.state.log.segment.bytes", &c.TransactionSegmentBytes, 100<<20, 1<<20, maxInt32)
	num(b, "transaction.max.timeout.ms", &c.TransactionMaxTimeoutMs, 900_000, 1, maxInt32)
	num(b, "transactional.id.expiration.ms", &c.TransactionalIDExpirationMs, 604_800_000, 1, maxInt32)
}

func bindMirrors(b *binder, c *Config) {
	num(b, "mirror.state.topic.num.partitions", &c.MirrorStatePartitions, 50, 1, maxInt32)
	num(b, "mirror.state.topic.replication.factor", &c.MirrorStateReplication, 3, 1, 32767)
	num(b, "mirror.num.replica.fetchers", &c.MirrorFetchers, 1, 1, 1024)
	num(b, "mirror.metadata.refresh.interval.ms", &c.MirrorRefreshMs, 60_000, 1, maxInt64)
	num(b, "mirror.failed.retry.initial.backoff.ms", &c.MirrorRetryInitialMs, 1000, 1, maxInt64)
	num(b, "mirror.failed.retry.max.backoff.ms", &c.MirrorRetryMaxMs, 300_000, 1, maxInt64)
	num(b, "mirror.failed.retry.max.attempts", &c.MirrorRetryMaxAttempts, 100, 0, 32767)
	text(b, "mirror.admin.listener.name", &c.MirrorAdminListener, "")
	text(b, "sasl.mechanism.mirror.admin.protocol", &c.MirrorAdminMechanism, "")
	num(b, "mirror.replication.throttled.rate", &c.MirrorThrottledRate, maxInt64, 0, maxInt64)
	num(b, "mirror.coordinator.threads", &c.MirrorCoordinatorThreads, 1, 1, 1024)
	num(b, "mirror.coordinator.write.timeout.ms", &c.MirrorWriteTimeoutMs, 5000, 1, maxInt32)
	num(b, "mirror.coordinator.append.linger.ms", &c.MirrorAppendLingerMs, 10, 0, maxInt32)
	num(b, "mirror.coordinator.load.buffer.size", &c.MirrorLoadBufferBytes, 5<<20, 1, maxInt32)
	num(b, "mirror.sync.topic.demote.timeout.ms", &c.MirrorDemoteTimeoutMs, 30_000, 1, maxInt64)
	num(b, "lockstep.mirror.fetches", &c.MirrorFetches, 63, 1, 63)
	num(b, "lockstep.mirror.register.barrier.ms", &c.MirrorRegisterBarrierMs, 10_000, 0, maxInt64)
	num(b, "lockstep.mirror.auto.release.ms", &c.MirrorAutoReleaseMs, 0, 0, maxInt64)
}
