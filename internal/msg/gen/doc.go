// Command gen turns Kafka-format message schemas into Go codecs.
//
//	go run ./internal/msg/gen internal/msg/schema internal/msg
//
// reads every *.json in the first directory (one message a file, // comments
// allowed) and writes <name>.gen.go for each, plus messages.gen.go, into the
// second; generated files whose schema is gone are removed. Nothing is written
// when any schema is faulty. The Go package is named after the second directory.
//
// # A schema
//
//	{
//	  "apiKey": 31,                     // number on the wire or in the log
//	  "type": "metadata",               // request, response, metadata,
//	                                    // coordinator-key, coordinator-value,
//	                                    // data (no API key)
//	  "name": "MirrorTopicTypeChangeRecord",
//	  "validVersions": "0",             // "0", "0-3"
//	  "flexibleVersions": "0+",         // "none", "0+"
//	  "fields": [
//	    { "name": "TopicId", "type": "uuid", "versions": "0+", "about": "why it is there" },
//	    { "name": "Note", "type": "string", "versions": "0+", "nullableVersions": "0+",
//	      "taggedVersions": "0+", "tag": 0, "default": "null", "ignorable": true },
//	    { "name": "Partitions", "type": "[]Partition", "versions": "0+", "fields": [ … ] }
//	  ]
//	}
//
// Types: bool int8 int16 uint16 int32 uint32 int64 float64 uuid string bytes
// records, a struct (with "fields", or named in "commonStructs"), and arrays of
// them. An unknown property, an unknown type or a name used twice is an error.
//
// # What comes out
//
// A struct per message and nested struct (prefixed by the message's name) with
// Default, and for the message AppendTo(b) []byte, ReadFrom(b) error, APIKey,
// MinVersion, MaxVersion, IsFlexible, SetVersion, GetVersion. AppendTo and
// ReadFrom use the field Version, which a caller sets first; a message is the
// body only, so prefixes of the log (frame, key, version) are the caller's.
// A root field that is itself called Version becomes FieldVersion in Go.
//
// Nullable strings are *string, nullable structs are pointers, null arrays and
// bytes are nil. Bytes, records and unknown tags alias the input of ReadFrom,
// strings are copies. Unknown tags are kept and written back. ReadFrom refuses
// truncated input, trailing bytes, null where it is not allowed, more than
// wire.MaxTags tags, and counts that cannot fit into the bytes left.
// "ignorable" is accepted and has no effect: a field the version lacks is not
// written.
//
// Per directory: type Message, All() with one of each, NewRequest(key),
// NewResponse(key) and NewMetadataRecord(key) (nil for an unknown key).
package main
