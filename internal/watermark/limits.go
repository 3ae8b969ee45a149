package watermark

// MaxReplicas bounds the replicas, ISR members and min.insync.replicas that a
// mirror's report may name for one partition; more is refused as absurd.
const MaxReplicas = 128

// MaxShards is the number of shards one interest mask can name.
const MaxShards = 64
