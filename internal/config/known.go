package config

import (
	"slices"
	"strings"
)

// isSecurity tells whether a setting is kept in Config.Security as it is.
func isSecurity(name string) bool {
	return strings.HasPrefix(name, "listener.name.") || slices.Contains(securityNames, name)
}

// isUnused tells whether Kafka knows a setting that has no effect here.
func isUnused(name string) bool { return slices.Contains(unusedNames, name) }

var securityNames = []string{
	"connections.max.reauth.ms", "principal.builder.class", "sasl.client.callback.handler.class", "sasl.enabled.mechanisms", "sasl.jaas.config",
	"sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name",
	"sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor", "sasl.login.callback.handler.class", "sasl.login.class",
	"sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
	"sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
	"sasl.mechanism.controller.protocol", "sasl.mechanism.inter.broker.protocol", "sasl.oauthbearer.clock.skew.seconds",
	"sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
	"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
	"sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url", "sasl.server.callback.handler.class",
	"sasl.server.max.receive.size", "security.inter.broker.protocol", "security.providers", "ssl.allow.dn.changes", "ssl.allow.san.changes",
	"ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.key.password",
	"ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
	"ssl.principal.mapping.rules", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
	"ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
}

var unusedNames = []string{
	"add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms", "alter.config.policy.class.name",
	"alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds", "auto.include.jmx.reporter",
	"auto.leader.rebalance.enable", "background.threads", "broker.id.generation.enable", "client.quota.callback.class", "compression.gzip.level",
	"compression.lz4.level", "compression.zstd.level", "config.providers", "connection.failed.authentication.delay.ms", "control.plane.listener.name",
	"controlled.shutdown.enable", "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms", "controller.quorum.append.linger.ms",
	"controller.quorum.auto.join.enable", "controller.quorum.election.backoff.max.ms", "controller.quorum.election.timeout.ms",
	"controller.quorum.fetch.timeout.ms", "controller.quorum.request.timeout.ms", "controller.quorum.retry.backoff.ms", "controller.quota.window.num",
	"controller.quota.window.size.seconds", "controller.socket.timeout.ms", "create.topic.policy.class.name", "delegation.token.expiry.check.interval.ms",
	"delegation.token.expiry.time.ms", "delegation.token.max.lifetime.ms", "delegation.token.secret.key", "early.start.listeners",
	"fetch.purgatory.purge.interval.requests", "group.consumer.assignors", "group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms",
	"group.consumer.max.session.timeout.ms", "group.consumer.max.size", "group.consumer.migration.policy", "group.consumer.min.heartbeat.interval.ms",
	"group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms", "group.coordinator.append.linger.ms",
	"group.coordinator.rebalance.protocols", "group.coordinator.threads", "group.share.delivery.count.limit", "group.share.enable",
	"group.share.heartbeat.interval.ms", "group.share.max.groups", "group.share.max.record.lock.duration.ms", "group.share.max.size",
	"group.share.partition.max.record.locks", "group.share.record.lock.duration.ms", "group.share.session.timeout.ms", "initial.broker.registration.timeout.ms",
	"inter.broker.protocol.version", "kafka.metrics.polling.interval.secs", "kafka.metrics.reporters", "leader.imbalance.check.interval.seconds",
	"leader.imbalance.per.broker.percentage", "log.cleaner.dedupe.buffer.size",
	"log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second", "log.cleaner.threads",
	"log.dir.failure.timeout.ms", "log.flush.offset.checkpoint.interval.ms", "log.flush.scheduler.interval.ms",
	"log.flush.start.offset.checkpoint.interval.ms", "log.initial.task.delay.ms", "log.local.retention.bytes", "log.local.retention.ms",
	"log.message.downconversion.enable", "log.message.format.version", "log.message.timestamp.difference.max.ms", "max.connection.creation.rate",
	"max.connections.per.ip", "max.connections.per.ip.overrides", "max.incremental.fetch.session.cache.slots", "max.request.partition.size.limit", "metadata.log.dir",
	"metadata.log.max.record.bytes.between.snapshots", "metadata.log.max.snapshot.interval.ms", "metadata.log.segment.bytes", "metadata.log.segment.ms",
	"metadata.max.idle.interval.ms", "metadata.max.retention.bytes", "metadata.max.retention.ms", "metric.reporters", "metrics.num.samples",
	"metrics.recording.level", "metrics.sample.window.ms", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
	"num.replica.alter.log.dirs.threads", "offsets.commit.required.acks", "offsets.commit.timeout.ms", "offsets.load.buffer.size",
	"offsets.retention.check.interval.ms", "offsets.topic.compression.codec", "password.encoder.secret", "producer.id.expiration.check.interval.ms",
	"producer.purgatory.purge.interval.requests", "quota.window.num", "quota.window.size.seconds", "remote.fetch.max.wait.ms",
	"remote.log.index.file.cache.total.size.bytes", "remote.log.manager.task.interval.ms", "remote.log.manager.thread.pool.size",
	"remote.log.metadata.manager.class.name", "remote.log.metadata.manager.class.path", "remote.log.reader.max.pending.tasks", "remote.log.reader.threads",
	"remote.log.storage.manager.class.name", "remote.log.storage.manager.class.path", "remote.log.storage.system.enable",
	"replica.high.watermark.checkpoint.interval.ms", "replica.selector.class", "replica.socket.receive.buffer.bytes", "replica.socket.timeout.ms",
	"replication.quota.window.num", "replication.quota.window.size.seconds", "reserved.broker.max.id",
	"server.max.startup.time.ms", "share.coordinator.append.linger.ms", "share.coordinator.load.buffer.size", "share.coordinator.snapshot.update.records.per.snapshot",
	"share.coordinator.state.topic.compression.codec", "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.num.partitions",
	"share.coordinator.state.topic.prune.interval.ms", "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.segment.bytes",
	"share.coordinator.threads", "share.coordinator.write.timeout.ms", "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
	"socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "telemetry.max.bytes",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms", "transaction.partition.verification.enable",
	"transaction.remove.expired.transaction.cleanup.interval.ms", "transaction.state.log.load.buffer.size", "transaction.two.phase.commit.enable",
	"unclean.leader.election.interval.ms", "unstable.feature.versions.enable", "zookeeper.connect", "zookeeper.connection.timeout.ms",
	"zookeeper.session.timeout.ms",
}
