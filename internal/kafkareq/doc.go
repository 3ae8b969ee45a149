// Package kafkareq sends this project's own messages through franz-go: it wraps
// a generated request and its response as what kgo.Client.Request takes.
package kafkareq
