// Package config reads server.properties and knows the configurations of
// brokers, topics and mirrors: their names, defaults, ranges and what each is for.
//
//	text, overrides ──Load──► Config, Warnings, error
//	                            │ NewTopic: defaults of every topic
//	                            ▼
//	              Topic.Set(name, value) … one by one, as ConfigRecords come
//
// A name of a broker setting is of one of three classes: known and used; known
// to Kafka but without meaning here (one warning each); unknown (an error with
// its line and the nearest known name). Names and defaults are Kafka's where
// Kafka has the thing; ours begin with lockstep.
//
// Owner thread: none; values belong to whoever holds them. Laws:
//
//   - Kafka's stock server.properties loads without an error.
//   - A Config, Topic or Mirror holds only values inside their ranges; a
//     setter that refuses changes nothing.
//   - Secrets appear in no error and no warning.
package config
