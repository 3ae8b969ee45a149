// Package msg has the messages Kafka does not have: the mirror requests and
// responses, the records of the metadata log and the mirror records. All but
// this file is generated from schema/*.json by internal/msg/gen; see there for
// the form of a schema and of what comes out.
//
//	schema/X.json ──gen──► x.gen.go ──► AppendTo / ReadFrom ──► wire
//
// Owner thread: none; a message belongs to whoever holds it. Laws:
//
//   - ReadFrom(AppendTo(m)) is m for every version that has all set fields.
//   - ReadFrom never panics and never reserves memory that the bytes given
//     could not fill.
//   - Byte fields and unknown tags alias what ReadFrom was given.
package msg

//go:generate go run ./gen schema .
